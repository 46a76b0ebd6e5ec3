/** A highlighted time range in a chart, such as the run of a cell. Times are in epoch seconds. */
export interface Band {
  readonly from: number;
  /** End of the range; null if it has not ended yet. */
  readonly until: number | null;
  /** The band's label, which is drawn if it fits. */
  readonly label: string;
  /** The text of the band's tooltip. */
  readonly title: string;
  /** Whether nothing was recorded in this range, of which only the label is drawn. */
  readonly isGap?: true;
}
