// GENERATED from gpuwidget's dataclasses by `python -m tools.wire`: change those, never this file.

/** Version of the stream's shape that this labextension was made for. */
export const STREAM_SCHEMA = 2;

/** Version of the kernel's answers that it was made for. */
export const KERNEL_SCHEMA = 1;

/** Message type of a question to a kernel. */
export const KERNEL_REQUEST = 'gpuwidget_request';

/** Message type of a kernel's answer. */
export const KERNEL_REPLY = 'gpuwidget_reply';

/** Errors of the driver (XID) that a user's own program may cause: the GPU is healthy. */
export const XIDS_OF_PROGRAMS = [13, 31, 43, 45, 68, 109];

/** The source of the readings. */
export interface Origin {
  /** `nvml` for a driver's GPUs, `replay` for a recording, `none` where there is no GPU. */
  readonly kind: 'nvml' | 'replay' | 'none';
  /** Why there is no GPU and what to do, or null. */
  readonly reason: string | null;
  /** The label of a recording, shown wherever its values are; null for live GPUs. */
  readonly recording: string | null;
  /** Driver version, nvmlSystemGetDriverVersion (nvidia-smi: Driver Version). */
  readonly driver: string | null;
  /**
   * Newest CUDA version it supports, as "13.0", nvmlSystemGetCudaDriverVersion_v2 (nvidia-smi: CUDA Version).
   */
  readonly cuda_driver: string | null;
}

/** Identity and constants of a GPU or MIG slice. */
export interface Gpu {
  /** `GPU-…` or `MIG-…`, nvmlDeviceGetUUID (nvidia-smi -L). The key that joins everything. */
  readonly uuid: string;
  /** NVML's index, nvidia-smi's number; a MIG slice has its parent's. */
  readonly index: number;
  /** Index of a MIG slice within its parent (nvidia-smi -L: MIG Device), null for a whole GPU. */
  readonly mig_index: number | null;
  /** UUID of the GPU that a MIG slice is part of, null for a whole GPU. */
  readonly mig_parent: string | null;
  /** Product name, nvmlDeviceGetName. */
  readonly name: string;
  /** PCI bus id as "00000000:17:00.0", nvmlDeviceGetPciInfo_v3. */
  readonly pci_bus_id: string | null;
  /** Bytes of memory, nvmlDeviceGetMemoryInfo_v2 total. */
  readonly memory_total: number | null;
  /**
   * Bytes of it that the driver reserves and `memory_used` leaves out, nvmlDeviceGetMemoryInfo_v2 reserved; 0
   * where it counts them as used.
   */
  readonly memory_reserved: number | null;
  /** Whether the GPU uses the host's memory, so that `memory_*` are the host's (GB10, Jetson). */
  readonly unified_memory: boolean;
  /** As "9.0", nvmlDeviceGetCudaComputeCapability. */
  readonly compute_capability: string | null;
}

/**
 * Hardware activity between two GPU performance-monitoring (GPM) samples; Hopper and later.
 *
 * A value without a counter is null.
 */
export interface Activity {
  /** Start of the window, epoch seconds. */
  readonly since: number;
  /** End of the window, epoch seconds. */
  readonly until: number;
  /** Time any graphics or compute engine was active, percent, NVML_GPM_METRIC_GRAPHICS_UTIL. */
  readonly graphics: number | null;
  /** Share of the multiprocessors with work in them, percent, NVML_GPM_METRIC_SM_UTIL. */
  readonly sm: number | null;
  /** Warps resident over warps possible, percent, NVML_GPM_METRIC_SM_OCCUPANCY. */
  readonly sm_occupancy: number | null;
  /** Tensor-core pipes in use, percent, NVML_GPM_METRIC_ANY_TENSOR_UTIL. */
  readonly tensor: number | null;
  /** Memory bandwidth in use, percent, NVML_GPM_METRIC_DRAM_BW_UTIL. */
  readonly dram: number | null;
  /** Double-precision pipes in use, percent, NVML_GPM_METRIC_FP64_UTIL. */
  readonly fp64: number | null;
  /** Single-precision pipes in use, percent, NVML_GPM_METRIC_FP32_UTIL. */
  readonly fp32: number | null;
  /** Half-precision pipes in use, percent, NVML_GPM_METRIC_FP16_UTIL. */
  readonly fp16: number | null;
  /** Bytes a second sent by the GPU over PCIe, NVML_GPM_METRIC_PCIE_TX_PER_SEC. */
  readonly pcie_tx: number | null;
  /** Bytes a second received by the GPU over PCIe, NVML_GPM_METRIC_PCIE_RX_PER_SEC. */
  readonly pcie_rx: number | null;
  /** Bytes a second sent over all NVLinks, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC. */
  readonly nvlink_tx: number | null;
  /** Bytes a second received over all NVLinks, NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC. */
  readonly nvlink_rx: number | null;
}

