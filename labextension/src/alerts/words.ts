import type { TranslationBundle } from '@jupyterlab/translation';

import type { Alert } from './alerts';
import type { Finding } from './rules';
import { gpuNumbers } from '../memory/holders';
import { gpuNumber, moment, temperature, whole } from '../ui/format';
import { throttleWords } from '../ui/throttle';

/** An alert in a sentence or two; `now` is epoch seconds. */
export function alertText(trans: TranslationBundle, { kind, about }: Alert, now: number): string {
  const [first] = about;
  if (first === undefined) {
    return '';
  }
  const who = gpuNumbers(
    trans,
    about.map(({ gpu }) => gpuNumber(gpu))
  );
  switch (kind) {
    case 'lost':
      return trans.__(
        '%1 lost since %2. A reset or a restart of the machine is needed.',
        who,
        moment(Number(first.value), now)
      );
    case 'errors':
      return trans.__(
        '%1: new uncorrected memory errors (ECC): %2. What ran there may have failed or be wrong.',
        who,
        listed(about, String)
      );
    case 'xid':
      return trans.__(
        '%1: the driver reported an error, XID %2. The kernel log (dmesg) has the rest of it.',
        who,
        listed(about, String)
      );
    case 'memory':
      return trans.__('%1: %2 % of the memory is in use.', who, listed(about, whole));
    case 'temperature':
      return trans.__('%1: %2.', who, listed(about, temperature));
    case 'throttle':
      return trans.__(
        '%1 is slowed down: %2.',
        who,
        [
          ...new Set(
            about.map(({ value }) =>
              (typeof value === 'number' ? [] : throttleWords(trans, value)).join(', ')
            )
          )
        ].join('; ')
      );
  }
}

function listed(about: readonly Finding[], words: (value: number) => string): string {
  return about.map(({ value }) => words(Number(value))).join(', ');
}
