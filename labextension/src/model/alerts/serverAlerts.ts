import type { TranslationBundle } from '@jupyterlab/translation';

import { approximateDuration, kernelName } from '../memory/holders';
import { timeLeft } from '../memory/gpuHours';
import { memory } from '../format';
import type { MemoryOwnership } from '../../wire/wire';

/** A notification about something of this server that the administrator wants users to know. */
export interface ServerAlert {
  readonly kind: 'idle' | 'job';
  /** Identifies the kernel or the job. */
  readonly id: string;
  /** Identifies the event: another value raises the alert again. */
  readonly event: string;
  readonly text: string;
}

/**
 * Return the alerts that hold now: one for each kernel that is an idle holder, and one if the Slurm job ends
 * soon. The server has applied the administrator's limits. `now` is in epoch seconds.
 */
export function serverAlerts(
  trans: TranslationBundle,
  { kernels, job }: MemoryOwnership,
  now: number
): ServerAlert[] {
  const alerts = kernels.flatMap((kernel): ServerAlert[] => {
    const { id, idle_holder: holder } = kernel;
    if (holder === null) {
      return [];
    }
    const text = trans.__(
      '%1 has been idle for %2 and holds %3 of GPU memory that others cannot use.',
      kernelName(trans, kernel, kernels),
      approximateDuration(Math.max(0, now - holder.since)),
      holder.complete ? memory(holder.memory) : trans.__('at least %1', memory(holder.memory))
    );
    return [{ kind: 'idle', id, event: String(holder.since), text }];
  });
  const end = job?.end ?? null;
  if (job !== null && end !== null && end > now && end - now <= job.warning_s) {
    const text = trans.__(
      'Slurm ends job %1 in %2, and with it this server and its kernels. Save what you need.',
      job.id,
      timeLeft(end - now)
    );
    alerts.push({ kind: 'job', id: job.id, event: String(end), text });
  }
  return alerts;
}

/** The notifications about the server's alerts. Each of them ends when its alert does. */
export class ServerNotifications {
  /** The ids of the notifications, by the alert's kind, id and event. */
  private readonly shown = new Map<string, string>();

  /** `show` returns the id of a new notification. */
  constructor(
    private readonly show: (alert: ServerAlert) => string,
    private readonly dismiss: (notification: string) => void
  ) {}

  /** Show the `added` ones of the `alerts` that hold now, and dismiss what does not hold any more. */
  update(alerts: readonly ServerAlert[], added: readonly ServerAlert[]): void {
    const keys = new Set(alerts.map(keyOf));
    for (const [key, notification] of this.shown) {
      if (!keys.has(key)) {
        this.shown.delete(key);
        this.dismiss(notification);
      }
    }
    for (const alert of added) {
      this.shown.set(keyOf(alert), this.show(alert));
    }
  }
}

function keyOf({ kind, id, event }: ServerAlert): string {
  return `${kind} ${id} ${event}`;
}