/** One process with a context on a GPU. */
export interface Process {
  /**
   * Process id on the host, as NVML reports it; in a container it may match no process or an unrelated one.
   */
  readonly pid: number;
  /** NVML's list that contains it; a process in both is listed once, as compute. */
  readonly kind: 'compute' | 'graphics';
  /** Bytes it holds, usedGpuMemory; null where the driver does not report it (WSL, WDDM). */
  readonly memory: number | null;
  /**
   * Login name of its owner; null where unreadable or where process ids do not match. Not part of `repr`,
   * which a notebook saves.
   */
  readonly user: string | null;
  /**
   * File name of its executable, with its script or module (`python train.py`); null where unreadable or
   * where process ids do not match.
   */
  readonly program: string | null;
  /**
   * Its other arguments, shortened and without what may be secret; null where `program` is. Not part of
   * `repr`.
   */
  readonly arguments: string | null;
}

/** The values of one GPU at one moment, assembled from calls made at different rates. */
export interface Reading {
  readonly uuid: string;
  /** When a call to the GPU last succeeded, epoch seconds; null before the first. */
  readonly answered: number | null;
  /** Since when a call to it has not returned, epoch seconds; null while it answers. */
  readonly silent_since: number | null;
  /** Since when the driver reports it lost (off the bus, needs a reset), epoch seconds, or null. */
  readonly lost_since: number | null;
  /**
   * When `utilization`, `memory_utilization` and `power_w` were read, epoch seconds; a sample between two
   * such reads may have a new `memory_used` only. null before the first.
   */
  readonly measured: number | null;
  /**
   * Percent of the driver's last window in which any kernel ran, nvmlDeviceGetUtilizationRates gpu
   * (nvidia-smi: utilization.gpu). It does not measure how much of the GPU worked: see `activity`.
   */
  readonly utilization: number | null;
  /**
   * Percent of that window in which device memory was read or written, nvmlDeviceGetUtilizationRates memory
   * (nvidia-smi: utilization.memory).
   */
  readonly memory_utilization: number | null;
  /**
   * Bytes in use without what the driver reserves, nvmlDeviceGetMemoryInfo_v2 used (nvidia-smi: memory.used).
   */
  readonly memory_used: number | null;
  /** Watts now, NVML_FI_DEV_POWER_INSTANT (nvidia-smi: power.draw.instant). */
  readonly power_w: number | null;
  /** Watts the GPU may draw, nvmlDeviceGetEnforcedPowerLimit (nvidia-smi: enforced.power.limit). */
  readonly power_limit_w: number | null;
  /** Degrees Celsius of the core, nvmlDeviceGetTemperature (nvidia-smi: temperature.gpu). */
  readonly temperature_c: number | null;
  /** Degrees Celsius of the memory, NVML_FI_DEV_MEMORY_TEMP (nvidia-smi: temperature.memory). */
  readonly memory_temperature_c: number | null;
  /** Clock of the multiprocessors, MHz, nvmlDeviceGetClockInfo SM (nvidia-smi: clocks.sm). */
  readonly sm_clock_mhz: number | null;
  /** Clock of the memory, MHz, nvmlDeviceGetClockInfo MEM (nvidia-smi: clocks.mem). */
  readonly memory_clock_mhz: number | null;
  /** Performance state, 0 the fastest to 15, nvmlDeviceGetPerformanceState (nvidia-smi: pstate). */
  readonly pstate: number | null;
  /**
   * Intended fan speed, percent of the fan's maximum; may exceed 100, nvmlDeviceGetFanSpeed (nvidia-smi:
   * fan.speed).
   */
  readonly fan_speed: number | null;
  /**
   * Percent of the driver's last window in which the video encoder worked, nvmlDeviceGetEncoderUtilization
   * (nvidia-smi: utilization.encoder).
   */
  readonly encoder_utilization: number | null;
  /**
   * Percent of the driver's last window in which the video decoder worked, nvmlDeviceGetDecoderUtilization
   * (nvidia-smi: utilization.decoder).
   */
  readonly decoder_utilization: number | null;
  /**
   * Reasons why the clock is throttled; empty when it is not (nvmlDeviceGetCurrentClocksEventReasons,
   * nvidia-smi: clocks_event_reasons).
   */
  readonly throttle: readonly string[] | null;
  /** Joules since the driver was loaded, read once a minute, nvmlDeviceGetTotalEnergyConsumption. */
  readonly energy_j: number | null;
  /**
   * Seconds of the window that `utilization` is averaged over (200 ms on H200), nvmlDeviceGetSamples
   * NVML_GPU_UTILIZATION_SAMPLES.
   */
  readonly utilization_window: number | null;
  /**
   * Uncorrected memory errors since the driver was loaded, read once a minute, nvmlDeviceGetTotalEccErrors
   * uncorrected volatile (nvidia-smi: ecc.errors.uncorrected.volatile.total).
   */
  readonly ecc_uncorrected: number | null;
  /**
   * Number of the newest error that the driver reported since this source was opened (XID,
   * nvmlEventTypeXidCriticalError), read once a minute, kept for a lost GPU. null where there was none, or
   * where it is unknown: then with its reason in `missing`.
   */
  readonly xid: number | null;
  /** When that error was read, up to a minute after it was reported, epoch seconds; null without one. */
  readonly xid_time: number | null;
  /** The newest window of the hardware counters, null without GPM or while no view shows it. */
  readonly activity: Activity | null;
  /** Processes with a context on it, null where the driver does not list them. */
  readonly processes: readonly Process[] | null;
  /** The reason for each field that is null, by field name. */
  readonly missing: Readonly<Record<string, string>>;
}

