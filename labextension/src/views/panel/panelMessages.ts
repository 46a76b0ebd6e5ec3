import type { TranslationBundle } from '@jupyterlab/translation';

import { failureText } from '../../model/server/result';
import type { Fresh } from '../../model/freshness';
import type { Outage, ServerInfo } from '../../model/stream/streamModel';
import type { KernelView } from '../../model/kernel/kernels';
import { metricTexts, PANEL_METRICS } from '../../wire/metricTable';
import { duration, model, moment, throttleReasons } from '../../model/format';
import { HARMFUL_THROTTLE_REASONS, type Gpu, type Reading, type ThrottleReason } from '../../wire/wire';

/** Throttle reasons that a person may have to act on. All others are limits that normal work reaches. */
const HARMFUL: ReadonlySet<string> = new Set(HARMFUL_THROTTLE_REASONS);

/** The throttle reason of a GPU without work, which is not displayed. */
const IDLE: ThrottleReason = 'idle';

/** A sentence to display, with an optional command, link or button. */
export interface Notice {
  readonly text: string;
  readonly command?: string;
  /** The URL of a page with more information. */
  readonly link?: string;
  readonly action?: 'load';
  /** Whether the dropdown shows the sentence, which is short and soon replaced. */
  readonly brief?: true;
  /** Whether the sentence contains a number of seconds that increases. */
  readonly countsSeconds?: true;
}

/** Return a notice about why there is no current sample; null while samples arrive or are about to. */
export function serverNotice(trans: TranslationBundle, data: Fresh<unknown, Outage>): Notice | null {
  if (data.kind === 'live') {
    return null;
  }
  const { link, seconds, hasSample } = data.reason;
  if (seconds !== null) {
    return {
      countsSeconds: true,
      text:
        link === 'open' && !hasSample
          ? trans.__(
              'The driver has not answered for %1. Without persistence mode, it takes longer to start. If nvidia-smi hangs too, the driver or a GPU is stuck: see the kernel log (dmesg).',
              duration(seconds)
            )
          : trans.__('No data from the server for %1.', duration(seconds))
    };
  }
  switch (link) {
    case 'off':
      return null;
    case 'opening':
    case 'open':
      // If the page has received a sample before, the panel shows that sample until the next one arrives.
      return data.kind === 'stale' ? null : { text: trans.__('Waiting for the first sample…') };
    case 'lost':
      return {
        text: trans.__('The server does not answer. Trying again. Showing the last known values.')
      };
    case 'absent':
      return {
        text: trans.__(
          "This server does not have gpuwidget's server extension. Install it in the server's environment, or enable it, and restart the server:"
        ),
        command: 'jupyter server extension enable gpuwidget'
      };
    case 'refused':
    case 'foreign':
      return { text: failureText(trans, link) };
    case 'full':
      return {
        text: trans.__(
          'The server already sends GPU data to as many pages and programs as it allows. Close those that you do not need. Trying again within 30 seconds.'
        )
      };
    case 'limited':
      return {
        text: trans.__(
          'The server has closed the connection, because this page has sent too many messages. Trying again within 30 seconds.'
        )
      };
    case 'blocked':
      return {
        text: trans.__(
          'The server answers, but its WebSocket can’t be opened: a proxy probably blocks WebSockets. Still trying.'
        )
      };
  }
}

/**
 * Return a notice about why the kernel's state is unknown and what the user can do; null if the state is
 * known. `server` is null before the server has sent its version. If `server` is omitted, the notice does not
 * explain how to install gpuwidget.
 */
export function kernelNotice(
  trans: TranslationBundle,
  view: KernelView,
  server?: ServerInfo | null
): Notice | null {
  const { condition } = view;
  switch (condition.kind) {
    case 'no-notebook':
      return { text: trans.__('Open a notebook to choose its default device.') };
    case 'no-kernel':
      return { text: trans.__('This notebook has no kernel.') };
    case 'starting':
      return { text: trans.__('The kernel is starting.'), brief: true };
    case 'restarting':
      return { text: trans.__('The kernel is restarting.'), brief: true };
    case 'dead':
      return { text: trans.__('The kernel is dead. Restart it to choose a device.') };
    case 'unreachable':
      return { text: trans.__('The connection to the kernel is lost.') };
    case 'not-python':
      return { text: trans.__('This kernel runs %1, not Python.', condition.language) };
    case 'querying':
      return { text: trans.__('Checking the kernel…'), brief: true };
    case 'unanswered':
      return {
        text: trans.__(
          'The busy kernel does not answer: gpuwidget is not loaded, or a long call blocks the kernel. The kernel is checked again after the cell.'
        ),
        action: 'load'
      };
    case 'not-loaded':
      return {
        text: view.restarted
          ? trans.__(
              'The kernel was restarted: gpuwidget is no longer loaded, and PyTorch uses its default device.'
            )
          : trans.__('gpuwidget is not loaded in this kernel.'),
        action: 'load'
      };
    case 'loading':
      return view.busy
        ? { text: trans.__('Loading gpuwidget once the running cell has ended…') }
        : { text: trans.__('Loading gpuwidget…'), brief: true };
    case 'not-installed':
      return {
        ...installNotice(trans, server, {
          why: trans.__("gpuwidget is not installed in this kernel's environment."),
          instruction: trans.__('Run in a cell, then load it:')
        }),
        action: 'load'
      };
    case 'other-package':
      return installNotice(trans, server, {
        why: trans.__(
          'Another package called gpuwidget is installed in this kernel’s environment. Uninstall it first (%pip uninstall -y gpuwidget).'
        ),
        instruction: trans.__('Then run in a cell:')
      });
    case 'other-version':
      return installNotice(trans, server, {
        why: trans.__(
          'This kernel has gpuwidget %1 and the server has %2, which are not compatible.',
          condition.version ?? trans.__('(unknown)'),
          server?.version ?? trans.__('(unknown)')
        ),
        instruction: trans.__('Run in a cell, then restart the kernel:')
      });
    case 'refused':
      return {
        text: trans.__(
          'gpuwidget was not loaded. Python would import %1, which lies in the notebook’s or the kernel’s folder and is not an installed package. Rename it, or run %load_ext gpuwidget in a cell if you trust its code.',
          condition.path
        ),
        action: 'load'
      };
    case 'failed':
      return {
        text: trans.__('gpuwidget could not be loaded in this kernel: %1', condition.reason),
        action: 'load'
      };
    case 'ready':
      return null;
  }
}

