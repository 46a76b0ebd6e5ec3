import type { TranslationBundle } from '@jupyterlab/translation';
import { Signal } from '@lumino/signaling';

import type { Kernel, LoadResult, RequestContent } from '../src/model/kernel/kernel';
import type { ActivityChange, Phase } from '../src/model/kernel/kernelActivity';
import { parseReply, type ParsedReply } from '../src/wire/kernelReply';
import type { FailureKind, Result } from '../src/model/server/result';
import type { ServerClient, Socket } from '../src/model/server/serverClient';
import type { Clock } from '../src/model/clock';
import type { Fresh } from '../src/model/freshness';
import type { Outage, StreamData, StreamModel } from '../src/model/stream/streamModel';
import {
  STREAM_SCHEMA,
  type Diagnosis,
  type Gpu,
  type GpuMemoryOwnership,
  type InitialMessage,
  type History,
  type MemoryHolder,
  type KernelGpu,
  type KernelReply,
  type KernelState,
  type Reading,
  type Sample,
  type ServerKernel,
  type Switch,
  type MemoryOwnership,
  type Activity
} from '../src/wire/wire';
import { METRIC_TABLE, type MetricName } from '../src/wire/metricTable';

export const GIB = 1024 ** 3;

/**
 * A clock that moves only when the test advances it. The global timers, which Lumino uses, run on this
 * clock too.
 */
export class FakeClock implements Clock {
  private time = 0;
  private last = 0;
  private readonly waiting = new Map<number, { at: number; action: () => void }>();

  constructor() {
    globalThis.setTimeout = ((action: () => void, milliseconds: number) =>
      this.after(milliseconds, action)) as typeof setTimeout;
    globalThis.clearTimeout = ((timer: number) => {
      this.cancel(timer);
    }) as typeof clearTimeout;
  }

  now(): number {
    return this.time;
  }

  after(milliseconds: number, action: () => void): number {
    this.last++;
    this.waiting.set(this.last, { at: this.time + milliseconds, action });
    return this.last;
  }

  cancel(timer: number): void {
    this.waiting.delete(timer);
  }

  /** Number of pending timers. */
  get running(): number {
    return this.waiting.size;
  }

  /** Advance the clock and run all timers that become due. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.time + milliseconds;
    for (;;) {
      await settled();
      const due = [...this.waiting].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at)[0];
      if (due === undefined) {
        break;
      }
      const [timer, { at, action }] = due;
      this.waiting.delete(timer);
      this.time = at;
      action();
    }
    this.time = end;
    await settled();
  }
}

/** Resolve after all pending promise callbacks have run. */
export function settled(): Promise<void> {
  return new Promise(resolve => setImmediate(resolve));
}

/** A fake websocket. The test plays the part of the server. */
export class FakeSocket implements Socket {
  onmessage: Socket['onmessage'] = null;
  onclose: Socket['onclose'] = null;
  closed = false;
  /** The messages sent to the server. */
  readonly sent: unknown[] = [];

  send(message: string): void {
    this.sent.push(JSON.parse(message));
  }

  close(): void {
    this.closed = true;
  }

  /** Deliver a message from the server to the page. */
  receive(message: unknown): void {
    this.onmessage?.call(this as unknown as WebSocket, { data: JSON.stringify(message) } as MessageEvent);
  }

  /** Close the websocket from the server's side. */
  disconnect(code = 1006): void {
    this.onclose?.call(this as unknown as WebSocket, { code } as CloseEvent);
  }
}

/** Return the result of a request that has failed. */
export function failed(kind: FailureKind, reason = ''): Result<never> {
  return { kind, reason };
}

/** Return what a monitor offers while samples arrive. */
export function liveData(model: StreamModel): Fresh<StreamData, Outage> {
  return { kind: 'live', value: model as StreamData };
}

/** Return what a monitor offers after the connection was lost. */
export function staleData(model: StreamModel): Fresh<StreamData, Outage> {
  const reason = { link: 'lost', seconds: null, hasSample: true } as const;
  return { kind: 'stale', value: model as StreamData, reason };
}

/** A server whose probes have the result `state`. */
export class FakeServer implements Pick<ServerClient, 'stream' | 'probe'> {
  readonly sockets: FakeSocket[] = [];
  state: Result<unknown>['kind'] = 'ok';
  /** Number of probes. */
  requests = 0;

  stream(): Socket {
    const socket = new FakeSocket();
    this.sockets.push(socket);
    return socket;
  }

  probe(): Promise<Result<null>> {
    this.requests++;
    return Promise.resolve(this.state === 'ok' ? { kind: 'ok', value: null } : failed(this.state));
  }

