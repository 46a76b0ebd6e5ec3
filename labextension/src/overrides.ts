/** Defaults that an administrator's overrides.json has put into the settings' schema. */

import type { PartialJSONObject, PartialJSONValue } from '@lumino/coreutils';

/** A default that can't be. */
export interface Unfit {
  /** Where it stands, as `units.memory`. */
  readonly name: string;
  readonly value: PartialJSONValue | undefined;
}

interface Kind {
  readonly type?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly enum?: readonly PartialJSONValue[];
  readonly oneOf?: readonly { readonly const: PartialJSONValue }[];
  readonly properties?: Readonly<Record<string, Kind>>;
  readonly default?: PartialJSONValue;
}

/**
 * The schema with defaults that it allows, and those that it doesn't: JupyterLab would load none of the settings, and so
 * nothing of this extension. What is within an object falls back to its own default, a number to the nearest that can be.
 */
export function sound(schema: PartialJSONObject): [PartialJSONObject, Unfit[]] {
  const unfit: Unfit[] = [];
  const { properties = {} } = schema as Kind;
  const mended = Object.entries(properties).map(([name, kind]) => [name, mend(name, kind, unfit)] as const);
  return [{ ...schema, properties: Object.fromEntries(mended) as PartialJSONObject }, unfit];
}

function mend(name: string, kind: Kind, unfit: Unfit[]): Kind {
  const { properties, default: value } = kind;
  if (properties === undefined) {
    if (fits(kind, value)) {
      return kind;
    }
    unfit.push({ name, value });
    const number = typeof value === 'number' ? value : -Infinity;
    return { ...kind, default: Math.max(kind.minimum ?? 0, Math.min(number, kind.maximum ?? Infinity)) };
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    unfit.push({ name, value });
    return { ...kind, default: {} };
  }
  const kept = Object.entries(value).filter(([key, inner]) => {
    const known = properties[key];
    const good = known !== undefined && fits(known, inner);
    if (!good) {
      unfit.push({ name: `${name}.${key}`, value: inner });
    }
    return good;
  });
  return { ...kind, default: Object.fromEntries<PartialJSONValue | undefined>(kept) };
}

function fits(kind: Kind, value: PartialJSONValue | undefined): boolean {
  if (value === undefined || typeof value !== kind.type) {
    return false;
  }
  if (typeof value === 'number' && (value < (kind.minimum ?? value) || value > (kind.maximum ?? value))) {
    return false;
  }
  const choices = kind.enum ?? kind.oneOf?.map(choice => choice.const);
  return choices === undefined || choices.includes(value);
}
