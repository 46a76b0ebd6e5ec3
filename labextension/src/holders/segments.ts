import type { Shares } from '../stream/model';
import type { Holder } from './holders';

/** A piece of a memory bar. */
export interface Segment {
  readonly who: 'here' | 'other' | 'unknown';
  /** Bytes. */
  readonly memory: number;
}

/**
 * What is used of a GPU in pieces: this notebook first, then each of `holders`, then what belongs to none of them. In
 * all never more than is used: what each holds was asked at another moment.
 */
export function segments({ here, used }: Shares, holders: readonly Holder[]): Segment[] {
  const pieces: Segment[] = [];
  let left = used ?? 0;
  const add = (who: Segment['who'], memory: number | null): void => {
    const piece = Math.min(memory ?? 0, left);
    if (piece > 0) {
      pieces.push({ who, memory: piece });
      left -= piece;
    }
  };
  // Of this notebook torch may say something where the driver does not.
  add('here', here ?? holders.find(holder => holder.here)?.memory ?? null);
  for (const { memory } of holders.filter(holder => !holder.here && holder.kind !== 'unattributed')) {
    add('other', memory);
  }
  add(holders.length > 0 ? 'unknown' : 'other', left);
  return pieces;
}
