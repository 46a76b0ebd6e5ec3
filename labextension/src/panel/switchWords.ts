import type { TranslationBundle } from '@jupyterlab/translation';

import type { KernelView } from '../kernel/kernels';
import type { Switch } from '../wire';
import { kernelNotice } from './words';

function switches({ condition }: KernelView): readonly Switch[] {
  return condition.kind === 'ready' ? condition.state.switches : [];
}

/** How the switches stand, in a few words beside the folded section's title. */
export function switchSummary(trans: TranslationBundle, view: KernelView): string {
  const all = switches(view);
  if (view.condition.kind !== 'ready') {
    return '';
  }
  if (view.condition.state.torch === null) {
    return trans.__('torch is not imported');
  }
  const pending = all.filter(({ pending }) => pending !== null).length;
  if (pending > 0) {
    return trans._n('%1 from the next cell', '%1 from the next cell', pending);
  }
  const changed = all.filter(({ value, default: usual }) => value !== null && value !== usual).length;
  return changed === 0 ? trans.__("torch's defaults") : trans._n('%1 changed', '%1 changed', changed);
}

/** Why nothing can be set, in a sentence; empty where it can. */
export function switchReason(trans: TranslationBundle, view: KernelView): string {
  if (view.condition.kind === 'no-notebook') {
    return trans.__('Open a notebook to see its switches.');
  }
  if (view.condition.kind !== 'ready') {
    return kernelNotice(trans, view)?.text ?? '';
  }
  if (view.silentFor !== null) {
    return trans.__('The kernel does not answer: a long call holds it.');
  }
  return view.condition.state.torch === null
    ? trans.__('torch is not imported in this kernel: import it in a cell first.')
    : '';
}

/** What was run for them in this kernel and what will be, a statement each, that of `latest` first. */
export function switchLines(trans: TranslationBundle, view: KernelView, latest: string | null): string {
  const loaded = view.condition.kind === 'ready' && view.condition.state.torch !== null;
  const refused = view.refused === 'set_switch' && view.refusal !== null ? [view.refusal] : [];
  const first = ({ name, pending }: Switch): number => (name === latest ? 0 : pending === null ? 2 : 1);
  const said = [...switches(view)]
    .sort((one, other) => first(one) - first(other))
    .flatMap(({ name, title, statement, pending, note, value }) => {
      const about =
        loaded && note !== null && (value === null || name === latest) ? [`${trans.__(title)}: ${note}`] : [];
      if (statement === null) {
        return about;
      }
      const what = statement.replaceAll('\n', '; ');
      return [
        pending === null ? trans.__('ran: %1', what) : trans.__('from the next cell: %1', what),
        ...(pending === null ? about : [])
      ];
    });
  const lines = [...refused, ...said];
  if (lines.length > 0) {
    return lines.join('\n');
  }
  return switchReason(trans, view) === ''
    ? trans.__('What is set here is told here, as the Python that was run.')
    : '';
}
