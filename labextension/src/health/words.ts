import type { TranslationBundle } from '@jupyterlab/translation';

import type { Diagnosis, Check } from '../wire';
import type { Examination } from './health';

/** A sign beside each word: colour alone would tell nothing to some. */
export const SYMBOLS: Readonly<Record<Check['status'], string>> = {
  ok: '✓',
  broken: '✕',
  warning: '▲',
  unknown: '?',
  skipped: '–'
};

/** How it stands with a link, in a word. */
export function statusWord(trans: TranslationBundle, status: Check['status']): string {
  switch (status) {
    case 'ok':
      return trans.__('found');
    case 'broken':
      return trans.__('broken');
    case 'warning':
      return trans.__('warning');
    case 'unknown':
      return trans.__('unknown');
    case 'skipped':
      return trans.__('skipped');
  }
}

/** The worst of what is known, in a few words and with its sign: `[sign, words]`. */
export function healthSummary(
  trans: TranslationBundle,
  examinations: readonly (Examination | null)[]
): readonly [Check['status'] | null, string] {
  const known = examinations.filter(one => one !== null);
  if (known.some(({ kind }) => kind === 'asking')) {
    return [null, trans.__('looking…')];
  }
  const doctors = known.flatMap(one => (one.kind === 'examined' ? [one.doctor] : []));
  const broken = titles(doctors, ['broken']);
  if (broken.length > 0) {
    return [
      'broken',
      trans._n(
        '%1 link broken: %2',
        '%1 links broken: %2',
        broken.length,
        broken.map(title => trans.__(title)).join(', ')
      )
    ];
  }
  if (known.some(({ kind }) => kind === 'failed')) {
    return ['unknown', trans.__('could not be looked at')];
  }
  if (doctors.length === 0) {
    return [null, trans.__('not looked at yet')];
  }
  const warned = titles(doctors, ['warning', 'unknown']);
  return warned.length === 0
    ? ['ok', trans.__('all links found')]
    : [
        'warning',
        trans._n(
          '%1 to look at: %2',
          '%1 to look at: %2',
          warned.length,
          warned.map(title => trans.__(title)).join(', ')
        )
      ];
}

/** The links with one of these statuses, each once whoever has it. */
function titles(doctors: readonly Diagnosis[], statuses: readonly Check['status'][]): string[] {
  const links = doctors.flatMap(({ links }) => links).filter(({ status }) => statuses.includes(status));
  return [...new Map(links.map(({ id, title }) => [id, title])).values()];
}

/** A remedy around the command in it; null where it has none. */
export function commandIn({ remedy, command }: Pick<Check, 'remedy' | 'command'>): {
  readonly before: string;
  readonly command: string;
  readonly after: string;
} | null {
  if (remedy === null || !command || !remedy.includes(command)) {
    return null;
  }
  const at = remedy.indexOf(command);
  const after = remedy.slice(at + command.length).replace(/^[.,;\s]+/, '');
  return { before: remedy.slice(0, at).trim(), command, after };
}

/** As `gpuwidget doctor --json` writes it, which `--diff` reads again. */
export function asJson(doctor: Diagnosis): string {
  return `${JSON.stringify(doctor, null, 2)}\n`;
}
