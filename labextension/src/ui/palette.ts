/** The theme's colours as a canvas needs them. */
export interface Palette {
  readonly utilization: string;
  readonly area: string;
  readonly memory: string;
}

/** Read them from the style of `node`, where CSS has put JupyterLab's own variables. */
export function readPalette(node: Element): Palette {
  const style = getComputedStyle(node);
  const colour = (name: string): string => style.getPropertyValue(`--jp-gpuwidget-${name}`).trim();
  return { utilization: colour('here'), area: colour('area'), memory: colour('memory') };
}