/**
 * Return a notice that explains how to install gpuwidget.
 *
 * It contains the command that the server's administrator has configured, or else a link to the
 * documentation. It never suggests installing by the bare package name, which is on no package index.
 */
function installNotice(
  trans: TranslationBundle,
  server: ServerInfo | null | undefined,
  { why, instruction }: { why: string; instruction: string }
): Notice {
  if (server === undefined) {
    return { text: why };
  }
  if (server !== null && server.install !== null) {
    return { text: `${why} ${instruction}`, command: `%${server.install}` };
  }
  const link = server?.documentation ?? null;
  return link === null
    ? {
        text: `${why} ${trans.__('How to install gpuwidget is described in docs/using/install.md in its repository.')}`
      }
    : { text: `${why} ${trans.__('How to install gpuwidget:')}`, link };
}

/**
 * Return notes to show below the device dropdown, one per line, such as why a choice was rejected; an empty
 * text if there are none. `shownReason` is a sentence that the panel already shows.
 */
export function deviceNotes(
  trans: TranslationBundle,
  view: KernelView,
  serverVersion: string | null,
  shownReason: string | null
): string {
  if (view.condition.kind !== 'ready') {
    return '';
  }
  const { device, unavailable, version } = view.condition.state;
  const other =
    serverVersion === null || version === serverVersion
      ? null
      : trans.__(
          'This kernel has gpuwidget %1 and the server has %2. If gpuwidget was updated, restart the kernel.',
          version,
          serverVersion
        );
  const silent =
    view.silentFor === null
      ? null
      : trans.__('The kernel has not answered for %1: a long call blocks it.', duration(view.silentFor));
  const restarted =
    view.restarted && device.chosen === null
      ? trans.__('The kernel was restarted: PyTorch uses its default device.')
      : null;
  const rejected = view.rejection?.ask === 'set_switch' ? null : (view.rejection?.reason ?? null);
  return [rejected, unavailable === shownReason ? null : unavailable, silent, device.note, restarted, other]
    .filter(sentence => sentence !== null)
    .join('\n');
}

/** Return the name of the GPU's model, with a note if the GPU shares its memory with the host. */
export function gpuName(trans: TranslationBundle, gpu: Gpu): string {
  return gpu.unified_memory ? trans.__('%1 (unified memory)', model(gpu.name)) : model(gpu.name);
}

/** Return a short and a long text about why the GPU has no current readings; null if it has. */
export function unavailability(
  trans: TranslationBundle,
  reading: Reading,
  now: number
): [string, string] | null {
  if (reading.lost_since !== null) {
    const since = moment(reading.lost_since, now);
    const reason = reading.missing.memory_used ?? trans.__('the driver can no longer reach it');
    return [trans.__('lost'), trans.__('Lost since %1: %2.', since, reason)];
  }
  if (reading.silent_since !== null) {
    const seconds = duration(now - reading.silent_since);
    return [trans.__('no answer'), trans.__('No answer for %1.', seconds)];
  }
  return reading.answered === null ? [trans.__('waiting'), trans.__('No answer yet.')] : null;
}

/** Return the reasons for which a GPU is throttled: those to warn about, and all others except idleness. */
export function throttling(
  trans: TranslationBundle,
  { throttle }: Reading
): { readonly warnings: readonly string[]; readonly others: readonly string[] } {
  const reasons = throttle ?? [];
  return {
    warnings: throttleReasons(
      trans,
      reasons.filter(reason => HARMFUL.has(reason))
    ),
    others: throttleReasons(
      trans,
      reasons.filter(reason => !HARMFUL.has(reason) && reason !== IDLE)
    )
  };
}

/** Return why values of a GPU's card are unknown, with one line per reason; an empty text if all are known. */
export function unknownValues(trans: TranslationBundle, reading: Reading): string {
  const names = ['utilization', 'memory_used', ...PANEL_METRICS.map(({ name }) => name)] as const;
  return byReason(
    names.flatMap(name => {
      const reason = reading.missing[name];
      return reading[name] === null && reason !== undefined ? [[metricTexts(trans, name)[0], reason]] : [];
    })
  );
}

/** Return labels with their reasons as text, with one line per reason. */
export function byReason(labels: readonly (readonly [label: string, reason: string])[]): string {
  const lines = new Map<string, string[]>();
  for (const [label, reason] of labels) {
    lines.set(reason, [...(lines.get(reason) ?? []), label]);
  }
  return [...lines].map(([reason, those]) => `${those.join(', ')}: ${reason}`).join('\n');
}
