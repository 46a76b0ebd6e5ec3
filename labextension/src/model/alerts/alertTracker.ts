import { isGap } from '../stream/historyBuffer';
import { SILENT_XIDS, type Gpu, type Reading, type Sample } from '../../wire/wire';
import {
  checkLevels,
  checkLost,
  isEnabled,
  type Alert,
  type AlertKind,
  type AlertSettings,
  type Finding
} from './alertRules';
import type { ServerAlert } from './serverAlerts';

/** A condition must hold for this long before it raises an alert, so that short peaks raise none. */
const MIN_DURATION_S = 3;
/** A condition must be absent for this long before it can raise an alert again. */
const RESET_S = 60;
/** A driver error of at most this age also raises an alert on a page that was opened after the error. */
const NEW_ERROR_S = 600;
/** The first word of the keys of the server's alerts, which are about no GPU. */
const SERVER_ALERT = 'server';

/** Storage for the alerts already raised, which survives a reload of the page. */
export interface AlertStore {
  /** Return the text that was saved last, or null if none was saved. */
  load(): string | null;
  save(text: string): void;
}

interface RaisedAlerts {
  /**
   * The alerts that were raised and may not be raised again yet, by `<kind> <uuid>`, or for the server's alerts
   * by `server <kind> <id>`. For a lost GPU, the value is the time of the loss; for the server's alerts, their
   * event; for other conditions, it is empty.
   */
  readonly events: Record<string, string>;
  /** The errors known so far, by the GPU's UUID. */
  readonly errors: Record<string, KnownErrors>;
}

interface KnownErrors {
  readonly uncorrected: number | null;
  readonly xidTime: number;
}

/**
 * Decides which alerts to raise: one per event, and another one only after the condition has ended and come
 * back.
 */
export class AlertTracker {
  private readonly raised: RaisedAlerts;
  /** When each condition that holds began, by `<kind> <uuid>`. */
  private readonly onSince = new Map<string, number>();
  /** When each condition that had raised an alert ended, by `<kind> <uuid>`. */
  private readonly offSince = new Map<string, number>();
  private newest = NaN;

  constructor(
    private readonly store: AlertStore,
    private settings: AlertSettings
  ) {
    this.raised = parse(store.load());
    this.configure(settings);
  }

  /**
   * Apply new settings. Turning a kind of alert off resets it, so that it can be raised again after it is
   * turned back on.
   */
  configure(settings: AlertSettings): void {
    this.settings = settings;
    this.update(() => {
      const isOff = (key: string): boolean =>
        key.startsWith(`${SERVER_ALERT} `) ? settings.when === 'never' : !isEnabled(kindOf(key), settings);
      for (const key of Object.keys(this.raised.events).filter(isOff)) {
        Reflect.deleteProperty(this.raised.events, key);
      }
      for (const since of [this.onSince, this.offSince]) {
        for (const key of [...since.keys()].filter(isOff)) {
          since.delete(key);
        }
      }
    });
  }

  /**
   * Return the alerts to raise now. `interval` is the usual time between two samples in seconds. With the setting
   * `when: 'panel'`, there are no alerts while no view is open.
   */
  take(sample: Sample, interval: number, viewOpen: boolean): Alert[] {
    if (this.settings.when === 'panel' && !viewOpen) {
      return [];
    }
    if (isGap(this.newest, sample.time, interval)) {
      // Conditions may have ended or begun during the gap, so their durations are measured from now on.
      this.onSince.clear();
      this.offSince.clear();
    }
    this.newest = sample.time;
    // A recording shows another time or another machine, so it raises no alerts.
    if (this.settings.when === 'never' || sample.origin.kind !== 'nvml') {
      return [];
    }
    let findings: Finding[] = [];
    this.update(() => {
      findings = sample.gpus.flatMap((gpu, index): Finding[] => {
        const reading = sample.readings[index];
        return reading === undefined ? [] : this.newFindings(gpu, reading, sample.time);
      });
    });
    const kinds = [...new Set(findings.map(({ kind }) => kind))];
    return kinds.map(kind => ({ kind, findings: findings.filter(finding => finding.kind === kind) }));
  }

  /**
   * Return those of the server's alerts that are new. `alerts` are all that hold now: an alert that is no longer
   * among them can be raised again.
   */
  takeServerAlerts(alerts: readonly ServerAlert[]): ServerAlert[] {
    if (this.settings.when === 'never') {
      return [];
    }
    const keyed = new Map(alerts.map(alert => [`${SERVER_ALERT} ${alert.kind} ${alert.id}`, alert]));
    let found: ServerAlert[] = [];
    this.update(() => {
      const { events } = this.raised;
      found = [...keyed].flatMap(([key, alert]) => (events[key] === alert.event ? [] : [alert]));
      for (const key of Object.keys(events)) {
        if (key.startsWith(`${SERVER_ALERT} `) && !keyed.has(key)) {
          Reflect.deleteProperty(events, key);
        }
      }
      for (const [key, alert] of keyed) {
        events[key] = alert.event;
      }
    });
    return found;
  }

