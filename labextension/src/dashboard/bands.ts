import type uPlot from 'uplot';

import type { Line } from './course';
import { runs } from './runs';

/** How strong the span from the lowest to the highest value is painted behind a line. */
const STRENGTH = 0.22;
const DOT = 2;

/**
 * Paint what lies between the lowest and the highest value of each step, so that a spike shows however coarse the steps
 * are; and a dot for a value without neighbours, which has no line.
 */
export function paintBand(
  u: uPlot,
  times: readonly number[],
  line: Line,
  colour: string,
  alpha: number
): void {
  const { ctx } = u;
  // Both scales are straight: two positions of each tell all, of which there are thousands.
  const [from, to, top] = [u.scales.x?.min ?? 0, u.scales.x?.max ?? 1, u.scales.y?.max ?? 1];
  const left = u.valToPos(from, 'x', true);
  const across = (u.valToPos(to, 'x', true) - left) / (to - from);
  const bottom = u.valToPos(0, 'y', true);
  const up = (u.valToPos(top, 'y', true) - bottom) / top;
  const x = (row: number): number => left + across * ((times[row] ?? NaN) - from);
  const y = (values: readonly (number | null)[], row: number): number => bottom + up * (values[row] ?? NaN);
  const dot = DOT * devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
  ctx.clip();
  ctx.fillStyle = colour;
  for (const [first, end] of runs(line.mean)) {
    if (end - first === 1) {
      ctx.globalAlpha = alpha;
      const top = y(line.high, first);
      ctx.fillRect(x(first) - dot / 2, top - dot / 2, dot, y(line.low, first) - top + dot);
    } else if (line.spread) {
      ctx.globalAlpha = STRENGTH * alpha;
      ctx.beginPath();
      for (let row = first; row < end; row++) {
        ctx.lineTo(x(row), y(line.high, row));
      }
      for (let row = end - 1; row >= first; row--) {
        ctx.lineTo(x(row), y(line.low, row));
      }
      ctx.fill();
    }
  }
  ctx.restore();
}
