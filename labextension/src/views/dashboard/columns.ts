/** Minimum size of a chart in CSS pixels, including its caption. The style sheet has the same height. */
const MIN_CHART_WIDTH = 340;
const MIN_CHART_HEIGHT = 149;
/** The width of a chart over its height that is easiest to read. */
const BEST_RATIO = 2.2;

/**
 * Return the number of columns in which the shape of the charts is best, for an area of this size in CSS pixels.
 * `counts` are the numbers of charts in each section.
 */
export function columnsFor(counts: readonly number[], width: number, height: number): number {
  let [best, least] = [1, Infinity];
  for (
    let columns = 1;
    columns <= Math.min(Math.max(...counts), Math.floor(width / MIN_CHART_WIDTH));
    columns++
  ) {
    const rows = counts.reduce((sum, count) => sum + Math.ceil(count / columns), 0);
    const chartHeight = Math.max(MIN_CHART_HEIGHT, height / rows);
    const deviation = Math.abs(Math.log(width / columns / chartHeight / BEST_RATIO));
    if (deviation < least) {
      [best, least] = [columns, deviation];
    }
  }
  return best;
}
