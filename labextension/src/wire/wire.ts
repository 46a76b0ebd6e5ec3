// GENERATED from gpuwidget's dataclasses by `python -m tools.wire`: change those, never this file.

import {
  amount,
  count,
  dictionary,
  flag,
  index,
  later,
  list,
  nullable,
  number,
  object,
  oneOf,
  orElse,
  orNull,
  record,
  series,
  size,
  text,
  texts,
  time,
  times,
  union,
  unread,
  validItems,
  webAddress,
  within
} from './parsing';

/** Version of the stream's messages that this labextension reads. */
export const STREAM_SCHEMA = 2;

/** Version of single samples that this labextension reads. */
export const SAMPLE_SCHEMA = 1;

/** Version of the kernel's replies that this labextension reads. */
export const KERNEL_SCHEMA = 1;

/** Message type of a request to a kernel. */
export const KERNEL_REQUEST = 'gpuwidget_request';

/** Message type of a kernel's reply. */
export const KERNEL_REPLY = 'gpuwidget_reply';

/** Python code that loads gpuwidget in a kernel: gpuwidget/kernel/load_from_panel.py. */
export const LOAD_CODE = `import os
import sys
from _frozen_importlib_external import PathFinder
from _thread import get_ident
_NAME = "gpuwidget"
_DISTRIBUTION = "jupyterlab_gpuwidget-"
class _SafeFinder(PathFinder):
 thread = get_ident()
 trusted = ()
 @classmethod
 def find_spec(
  cls, fullname, path = None, target = None
 ):
  if path is None and get_ident() == cls.thread:
   path = cls.trusted
  return PathFinder.find_spec(fullname, path, target)
def load(shell):
 untrusted = _untrusted_folders(shell)
 _SafeFinder.trusted = tuple(entry for entry in _entries() if _real(entry) not in untrusted)
 sys.meta_path[sys.meta_path.index(PathFinder)] = _SafeFinder
 try:
  outcome, detail = _load(shell, untrusted)
 finally:
  sys.meta_path[sys.meta_path.index(_SafeFinder)] = PathFinder
 return f"{outcome} {detail.encode('utf-8', 'replace').hex()}"
def _load(shell, untrusted):
 package = _package()
 if package is not None:
  folder = _real(os.path.dirname(package))
  if folder in untrusted:
   if folder not in _source_folders(_SafeFinder.trusted):
    return "refused", os.path.abspath(package)
   _SafeFinder.trusted = (*_SafeFinder.trusted, folder)
 try:
  module = __import__(_NAME)
 except ModuleNotFoundError as error:
  if error.name != _NAME:
   raise
  return "not-installed", ""
 if hasattr(module, "load_ipython_extension"):
  _import_pynvml()
 if shell.extension_manager.load_extension(_NAME) == "no load function":
  return "other-package", ""
 warm_up_now = getattr(sys.modules.get(f"{_NAME}.kernel.magics"), "warm_up_now", None)
 if warm_up_now is not None:
  warm_up_now()
 return "loaded", str(getattr(module, "__version__", ""))
def _import_pynvml():
 try:
  __import__("pynvml")
 except ImportError:
  if PathFinder.find_spec("pynvml", _entries()) is not None:
   raise
def _entries():
 return [entry for entry in sys.path if isinstance(entry, str)]
def _untrusted_folders(shell):
 start = str(getattr(shell, "starting_dir", os.curdir))
 notebook = os.environ.get("JPY_SESSION_NAME", "")
 python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
 folders = [
  os.curdir,
  start,
  *([os.path.dirname(notebook)] if os.path.isabs(notebook) else []),
  *(os.path.join(start, entry) for entry in python_path if not os.path.isabs(entry)),
  *(entry for entry in _entries() if not os.path.isabs(entry)),
 ]
 return {_real(folder) for folder in folders}
def _package():
 loaded = sys.modules.get(_NAME)
 specs = (
  [PathFinder.find_spec(_NAME, [entry]) for entry in _entries()]
  if loaded is None
  else [getattr(loaded, "__spec__", None)]
 )
 for spec in specs:
  if spec is not None and spec.loader is not None and spec.origin is not None:
   is_package = os.path.basename(spec.origin).startswith("__init__.")
   return os.path.dirname(spec.origin) if is_package else spec.origin
 return None
def _source_folders(entries):
 import json
 from urllib.parse import urlsplit
 from urllib.request import url2pathname
 found = set()
 for entry in entries:
  try:
   names = [name for name in os.listdir(entry) if name.startswith(_DISTRIBUTION)]
  except OSError:
   continue
  for name in names:
   try:
    with open(os.path.join(entry, name, "direct_url.json"), encoding="utf-8") as file:
     direct_url = json.load(file)
    url = urlsplit(direct_url["url"])
    if url.scheme == "file" and direct_url["dir_info"]["editable"] is True:
     project = url2pathname(url.path)
     found |= {_real(project), _real(os.path.join(project, "src"))}
   except (OSError, ValueError, KeyError, TypeError, AttributeError):
    continue
 return found
def _real(folder):
 try:
  return os.path.normcase(os.path.realpath(folder))
 except (OSError, ValueError):
  return folder
`;

/** Errors of the driver (XID) that a user's own program may cause, or that need no action. */
export const SILENT_XIDS = [13, 14, 31, 38, 43, 44, 45, 63, 67, 68, 92, 93, 106, 107, 109, 121, 141, 157];

/** Reasons why a clock is throttled, the worst first. A newer driver may report others. */
export const THROTTLE_REASONS = [
  'too hot (hardware)',
  'power brake',
  'hardware slowdown',
  'too hot',
  'power cap',
  'board limit',
  'reliability limit',
  'clock setting',
  'sync boost',
  'display setting',
  'idle'
] as const;
export type ThrottleReason = (typeof THROTTLE_REASONS)[number];

/** Throttle reasons that indicate a problem of power or cooling. */
export const HARMFUL_THROTTLE_REASONS: readonly ThrottleReason[] = [
  'too hot (hardware)',
  'power brake',
  'hardware slowdown',
  'too hot'
];

/** Identifies a message for programs. Unlike the text, the id does not change between versions. */
export interface MessageId {
  readonly id: string;
  /** The values that the message's text contains, by name. */
  readonly params: Readonly<Record<string, unknown>>;
}
export const MessageId = object<MessageId>({
  id: text,
  params: record
});

/** The source of the readings. */
export interface Origin {
  /** `nvml` for the driver's GPUs, `replay` for a recording, `none` if there is no GPU. */
  readonly kind: 'nvml' | 'replay' | 'none';
  /** Why there is no GPU and what to do, or null if there is one. */
  readonly reason: string | null;
  /** The id of `reason`. */
  readonly reason_id: MessageId | null;
  /** The recording's label, which every view of the recording's values shows. null for live GPUs. */
  readonly recording: string | null;
  /** Driver version: nvmlSystemGetDriverVersion (nvidia-smi: Driver Version). */
  readonly driver: string | null;
  /**
   * Newest CUDA version that the driver supports, such as "13.0": nvmlSystemGetCudaDriverVersion_v2
   * (nvidia-smi: CUDA Version).
   */
  readonly cuda_driver: string | null;
}
export const Origin = object<Origin>({
  kind: oneOf('nvml', 'replay', 'none'),
  reason: orNull(text),
  reason_id: unread(null),
  recording: nullable(text),
  driver: orNull(text),
  cuda_driver: orNull(text)
});

