/** Minimum size of a chart in CSS pixels, including its caption. The style sheet has the same height. */
const MIN_CHART_WIDTH = 340;
const MIN_CHART_HEIGHT = 146;
/** The width of a chart over its height that is easiest to read. */
const BEST_RATIO = 2.2;

/**
 * Return the number of columns in which the shape of `count` charts is best, for an area of this size in CSS
 * pixels.
 */
export function columnsFor(count: number, width: number, height: number): number {
  let [best, least] = [1, Infinity];
  for (let columns = 1; columns <= Math.min(count, Math.floor(width / MIN_CHART_WIDTH)); columns++) {
    const chartHeight = Math.max(MIN_CHART_HEIGHT, height / Math.ceil(count / columns));
    const deviation = Math.abs(Math.log(width / columns / chartHeight / BEST_RATIO));
    if (deviation < least) {
      [best, least] = [columns, deviation];
    }
  }
  return best;
}
