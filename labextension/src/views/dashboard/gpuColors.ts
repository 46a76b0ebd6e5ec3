import type { BandColors } from '../../ui/chartBands';

/** The colors of the theme as CSS values for the charts' canvases. */
export interface ChartColors extends BandColors {
  readonly gpus: readonly string[];
  /** The color of a heat map's highest value. */
  readonly heat: string;
  readonly grid: string;
  readonly background: string;
  readonly font: string;
}

/** Number of distinct colors. No more are distinct with every kind of color vision. */
const COLORS = 8;
/** The dash patterns in CSS pixels. Each is used for as many GPUs as there are colors. */
const DASHES: readonly (readonly number[])[] = [[], [6, 3], [2, 2], [8, 2, 2, 2]];
const SVG = 'http://www.w3.org/2000/svg';

/** Read the colors from the computed style of `node`, on which the style sheet defines them. */
export function readChartColors(node: Element): ChartColors {
  const style = getComputedStyle(node);
  const value = (name: string): string => style.getPropertyValue(`--jp-gpuwidget-${name}`).trim();
  return {
    gpus: Array.from({ length: COLORS }, (_, color) => value(`gpu-${String(color)}`)),
    heat: value('here'),
    grid: value('grid'),
    background: style.getPropertyValue('--jp-layout-color1'),
    text: value('quiet'),
    band: value('band'),
    edge: value('edge'),
    font: style.fontFamily
  };
}

/** The position of the line with the mean over the GPUs, which has the color of the text. */
export const MEAN_POSITION = -1;

/** Return the index of a GPU's color. `position` is the GPU's position in the driver's list. */
export function colorIndex(position: number): number {
  return position % COLORS;
}

/** Return the dash pattern of a line; empty for a solid line, as that of the mean. */
export function dashPattern(position: number): readonly number[] {
  return DASHES[Math.floor(position / COLORS) % DASHES.length] ?? [];
}

/** Return the color of a GPU, or of the mean, as a CSS value for an element of the dashboard. */
export function cssColor(position: number): string {
  return `var(--jp-gpuwidget-${position === MEAN_POSITION ? 'quiet' : `gpu-${String(colorIndex(position))}`})`;
}

/** Return a legend swatch: a short line in the color and dash pattern of a GPU, or of the mean. */
export function legendSwatch(position: number): SVGElement {
  const node = document.createElementNS(SVG, 'svg');
  node.setAttribute('class', 'jp-gpuwidget-dashboard-swatch');
  node.setAttribute('viewBox', '0 0 20 4');
  node.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'path');
  line.setAttribute('d', 'M0 2H20');
  line.style.stroke = cssColor(position);
  line.style.strokeDasharray = dashPattern(position).join(' ');
  node.append(line);
  return node;
}