/** Identity and constant properties of a GPU or MIG slice. */
export interface Gpu {
  /** `GPU-…` or `MIG-…`: nvmlDeviceGetUUID (nvidia-smi -L). The UUID identifies the GPU in all data. */
  readonly uuid: string;
  /** NVML's index, as in nvidia-smi. A MIG slice has the index of its parent. */
  readonly index: number;
  /** Index of a MIG slice within its parent (nvidia-smi -L: MIG Device), or null for a whole GPU. */
  readonly mig_index: number | null;
  /** UUID of the GPU that a MIG slice is part of, or null for a whole GPU. */
  readonly mig_parent: string | null;
  /** Product name: nvmlDeviceGetName. */
  readonly name: string;
  /** PCI bus id, such as "00000000:17:00.0": nvmlDeviceGetPciInfo_v3. */
  readonly pci_bus_id: string | null;
  /** Bytes of memory: nvmlDeviceGetMemoryInfo_v2 total. */
  readonly memory_total: number | null;
  /**
   * Bytes of `memory_total` that the driver reserves and that `memory_used` does not include:
   * nvmlDeviceGetMemoryInfo_v2 reserved. 0 if the driver counts reserved bytes as used.
   */
  readonly memory_reserved: number | null;
  /**
   * Whether the GPU uses the host's memory, as GB10 and Jetson do. If so, `memory_*` describe the host's
   * memory.
   */
  readonly unified_memory: boolean;
  /** Compute capability, such as "9.0": nvmlDeviceGetCudaComputeCapability. */
  readonly compute_capability: string | null;
  /**
   * Peak float32 operations per second, without tensor cores: two per core (nvmlDeviceGetNumGpuCores) and
   * cycle of the highest SM clock (nvmlDeviceGetMaxClockInfo). null for a MIG slice.
   */
  readonly peak_fp32_flops: number | null;
  /**
   * Peak bytes per second between the GPU and its memory: two transfers of the bus's width
   * (nvmlDeviceGetMemoryBusWidth) per cycle of the highest memory clock (nvmlDeviceGetMaxClockInfo). null for
   * a MIG slice.
   */
  readonly memory_bandwidth: number | null;
}
export const Gpu = object<Gpu>({
  uuid: text,
  index: index,
  mig_index: nullable(index),
  mig_parent: nullable(text),
  name: text,
  pci_bus_id: orNull(text),
  memory_total: count,
  memory_reserved: count,
  unified_memory: flag,
  compute_capability: orNull(text),
  peak_fp32_flops: amount,
  memory_bandwidth: amount
});

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
  /**
   * Percent of time during which any graphics or compute engine was active, NVML_GPM_METRIC_GRAPHICS_UTIL.
   */
  readonly graphics: number | null;
  /** Multiprocessors that had work, in percent, NVML_GPM_METRIC_SM_UTIL. */
  readonly sm: number | null;
  /** Resident warps, in percent of the maximum, NVML_GPM_METRIC_SM_OCCUPANCY. */
  readonly sm_occupancy: number | null;
  /** Tensor-core pipes in use, in percent, NVML_GPM_METRIC_ANY_TENSOR_UTIL. */
  readonly tensor: number | null;
  /** Memory bandwidth in use, in percent, NVML_GPM_METRIC_DRAM_BW_UTIL. */
  readonly dram: number | null;
  /** Double-precision pipes in use, in percent, NVML_GPM_METRIC_FP64_UTIL. */
  readonly fp64: number | null;
  /** Single-precision pipes in use, in percent, NVML_GPM_METRIC_FP32_UTIL. */
  readonly fp32: number | null;
  /** Half-precision pipes in use, in percent, NVML_GPM_METRIC_FP16_UTIL. */
  readonly fp16: number | null;
  /** Bytes per second sent by the GPU over PCIe, NVML_GPM_METRIC_PCIE_TX_PER_SEC. */
  readonly pcie_tx: number | null;
  /** Bytes per second received by the GPU over PCIe, NVML_GPM_METRIC_PCIE_RX_PER_SEC. */
  readonly pcie_rx: number | null;
  /** Bytes per second sent over all NVLinks, NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC. */
  readonly nvlink_tx: number | null;
  /** Bytes per second received over all NVLinks, NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC. */
  readonly nvlink_rx: number | null;
}
export const Activity = object<Activity>({
  since: time,
  until: time,
  graphics: amount,
  sm: amount,
  sm_occupancy: amount,
  tensor: amount,
  dram: amount,
  fp64: amount,
  fp32: amount,
  fp16: amount,
  pcie_tx: amount,
  pcie_rx: amount,
  nvlink_tx: amount,
  nvlink_rx: amount
});

/** One process that has a context on a GPU. */
export interface Process {
  /**
   * Process id on the host, as NVML reports it. In a container, the id may belong to no process or to an
   * unrelated one.
   */
  readonly pid: number;
  /**
   * Which of NVML's two lists, compute or graphics processes, contains the process. A process that is in both
   * lists appears once, as `compute`.
   */
  readonly kind: 'compute' | 'graphics';
  /**
   * Bytes that the process holds (usedGpuMemory), or null if the driver does not report them (on WSL, with
   * WDDM).
   */
  readonly memory: number | null;
  /**
   * Login name of the process's owner. null if it can't be read, or if the driver's process ids are not valid
   * on this system, as in some containers. It is not part of `repr`, because a notebook may save that.
   */
  readonly user: string | null;
  /**
   * File name of the executable, with its script or module (`python train.py`). null if it can't be read, or
   * if the driver's process ids are not valid on this system, as in some containers.
   */
  readonly program: string | null;
}

