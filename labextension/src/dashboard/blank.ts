import type { TranslationBundle } from '@jupyterlab/translation';

import type { Notice } from '../panel/panelMessages';

/** What stands in the place of charts that would be empty. */
export interface Blank {
  readonly text: string;
  readonly command?: string | undefined;
  /** What its button shows again. */
  readonly action?: 'metrics' | 'gpus';
  /** Whether it will pass by itself in a moment. */
  readonly passing?: true;
  /** Whether the sentence counts seconds. */
  readonly counts?: true | undefined;
}

/** What there is to draw. */
export interface Drawable {
  /** How many GPUs the server sees; null before it has said so. */
  readonly gpus: number | null;
  /** Why it sees none, in its words. */
  readonly reason: string | null;
  /** How many of them are chosen. */
  readonly chosen: number;
  /** How many metrics are. */
  readonly metrics: number;
  /** Whether the past is there. */
  readonly read: boolean;
  /** What is wrong with the server, or that it is waited for. */
  readonly notice: Notice | null;
}

/** Why there are no charts, in one sentence with what helps; null where there are. */
export function blankOf(
  trans: TranslationBundle,
  { gpus, reason, chosen, metrics, read, notice }: Drawable
): Blank | null {
  if (gpus === null) {
    return noticed(notice) ?? { text: trans.__('Waiting for the first sample…'), passing: true };
  }
  if (gpus === 0) {
    return { text: reason ?? trans.__('The server sees no GPU.') };
  }
  if (metrics === 0) {
    return { text: trans.__('No metric is chosen.'), action: 'metrics' };
  }
  if (chosen === 0) {
    return { text: trans.__('No GPU is chosen.'), action: 'gpus' };
  }
  return read ? null : (noticed(notice) ?? { text: trans.__('Reading the past…'), passing: true });
}

function noticed(notice: Notice | null): Blank | null {
  return notice && { text: notice.text, command: notice.command, counts: notice.countsSeconds };
}
