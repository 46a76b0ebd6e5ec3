import type uPlot from 'uplot';

import type { Band } from '../model/cells/band';

/** The colors of bands as CSS values for a canvas. */
export interface BandColors {
  readonly band: string;
  readonly edge: string;
  readonly text: string;
}

/** The colors of the theme as CSS values for a canvas. */
export interface Palette extends BandColors {
  readonly utilization: string;
  readonly area: string;
  readonly memory: string;
}

const FONT_PX = 11;
/** In plots with less than this height in CSS pixels, the bands have no labels. */
const MIN_LABELED_HEIGHT = 30;
const LABEL_GAP = 3;

/**
 * Return a uPlot plugin that draws bands below the curves of a chart whose x axis is in epoch seconds.
 * `bands` is called for each drawing and returns the bands, sorted by start.
 *
 * uPlot's option `bands` is not used, since it fills the area between two series instead of a time range.
 */
export function bandsPlugin(bands: () => readonly Band[], colors: () => BandColors): uPlot.Plugin {
  return {
    hooks: {
      drawClear: plot => {
        draw(plot, bands(), colors);
      }
    }
  };
}

/** Return the innermost band at `time`, or null if there is none. */
export function bandAt(bands: readonly Band[], time: number): Band | null {
  let found: Band | null = null;
  for (const band of bands) {
    if (band.from <= time && time <= (band.until ?? Infinity)) {
      found = band;
    }
  }
  return found;
}

function draw(plot: uPlot, bands: readonly Band[], colors: () => BandColors): void {
  const { min, max } = plot.scales.x ?? {};
  if (bands.length === 0 || min === undefined || max === undefined) {
    return;
  }
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const right = bbox.left + bbox.width;
  const { band: fill, edge, text } = colors();
  const labels = bbox.height >= MIN_LABELED_HEIGHT * ratio;
  ctx.save();
  ctx.font = `${String(FONT_PX * ratio)}px ${getComputedStyle(plot.root).fontFamily}`;
  ctx.textAlign = 'left'; // Axes leave another alignment.
  ctx.textBaseline = 'top';
  let column = NaN;
  let labeled = -Infinity;
  for (const { from, until, label, isGap } of bands) {
    if (from > max || (until ?? max) < min) {
      continue;
    }
    const start = Math.max(bbox.left, Math.round(plot.valToPos(Math.max(from, min), 'x', true)));
    const end = Math.min(right, Math.round(plot.valToPos(Math.min(until ?? max, max), 'x', true)));
    if (start === column && end <= start + ratio) {
      continue; // Several short bands within one pixel are drawn only once.
    }
    column = start;
    if (!isGap) {
      ctx.fillStyle = fill;
      ctx.fillRect(start, bbox.top, Math.max(end - start, ratio), bbox.height);
    }
    if (from >= min && !isGap) {
      ctx.fillStyle = edge;
      ctx.fillRect(start, bbox.top, ratio, bbox.height);
    }
    const { width } = ctx.measureText(label);
    const left = Math.max(start + LABEL_GAP * ratio, labeled);
    if (labels && label !== '' && left + width + LABEL_GAP * ratio <= end) {
      ctx.fillStyle = text;
      const [x, y] = isGap ? [(start + end - width) / 2, bbox.height / 2] : [left, ratio];
      ctx.fillText(label, x, bbox.top + y);
      labeled = x + width + LABEL_GAP * ratio;
    }
  }
  ctx.restore();
}

/** Read the colors from the computed style of `node`, on which the style sheet defines them. */
export function readPalette(node: Element): Palette {
  const style = getComputedStyle(node);
  const color = (name: string): string => style.getPropertyValue(`--jp-gpuwidget-${name}`).trim();
  return {
    utilization: color('here'),
    area: color('area'),
    memory: color('memory'),
    band: color('band'),
    edge: color('edge'),
    text: color('quiet')
  };
}