/** The values of one GPU at one moment, assembled from calls made at different rates. */
export interface Reading {
  readonly uuid: string;
  /** When a call to the GPU last succeeded, epoch seconds; null before the first success. */
  readonly answered: number | null;
  /** Since when a call to it has not returned, epoch seconds; null while it answers. */
  readonly silent_since: number | null;
  /**
   * When the driver first reported the GPU as lost (off the bus or in need of a reset), epoch seconds; null
   * if the GPU is not lost.
   */
  readonly lost_since: number | null;
  /**
   * When `utilization`, `memory_utilization` and `power_w` were read, epoch seconds; between two such reads,
   * a sample may have a new `memory_used` only. null before the first read.
   */
  readonly measured: number | null;
  /**
   * Percent of time during which any kernel ran, over the driver's last window, nvmlDeviceGetUtilizationRates
   * gpu (nvidia-smi: utilization.gpu). It does not measure how much of the GPU worked: see `activity`.
   */
  readonly utilization: number | null;
  /**
   * Percent of time during which device memory was read or written, over the driver's last window,
   * nvmlDeviceGetUtilizationRates memory (nvidia-smi: utilization.memory).
   */
  readonly memory_utilization: number | null;
  /**
   * Bytes in use, without those that the driver reserves, nvmlDeviceGetMemoryInfo_v2 used (nvidia-smi:
   * memory.used).
   */
  readonly memory_used: number | null;
  /** Power draw in watts, NVML_FI_DEV_POWER_INSTANT (nvidia-smi: power.draw.instant). */
  readonly power_w: number | null;
  /** Power limit in watts, nvmlDeviceGetEnforcedPowerLimit (nvidia-smi: enforced.power.limit). */
  readonly power_limit_w: number | null;
  /** Temperature of the core in degrees Celsius, nvmlDeviceGetTemperature (nvidia-smi: temperature.gpu). */
  readonly temperature_c: number | null;
  /**
   * Temperature of the memory in degrees Celsius, NVML_FI_DEV_MEMORY_TEMP (nvidia-smi: temperature.memory).
   */
  readonly memory_temperature_c: number | null;
  /** Clock of the multiprocessors in MHz, nvmlDeviceGetClockInfo SM (nvidia-smi: clocks.sm). */
  readonly sm_clock_mhz: number | null;
  /** Clock of the memory in MHz, nvmlDeviceGetClockInfo MEM (nvidia-smi: clocks.mem). */
  readonly memory_clock_mhz: number | null;
  /** Performance state, from 0 (fastest) to 15, nvmlDeviceGetPerformanceState (nvidia-smi: pstate). */
  readonly pstate: number | null;
  /**
   * Intended fan speed in percent of the fan's maximum; may exceed 100, nvmlDeviceGetFanSpeed (nvidia-smi:
   * fan.speed).
   */
  readonly fan_speed: number | null;
  /**
   * Percent of time during which the video encoder worked, over the driver's last window,
   * nvmlDeviceGetEncoderUtilization (nvidia-smi: utilization.encoder).
   */
  readonly encoder_utilization: number | null;
  /**
   * Percent of time during which the video decoder worked, over the driver's last window,
   * nvmlDeviceGetDecoderUtilization (nvidia-smi: utilization.decoder).
   */
  readonly decoder_utilization: number | null;
  /**
   * Reasons why the clock is throttled; empty if it is not (nvmlDeviceGetCurrentClocksEventReasons,
   * nvidia-smi: clocks_event_reasons).
   */
  readonly throttle: readonly string[] | null;
  /**
   * Energy in joules that the GPU has used since the driver was loaded, nvmlDeviceGetTotalEnergyConsumption.
   */
  readonly energy_j: number | null;
  /**
   * Seconds over which the driver averages `utilization` (0.2 on an H200), nvmlDeviceGetSamples
   * NVML_GPU_UTILIZATION_SAMPLES.
   */
  readonly utilization_window: number | null;
  /**
   * Number of uncorrected memory errors since the driver was loaded, nvmlDeviceGetTotalEccErrors uncorrected
   * volatile (nvidia-smi: ecc.errors.uncorrected.volatile.total).
   */
  readonly ecc_uncorrected: number | null;
  /**
   * Number of the newest error that the driver reported since this source was opened (XID,
   * nvmlEventTypeXidCriticalError), read once a minute, kept for a lost GPU. null if there was none or if it
   * is unknown; in the second case `missing` has the reason.
   */
  readonly xid: number | null;
  /**
   * When that error was read, up to a minute after it was reported, epoch seconds; null if there is no such
   * error.
   */
  readonly xid_time: number | null;
  /** The newest window of the hardware counters, or null without GPM or while no view shows it. */
  readonly activity: Activity | null;
  /** Processes that have a context on the GPU; null if the driver does not list them. */
  readonly processes: readonly Process[] | null;
  /** The reason for each field that is null, by field name. */
  readonly missing: Readonly<Record<string, string>>;
  /** The ids of `missing`, by field name. */
  readonly missing_ids: Readonly<Record<string, MessageId>>;
}
export const Reading = object<Reading>({
  uuid: text,
  answered: orNull(time),
  silent_since: nullable(time),
  lost_since: nullable(time),
  measured: orNull(time),
  utilization: amount,
  memory_utilization: amount,
  memory_used: count,
  power_w: amount,
  power_limit_w: amount,
  temperature_c: number,
  memory_temperature_c: number,
  sm_clock_mhz: amount,
  memory_clock_mhz: amount,
  pstate: count,
  fan_speed: amount,
  encoder_utilization: amount,
  decoder_utilization: amount,
  throttle: orNull(list(text)),
  energy_j: amount,
  utilization_window: amount,
  ecc_uncorrected: count,
  xid: count,
  xid_time: orNull(time),
  activity: orNull(Activity),
  processes: unread(null),
  missing: texts,
  missing_ids: unread({})
});

/** All GPUs at one moment. */
export interface Sample {
  readonly schema: number;
  /** Time at which the sample was assembled, in epoch seconds. */
  readonly time: number;
  readonly origin: Origin;
  /** All GPUs of the source, including lost ones, in NVML's order. A whole GPU precedes its MIG slices. */
  readonly gpus: readonly Gpu[];
  /** One reading per entry of `gpus`, in the same order. */
  readonly readings: readonly Reading[];
}
export const Sample = object<Sample>({
  schema: oneOf(SAMPLE_SCHEMA),
  time: time,
  origin: Origin,
  gpus: list(Gpu),
  readings: list(Reading)
});

/** The history of one GPU. Every list has the same length as `History.t`; unknown values are null. */
export interface GpuHistory {
  readonly uuid: string;
  /** Percent, like `Reading.utilization`. */
  readonly utilization: readonly (number | null)[];
  /** Bytes, like `Reading.memory_used`. */
  readonly memory_used: readonly (number | null)[];
  /** Watts, like `Reading.power_w`. */
  readonly power_w: readonly (number | null)[];
}
export const GpuHistory = object<GpuHistory>({
  uuid: text,
  utilization: series(amount),
  memory_used: series(count),
  power_w: series(amount)
});

/**
 * The samples that were taken while there were clients, oldest first. `t` has a gap for each period without
 * clients.
 */
export interface History {
  /** Time of each sample in epoch seconds, ascending. */
  readonly t: readonly number[];
  readonly gpus: readonly GpuHistory[];
}
export const History = object<History>({
  t: times,
  gpus: validItems(GpuHistory)
});

/**
 * Time series of one metric. Every list has the same length as `MetricHistory.t`; unknown values are null.
 */
export interface MetricSeries {
  readonly mean: readonly (number | null)[];
  /** The lowest sample of each step, not rounded. null if it equals the mean in every step. */
  readonly min: readonly (number | null)[] | null;
  /** The highest sample of each step, not rounded. null if `min` is null. */
  readonly max: readonly (number | null)[] | null;
}
export const MetricSeries = object<MetricSeries>({
  mean: series(number),
  min: nullable(series(number)),
  max: nullable(series(number))
});

/** The time series of one GPU. */
export interface GpuMetricHistory {
  readonly uuid: string;
  /**
   * Time series in the unit of the metric, by the name of a field of `Reading` or of its `activity`. Metrics
   * without a known value in the requested time are omitted.
   */
  readonly metrics: Readonly<Record<string, MetricSeries>>;
}
export const GpuMetricHistory = object<GpuMetricHistory>({
  uuid: text,
  metrics: dictionary(MetricSeries)
});

