/**
 * A value that the server has sent: `live` while it is current, and `stale` if it is only the last known one. `reason`
 * is why there is no current value. Only the models decide this, so that no view shows an old value as current.
 */
export type Fresh<Value, Reason> =
  | { readonly kind: 'live'; readonly value: Value }
  | { readonly kind: 'stale'; readonly value: Value; readonly reason: Reason }
  | { readonly kind: 'none'; readonly reason: Reason };

/** Return the current value; null if there is none. */
export function liveValue<Value>(data: Fresh<Value, unknown>): Value | null {
  return data.kind === 'live' ? data.value : null;
}

/** Return the last known value, whether or not it is current; null if there is none. */
export function lastValue<Value>(data: Fresh<Value, unknown>): Value | null {
  return data.kind === 'none' ? null : data.value;
}