/** All GPUs at one moment. */
export interface Sample {
  readonly schema: number;
  /** When it was assembled, epoch seconds. */
  readonly time: number;
  readonly origin: Origin;
  /** Every GPU of the source, lost ones included, in NVML's order, a parent before its MIG slices. */
  readonly gpus: readonly Gpu[];
  /** One for each of `gpus`, in the same order. */
  readonly readings: readonly Reading[];
}

/** The history of one GPU. Every list has the length of `History.t`; an unknown value is null. */
export interface GpuHistory {
  readonly uuid: string;
  /** Percent, as `Reading.utilization`. */
  readonly utilization: readonly (number | null)[];
  /** Bytes, as `Reading.memory_used`. */
  readonly memory_used: readonly (number | null)[];
  /** Watts, as `Reading.power_w`. */
  readonly power_w: readonly (number | null)[];
}

/** The samples taken while there were clients, oldest first; without clients there is a gap in `t`. */
export interface History {
  /** Epoch seconds, rising. */
  readonly t: readonly number[];
  readonly gpus: readonly GpuHistory[];
}

/** The time series of one metric. Every list has the length of `MetricHistory.t`; unknown is null. */
export interface MetricSeries {
  readonly mean: readonly (number | null)[];
  /** The lowest sample of each step, exactly; null if it equals the mean everywhere. */
  readonly min: readonly (number | null)[] | null;
  /** The highest sample of each step, exactly; null if `min` is null. */
  readonly max: readonly (number | null)[] | null;
}

/** The time series of one GPU. */
export interface GpuMetricHistory {
  readonly uuid: string;
  /**
   * By the field name of a `Reading` or its `activity`, in their units. Metrics without a known value in that
   * time are left out.
   */
  readonly metrics: Readonly<Record<string, MetricSeries>>;
}

/** A part of the history at the requested resolution: the answer to `history?metrics=…`. */
export interface MetricHistory {
  /** Begin of the requested time, epoch seconds. */
  readonly since: number;
  /** End of the requested time, epoch seconds. */
  readonly until: number;
  /** Seconds that each entry of `t` stands for, from that time on; 0 if each is one sample. */
  readonly step_s: number;
  /** Time of the newest sample in it; later samples of the stream continue it. null without a sample. */
  readonly newest: number | null;
  /** Epoch seconds, rising; steps without a sample are left out. */
  readonly t: readonly number[];
  /** Number of samples in each step. */
  readonly samples: readonly number[];
  readonly gpus: readonly GpuMetricHistory[];
}

/** A client's request for the hardware counters, which are read while any client requests them. */
export interface ActivityRequest {
  readonly type: 'activity';
  readonly wanted: boolean;
}