/** A part of the history at the requested resolution: the response to `history?metrics=…`. */
export interface MetricHistory {
  /** Start of the requested time in epoch seconds. */
  readonly since: number;
  /** End of the requested time in epoch seconds. */
  readonly until: number;
  /** Length in seconds of the step that begins at each time in `t`; 0 if each entry is one sample. */
  readonly step_s: number;
  /**
   * Time of the newest sample in the response, in epoch seconds. Later samples arrive with the stream. null
   * without samples.
   */
  readonly newest: number | null;
  /** Start of each step in epoch seconds, ascending. Steps without a sample are omitted. */
  readonly t: readonly number[];
  /** Number of samples in each step; null if unknown. */
  readonly samples: readonly (number | null)[];
  readonly gpus: readonly GpuMetricHistory[];
}
export const MetricHistory = object<MetricHistory>({
  since: time,
  until: time,
  step_s: size,
  newest: orNull(time),
  t: times,
  samples: series(count),
  gpus: validItems(GpuMetricHistory)
});

/** A client's request for the hardware counters. They are read as long as any client requests them. */
export interface ActivityRequest {
  readonly type: 'activity';
  readonly wanted: boolean;
}

/** A client's request to receive fewer samples than the server takes. */
export interface RateRequest {
  readonly type: 'rate';
  /** Minimum seconds between samples, 0 to 60. Values below the server's sampling interval have no effect. */
  readonly interval_s: number;
}

/** One machine whose GPUs Prometheus monitors. */
export interface ClusterNode {
  /** Host name. The same machine has one name, whichever exporters run on it. */
  readonly name: string;
  /** Whether Prometheus's last scrape of any of the node's exporters returned its GPUs. */
  readonly up: boolean;
  /** Time of the newest value in epoch seconds; null if unknown. */
  readonly last_seen: number | null;
}
export const ClusterNode = object<ClusterNode>({
  name: text,
  up: flag,
  last_seen: orNull(time)
});

/** One GPU in the cluster. A GPU that several exporters report is one entry. Unknown values are null. */
export interface ClusterGpu {
  /** NVML's UUID. For a MIG slice, it may be the UUID of its GPU, a slash and the id of the GPU instance. */
  readonly uuid: string;
  /** `ClusterNode.name` of the GPU's machine. */
  readonly node: string;
  /** NVML's index of the GPU on its machine. */
  readonly index: number | null;
  /** Product name, such as `NVIDIA H200`. */
  readonly model: string | null;
  /** Profile of the MIG slice, such as `1g.18gb`; null for a whole GPU. */
  readonly mig: string | null;
  readonly exporters: readonly ('gpuwidget' | 'dcgm' | 'nvidia_gpu')[];
  /** Percent, like `Reading.utilization`. */
  readonly utilization: number | null;
  /** Bytes. */
  readonly memory_used: number | null;
  /** Bytes. */
  readonly memory_total: number | null;
  /** Watts. */
  readonly power_w: number | null;
  /** Watts. */
  readonly power_limit_w: number | null;
  /** Degrees Celsius. */
  readonly temperature_c: number | null;
  /** The newest XID error within the last hour; null if there was none or if it is unknown. */
  readonly xid: number | null;
  /** Number of uncorrected memory errors within the last hour. */
  readonly ecc_uncorrected: number | null;
  /** Whether an exporter reports that the GPU no longer responds, or answers but no longer lists it. */
  readonly lost: boolean;
  /**
   * Seconds for which the GPU has held memory without any utilization, up to an hour; 0 if it was utilized in
   * the last interval or holds no memory.
   */
  readonly idle_s: number | null;
  /** Names of the users whose processes use the GPU, as far as an exporter reports them. */
  readonly users: readonly string[];
  /**
   * Names of the notebooks that hold memory on the GPU or, if the administrator exports no names, their ids.
   */
  readonly notebooks: readonly string[];
  /** The job or pod that uses the GPU, as reported by dcgm-exporter, such as a Slurm job's id. */
  readonly job: string | null;
}
export const ClusterGpu = object<ClusterGpu>({
  uuid: text,
  node: text,
  index: count,
  model: orNull(text),
  mig: orNull(text),
  exporters: validItems(oneOf('gpuwidget', 'dcgm', 'nvidia_gpu')),
  utilization: amount,
  memory_used: count,
  memory_total: count,
  power_w: amount,
  power_limit_w: amount,
  temperature_c: number,
  xid: count,
  ecc_uncorrected: count,
  lost: flag,
  idle_s: amount,
  users: list(text),
  notebooks: list(text),
  job: orNull(text)
});

/** The newest values of all GPUs in the cluster: the response to `GET api/cluster`. */
export interface ClusterSnapshot {
  /** Time of the values in epoch seconds. null if Prometheus has not answered yet. */
  readonly time: number | null;
  /** Seconds after which a further request may return newer values. */
  readonly interval_s: number;
  /** Sentences that explain why values are missing or old; null if there is no problem. */
  readonly problem: string | null;
  /** All nodes, by name. A node that no longer answers stays in the list for an hour. */
  readonly nodes: readonly ClusterNode[];
  /** All GPUs, ordered by node and index. */
  readonly gpus: readonly ClusterGpu[];
}
export const ClusterSnapshot = object<ClusterSnapshot>({
  time: nullable(time),
  interval_s: size,
  problem: nullable(text),
  nodes: list(ClusterNode, 100_000),
  gpus: list(ClusterGpu, 100_000)
});

/** Why a run died. */
export interface RunDeath {
  /** A `Cause`. Later versions may have more. */
  readonly cause: string;
  readonly certainty: 'certain' | 'likely' | 'unknown';
  /**
   * Sentences for the user, in the page's language: why the run died and, unless that is certain, what was
   * checked.
   */
  readonly text: string;
}
export const RunDeath = object<RunDeath>({
  cause: text,
  certainty: oneOf('certain', 'likely', 'unknown'),
  text: text
});

/** One run of the journal. */
export interface JournalRun {
  readonly id: string;
  readonly state: 'running' | 'ended' | 'died';
  /** Status of the report; null while the run lasts. */
  readonly status: 'ok' | 'error' | 'interrupted' | 'died' | null;
  /** Path of the notebook, relative to the server's root. null if it is unknown or elsewhere. */
  readonly path: string | null;
  /** File name of the notebook, or null if unknown. */
  readonly name: string | null;
  /** Id of the kernel, or null if unknown. */
  readonly kernel: string | null;
  /** Id of the cell; null for a run outside a cell, and if the front end has no cell ids. */
  readonly cell: string | null;
  /** CRC-32 of the cell's code in UTF-8, as 8 hexadecimal digits; null for a run outside a cell. */
  readonly code: string | null;
  /** The N of In[N], or null outside a cell. */
  readonly execution_count: number | null;
  readonly label: string | null;
  /** When the run began, in epoch seconds of the kernel's machine, as in the run's card. */
  readonly started: number;
  /** How long the run took, has taken so far, or had taken at its last sample. */
  readonly seconds: number;
  /** Peak memory in bytes, as in the headline of the card. */
  readonly peak: number | null;
  readonly peak_kind: 'torch' | 'process' | 'device' | null;
  /** Why the run died, or why it was interrupted, if Jupyter was asked to end its kernel. null otherwise. */
  readonly death: RunDeath | null;
}
export const JournalRun = object<JournalRun>({
  id: text,
  state: oneOf('running', 'ended', 'died'),
  status: orNull(oneOf('ok', 'error', 'interrupted', 'died')),
  path: orNull(text),
  name: orNull(text),
  kernel: orNull(text),
  cell: orNull(text),
  code: orNull(text),
  execution_count: count,
  label: orNull(text),
  started: time,
  seconds: size,
  peak: count,
  peak_kind: orNull(oneOf('torch', 'process', 'device')),
  death: orNull(RunDeath)
});

