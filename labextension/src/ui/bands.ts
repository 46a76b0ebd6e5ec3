import type uPlot from 'uplot';

/** A stretch of time on a chart. Epoch seconds. */
export interface Band {
  readonly from: number;
  /** null while it goes on. */
  readonly until: number | null;
  /** Shown where there is room. */
  readonly label: string;
  /** What it is, in words. */
  readonly title: string;
}

/** The colours of bands, as a canvas needs them. */
export interface BandColours {
  readonly band: string;
  readonly edge: string;
  readonly text: string;
}

const FONT_PX = 9;
const LEAST_LABEL_HEIGHT = 30;
const LABEL_GAP = 3;

/**
 * Draw `bands` into the plot, below its curves: a uPlot plugin for any chart whose x is epoch seconds. `bands` are asked
 * for at each drawing, sorted by their start.
 */
export function bandsPlugin(bands: () => readonly Band[], colours: () => BandColours): uPlot.Plugin {
  return {
    hooks: {
      drawClear: plot => {
        draw(plot, bands(), colours);
      }
    }
  };
}

/** The innermost band at `time`; null where there is none. */
export function bandAt(bands: readonly Band[], time: number): Band | null {
  let found: Band | null = null;
  for (const band of bands) {
    if (band.from <= time && time <= (band.until ?? Infinity)) {
      found = band;
    }
  }
  return found;
}

function draw(plot: uPlot, bands: readonly Band[], colours: () => BandColours): void {
  const { min, max } = plot.scales.x ?? {};
  if (bands.length === 0 || min === undefined || max === undefined) {
    return;
  }
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const right = bbox.left + bbox.width;
  const { band: fill, edge, text } = colours();
  const labels = bbox.height >= LEAST_LABEL_HEIGHT * ratio;
  ctx.save();
  ctx.font = `${String(FONT_PX * ratio)}px ${getComputedStyle(plot.root).fontFamily}`;
  ctx.textBaseline = 'top';
  let column = NaN;
  let labelled = -Infinity;
  for (const { from, until, label } of bands) {
    if (from > max || (until ?? max) < min) {
      continue;
    }
    const start = Math.max(bbox.left, Math.round(plot.valToPos(Math.max(from, min), 'x', true)));
    const end = Math.min(right, Math.round(plot.valToPos(Math.min(until ?? max, max), 'x', true)));
    if (start === column && end <= start + ratio) {
      continue; // Many short ones in one pixel are one mark.
    }
    column = start;
    ctx.fillStyle = fill;
    ctx.fillRect(start, bbox.top, Math.max(end - start, ratio), bbox.height);
    if (from >= min) {
      ctx.fillStyle = edge;
      ctx.fillRect(start, bbox.top, ratio, bbox.height);
    }
    const at = Math.max(start + LABEL_GAP * ratio, labelled);
    if (labels && label !== '' && at + ctx.measureText(label).width + LABEL_GAP * ratio <= end) {
      ctx.fillStyle = text;
      ctx.fillText(label, at, bbox.top + ratio);
      labelled = at + ctx.measureText(label).width + LABEL_GAP * ratio;
    }
  }
  ctx.restore();
}
