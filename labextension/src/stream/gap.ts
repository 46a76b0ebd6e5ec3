/** Shorter than this is no gap, however often samples come: a page that is at work lets some pass. */
const SHORTEST_S = 10;
const INTERVALS = 4;

/** Whether so much lies between two samples that nobody knows what was between them; `interval` is the usual. */
export function isGap(before: number, now: number, interval: number): boolean {
  return now < before || now - before > Math.max(SHORTEST_S, INTERVALS * interval);
}