/** The newest runs of the journal: the response to `GET api/runs`. */
export interface JournalRuns {
  /** A sentence that explains why runs are missing; null if there is no problem. */
  readonly problem: string | null;
  /** Running runs and at most the 200 newest others, the newest first. */
  readonly runs: readonly JournalRun[];
}
export const JournalRuns = object<JournalRuns>({
  problem: orNull(text),
  runs: list(JournalRun)
});

/** Time series of one GPU in a run. Each has one value for each entry of `JournalCard.t`. */
export interface JournalGpu {
  readonly uuid: string;
  /** NVML's index, as in nvidia-smi. */
  readonly index: number;
  /** Percent. */
  readonly utilization: readonly (number | null)[];
  /** Bytes in use on the whole GPU. */
  readonly memory_used: readonly (number | null)[];
}
export const JournalGpu = object<JournalGpu>({
  uuid: text,
  index: index,
  utilization: series(amount),
  memory_used: series(count)
});

/** One run with its card and its time series: the response to `GET api/runs/ID`. */
export interface JournalCard {
  readonly run: JournalRun;
  /** The card, a MIME bundle; null while the run lasts. */
  readonly data: Readonly<Record<string, unknown>> | null;
  /** Seconds since the run's start, at most 240 entries. */
  readonly t: readonly number[];
  /** The GPUs that the card shows. */
  readonly gpus: readonly JournalGpu[];
}
export const JournalCard = object<JournalCard>({
  run: JournalRun,
  data: orNull(record),
  t: series(size),
  gpus: list(JournalGpu)
});

/** The default torch device of one kernel: the user's choice, and torch's current setting. */
export interface DeviceState {
  /** The user's last choice, `cpu` or `cuda:N`. null stands for torch's own default. */
  readonly chosen: string | null;
  /**
   * Whether new tensors are also created on the device (torch.set_default_device). If not, the choice changes
   * only the current CUDA device.
   */
  readonly new_tensors: boolean;
  /** Whether the choice still has to be applied, which happens before the next cell. */
  readonly pending: boolean;
  /**
   * torch's default device on the thread that runs cells, read when a cell last started or ended. null if
   * unknown.
   */
  readonly present: string | null;
  /** A remark for the user, or null. */
  readonly note: string | null;
}
export const DeviceState = object<DeviceState>({
  chosen: nullable(text),
  new_tensors: flag,
  pending: flag,
  present: orNull(text),
  note: orNull(text)
});

/** A GPU that a device may be, as long as it is unknown which GPU the device is. */
export interface CandidateGpu {
  readonly uuid: string;
  /** NVML's index, as in nvidia-smi. */
  readonly index: number;
  /** Product name. */
  readonly name: string;
  /** Compute capability, such as "9.0". */
  readonly compute_capability: string | null;
  /** Bytes of memory. */
  readonly memory_total: number | null;
  /** Bytes of memory that no process uses, or null if that is unknown. */
  readonly memory_free: number | null;
  /** Whether the GPU uses the host's memory. */
  readonly unified_memory: boolean;
}
export const CandidateGpu = object<CandidateGpu>({
  uuid: text,
  index: index,
  name: text,
  compute_capability: orNull(text),
  memory_total: count,
  memory_free: count,
  unified_memory: later(flag, false)
});

/** A device that the user can choose as the default, and its GPU. */
export interface DeviceChoice {
  /** torch's name of the device: `cpu` or `cuda:N`. */
  readonly device: string;
  /**
   * UUID of the GPU, from NVML. null for the CPU, and as long as it is unknown which GPU the device will be.
   */
  readonly uuid: string | null;
  /** NVML's index of the GPU, as in nvidia-smi; null for the CPU or if unknown. */
  readonly index: number | null;
  /** Product name of the GPU. */
  readonly name: string | null;
  /** Compute capability of the GPU, such as "9.0". */
  readonly compute_capability: string | null;
  /** Bytes of memory. */
  readonly memory_total: number | null;
  /** Bytes of memory that no process uses, or null if that is unknown. */
  readonly memory_free: number | null;
  /** Whether the GPU uses the host's memory. */
  readonly unified_memory: boolean;
  /**
   * The processes with a context on the GPU: "this notebook" and others. Empty if unknown. Names of other
   * users and of their notebooks appear only in a `KernelState`, because it is never saved in a notebook.
   */
  readonly holders: readonly string[];
  /**
   * As long as it is unknown which GPU the device is: the GPUs that it may be, in NVML's order. Empty if the
   * GPU is known, and for the CPU.
   */
  readonly candidates: readonly CandidateGpu[];
}
export const DeviceChoice = object<DeviceChoice>({
  device: text,
  uuid: orNull(text),
  index: count,
  name: orNull(text),
  compute_capability: orNull(text),
  memory_total: count,
  memory_free: count,
  unified_memory: later(flag, false),
  holders: list(text),
  candidates: list(CandidateGpu)
});

/** How certain it is which GPU each `cuda:N` is. */
export interface DeviceOrder {
  /**
   * `cuda`: CUDA has started in the kernel, and the GPUs' UUIDs come from it. `environment`: CUDA has not
   * started, but the order follows from the environment variables and the GPUs' models. null: it is unknown
   * which GPU a device is, or there is no CUDA device.
   */
  readonly source: 'cuda' | 'environment' | null;
  /**
   * Sentences for the user: why the order is unknown and how to make it certain, or where the numbers are not
   * those of nvidia-smi and what makes them agree.
   */
  readonly notes: readonly string[];
  /** The ids and parameters of `notes`, in the same order. */
  readonly note_ids: readonly MessageId[];
}
export const DeviceOrder = object<DeviceOrder>({
  source: orNull(oneOf('cuda', 'environment')),
  notes: list(text),
  note_ids: list(MessageId)
});

/** What this kernel uses of one GPU. */
export interface KernelGpu {
  readonly uuid: string;
  /** `cuda:N` in this kernel. null if torch can't use the GPU, or if that is unknown. */
  readonly torch_device: string | null;
  /** Bytes that the kernel and its children hold, or null if unknown. */
  readonly process_memory: number | null;
  /**
   * Bytes that torch's allocator has reserved in the kernel's process, including its cache but not the CUDA
   * context. null if torch is not loaded, CUDA is not initialized or the value is unknown.
   */
  readonly torch_reserved: number | null;
  /**
   * Whether the kernel is known to have a CUDA context on the GPU. A context exists until the process ends.
   */
  readonly context: boolean;
}
export const KernelGpu = object<KernelGpu>({
  uuid: text,
  torch_device: orNull(text),
  process_memory: count,
  torch_reserved: count,
  context: flag
});

