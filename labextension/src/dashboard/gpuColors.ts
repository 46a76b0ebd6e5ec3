/** The colors of the theme as CSS values for the charts' canvases. */
export interface ChartColors {
  readonly gpus: readonly string[];
  readonly grid: string;
  readonly text: string;
  readonly font: string;
}

/** Number of distinct colors. Lines of further GPUs are dashed. */
const COLORS = 8;
const DASH = [5, 3];
const SVG = 'http://www.w3.org/2000/svg';

/** Read the colors from the computed style of `node`, on which the style sheet defines them. */
export function readChartColors(node: Element): ChartColors {
  const style = getComputedStyle(node);
  const value = (name: string): string => style.getPropertyValue(`--jp-gpuwidget-${name}`).trim();
  return {
    gpus: Array.from({ length: COLORS }, (_, color) => value(`gpu-${String(color)}`)),
    grid: value('grid'),
    text: value('quiet'),
    font: style.fontFamily
  };
}

/** Return the index of a GPU's color. `position` is the GPU's position in the driver's list. */
export function colorIndex(position: number): number {
  return position % COLORS;
}

/** Return the dash pattern of a GPU's lines; empty for a solid line. */
export function dashPattern(position: number): readonly number[] {
  return Math.floor(position / COLORS) % 2 === 0 ? [] : DASH;
}

/** Return a legend swatch: a short line in the color and dash pattern of a GPU. */
export function legendSwatch(position: number): SVGElement {
  const node = document.createElementNS(SVG, 'svg');
  node.setAttribute('class', 'jp-gpuwidget-dashboard-swatch');
  node.setAttribute('viewBox', '0 0 14 4');
  node.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('d', 'M0 2H14');
  line.style.stroke = `var(--jp-gpuwidget-gpu-${String(colorIndex(position))})`;
  line.style.strokeDasharray = dashPattern(position).join(' ');
  node.append(line);
  return node;
}