/** A client's request for fewer samples than the server takes. */
export interface RateRequest {
  readonly type: 'rate';
  /** Minimum seconds from one sample to the next, 0 to 60; never less than the server's own interval. */
  readonly interval_s: number;
}

/** The default torch device of one kernel: the choice, and torch's own value. */
export interface DeviceState {
  /** The last choice, `cpu` or `cuda:N`; null for torch's own default. */
  readonly chosen: string | null;
  /** Whether new tensors go there too (torch.set_default_device), or only the current CUDA device changes. */
  readonly new_tensors: boolean;
  /** Whether the choice is stored and not applied yet: it applies from the next cell. */
  readonly pending: boolean;
  /** torch's default device on the cells' thread when a cell last started or ended; null while unknown. */
  readonly present: string | null;
  /** A sentence for the user, or null. */
  readonly note: string | null;
}

/** A device to choose, and the GPU behind it. */
export interface DeviceChoice {
  /** `cpu` or `cuda:N`, torch's name. */
  readonly device: string;
  /** NVML's UUID of the GPU; null for the CPU and while it is unknown which GPU it will be. */
  readonly uuid: string | null;
  /** NVML's index, nvidia-smi's number. */
  readonly index: number | null;
  /** Product name. */
  readonly name: string | null;
  /** As "9.0". */
  readonly compute_capability: string | null;
  /** Bytes. */
  readonly memory_total: number | null;
  /** Bytes that no process uses; null where unknown. */
  readonly memory_free: number | null;
  /**
   * The processes with a context on it: "this notebook" and others; empty where unknown. The names of other
   * users and of their notebooks are only in a `KernelState`, which no notebook saves.
   */
  readonly holders: readonly string[];
}

/** This kernel's share of one GPU. */
export interface KernelGpu {
  readonly uuid: string;
  /** `cuda:N` in this kernel; null where it is no torch device, or unknown. */
  readonly torch_device: string | null;
  /** Bytes held by the kernel and its children, null where unknown. */
  readonly process_memory: number | null;
  /**
   * Bytes that torch's allocator in the kernel's process has reserved, with its cache and without the CUDA
   * context; null where torch is not loaded, CUDA is not initialized or the value is unknown.
   */
  readonly torch_reserved: number | null;
  /** Whether the kernel is known to have a CUDA context there, which stays until its process ends. */
  readonly context: boolean;
}

/** One of torch's switches that trade speed for precision or reproducibility. */
export interface Switch {
  /** As `cudnn.benchmark`. */
  readonly name: string;
  /** Its name for users. */
  readonly title: string;
  /** The current choice; null where it can't be read. */
  readonly value: string | null;
  readonly choices: readonly string[];
  /** torch's default. */
  readonly default: string;
  /** The requested choice, which applies from the next cell; null without one. */
  readonly pending: string | null;
  /** The Python statement that applies the pending choice; else the last one that ran for it, or null. */
  readonly statement: string | null;
  /** What it trades for what, in sentences. */
  readonly trades: string;
  /** Why its value is unknown or was not set, or a remark; a sentence or null. */
  readonly note: string | null;
}

/** The state that a kernel sends to a view. */
export interface KernelState {
  readonly schema: number;
  /** gpuwidget's, in the kernel's environment. */
  readonly version: string;
  /** The kernel's process id in its namespace. */
  readonly pid: number;
  /** Version of the loaded torch, null without one. */
  readonly torch: string | null;
  /** Whether torch has initialized CUDA in the kernel's process. */
  readonly cuda_initialized: boolean;
  /** Whether every cell leaves a one-line card (`%gpu watch on`). */
  readonly watching: boolean;
  readonly device: DeviceState;
  readonly choices: readonly DeviceChoice[];
  /** Why there is nothing to choose, as a sentence, or null. */
  readonly unavailable: string | null;
  /** One for each GPU of the kernel's source of readings, in NVML's order. */
  readonly gpus: readonly KernelGpu[];
  /** torch's switches; without a value while torch is not loaded. */
  readonly switches: readonly Switch[];
}

