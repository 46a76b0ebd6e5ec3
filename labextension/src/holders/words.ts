import type { TranslationBundle } from '@jupyterlab/translation';

import { duration } from '../ui/format';
import { kernelKind, type Holder } from './holders';
import type { MemoryHolder, ServerKernel } from '../wire';

/** Idle for less than this is not worth a figure. */
const WORTH_SAYING_S = 60;

/** What a holder is called: short, and the whole of it to hover. */
export function titleOf(
  trans: TranslationBundle,
  { kind, kernel, holding }: Holder,
  kernels: Iterable<ServerKernel>
): [string, string] {
  switch (kind) {
    case 'notebook':
    case 'console':
    case 'kernel':
      return kernel === null
        ? [trans.__('a kernel that has ended'), holding?.kernel ?? '']
        : [kernelName(trans, kernel, kernels), kernelPath(trans, kernel)];
    case 'terminal': {
      const terminal = trans.__('terminal %1', holding?.terminal ?? '');
      const command = commandOf(holding);
      return [command === '' ? terminal : `${terminal} · ${command}`, command];
    }
    case 'process': {
      const { pid = null, user = null } = holding ?? {};
      const process = pid === null ? trans.__('a process') : trans.__('process %1', String(pid));
      const words = [user, commandOf(holding)].filter(word => word !== null && word !== '').join(': ');
      return words === '' ? [process, ''] : [words, `${words} (${process})`];
    }
    case 'unattributed':
      return [trans.__('unattributed'), trans.__('In use, and nobody can tell by whom')];
  }
}

/** Its program and arguments on one line, empty where they are unknown. */
function commandOf(holding: MemoryHolder | null): string {
  return [holding?.program, holding?.arguments].filter(Boolean).join(' ');
}

/** The name of a kernel's notebook or console; with as much of the path as tells it from others of that name. */
export function kernelName(
  trans: TranslationBundle,
  kernel: ServerKernel,
  kernels: Iterable<ServerKernel>
): string {
  const name = kernel.name ?? lastPart(kernel.path);
  if (name === null || name === '') {
    return trans.__('kernel %1 (%2)', kernel.spec, kernel.id.slice(0, 8));
  }
  const { path } = kernel;
  const namesakes = [...kernels].filter(
    other => other.id !== kernel.id && (other.name ?? lastPart(other.path)) === name && other.path !== path
  );
  if (path === null || kernelKind(kernel) !== 'notebook' || namesakes.length === 0) {
    return name;
  }
  const [folder = ''] = path.split('/').slice(-2);
  const short = `${folder}/${name}`;
  return namesakes.some(other => `/${other.path ?? ''}`.endsWith(`/${short}`)) || folder === name
    ? path
    : short;
}

/** Where a kernel belongs to, to hover. */
export function kernelPath(trans: TranslationBundle, kernel: ServerKernel): string {
  const where = kernelKind(kernel) === 'notebook' ? kernel.path : kernel.name;
  return [where, trans.__('kernel %1 (%2)', kernel.spec, kernel.id.slice(0, 8))]
    .filter(word => word !== null)
    .join(' · ');
}

/** What a kernel does: `busy`, `idle 3 h`; empty for what has none or where it is not known. `now` is epoch seconds. */
export function stateOf(trans: TranslationBundle, kernel: ServerKernel | null, now: number): string {
  switch (kernel?.state) {
    case 'idle':
      return kernel.idle_since === null || !(now - kernel.idle_since >= WORTH_SAYING_S)
        ? trans.__('idle')
        : trans.__('idle %1', roughly(now - kernel.idle_since));
    case 'busy':
      return trans.__('busy');
    case 'starting':
      return trans.__('starting');
    case 'restarting':
      return trans.__('restarting');
    case 'dead':
      return trans.__('dead');
    default:
      return '';
  }
}

/** A long time in one unit, rounded down: `12 min`, `3 h`, `2 d`. */
export function roughly(seconds: number): string {
  if (seconds < 3600) {
    return seconds < 60 ? duration(seconds) : `${String(Math.floor(seconds / 60))} min`;
  }
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${String(hours)} h` : `${String(Math.floor(hours / 24))} d`;
}

/** GPUs in a sentence, by their numbers: `GPU 0`, `GPUs 0, 2`. */
export function gpuNumbers(trans: TranslationBundle, numbers: readonly string[]): string {
  return numbers.length === 1 ? trans.__('GPU %1', numbers[0]) : trans.__('GPUs %1', numbers.join(', '));
}

function lastPart(path: string | null): string | null {
  return path?.split('/').pop() ?? null;
}
