import { LabIcon } from '@jupyterlab/ui-components';

/** An icon of a graphics card in the colors of JupyterLab's icons. */
export const gpuIcon = new LabIcon({
  name: 'gpuwidget:gpu',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3 jp-icon-selectable" ' +
    'fill="#616161" d="M2 5h2v14H2zm4 1h16v10H6zm8 1.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zm0 2a1.5 1.5 0 1 1 0 3 1.5 ' +
    '1.5 0 0 1 0-3zM8 17h4v2H8zm6 0h5v2h-5z"/></svg>'
});

/** An icon of four charts. */
export const dashboardIcon = buttonIcon('dashboard', 'M3 3h8v8H3zm10 0h8v8h-8zM3 13h8v8H3zm10 0h8v8h-8z');

/** An icon of a cross. */
export const doctorIcon = buttonIcon('doctor', 'M9 3h6v6h6v6h-6v6H9v-6H3V9h6z');

/** Return an icon for a button in the panel's header. */
function buttonIcon(name: string, path: string): LabIcon {
  return new LabIcon({
    name: `gpuwidget:${name}`,
    svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" d="${path}"/></svg>`
  });
}