/** One of torch's switches that trade speed for precision or reproducibility. */
export interface Switch {
  /** The switch's name, such as `cudnn.benchmark`. */
  readonly name: string;
  /** The switch's name for users. */
  readonly title: string;
  /** The current value, or null if it can't be read. */
  readonly value: string | null;
  readonly choices: readonly string[];
  /** torch's default value. */
  readonly default: string;
  /** The requested value, which will apply from the next cell on, or null if no value is requested. */
  readonly pending: string | null;
  /**
   * The Python statement that will set the pending value. If no value is pending, the statement that last set
   * the switch, or null if gpuwidget has not set it.
   */
  readonly statement: string | null;
  /** Sentences that describe what the switch gains and what it costs. */
  readonly trades: string;
  /**
   * A remark for the user, for example about why the value is unknown or was not set. null if there is none.
   */
  readonly note: string | null;
}
export const Switch = object<Switch>({
  name: text,
  title: text,
  value: orNull(text),
  choices: list(text),
  default: text,
  pending: nullable(text),
  statement: orNull(text),
  trades: text,
  note: orNull(text)
});

/** The state that a kernel sends to a view. */
export interface KernelState {
  readonly schema: number;
  /** Version of gpuwidget in the kernel's environment. */
  readonly version: string;
  /** The kernel's process id in the PID namespace of the kernel. */
  readonly pid: number;
  /** Version of torch, or null if torch is not loaded. */
  readonly torch: string | null;
  /** Whether torch has initialized CUDA in the kernel's process. */
  readonly cuda_initialized: boolean;
  /** Whether a one-line card is shown after every cell (`%gpu watch on`). */
  readonly watching: boolean;
  readonly device: DeviceState;
  readonly choices: readonly DeviceChoice[];
  readonly order: DeviceOrder;
  /** A sentence that explains why the user can't choose a device, or null. */
  readonly unavailable: string | null;
  /** One entry per GPU of the kernel's source, in NVML's order. */
  readonly gpus: readonly KernelGpu[];
  /** torch's switches. Their values are null while torch is not loaded. */
  readonly switches: readonly Switch[];
}
export const KernelState = object<KernelState>({
  schema: oneOf(KERNEL_SCHEMA),
  version: text,
  pid: index,
  torch: nullable(text),
  cuda_initialized: flag,
  watching: flag,
  device: DeviceState,
  choices: list(DeviceChoice),
  order: DeviceOrder,
  unavailable: nullable(text),
  gpus: list(KernelGpu),
  switches: list(Switch)
});

/** The first message of a stream. */
export interface InitialMessage {
  readonly type: 'hello';
  readonly schema: number;
  /** Version of gpuwidget in the server. */
  readonly version: string;
  /** The server's sampling interval in seconds. */
  readonly interval_s: number;
  /** Maximum length in seconds of the history that the server stores. */
  readonly history_s: number;
  /**
   * The command that installs gpuwidget, quoted for a shell, such as `pip install 'my wheel.whl'`. null if
   * the administrator has not configured one.
   */
  readonly install: string | null;
  /** Address of the documentation, or null if there is no public documentation. */
  readonly documentation: string | null;
  /** Whether the server samples and stores even without pages. null if pages can't change that. */
  readonly always_on: boolean | null;
  /**
   * The newest sample. null if there have been no clients yet; in that case the next message contains a
   * sample.
   */
  readonly sample: Sample | null;
  /** The stored history, including `sample`. */
  readonly history: History;
}
export const InitialMessage = object<InitialMessage>({
  type: oneOf('hello'),
  schema: oneOf(STREAM_SCHEMA),
  version: text,
  interval_s: within(0.01, 3600),
  history_s: size,
  install: orNull(text),
  documentation: orNull(webAddress),
  always_on: orNull(flag),
  sample: nullable(Sample),
  history: orElse(History, { t: [], gpus: [] })
});

/** A message of a stream: a whole sample. */
export interface SampleMessage {
  readonly type: 'sample';
  readonly sample: Sample;
}
export const SampleMessage = object<SampleMessage>({
  type: oneOf('sample'),
  sample: Sample
});

/**
 * A message of a stream: the changes that turn the sample that the client received last into the new one.
 *
 * `origin` and `gpus` of the sample are unchanged.
 */
export interface SampleChanges {
  readonly type: 'changes';
  /** `Sample.time` of the new sample, in epoch seconds. */
  readonly time: number;
  /** For each reading of the sample, in the same order: the fields whose values have changed. */
  readonly readings: readonly Partial<Reading>[];
}
export const SampleChanges = object<SampleChanges>({
  type: oneOf('changes'),
  time: time,
  readings: list(Reading.partial)
});

/**
 * What a notebook, or a kernel without a notebook, has used of this machine's GPUs since the server's start.
 */
export interface GpuHours {
  /** Seconds in which it held memory of a GPU, summed over the GPUs. */
  readonly held_s: number;
  /** Seconds in which a GPU worked while it was the only owner of processes there; null if unknown. */
  readonly busy_s: number | null;
  /** Byte-seconds of memory; null if unknown. */
  readonly memory_byte_s: number | null;
  /** Joules that GPUs drew while it was the only owner of processes there; null if unknown. */
  readonly energy_j: number | null;
  /** Whether it has shared its GPUs, so that `busy_s` and `energy_j` are only a part of its use. */
  readonly shared: boolean;
  /** Price of `held_s` in `currency`; null if the administrator has set none. */
  readonly price: number | null;
  readonly currency: string;
}
export const GpuHours = object<GpuHours>({
  held_s: size,
  busy_s: amount,
  memory_byte_s: amount,
  energy_j: amount,
  shared: flag,
  price: amount,
  currency: text
});

/** A kernel that holds much memory and has neither run code nor worked on a GPU for a long time. */
export interface IdleHolder {
  /** Start of that time in epoch seconds. */
  readonly since: number;
  /** Bytes that it holds on the GPUs where this is known. */
  readonly memory: number;
  /** false if it holds memory of unknown size on a GPU too, so that `memory` is a lower bound. */
  readonly complete: boolean;
}
export const IdleHolder = object<IdleHolder>({
  since: time,
  memory: index,
  complete: flag
});

/** One of this server's kernels. */
export interface ServerKernel {
  /** Jupyter's id of the kernel, as in `GET api/kernels`. */
  readonly id: string;
  /** Name of the kernel's kernelspec, such as `python3`. */
  readonly spec: string;
  readonly state: 'starting' | 'idle' | 'busy' | 'restarting' | 'dead' | 'unknown';
  /** Start of the kernel's idle time in epoch seconds; null while the kernel is busy or if unknown. */
  readonly idle_since: number | null;
  /** Jupyter's id of the kernel's session; null if it has no session. */
  readonly session: string | null;
  /** Type of the session: `notebook`, `console` or another front end's type; null without a session. */
  readonly kind: string | null;
  /** Path of the notebook's file relative to the server's root; null without a file. */
  readonly path: string | null;
  /** Name of the notebook's file, else of the session; null without a session. */
  readonly name: string | null;
  /** The notebook's use of the GPUs, up to a minute ago; null without any, or if it is not counted. */
  readonly gpu_hours: GpuHours | null;
  /** null if the kernel is no idle holder, or if the administrator has set no limit. */
  readonly idle_holder: IdleHolder | null;
}
export const ServerKernel = object<ServerKernel>({
  id: text,
  spec: text,
  state: oneOf('starting', 'idle', 'busy', 'restarting', 'dead', 'unknown'),
  idle_since: orNull(time),
  session: orNull(text),
  kind: orNull(text),
  path: orNull(text),
  name: orNull(text),
  gpu_hours: orNull(GpuHours),
  idle_holder: orNull(IdleHolder)
});

