/** Seeded mutations of real messages, for tests of the code that reads them. */

import { strict as assert } from 'node:assert';

type Container = Record<string, unknown> | unknown[];

/** Return a generator of pseudorandom numbers from 0 to 1 (mulberry32): the same numbers for the same seed. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return one of several values. */
export function chosen<Value>(random: () => number, values: readonly Value[]): Value {
  const value = values[Math.floor(random() * values.length)];
  assert.ok(value !== undefined);
  return value;
}

/** Values of types and sizes that no field has. */
const STRANGE: readonly (() => unknown)[] = [
  () => null,
  () => true,
  () => '',
  () => 'nan',
  () => '17',
  () => '__proto__',
  () => '<img src=x onerror=alert(1)>',
  () => '\u202egnp.exe\u0000\n',
  () => 'x'.repeat(100_000),
  () => -1,
  () => 0.5,
  () => 1e300,
  () => -1e300,
  () => 2 ** 53,
  () => [],
  () => ({}),
  () => [17],
  () => ({ length: 17, value: 17 }),
  () => Array.from({ length: 2000 }, (_, index) => index),
  () => JSON.parse(`${'['.repeat(500)}17${']'.repeat(500)}`) as unknown,
  () => JSON.parse('{"__proto__": {"polluted": 17}, "constructor": 17, "toString": 17}') as unknown
];

/** Return a copy of a message with one to three mutations. */
export function mutated(random: () => number, message: unknown): unknown {
  const copy = { message: structuredClone(message) };
  for (let left = 1 + Math.floor(random() * 3); left > 0; left--) {
    const [parent, key] = chosen(random, places(copy.message, copy, 'message'));
    change(random, parent, key);
  }
  return copy.message;
}

/** Return the text of a message. About 3% of the texts are not valid JSON. */
export function encoded(random: () => number, message: unknown): string {
  const text = JSON.stringify(message ?? null);
  const kind = random();
  return kind < 0.01 ? text.slice(0, -1) : kind < 0.03 ? text.replace(/:\d+(\.\d+)?/, ':NaN') : text;
}

/** Return every place in a value as its container and its key. */
function places(value: unknown, parent: Container, key: string): [Container, string][] {
  const inside =
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([name, each]) => places(each, value as Container, name))
      : [];
  return [[parent, key], ...inside];
}

function change(random: () => number, parent: Container, key: string): void {
  const at = Number(key);
  const kind = random();
  if (kind < 0.6) {
    Reflect.set(parent, key, chosen(random, STRANGE)());
  } else if (!Array.isArray(parent)) {
    const value: unknown = Reflect.get(parent, key);
    Reflect.deleteProperty(parent, key);
    if (kind > 0.9) {
      Reflect.set(parent, chosen(random, ['unknown', 'constructor', 'uuid', 'time']), value);
    }
  } else if (kind < 0.7) {
    parent.splice(at, 1);
  } else if (kind < 0.9) {
    parent.splice(at, 0, structuredClone(parent[at]));
  } else {
    parent.reverse();
  }
}

/**
 * Fail unless `parsed` contains only what `given` contains at the same place. What was not valid may be missing,
 * null or empty, and a long text may be cut.
 */
export function assertGiven(parsed: unknown, given: unknown, path = ''): void {
  // What is missing or invalid is read as nothing or as false.
  if (parsed === null || parsed === undefined || parsed === false) {
    return;
  }
  if (Array.isArray(parsed)) {
    let at = 0; // Invalid items are left out; the others keep their order.
    for (const item of parsed) {
      const rest = Array.isArray(given) ? given.slice(at) : [];
      const found = rest.findIndex(each => isGiven(item, each));
      assert.ok(found >= 0, `${path}: ${JSON.stringify(item).slice(0, 200)} was not sent`);
      at += found + 1;
    }
  } else if (typeof parsed === 'object') {
    for (const [name, value] of Object.entries(parsed)) {
      const source = typeof given === 'object' && given !== null ? given : {};
      const sent = Object.hasOwn(source, name) ? (Reflect.get(source, name) as unknown) : undefined;
      assertGiven(value, sent, `${path}.${name}`);
    }
  } else if (typeof parsed === 'string') {
    const isCut = parsed.endsWith('…') && typeof given === 'string' && given.startsWith(parsed.slice(0, -1));
    assert.ok(parsed === given || isCut, `${path}: ${parsed.slice(0, 200)}`);
  } else {
    assert.equal(parsed, given, path);
  }
}

function isGiven(parsed: unknown, given: unknown): boolean {
  try {
    assertGiven(parsed, given);
    return true;
  } catch {
    return false;
  }
}

/** Fail if a text contains a value of JavaScript that no user should see. */
export function assertReadable(...texts: readonly (string | undefined)[]): void {
  for (const text of texts) {
    assert.doesNotMatch(text ?? '', /NaN|Infinity|undefined|\[object |e\+\d/);
  }
}
