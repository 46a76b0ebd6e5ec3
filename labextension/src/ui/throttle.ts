import type { TranslationBundle } from '@jupyterlab/translation';

/** What holds a clock down, in the language of the page: gpuwidget/sources/throttle.py has the words. */
export function throttleWords(trans: TranslationBundle, words: readonly string[]): string[] {
  return words.map(word => trans.__(word));
}
