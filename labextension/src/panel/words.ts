import type { TranslationBundle } from '@jupyterlab/translation';

import type { ConnectionState } from '../stream/connection';
import type { ServerInfo } from '../stream/streamModel';
import { duration, memory, model, moment } from '../ui/format';
import type { KernelView } from '../kernel/kernels';
import type { DeviceChoice, DeviceState, Gpu, Reading } from '../wire';

/**
 * What holds a clock down because somebody set it so, or because there is nothing to do: gpuwidget/sources/throttle.py
 * has the words. Everything else needs a person.
 */
export const QUIET_THROTTLES: ReadonlySet<string> = new Set([
  'board limit',
  'reliability limit',
  'clock setting',
  'sync boost',
  'display setting',
  'idle'
]);

/** Who is on a GPU, in the kernel's words, where it is the notebook itself; the others are processes. */
const HERE = 'this notebook';

/** A sentence, with a command to run and what a button beside it does. */
export interface Notice {
  readonly text: string;
  readonly command?: string;
  /** Address of a page that says more. */
  readonly link?: string;
  readonly action?: 'load';
  /** Whether the sentence counts seconds. */
  readonly counts?: true;
}

/**
 * How it stands with the server, in a sentence; null while samples come. `quiet` is for how many seconds none did, if
 * for too long; `sampled` whether one has come since the stream was opened; `known` whether any has ever.
 */
export function serverNotice(
  trans: TranslationBundle,
  {
    link,
    quiet,
    sampled,
    known
  }: { link: ConnectionState; quiet: number | null; sampled: boolean; known: boolean }
): Notice | null {
  if (quiet !== null) {
    return {
      counts: true,
      text:
        link === 'open' && !sampled
          ? trans.__(
              'The driver has not answered for %1. Where nothing keeps it initialised it takes longer to come up; if nvidia-smi hangs too, the driver or a GPU is stuck: look into the kernel log (dmesg).',
              duration(quiet)
            )
          : trans.__('The server has sent nothing for %1.', duration(quiet))
    };
  }
  switch (link) {
    case 'off':
      return null;
    case 'opening':
    case 'open':
      // Shown again after a moment out of sight, the last sample bridges the time until the next.
      return known ? null : { text: trans.__('Waiting for the first sample…') };
    case 'lost':
      return {
        text: trans.__('The server does not answer. Trying again; what is shown is the last it said.')
      };
    case 'absent':
      return {
        text: trans.__(
          "This server does not have gpuwidget's server extension. Install it in the server's environment, or enable it, and restart the server:"
        ),
        command: 'jupyter server extension enable gpuwidget'
      };
    case 'refused':
      return {
        text: trans.__('The server does not accept this login any more. Reload the page and log in.')
      };
    case 'blocked':
      return {
        text: trans.__(
          'The server answers, but its stream does not come through: a proxy on the way does not pass websockets on. Still trying.'
        )
      };
    case 'foreign':
      return {
        text: trans.__('The server has another version of gpuwidget than this page. Reload the page.')
      };
  }
}

/**
 * Why the notebook's kernel cannot be asked, and what to do; null where it answers. `server` is what the server said of
 * itself, null before it did; without it how to install gpuwidget is left out.
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
      return { text: trans.__('The kernel is starting.') };
    case 'restarting':
      return { text: trans.__('The kernel is restarting.') };
    case 'dead':
      return { text: trans.__('The kernel has ended. Restart it to choose a device.') };
    case 'unreachable':
      return { text: trans.__('The connection to the kernel is lost.') };
    case 'not-python':
      return { text: trans.__('This kernel speaks %1, not Python.', condition.language) };
    case 'asking':
      return { text: trans.__('Asking the kernel…') };
    case 'unanswered':
      return {
        text: trans.__(
          'The busy kernel does not answer: gpuwidget is not loaded in it, or a long call holds it. It is asked again after the cell.'
        ),
        action: 'load'
      };
    case 'not-loaded':
      return {
        text: view.restarted
          ? trans.__(
              "The kernel was restarted: gpuwidget is no longer loaded, and torch's own default holds."
            )
          : trans.__('gpuwidget is not loaded in this kernel.'),
        action: 'load'
      };
    case 'loading':
      return {
        text: view.busy
          ? trans.__('Loading gpuwidget once the running cell has ended…')
          : trans.__('Loading gpuwidget…')
      };
    case 'not-installed':
      return {
        ...installNotice(trans, server, {
          why: trans.__("gpuwidget is not installed in this kernel's environment."),
          how: trans.__('Run in a cell, then load it:')
        }),
        action: 'load'
      };
    case 'other-package':
      return installNotice(trans, server, {
        why: trans.__(
          'Another package called gpuwidget is installed in this kernel’s environment. Uninstall it first (%pip uninstall -y gpuwidget).'
        ),
        how: trans.__('Then run in a cell:')
      });
    case 'other-version':
      return installNotice(trans, server, {
        why: trans.__(
          'This kernel has gpuwidget %1, the server %2, and they do not understand each other.',
          condition.version ?? trans.__('(unknown)'),
          server?.version ?? trans.__('(unknown)')
        ),
        how: trans.__('Run in a cell, then restart the kernel:')
      });
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
 * What is wrong, and how gpuwidget is installed: the command that the server's administrator configured, else the
 * documentation. The name alone would not do, since it is on no package index.
 */