/**
 * GPU memory that is held by one kernel and its child processes, by one terminal, or by one other process.
 *
 * If the server hides other users' processes, the memory of all of them is one holder with `other_users`,
 * whose `kernel`, `terminal` and `pid` are null.
 */
export interface MemoryHolder {
  /** `ServerKernel.id` of the kernel; null if the holder is not a kernel of this server. */
  readonly kernel: string | null;
  /** Name of the server's terminal, as in `GET api/terminals`; null if the holder is not a terminal. */
  readonly terminal: string | null;
  /**
   * Process id as NVML reports it; null if several processes hold the memory, if it is hidden, or if NVML
   * reports the id 0.
   */
  readonly pid: number | null;
  /** Login name of the process's owner; null if it can't be read, and for a kernel or a terminal. */
  readonly user: string | null;
  /** File name of the executable, with its script or module; null if it can't be read, and for a kernel. */
  readonly program: string | null;
  /** Bytes that are held; null if unknown. */
  readonly memory: number | null;
  /**
   * Source of `memory`: the driver's process list, or torch in the kernel. torch is used if process ids can't
   * be matched or the driver lists no size. torch's value is the bytes that its allocator has reserved,
   * without the CUDA context.
   */
  readonly source: 'driver' | 'torch';
  /** Whether the holder is all processes of other users together, which the server hides. */
  readonly other_users: boolean;
}
export const MemoryHolder = object<MemoryHolder>({
  kernel: nullable(text),
  terminal: nullable(text),
  pid: count,
  user: orNull(text),
  program: orNull(text),
  memory: count,
  source: oneOf('driver', 'torch'),
  other_users: later(flag, false)
});

/** The mean utilization of a GPU over a window that ends with the current sample. */
export interface MeanUtilization {
  /** Length of the window in seconds. */
  readonly seconds: number;
  /** Percent, or null if the window was not sampled completely. */
  readonly utilization: number | null;
}
export const MeanUtilization = object<MeanUtilization>({
  seconds: size,
  utilization: amount
});

/** The holders of the memory of one GPU. */
export interface GpuMemoryOwnership {
  readonly uuid: string;
  /** The holders, the one with the most memory first. */
  readonly holdings: readonly MemoryHolder[];
  /** Used bytes that belong to no holder; null if unknown. */
  readonly unattributed: number | null;
  /**
   * Sentences that explain which values or holders are unknown and why; null if nothing needs an explanation.
   */
  readonly reason: string | null;
  /** The mean utilization over each window, the shortest window first. */
  readonly means: readonly MeanUtilization[];
  /**
   * Used bytes of the reading from which the holders were found, or of a newer one if `older` is true; null
   * if unknown.
   */
  readonly memory_used: number | null;
  /**
   * Whether the holders are from an earlier reading than `memory_used`, because the server has not found
   * those of this reading within two seconds.
   */
  readonly older: boolean;
}
export const GpuMemoryOwnership = object<GpuMemoryOwnership>({
  uuid: text,
  holdings: list(MemoryHolder),
  unattributed: count,
  reason: orNull(text),
  means: validItems(MeanUtilization),
  memory_used: count,
  older: later(flag, false)
});

/** The Slurm job in which this server runs. */
export interface SlurmJob {
  readonly id: string;
  /** Number of GPUs that the job has on this machine; null if unknown. */
  readonly gpus: number | null;
  /** When Slurm ends the job, in epoch seconds; null if unknown or if there is no limit. */
  readonly end: number | null;
  /** How many seconds before the end the user is warned. */
  readonly warning_s: number;
}
export const SlurmJob = object<SlurmJob>({
  id: text,
  gpus: count,
  end: orNull(time),
  warning_s: size
});

/**
 * A message of a stream: the owners of the memory.
 *
 * It is sent after the initial message, and again each time it changes.
 */
export interface MemoryOwnership {
  readonly type: 'usage';
  /**
   * Time of the newest sample that the message takes into account, in epoch seconds. The message is not sent
   * again while only the time differs.
   */
  readonly time: number;
  /** All kernels of this server, including those without GPU memory. */
  readonly kernels: readonly ServerKernel[];
  /** One entry for each of the sample's GPUs, in the same order. */
  readonly gpus: readonly GpuMemoryOwnership[];
  /** The job in which this server runs; null if it runs in none. */
  readonly job: SlurmJob | null;
}
export const MemoryOwnership = object<MemoryOwnership>({
  type: oneOf('usage'),
  time: time,
  kernels: validItems(ServerKernel),
  gpus: validItems(GpuMemoryOwnership),
  job: orNull(SlurmJob)
});

/** A message of a stream: a page has changed whether the server samples and stores even without pages. */
export interface AlwaysOn {
  readonly type: 'always_on';
  readonly always_on: boolean;
}
export const AlwaysOn = object<AlwaysOn>({
  type: oneOf('always_on'),
  always_on: flag
});

/** Requests the kernel's state. */
export interface StateRequest {
  readonly schema: number;
  readonly ask: 'state';
}

/** Sets the default torch device. */
export interface SetDeviceRequest {
  readonly schema: number;
  readonly ask: 'set_device';
  /**
   * The device, such as `cuda:1` or `cpu`. null restores the device that was the default before the user's
   * first choice.
   */
  readonly device: string | null;
  /** Whether new tensors are also created on the device. If false, only the current CUDA device changes. */
  readonly new_tensors: boolean;
}

/** Turns the one-line card after every cell (`%gpu watch on`) on or off. */
export interface WatchRequest {
  readonly schema: number;
  readonly ask: 'watch';
  readonly on: boolean;
}

/** Sets one of torch's switches immediately or, if a cell is running, before the next cell. */
export interface SwitchRequest {
  readonly schema: number;
  readonly ask: 'set_switch';
  /** Name of the switch, as in `Switch.name`. */
  readonly name: string;
  /** The new value: one of the switch's choices. */
  readonly value: string;
}

/**
 * Releases torch's cached memory to the driver, even while a cell runs.
 *
 * The reply is sent when the GPU has finished its current work, which may take long. Meanwhile the kernel
 * replies to other requests.
 */
export interface FreeCacheRequest {
  readonly schema: number;
  readonly ask: 'free_cache';
}

/**
 * Runs the doctor's checks.
 *
 * The reply takes a few seconds, at most a minute. Meanwhile the kernel replies to other requests.
 */
export interface DoctorRequest {
  readonly schema: number;
  readonly ask: 'doctor';
}

/** The request succeeded. */
export interface OkReply {
  readonly status: 'ok';
  /** A message for the user about what ran and with what result. null if the state shows the result. */
  readonly done: string | null;
  /** The kernel's state after the request. */
  readonly state: KernelState;
}
export const OkReply = object<OkReply>({
  status: oneOf('ok'),
  done: orNull(text),
  state: KernelState
});

