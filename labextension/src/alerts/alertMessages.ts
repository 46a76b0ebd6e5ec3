import type { TranslationBundle } from '@jupyterlab/translation';

import { gpuNumbers } from '../memory/holders';
import { gpuNumber, moment, temperature, throttleReasons, whole } from '../ui/format';
import type { Finding } from './alertRules';
import type { Alert } from './alertTracker';

/** Return the text of a notification. `now` is in epoch seconds. */
export function alertText(trans: TranslationBundle, { kind, findings }: Alert, now: number): string {
  const [first] = findings;
  if (first === undefined) {
    return '';
  }
  const gpus = gpuNumbers(
    trans,
    findings.map(({ gpu }) => gpuNumber(gpu))
  );
  switch (kind) {
    case 'lost':
      return trans.__(
        '%1 lost since %2. A reset or a restart of the machine is needed.',
        gpus,
        moment(Number(first.value), now)
      );
    case 'errors':
      return trans.__(
        '%1: new uncorrected memory errors (ECC): %2. What ran there may have failed or be wrong.',
        gpus,
        listed(findings, String)
      );
    case 'xid':
      return trans.__(
        '%1: the driver reported an error, XID %2. The kernel log (dmesg) has the rest of it.',
        gpus,
        listed(findings, String)
      );
    case 'memory':
      return trans.__('%1: %2 % of the memory is in use.', gpus, listed(findings, whole));
    case 'temperature':
      return trans.__('%1: %2.', gpus, listed(findings, temperature));
    case 'throttle':
      return trans.__(
        '%1 is slowed down: %2.',
        gpus,
        [
          ...new Set(
            findings.map(({ value }) =>
              (typeof value === 'number' ? [] : throttleReasons(trans, value)).join(', ')
            )
          )
        ].join('; ')
      );
  }
}

function listed(findings: readonly Finding[], format: (value: number) => string): string {
  return findings.map(({ value }) => format(Number(value))).join(', ');
}
