/** What a key does on the charts. */
export type KeyAction =
  | { readonly kind: 'reset' }
  | { readonly kind: 'move'; readonly share: number }
  | { readonly kind: 'zoom'; readonly factor: number }
  | { readonly kind: 'point'; readonly share: number };

const MOVE = 0.2;
const POINT = 0.01;
const ZOOM = 0.5;

/** The action of a key, null for one that has none here. */
export function keyAction(
  event: Pick<KeyboardEvent, 'key' | 'shiftKey' | 'ctrlKey' | 'altKey' | 'metaKey'>
): KeyAction | null {
  if (event.ctrlKey || event.altKey || event.metaKey) {
    return null;
  }
  const along = (sign: number): KeyAction =>
    event.shiftKey ? { kind: 'point', share: sign * POINT } : { kind: 'move', share: sign * MOVE };
  switch (event.key) {
    case 'Escape':
    case '0':
      return { kind: 'reset' };
    case 'ArrowLeft':
      return along(-1);
    case 'ArrowRight':
      return along(1);
    case '+':
    case '=':
      return { kind: 'zoom', factor: ZOOM };
    case '-':
      return { kind: 'zoom', factor: 1 / ZOOM };
    default:
      return null;
  }
}
