import type { BandColours } from './bands';

/** The theme's colours as a canvas needs them. */
export interface Palette extends BandColours {
  readonly utilization: string;
  readonly area: string;
  readonly memory: string;
}

/** Read them from the style of `node`, where CSS has put JupyterLab's own variables. */
export function readPalette(node: Element): Palette {
  const style = getComputedStyle(node);
  const colour = (name: string): string => style.getPropertyValue(`--jp-gpuwidget-${name}`).trim();
  return {
    utilization: colour('here'),
    area: colour('area'),
    memory: colour('memory'),
    band: colour('band'),
    edge: colour('edge'),
    text: colour('quiet')
  };
}