  /** The websocket that was opened last. */
  get socket(): FakeSocket {
    const socket = this.sockets.at(-1);
    if (socket === undefined) {
      throw new Error('No websocket was opened.');
    }
    return socket;
  }
}

/** The activity of a kernel, which the test sets. */
export class FakeActivity {
  phase: Phase = 'idle';
  showsRequests = false;
  readonly changed = new Signal<never, ActivityChange>(this as never);

  set(phase: Phase): void {
    if (phase !== this.phase) {
      this.phase = phase;
      this.changed.emit({ kind: 'phase' });
    }
  }
}

/** A kernel whose replies the test sets, in the form in which a real kernel sends them. */
export class FakeKernel implements Kernel {
  readonly requests: RequestContent[] = [];
  readonly activity = new FakeActivity();
  /** The content of the next replies; null if the kernel does not reply. */
  reply: unknown = null;
  private readonly held: Promise<unknown>[] = [];
  loadResult: LoadResult = { outcome: 'loaded', version: '0.1.0' };
  /** Whether the kernel is dead, so that requests throw. */
  gone = false;

  constructor(
    private readonly spec = 'python',
    readonly id = 'kernel-1'
  ) {}

  /**
   * Hold back the reply to one request: the first call applies to the next request, the second call to the
   * one after it, and so on. Return a function that sends its argument as the reply.
   */
  hold(): (reply: unknown) => void {
    let settle: (reply: unknown) => void = () => undefined;
    this.held.push(
      new Promise(resolve => {
        settle = resolve;
      })
    );
    return reply => {
      settle(reply);
    };
  }

  language(): Promise<string> {
    return Promise.resolve(this.spec);
  }

  async request(content: RequestContent): Promise<ParsedReply | null> {
    if (this.gone) {
      throw new Error('Kernel is dead');
    }
    this.requests.push(content);
    const reply = await (this.held.shift() ?? this.reply);
    return reply === null ? null : parseReply(reply);
  }

