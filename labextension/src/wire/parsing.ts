/**
 * Parsers of JSON from a server or a kernel, which may have any shape: another version of gpuwidget, a proxy
 * or user code may have written it. The parsers of the messages, in wire.ts, consist of these.
 *
 * A number or an optional text of an unexpected type becomes null, which means unknown. What identifies an
 * object, such as a UUID, must be valid; otherwise the parser throws a `ShapeError`.
 */

/** Thrown by a parser if a value has an unexpected type. */
export class ShapeError extends Error {}

export type Parser<Value> = (value: unknown) => Value;

/** The parsers of an object's fields. */
type Fields<Value> = { readonly [Key in keyof Value]-?: Parser<Value[Key]> };

/** A longer list is no list of GPUs, processes or texts, and would block the page. */
const MAX_ITEMS = 1024;
/** A longer text is cut. */
const MAX_TEXT_LENGTH = 10_000;
/** The last time in epoch seconds that a JavaScript date can represent. */
const MAX_TIME = 8.64e12;

/** Return the result of `parser`; null if the value has an unexpected type. */
export function parsed<Value>(parser: Parser<Value>, value: unknown): Value | null {
  try {
    return parser(value);
  } catch (error) {
    if (error instanceof ShapeError) {
      return null;
    }
    throw error;
  }
}

/** Throw a `ShapeError` unless a value is valid. */
export function check(isValid: boolean): asserts isValid {
  if (!isValid) {
    throw new ShapeError();
  }
}

// -- objects ---------------------------------------------------------------------------------------------

export function record(value: unknown): Readonly<Record<string, unknown>> {
  check(typeof value === 'object' && value !== null && !Array.isArray(value));
  return value as Readonly<Record<string, unknown>>;
}

/** Return a parser for an object with these fields. The parser drops all other fields. */
export function object<Value>(fields: Fields<Value>): Parser<Value> & {
  /** Parses an object that may lack any of the fields. */
  readonly partial: Parser<Partial<Value>>;
} {
  const parsers = Object.entries<Parser<unknown>>(fields);
  const read = (value: unknown, mayLack: boolean): unknown => {
    const given = record(value);
    const found: Record<string, unknown> = {};
    for (const [name, parser] of parsers) {
      if (!mayLack || Object.hasOwn(given, name)) {
        found[name] = parser(given[name]);
      }
    }
    return found;
  };
  return Object.assign((value: unknown) => read(value, false) as Value, {
    partial: (value: unknown) => read(value, true) as Partial<Value>
  });
}

/** Return a parser for an object whose field `name` has the name of its parser. */
export function union<Value>(name: string, parsers: Readonly<Record<string, Parser<Value>>>): Parser<Value> {
  const options = new Map<unknown, Parser<Value>>(Object.entries(parsers));
  return value => {
    const parser = options.get(record(value)[name]);
    check(parser !== undefined);
    return parser(value);
  };
}

/** Return a parser for an object with any names, whose values `parser` accepts. */
export function dictionary<Value>(parser: Parser<Value>): Parser<Readonly<Record<string, Value>>> {
  return value => {
    const entries = Object.entries(record(value));
    check(entries.length <= MAX_ITEMS);
    return Object.fromEntries(entries.map(([name, each]) => [name, parser(each)]));
  };
}

/** Return texts by name; none if the value has an unexpected type. */
export const texts = orElse(dictionary(text), {});

// -- lists -----------------------------------------------------------------------------------------------

export function list<Value>(parser: Parser<Value>, maxLength = MAX_ITEMS): Parser<readonly Value[]> {
  return value => {
    check(Array.isArray(value) && value.length <= maxLength);
    return (value as unknown[]).map(parser);
  };
}

/**
 * Return a parser for a list that leaves out the items that `parser` does not accept. The list is empty if the
 * value is no list.
 */
export function validItems<Value extends object | string>(parser: Parser<Value>): Parser<readonly Value[]> {
  const items = list(orNull(parser));
  return value => (parsed(items, value) ?? []).filter(item => item !== null);
}

/** Return a parser for the values of a time series, of any length. */
export function series<Value>(parser: Parser<Value>): Parser<readonly Value[]> {
  return list(parser, Infinity);
}

/** Return times in ascending order. */
export function times(value: unknown): readonly number[] {
  const found = series(time)(value);
  check(found.every((each, place) => each >= (found[place - 1] ?? -Infinity)));
  return found;
}

// -- unknown values --------------------------------------------------------------------------------------

/** Return a parser of a field whose null has a meaning other than unknown, so an invalid value must not become null. */
export function nullable<Value>(parser: Parser<Value>): Parser<Value | null> {
  return value => (value === null ? null : parser(value));
}

/** Return a parser that replaces a value of an unexpected type by null. */
export function orNull<Value>(parser: Parser<Value>): Parser<Value | null> {
  return value => parsed(parser, value);
}

/** Return a parser that replaces a value of an unexpected type by `other`. */
export function orElse<Value>(parser: Parser<Value>, other: Value): Parser<Value> {
  return value => parsed(parser, value) ?? other;
}

/** Return a parser of a field that older versions of gpuwidget do not send. It is then `missing`. */
export function later<Value>(parser: Parser<Value>, missing: Value): Parser<Value> {
  return value => (value === undefined ? missing : parser(value));
}

/** Return a parser of a field that no view needs. It is always `instead`. */
export function unread<Value>(instead: Value): Parser<Value> {
  return () => instead;
}

/** Return a parser that throws a `ShapeError` if `parser` returns null. */
function known<Value>(parser: Parser<Value | null>): Parser<Value> {
  return value => {
    const found = parser(value);
    check(found !== null);
    return found;
  };
}

// -- single values ---------------------------------------------------------------------------------------

export function oneOf<const Value>(...values: readonly Value[]): Parser<Value> {
  return value => {
    const found = values.find(each => each === value);
    check(found !== undefined);
    return found;
  };
}

export function text(value: unknown): string {
  check(typeof value === 'string');
  return value.length > MAX_TEXT_LENGTH ? `${value.slice(0, MAX_TEXT_LENGTH)}…` : value;
}

/** Return the address of a web page. A link to any other address could run a script. */
export function webAddress(value: unknown): string {
  const found = text(value);
  check(/^https?:/i.test(found));
  return found;
}

export function flag(value: unknown): boolean {
  check(typeof value === 'boolean');
  return value;
}

/** Return a non-negative integer that JavaScript represents exactly; null for any other value. */
export function count(value: unknown): number | null {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : null;
}

/** Return a non-negative number of a plausible size; null for any other value. */
export function amount(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER ? value : null;
}

/** Return a number of a plausible size; null for any other value. */
export function number(value: unknown): number | null {
  return typeof value === 'number' && Math.abs(value) <= Number.MAX_SAFE_INTEGER ? value : null;
}

export const index = known(count);
export const size = known(amount);

/** Return a parser of a number from `least` to `most`. */
export function within(least: number, most: number): Parser<number> {
  return value => {
    const found = size(value);
    check(found >= least && found <= most);
    return found;
  };
}

/** Return a time in epoch seconds. */
export function time(value: unknown): number {
  check(typeof value === 'number' && Math.abs(value) <= MAX_TIME);
  return value;
}
