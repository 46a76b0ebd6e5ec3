/** Labels that would cover each other stand together, in the place of the first with room. */
export interface Placed {
  readonly y: number;
  readonly members: readonly number[];
}

/** Which labels of these heights stand where, `apart` pixels from each other at least, between `top` and `bottom`. */
export function place(heights: readonly number[], apart: number, top: number, bottom: number): Placed[] {
  const order = heights
    .map((_, member) => member)
    .sort((a, b) => (heights[a] ?? 0) - (heights[b] ?? 0) || a - b);
  const placed: { y: number; members: number[] }[] = [];
  for (const member of order) {
    const y = Math.min(Math.max(heights[member] ?? 0, top), bottom);
    const before = placed.at(-1);
    if (before !== undefined && y - before.y < apart) {
      before.members.push(member);
    } else {
      placed.push({ y, members: [member] });
    }
  }
  return placed;
}

/** Numbers in few characters: the first ones, and how many more there are. */
export function shortened(names: readonly string[], most: number): string {
  const sorted = [...names].sort((a, b) => Number(a) - Number(b));
  if (sorted.length <= most) {
    return sorted.join(' ');
  }
  return `${sorted.slice(0, most - 1).join(' ')} +${String(sorted.length - most + 1)}`;
}