function installNotice(
  trans: TranslationBundle,
  server: ServerInfo | null | undefined,
  { why, how }: { why: string; how: string }
): Notice {
  if (server === undefined) {
    return { text: why };
  }
  if (server !== null && server.install !== null) {
    return { text: `${why} ${how}`, command: `%${server.install}` };
  }
  const link = server?.documentation ?? null;
  return link === null
    ? {
        text: `${why} ${trans.__('How to install gpuwidget is described under “Install it” in its README.')}`
      }
    : { text: `${why} ${trans.__('How to install gpuwidget:')}`, link };
}

/** What to know beside a choice that can be made, in sentences; empty where all is as it says. */
export function deviceNotes(trans: TranslationBundle, view: KernelView, here: string | null): string {
  if (view.condition.kind !== 'ready') {
    return '';
  }
  const { device, unavailable, version } = view.condition.state;
  const other =
    here === null || version === here
      ? null
      : trans.__(
          'This kernel has gpuwidget %1, the server %2: restart the kernel if it was updated.',
          version,
          here
        );
  const silent =
    view.silentFor === null
      ? null
      : trans.__('The kernel has not answered for %1: a long call holds it.', duration(view.silentFor));
  const restarted =
    view.restarted && device.chosen === null
      ? trans.__("The kernel was restarted: torch's own default holds.")
      : null;
  const pending = device.pending && device.note === null ? trans.__('Holds from the next cell.') : null;
  const refusal = view.refused === 'set_switch' ? null : view.refusal;
  return [refusal, unavailable, silent, pending, device.note, restarted, other]
    .filter(sentence => sentence !== null)
    .join(' ');
}

/** What is chosen where nothing is. */
export function ownDefault(trans: TranslationBundle, device: DeviceState | null): string {
  return device?.chosen === null && device.present !== null
    ? trans.__("none · torch's own default (%1)", device.present)
    : trans.__("none · torch's own default");
}

/** One device that can be chosen: torch's name, the GPU it is, what is free there and who is on it. */
export function choiceText(trans: TranslationBundle, choice: DeviceChoice): string {
  const words = [choice.device];
  if (choice.name !== null) {
    const which = choice.index === null ? '' : trans.__('GPU %1 ', choice.index);
    const capability = choice.compute_capability === null ? '' : ` (${choice.compute_capability})`;
    words.push(`${which}${model(choice.name)}${capability}`);
  }
  if (choice.memory_free !== null) {
    words.push(trans.__('%1 free', memory(choice.memory_free)));
  }
  const holders = choice.holders.map(who => (who === HERE ? trans.__('this notebook') : who));
  return [...words, ...holders].join(' · ');
}

/** The offer to choose the GPU with the most free memory, and which that is now. */
export function emptiestText(trans: TranslationBundle, { device, memory_free: free }: DeviceChoice): string {
  return trans.__('the emptiest GPU · now %1, %2 free', device, memory(free));
}

/** Which GPU was the emptiest when it was asked for. */
export function emptiestTaken(trans: TranslationBundle, choice: DeviceChoice): string {
  const { device, index, memory_free: free } = choice;
  const which = index === null ? device : trans.__('%1 (GPU %2)', device, index);
  return trans.__('The emptiest GPU is %1, with %2 free.', which, memory(free));
}

/** Its model, labelled where its memory is the host's. */
export function gpuName(trans: TranslationBundle, gpu: Gpu): string {
  return gpu.unified_memory ? trans.__('%1 (unified memory)', model(gpu.name)) : model(gpu.name);
}

/** Why nothing is to be read from a GPU now: `[short, long]`; null where it answers. */
export function trouble(trans: TranslationBundle, reading: Reading, now: number): [string, string] | null {
  if (reading.lost_since !== null) {
    const since = moment(reading.lost_since, now);
    return [
      trans.__('lost'),
      trans.__(
        'Lost since %1: the driver no longer reaches it. It needs a reset or a restart of the machine.',
        since
      )
    ];
  }
  if (reading.silent_since !== null) {
    const seconds = duration(now - reading.silent_since);
    return [trans.__('no answer'), trans.__('No answer for %1.', seconds)];
  }
  return reading.answered === null ? [trans.__('waiting'), trans.__('No answer yet.')] : null;
}