/** The first message of a stream. */
export interface InitialMessage {
  readonly type: 'hello';
  readonly schema: number;
  /** Version of gpuwidget in the server. */
  readonly version: string;
  /** Seconds from one sample to the next. */
  readonly interval_s: number;
  /** Seconds of history that the server stores at most. */
  readonly history_s: number;
  /**
   * The command that installs gpuwidget, quoted for a shell, as `pip install 'my wheel.whl'`; null if the
   * administrator configured none.
   */
  readonly install: string | null;
  /** Address of the documentation; null while there is no public one. */
  readonly documentation: string | null;
  /** The newest sample; null if there were no clients before; the next message then contains one. */
  readonly sample: Sample | null;
  /** The stored history, including `sample`. */
  readonly history: History;
}

/** A message of a stream: a sample. */
export interface SampleMessage {
  readonly type: 'sample';
  readonly sample: Sample;
}

/**
 * A message of a stream: a sample as the changes since the one that the client was sent before.
 *
 * Its `origin` and `gpus` are the same.
 */
export interface SampleChanges {
  readonly type: 'changes';
  /** `Sample.time`. */
  readonly time: number;
  /** For each of the sample's readings, in the same order: the fields whose values changed. */
  readonly readings: readonly Partial<Reading>[];
}

/** One of this server's kernels. */
export interface ServerKernel {
  /** Jupyter's id of the kernel, as in `GET api/kernels`. */
  readonly id: string;
  /** Name of its kernelspec, as `python3`. */
  readonly spec: string;
  readonly state: 'starting' | 'idle' | 'busy' | 'restarting' | 'dead' | 'unknown';
  /** Since when it has been idle, epoch seconds; null while it is busy or if unknown. */
  readonly idle_since: number | null;
  /** Jupyter's id of its session; null without a session. */
  readonly session: string | null;
  /** Type of the session: `notebook`, `console` or another front end's; null without a session. */
  readonly kind: string | null;
  /** Path of the notebook's file under the server's root; null without a file. */
  readonly path: string | null;
  /** Name of the notebook's file, or of the session; null without a session. */
  readonly name: string | null;
}

/** GPU memory of one kernel with its child processes, one terminal or one other process. */
export interface MemoryHolder {
  /** `ServerKernel.id` of the kernel; null if it is none of this server's. */
  readonly kernel: string | null;
  /** Name of the server's terminal, as in `GET api/terminals`; null if it is none. */
  readonly terminal: string | null;
  /** Process id as NVML reports it; null for several processes. */
  readonly pid: number | null;
  /** Login name of its owner; null if unreadable, and for a kernel or a terminal. */
  readonly user: string | null;
  /** File name of its executable, with its script or module; null if unreadable, and for a kernel. */
  readonly program: string | null;
  /** Its other arguments, shortened and without possible secrets; null if `program` is null. */
  readonly arguments: string | null;
  /** Bytes; null if unknown. */
  readonly memory: number | null;
  /**
   * Source of `memory`: the driver's process list, or torch in the kernel (its reserved bytes, without the
   * CUDA context) if process ids can't be matched.
   */
  readonly source: 'driver' | 'torch';
}

/** The mean utilization of a GPU over a window that ends now. */
export interface MeanUtilization {
  /** Length of the window. */
  readonly seconds: number;
  /** Percent; null if the window was not sampled completely. */
  readonly utilization: number | null;
}

/** The holders of the memory of one GPU. */
export interface GpuMemoryOwnership {
  readonly uuid: string;
  /** Most memory first. */
  readonly holdings: readonly MemoryHolder[];
  /** Used bytes that belong to none of them; null if unknown. */
  readonly unattributed: number | null;
  /** Why some memory can't be attributed, as a sentence; null if all can. */
  readonly reason: string | null;
  /** Shortest window first. */
  readonly means: readonly MeanUtilization[];
}

/** A message of a stream: who owns the memory. Sent after the initial message, resent when it changes. */
export interface MemoryOwnership {
  readonly type: 'usage';
  /** Epoch seconds. */
  readonly time: number;
  /** All of this server's kernels, including those without GPU memory. */
  readonly kernels: readonly ServerKernel[];
  /** One for each of the sample's GPUs, in the same order. */
  readonly gpus: readonly GpuMemoryOwnership[];
}

/** Request the kernel's state. */
export interface StateRequest {
  readonly schema: number;
  readonly ask: 'state';
}

/** Set the default torch device. */
export interface SetDeviceRequest {
  readonly schema: number;
  readonly ask: 'set_device';
  /** `cuda:1` or `cpu`; null restores the device from before the first choice. */
  readonly device: string | null;
  /** Whether new tensors go there too; false changes only the current CUDA device. */
  readonly new_tensors: boolean;
}

