/** The runs of known values: first and end of each. */
export function runs(values: readonly (number | null)[]): (readonly [number, number])[] {
  const found: [number, number][] = [];
  let first = -1;
  for (let row = 0; row <= values.length; row++) {
    const known = (values[row] ?? null) !== null;
    if (known && first < 0) {
      first = row;
    } else if (!known && first >= 0) {
      found.push([first, row]);
      first = -1;
    }
  }
  return found;
}
