/** The theme's colours as the charts' canvases need them. */
export interface Colours {
  readonly gpus: readonly string[];
  readonly grid: string;
  readonly text: string;
  readonly font: string;
}

/** So many GPUs differ in colour; those after them are dashed as well. */
const HUES = 8;
const DASH = [5, 3];

/** Read them from the style of `node`, where CSS has put them. */
export function readColours(node: Element): Colours {
  const style = getComputedStyle(node);
  const value = (name: string): string => style.getPropertyValue(name).trim();
  return {
    gpus: Array.from({ length: HUES }, (_, hue) => value(`--jp-gpuwidget-gpu-${String(hue)}`)),
    grid: value('--jp-gpuwidget-grid'),
    text: value('--jp-gpuwidget-quiet'),
    font: style.fontFamily
  };
}

/** Which of the colours the GPU at this place in the driver's list has. */
export function hueOf(place: number): number {
  return place % HUES;
}

/** How its line is dashed; empty for a solid one. */
export function dashOf(place: number): readonly number[] {
  return Math.floor(place / HUES) % 2 === 0 ? [] : DASH;
}
