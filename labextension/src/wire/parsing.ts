/**
 * Parsers of JSON from a server or a kernel, which may have any shape: another version of gpuwidget, a proxy
 * or user code may have written it.
 *
 * A number or an optional text of an unexpected type becomes null, which means unknown. What identifies an
 * object, such as a UUID, must be valid; otherwise the parser throws a `ShapeError`.
 */

/** Thrown by a parser if a value has an unexpected type. */
export class ShapeError extends Error {}

export type Parser<Value> = (value: unknown) => Value;

/** The parsers of an object's fields. */
export type Fields<Value> = { readonly [Key in keyof Value]-?: Parser<Value[Key]> };

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

export function record(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ShapeError();
  }
  return value as Readonly<Record<string, unknown>>;
}

/** Return a parser for an object with these fields. The parser drops all other fields. */
export function object<Value>(fields: Fields<Value>): Parser<Value> {
  const parsers = Object.entries<Parser<unknown>>(fields);
  return value => {
    const given = record(value);
    return Object.fromEntries(parsers.map(([name, parser]) => [name, parser(given[name])])) as Value;
  };
}

/** Return a parser for an object that may lack any of these fields. The parser drops all other fields. */
export function partial<Value>(fields: Fields<Value>): Parser<Partial<Value>> {
  const parsers = Object.entries<Parser<unknown>>(fields);
  return value => {
    const given = record(value);
    const present = parsers.filter(([name]) => Object.hasOwn(given, name));
    return Object.fromEntries(present.map(([name, parser]) => [name, parser(given[name])])) as Partial<Value>;
  };
}

/** Return the same parser for each of these fields. */
export function each<Name extends string, Value>(
  parser: Parser<Value>,
  ...names: readonly Name[]
): Readonly<Record<Name, Parser<Value>>> {
  return Object.fromEntries(names.map(name => [name, parser])) as Record<Name, Parser<Value>>;
}

export function list<Value>(parser: Parser<Value>, maxLength = MAX_ITEMS): Parser<readonly Value[]> {
  return value => {
    if (!Array.isArray(value) || value.length > maxLength) {
      throw new ShapeError();
    }
    return value.map(parser);
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

export function nullable<Value>(parser: Parser<Value>): Parser<Value | null> {
  return value => (value === null ? null : parser(value));
}

/**
 * Return a parser for a field that older versions of gpuwidget do not send. It is then `missing`. Every new field
 * needs this, or a parser that accepts undefined, such as `count`; else this page could not read older kernels.
 */
export function later<Value>(parser: Parser<Value>, missing: Value): Parser<Value> {
  return value => (value === undefined ? missing : parser(value));
}

/** Return a parser that replaces a value of an unexpected type by null. */
export function orNull<Value>(parser: Parser<Value>): Parser<Value | null> {
  return value => parsed(parser, value);
}

export function oneOf<const Value>(...values: readonly Value[]): Parser<Value> {
  return value => {
    const found = values.find(each => each === value);
    if (found === undefined) {
      throw new ShapeError();
    }
    return found;
  };
}

export function text(value: unknown): string {
  if (typeof value !== 'string') {
    throw new ShapeError();
  }
  return value.length > MAX_TEXT_LENGTH ? `${value.slice(0, MAX_TEXT_LENGTH)}…` : value;
}

export const optionalText = orNull(text);

export function flag(value: unknown): boolean {
  if (typeof value !== 'boolean') {
    throw new ShapeError();
  }
  return value;
}

export function finite(value: unknown): number {
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    throw new ShapeError();
  }
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

/** Return a parser that throws a `ShapeError` if `parser` returns null. */
export function known<Value>(parser: Parser<Value | null>): Parser<Value> {
  return value => {
    const found = parser(value);
    if (found === null) {
      throw new ShapeError();
    }
    return found;
  };
}

export const index = known(count);

/** Return a time in epoch seconds. */
export function time(value: unknown): number {
  if (typeof value !== 'number' || !(Math.abs(value) <= MAX_TIME)) {
    throw new ShapeError();
  }
  return value;
}

/** Return a parser for an object with any names, whose values `parser` accepts. */
export function dictionary<Value>(parser: Parser<Value>): Parser<Readonly<Record<string, Value>>> {
  return value => {
    const entries = Object.entries(record(value));
    if (entries.length > MAX_ITEMS) {
      throw new ShapeError();
    }
    return Object.fromEntries(entries.map(([name, each]) => [name, parser(each)]));
  };
}

/** Return texts by name; none if the value has an unexpected type. */
export function optionalTexts(value: unknown): Readonly<Record<string, string>> {
  return parsed(texts, value) ?? {};
}

export const texts = dictionary(text);