  /** Run `change`, and save the raised alerts if it has changed them. */
  private update(change: () => void): void {
    const before = JSON.stringify(this.raised);
    change();
    const after = JSON.stringify(this.raised);
    if (after !== before) {
      this.store.save(after);
    }
  }

  private newFindings(gpu: Gpu, reading: Reading, time: number): Finding[] {
    const lost = this.settings.lost ? checkLost(gpu, reading) : null;
    return [
      ...(lost !== null && this.isNewLoss(lost) ? [lost] : []),
      ...checkLevels(gpu, reading, this.settings).filter(finding => this.hasBegun(finding, time)),
      ...(this.settings.errors ? this.newErrors(gpu, reading, time) : [])
    ];
  }

  /**
   * Return whether the loss of a GPU is new, so that it raises an alert. A loss is identified by the time at
   * which it began.
   */
  private isNewLoss({ kind, gpu, state, value }: Finding): boolean {
    const key = keyOf(kind, gpu);
    const event = String(value);
    if (state === 'off') {
      Reflect.deleteProperty(this.raised.events, key);
    }
    if (state !== 'on' || this.raised.events[key] === event) {
      return false;
    }
    this.raised.events[key] = event;
    return true;
  }

  /** Update the state of a condition that must last for some time. Return whether it raises an alert now. */
  private hasBegun({ kind, gpu, state }: Finding, time: number): boolean {
    const key = keyOf(kind, gpu);
    const wasRaised = key in this.raised.events;
    if (state !== 'off') {
      this.offSince.delete(key);
    }
    if (state !== 'on') {
      this.onSince.delete(key);
    }
    if (state === 'off' && wasRaised && hasLasted(this.offSince, key, time, RESET_S)) {
      Reflect.deleteProperty(this.raised.events, key);
    }
    if (state !== 'on' || wasRaised || !hasLasted(this.onSince, key, time, MIN_DURATION_S)) {
      return false;
    }
    this.raised.events[key] = '';
    return true;
  }

  /**
   * Return the errors that are new since the last sample. Without an earlier sample of the GPU, a driver
   * error counts as new if its age is at most `NEW_ERROR_S`. Older errors are reported only by the doctor.
   */
  private newErrors(gpu: Gpu, reading: Reading, time: number): Finding[] {
    const uncorrected = reading.ecc_uncorrected;
    const xidTime = reading.xid_time ?? 0;
    const known = this.raised.errors[gpu.uuid] ?? { uncorrected, xidTime: time - NEW_ERROR_S };
    this.raised.errors[gpu.uuid] = {
      // If the count is unknown, keep the last known one. A lower count replaces it: the driver was reloaded,
      // which resets the count.
      uncorrected: uncorrected ?? known.uncorrected,
      xidTime: Math.max(known.xidTime, xidTime)
    };
    const findings: Finding[] = [];
    const added = uncorrected === null || known.uncorrected === null ? 0 : uncorrected - known.uncorrected;
    if (added > 0) {
      findings.push({ kind: 'errors', gpu, state: 'on', value: added });
    }
    const { xid } = reading;
    // An XID caused by a program appears as an error in that program and does not concern other users of the
    // GPU. Others need no action.
    if (xid !== null && xidTime > known.xidTime && !SILENT_XIDS.includes(xid)) {
      findings.push({ kind: 'xid', gpu, state: 'on', value: xid });
    }
    return findings;
  }
}

function keyOf(kind: AlertKind, { uuid }: Gpu): string {
  return `${kind} ${uuid}`;
}

function kindOf(key: string): AlertKind {
  return key.slice(0, key.indexOf(' ')) as AlertKind;
}

/**
 * Return whether the condition `key` has lasted for `seconds`. If `since` has no start of the condition,
 * add `time` as its start.
 */
function hasLasted(since: Map<string, number>, key: string, time: number, seconds: number): boolean {
  const begun = since.get(key) ?? time;
  since.set(key, begun);
  return time - begun >= seconds;
}

function parse(text: string | null): RaisedAlerts {
  try {
    const raised = JSON.parse(text ?? '') as Partial<RaisedAlerts> | null;
    return { events: withoutPrototype(raised?.events), errors: withoutPrototype(raised?.errors) };
  } catch {
    return { events: withoutPrototype(), errors: withoutPrototype() };
  }
}

/** Return a copy without a prototype, so that any UUID can be a key, even `__proto__`. */
function withoutPrototype<Value>(values: Record<string, Value> = {}): Record<string, Value> {
  return Object.assign(Object.create(null) as Record<string, Value>, values);
}