/** Turn the watching of every cell on or off. */
export interface WatchRequest {
  readonly schema: number;
  readonly ask: 'watch';
  readonly on: boolean;
}

/**
 * Release torch's cached memory to the driver, also while a cell runs.
 *
 * The reply may take as long as the GPU's current work; other requests are answered meanwhile.
 */
export interface FreeCacheRequest {
  readonly schema: number;
  readonly ask: 'free_cache';
}

/** Set one of torch's switches: at once, or, while a cell runs, before the next cell. */
export interface SwitchRequest {
  readonly schema: number;
  readonly ask: 'set_switch';
  /** As `Switch.name`. */
  readonly name: string;
  /** One of its choices. */
  readonly value: string;
}

/**
 * Run the doctor's checks.
 *
 * The reply takes seconds, a minute at most; other requests are answered meanwhile.
 */
export interface DoctorRequest {
  readonly schema: number;
  readonly ask: 'doctor';
}

/** The request succeeded. */
export interface OkReply {
  readonly status: 'ok';
  /** A message for the user: what ran, and its result; null where the state shows it. */
  readonly done: string | null;
  /** The state after it. */
  readonly state: KernelState;
}

/** The request failed. */
export interface ErrorReply {
  readonly status: 'error';
  /** The reason, as a sentence for the user. */
  readonly reason: string;
  /** The current state, null where it can't be read either. */
  readonly state: KernelState | null;
}

/** The result of one check, with the reason and the fix where it is not ok. */
export interface Check {
  /**
   * Its id, the same in every version: `torch`, `cuda`, `cudnn`, `nccl`, `driver`, `device_files`, `gpu`, in
   * the order of the chain; then `visible`, `sharing`, `health`, `pcie`, `peers`, `shm` and `package`.
   */
  readonly id: string;
  /** Its name for users. */
  readonly title: string;
  /**
   * `broken`: torch can't compute on a GPU until it is fixed. `warning`: it works, but worse than it could or
   * not for long. `unknown`: it could not be checked. `skipped`: there is nothing to check, which is no
   * fault.
   */
  readonly status: 'ok' | 'broken' | 'warning' | 'unknown' | 'skipped';
  /** The observation, in a few words. */
  readonly found: string;
  /** Why it is not `ok`, as a sentence; null where it is `ok`. */
  readonly reason: string | null;
  /** The fix, as a sentence; null where nothing is to be done. */
  readonly remedy: string | null;
  /** The shell command in `remedy`, ready to run; null without one. */
  readonly command: string | null;
  /** The values read, by name, without those that change from minute to minute. */
  readonly evidence: Readonly<Record<string, string>>;
}

/** The results of all checks of one environment on one machine at one moment. */
export interface Diagnosis {
  readonly schema: number;
  /** gpuwidget's version in that environment. */
  readonly version: string;
  /** When the checks ran, epoch seconds. */
  readonly time: number;
  /** The process whose environment was checked. */
  readonly place: 'kernel' | 'server' | 'shell';
  /** Path of its Python interpreter. */
  readonly python: string;
  /** Its environment variables that concern GPUs, by name; no other variable is read. */
  readonly variables: Readonly<Record<string, string>>;
  /** The worst status of the checks: `warning` also where one is `unknown`. */
  readonly status: 'ok' | 'broken' | 'warning';
  /** One sentence about all: the first broken check, or that all is well. */
  readonly summary: string;
  /** The steps that did not finish, as `'import torch'`; empty where all did. */
  readonly unfinished: readonly string[];
  /** The checks from PyTorch down to the GPU, then the others. */
  readonly links: readonly Check[];
}

/** The reply to `DoctorRequest`. */
export interface DoctorReply {
  readonly status: 'examined';
  readonly doctor: Diagnosis;
  /** The current state, null where it can't be read. */
  readonly state: KernelState | null;
}

/** What comes over the stream. */
export type StreamMessage = InitialMessage | SampleMessage | SampleChanges | MemoryOwnership;

/** The same where changes have been applied: every sample is whole. */
export type ReceivedMessage = InitialMessage | SampleMessage | MemoryOwnership;

/** The content of a question to a kernel. */
export type KernelRequest =
  StateRequest | SetDeviceRequest | WatchRequest | FreeCacheRequest | SwitchRequest | DoctorRequest;

/** The content of a kernel's answer. */
export type KernelReply = OkReply | ErrorReply | DoctorReply;