/** The request failed. */
export interface ErrorReply {
  readonly status: 'error';
  /** The reason for the failure, as a sentence for the user. */
  readonly reason: string;
  /** The kernel's current state, or null if it can't be read either. */
  readonly state: KernelState | null;
}
export const ErrorReply = object<ErrorReply>({
  status: oneOf('error'),
  reason: text,
  state: nullable(KernelState)
});

/** What the user can do about an issue: a text, which may contain a shell command. */
export interface Fix {
  /** Identifies the fix for programs, because its text may change between versions. */
  readonly id: string;
  /** The values in the text, except the command, by name. */
  readonly params: Readonly<Record<string, unknown>>;
  /** The text before the command; the whole text if there is no command. */
  readonly before: string;
  /** The shell command, ready to run, or null if there is none. */
  readonly command: string | null;
  /**
   * The text after the command, including the punctuation that ends or continues the sentence. Empty if there
   * is no command.
   */
  readonly after: string;
}
export const Fix = object<Fix>({
  id: text,
  params: record,
  before: text,
  command: nullable(text),
  after: text
});

/** One cause with its fix, and the checks that fail because of it. */
export interface Problem {
  /** The id of the check that has found the cause. */
  readonly check: string;
  /** The worst status of the cause and of the issues that follow from it. */
  readonly status: 'broken' | 'warning' | 'unknown';
  /** The id of the issue that is the cause, and the ids of issues of the same check with the same fix. */
  readonly issues: readonly string[];
  /** A sentence for each item of `issues`. */
  readonly reasons: readonly string[];
  /** What to do about the cause, or null if nothing can be done. */
  readonly fix: Fix | null;
  /** The ids of the other checks that have issues that follow from the cause. */
  readonly affects: readonly string[];
}
export const Problem = object<Problem>({
  check: text,
  status: oneOf('broken', 'warning', 'unknown'),
  issues: list(text),
  reasons: list(text),
  fix: nullable(Fix),
  affects: list(text)
});

/** One problem that a check has found. */
export interface Issue {
  /** Identifies the problem for programs, because its text may change between versions. */
  readonly id: string;
  readonly status: 'broken' | 'warning' | 'unknown';
  /** The values in `reason`, by name. */
  readonly params: Readonly<Record<string, unknown>>;
  /** A sentence that explains the problem. */
  readonly reason: string;
  /** What to do about the problem, or null if nothing can be done. */
  readonly fix: Fix | null;
}
export const Issue = object<Issue>({
  id: text,
  status: oneOf('broken', 'warning', 'unknown'),
  params: record,
  reason: text,
  fix: nullable(Fix)
});

/** The result of one check, with a reason and a fix if the result is not `ok`. */
export interface Check {
  /**
   * The check's id, the same in every version: `torch`, `cuda`, `cudnn`, `nccl`, `driver`, `device_files` and
   * `gpu` in the order of the chain from PyTorch to the GPU; then `visible`, `sharing`, `health`, `pcie`,
   * `peers`, `shm` and `package`.
   */
  readonly id: string;
  /** The check's name for users. */
  readonly title: string;
  /**
   * `broken`: torch can't compute on a GPU until this is fixed. `warning`: torch works, but not as well as it
   * could, or perhaps not for long. `unknown`: the check was not possible. `skipped`: there is nothing to
   * check, which is not a problem.
   */
  readonly status: 'ok' | 'broken' | 'warning' | 'unknown' | 'skipped';
  /** What the check observed, in a few words. */
  readonly found: string;
  /** The `reason` of the worst issue, or null if there is no issue. */
  readonly reason: string | null;
  /** The whole text of the worst issue's fix, or null if there is nothing to do. */
  readonly remedy: string | null;
  /** The shell command in `remedy`, ready to run, or null if it contains no command. */
  readonly command: string | null;
  /**
   * The values that the check read, by name, without values that change from minute to minute. The entries
   * `finding 2`, `finding 3` and so on contain the `reason` of each other issue.
   */
  readonly evidence: Readonly<Record<string, string>>;
  /** All problems that the check has found, the worst first. */
  readonly issues: readonly Issue[];
}
export const Check = object<Check>({
  id: text,
  title: text,
  status: oneOf('ok', 'broken', 'warning', 'unknown', 'skipped'),
  found: text,
  reason: nullable(text),
  remedy: nullable(text),
  command: nullable(text),
  evidence: texts,
  issues: list(Issue)
});

/** The results of all checks of one environment on one machine at one moment. */
export interface Diagnosis {
  readonly schema: number;
  /** Version of gpuwidget in the checked environment. */
  readonly version: string;
  /** When the checks ran, in epoch seconds. */
  readonly time: number;
  /** The kind of process whose environment was checked. */
  readonly place: 'kernel' | 'server' | 'shell';
  /** Path of the process's Python interpreter. */
  readonly python: string;
  /** The process's environment variables that concern GPUs, by name. No other variable is read. */
  readonly variables: Readonly<Record<string, string>>;
  /** The worst status of all checks. A check that is `unknown` counts as `warning`. */
  readonly status: 'ok' | 'broken' | 'warning';
  /** A summary of all checks, such as the title and the reason of the first broken check. */
  readonly summary: string;
  /** The steps of probes that did not finish, such as `'import torch'`. Empty if all steps finished. */
  readonly unfinished: readonly string[];
  /** The problems in the order of fixing. Each issue of a check is a problem, or follows from one. */
  readonly problems: readonly Problem[];
  /** The results of the checks: first those from PyTorch down to the GPU, then the others. */
  readonly links: readonly Check[];
}
export const Diagnosis = object<Diagnosis>({
  schema: index,
  version: text,
  time: time,
  place: oneOf('kernel', 'server', 'shell'),
  python: text,
  variables: texts,
  status: oneOf('ok', 'broken', 'warning'),
  summary: text,
  unfinished: list(text),
  problems: list(Problem),
  links: list(Check)
});

/** The reply to `DoctorRequest`. */
export interface DoctorReply {
  readonly status: 'examined';
  readonly doctor: Diagnosis;
  /** The diagnosis's texts in the page's language, by the English text; empty in English. */
  readonly texts: Readonly<Record<string, string>>;
  /** The kernel's current state, or null if it can't be read. */
  readonly state: KernelState | null;
}
export const DoctorReply = object<DoctorReply>({
  status: oneOf('examined'),
  doctor: Diagnosis,
  texts: texts,
  state: nullable(KernelState)
});

/** Messages of the stream. */
export type StreamMessage = InitialMessage | SampleMessage | SampleChanges | MemoryOwnership | AlwaysOn;
export const StreamMessage = union<StreamMessage>('type', {
  hello: InitialMessage,
  sample: SampleMessage,
  changes: SampleChanges,
  usage: MemoryOwnership,
  always_on: AlwaysOn
});

/** Messages of the stream after changes were applied, so that every sample is whole. */
export type ReceivedMessage = InitialMessage | SampleMessage | MemoryOwnership | AlwaysOn;

/** Content of a request to a kernel. */
export type KernelRequest =
  StateRequest | SetDeviceRequest | WatchRequest | SwitchRequest | FreeCacheRequest | DoctorRequest;

/** Content of a kernel's reply. */
export type KernelReply = OkReply | ErrorReply | DoctorReply;
export const KernelReply = union<KernelReply>('status', {
  ok: OkReply,
  error: ErrorReply,
  examined: DoctorReply
});