  load(): Promise<LoadResult> {
    return Promise.resolve(this.loadResult);
  }
}

export function gpu(index: number, changes: Partial<Gpu> = {}): Gpu {
  return {
    uuid: `GPU-${String(index)}`,
    index,
    mig_index: null,
    mig_parent: null,
    name: 'NVIDIA H200',
    pci_bus_id: null,
    memory_total: 140 * GIB,
    memory_reserved: 0,
    unified_memory: false,
    compute_capability: '9.0',
    peak_fp32_flops: null,
    memory_bandwidth: null,
    ...changes
  };
}

/** Null for every metric, as the default for the metrics that a test does not set. */
const UNKNOWN_METRICS = Object.fromEntries(
  METRIC_TABLE.filter(({ counter }) => !counter).map(({ name }) => [name, null])
) as Record<Exclude<MetricName, keyof Activity>, null>;

/** Values of the hardware counters, one of which is unknown. */
export const ACTIVITY: Activity = {
  since: 0,
  until: 1,
  graphics: 1,
  sm: 2,
  sm_occupancy: 3,
  tensor: 4,
  dram: 5,
  fp64: 6,
  fp32: 7,
  fp16: null,
  pcie_tx: 9,
  pcie_rx: 10,
  nvlink_tx: 11,
  nvlink_rx: 12
};

export function reading(index: number, changes: Partial<Reading> = {}): Reading {
  return {
    uuid: `GPU-${String(index)}`,
    answered: 1000,
    silent_since: null,
    lost_since: null,
    measured: 1000,
    ...UNKNOWN_METRICS,
    utilization: 50,
    utilization_window: 0.2,
    memory_utilization: 10,
    memory_used: 35 * GIB,
    power_w: 300,
    power_limit_w: 700,
    temperature_c: 40,
    memory_temperature_c: 45,
    sm_clock_mhz: 1980,
    pstate: 0,
    throttle: [],
    energy_j: null,
    ecc_uncorrected: null,
    xid: null,
    xid_time: null,
    activity: null,
    processes: null,
    missing: {},
    missing_ids: {},
    ...changes
  };
}

export function sample(time: number, readings: readonly Reading[] = [reading(0)]): Sample {
  return {
    schema: 1,
    time,
    origin: {
      kind: 'nvml',
      reason: null,
      reason_id: null,
      recording: null,
      driver: '580.95.05',
      cuda_driver: '13.0'
    },
    gpus: readings.map((_, index) => gpu(index)),
    readings
  };
}

export function history(t: readonly number[], utilization: readonly (number | null)[] = t): History {
  return {
    t,
    gpus: [{ uuid: 'GPU-0', utilization, memory_used: t.map(() => 35 * GIB), power_w: t.map(() => null) }]
  };
}

export function hello(changes: Partial<InitialMessage> = {}): InitialMessage {
  return {
    type: 'hello',
    schema: STREAM_SCHEMA,
    version: '0.1.0',
    interval_s: 0.2,
    history_s: 600,
    install: null,
    documentation: null,
    always_on: false,
    sample: null,
    history: { t: [], gpus: [] },
    ...changes
  };
}

export function kernelGpu(index: number, changes: Partial<KernelGpu> = {}): KernelGpu {
  return {
    uuid: `GPU-${String(index)}`,
    torch_device: `cuda:${String(index)}`,
    process_memory: 14 * GIB,
    torch_reserved: 13 * GIB,
    context: true,
    ...changes
  };
}

export function kernelState(changes: Partial<KernelState> = {}): KernelState {
  return {
    schema: 1,
    version: '0.1.0',
    pid: 4711,
    torch: '2.13.0',
    cuda_initialized: false,
    watching: false,
    device: { chosen: null, new_tensors: true, pending: false, present: 'cpu', note: null },
    choices: [],
    order: { source: null, notes: [], note_ids: [] },
    unavailable: null,
    gpus: [],
    switches: [],
    ...changes
  };
}

export function torchSwitch(changes: Partial<Switch> = {}): Switch {
  return {
    name: 'cudnn.benchmark',
    title: 'cuDNN benchmark',
    value: 'off',
    choices: ['on', 'off'],
    default: 'off',
    pending: null,
    statement: null,
    trades: 'On: cuDNN tries its algorithms.',
    note: null,
    ...changes
  };
}

/** A translation bundle that returns the untranslated strings. */
export const trans = {
  _p: (_: string, text: string) => text,
  __: (text: string, ...values: unknown[]) => filled(text, values),
  _n: (one: string, many: string, count: number, ...values: unknown[]) =>
    filled(count === 1 ? one : many, [count, ...values])
} as unknown as TranslationBundle;

function filled(text: string, values: readonly unknown[]): string {
  return text.replace(/%(\d)/g, (_, place: string) => String(values[Number(place) - 1]));
}

export function ok(changes: Partial<KernelState> = {}): KernelReply {
  return { status: 'ok', done: null, state: kernelState(changes) };
}

export function serverKernel(id: string, changes: Partial<ServerKernel> = {}): ServerKernel {
  return {
    id,
    spec: 'python3',
    state: 'idle',
    idle_since: 1000,
    session: `session-${id}`,
    kind: 'notebook',
    path: `${id}.ipynb`,
    name: `${id}.ipynb`,
    gpu_hours: null,
    idle_holder: null,
    ...changes
  };
}

/** Return a holder of `gib` GiB of memory. */
export function holding(gib: number | null, changes: Partial<MemoryHolder> = {}): MemoryHolder {
  return {
    kernel: null,
    terminal: null,
    pid: null,
    user: null,
    program: null,
    memory: gib === null ? null : gib * GIB,
    source: 'driver',
    other_users: false,
    ...changes
  };
}

export function gpuUsage(
  index: number,
  holdings: readonly MemoryHolder[],
  changes: Partial<GpuMemoryOwnership> = {}
): GpuMemoryOwnership {
  const none = { unattributed: 0, reason: null, means: [], memory_used: 35 * GIB, older: false };
  return { uuid: `GPU-${String(index)}`, holdings, ...none, ...changes };
}

export function usage(
  kernels: readonly ServerKernel[],
  gpus: readonly GpuMemoryOwnership[],
  time = 1000
): MemoryOwnership {
  return { type: 'usage', time, kernels, gpus, job: null };
}

/** A diagnosis in which a check has an issue, which has a fix. */
export const DIAGNOSIS: Diagnosis = {
  schema: 1,
  version: '0.1.0',
  time: 1000.5,
  place: 'kernel',
  python: '/usr/bin/python3',
  variables: { CUDA_VISIBLE_DEVICES: '0' },
  status: 'warning',
  summary: 'Something is unknown.',
  unfinished: ['import torch'],
  problems: [
    {
      check: 'torch',
      status: 'broken',
      issues: ['torch-not-installed'],
      reasons: ['PyTorch is not installed in this environment.'],
      fix: null,
      affects: ['cuda']
    }
  ],
  links: [
    {
      id: 'torch',
      title: 'PyTorch',
      status: 'unknown',
      found: '',
      reason: 'It took too long.',
      remedy: null,
      command: null,
      evidence: { torch: '2.13.0' },
      issues: [
        {
          id: 'torch-import-timeout',
          status: 'unknown',
          params: { timeout_s: 15, steps: ['import'] },
          reason: 'It took too long.',
          fix: {
            id: 'reload-uvm',
            params: {},
            before: 'Load it again:',
            command: 'sudo modprobe nvidia_uvm',
            after: '. If this is a container, restart the container.'
          }
        }
      ]
    }
  ]
};
