import type { Target } from './actions';
import type { Outcome } from './outcome';

/** What a view of the holders needs besides the samples. */
export interface HolderPorts {
  /** Open the menu of what can be done, below the button that was pressed. */
  readonly open: (target: Target, button: HTMLElement) => void;
  /** Bring it to the front. */
  readonly goTo: (target: Target) => void;
  /** What came of the last action. */
  readonly outcome: Outcome;
}
