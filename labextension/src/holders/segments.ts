import type { MemoryShares } from '../stream/streamModel';
import type { Holder } from './holders';

/** A piece of a memory bar. */
export interface Segment {
  readonly who: 'here' | 'other' | 'unknown';
  /** Bytes. */
  readonly memory: number;
}

/** So many others are told apart; smaller ones would be nothing but gaps. */
const MOST = 5;

/**
 * What is used of a GPU in pieces: this notebook first, then the first of `holders`, then their rest in one, then what belongs to none of them. In
 * all never more than is used: what each holds was asked at another moment.
 */
export function segments({ here, used }: MemoryShares, holders: readonly Holder[]): Segment[] {
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
  const others = holders.filter(holder => !holder.here && holder.kind !== 'unattributed');
  for (const { memory } of others.slice(0, MOST)) {
    add('other', memory);
  }
  add(
    'other',
    others.slice(MOST).reduce((sum, { memory }) => sum + (memory ?? 0), 0)
  );
  add(holders.length > 0 ? 'unknown' : 'other', left);
  return pieces;
}
