"""The messages that the server sends and receives, except samples. TypeScript types are generated from
them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NewType

from gpuwidget.journal.records import Certainty
from gpuwidget.model.samples import Sample
from gpuwidget.sampler import MAX_INTERVAL_S

STREAM_SCHEMA = 2
"""Version of the stream's format. It is sent with the first message."""
_MAX_REQUEST = 200
"""The maximum length of a request. Longer messages are not parsed."""

PartialReading = NewType("PartialReading", Mapping[str, object])
"""Some fields of a :class:`gpuwidget.model.readings.Reading`, by name."""


# -- history -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """The history of one GPU. Every list has the same length as ``History.t``; unknown values are None."""

    uuid: str
    utilization: tuple[float | None, ...]
    """Percent, like ``Reading.utilization``."""
    memory_used: tuple[int | None, ...]
    """Bytes, like ``Reading.memory_used``."""
    power_w: tuple[float | None, ...]
    """Watts, like ``Reading.power_w``."""


@dataclass(frozen=True, slots=True)
class History:
    """The samples that were taken while there were clients, oldest first. ``t`` has a gap for each
    period without clients."""

    t: tuple[float, ...]
    """Time of each sample in epoch seconds, ascending."""
    gpus: tuple[GpuHistory, ...]


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """Time series of one metric. Every list has the same length as ``MetricHistory.t``; unknown values are
    None."""

    mean: tuple[float | None, ...]
    min: tuple[float | None, ...] | None
    """The lowest sample of each step, not rounded. None if it equals the mean in every step."""
    max: tuple[float | None, ...] | None
    """The highest sample of each step, not rounded. None if ``min`` is None."""


@dataclass(frozen=True, slots=True)
class GpuMetricHistory:
    """The time series of one GPU."""

    uuid: str
    metrics: Mapping[str, MetricSeries]
    """Time series in the unit of the metric, by the name of a field of ``Reading`` or of its ``activity``.
    Metrics without a known value in the requested time are omitted."""


@dataclass(frozen=True, slots=True)
class MetricHistory:
    """A part of the history at the requested resolution: the response to ``history?metrics=…``."""

    since: float
    """Start of the requested time in epoch seconds."""
    until: float
    """End of the requested time in epoch seconds."""
    step_s: float
    """Length in seconds of the step that begins at each time in ``t``; 0 if each entry is one sample."""
    newest: float | None
    """Time of the newest sample in the response, in epoch seconds. Later samples arrive with the stream. None
    without samples."""
    t: tuple[float, ...]
    """Start of each step in epoch seconds, ascending. Steps without a sample are omitted."""
    samples: tuple[int | None, ...]
    """Number of samples in each step; None if unknown."""
    gpus: tuple[GpuMetricHistory, ...]


# -- requests ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ActivityRequest:
    """A client's request for the hardware counters. They are read as long as any client requests them."""

    type: Literal["activity"]
    wanted: bool

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ActivityRequest | None:
        """Return the request; None if its values are invalid."""
        wanted = values.get("wanted")
        return cls("activity", wanted) if isinstance(wanted, bool) else None


@dataclass(frozen=True, slots=True)
class RateRequest:
    """A client's request to receive fewer samples than the server takes."""

    type: Literal["rate"]
    interval_s: float
    """Minimum seconds between samples, 0 to 60. Values below the server's sampling interval have no
    effect."""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RateRequest | None:
        """Return the request; None if its values are invalid."""
        interval_s = values.get("interval_s")
        if isinstance(interval_s, bool) or not isinstance(interval_s, int | float):
            return None
        return cls("rate", interval_s) if 0 <= interval_s <= MAX_INTERVAL_S else None


def parse_stream_request(message: str | bytes) -> ActivityRequest | RateRequest | None:
    """Return the request in a client's message, or None if the message is not a valid request."""
    if len(message) > _MAX_REQUEST:
        return None
    try:
        values = json.loads(message)
    except ValueError:
        return None
    if not isinstance(values, dict):
        return None
    match values.get("type"):
        case "activity":
            return ActivityRequest.parse(values)
        case "rate":
            return RateRequest.parse(values)
        case _:
            return None


# -- messages of the stream ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitialMessage:
    """The first message of a stream."""

    type: Literal["hello"]
    schema: int
    version: str
    """Version of gpuwidget in the server."""
    interval_s: float
    """The server's sampling interval in seconds."""
    history_s: float
    """Maximum length in seconds of the history that the server stores."""
    install: str | None
    """The command that installs gpuwidget, quoted for a shell, such as ``pip install 'my wheel.whl'``. None
    if the administrator has not configured one."""
    documentation: str | None
    """Address of the documentation, or None if there is no public documentation."""
    always_on: bool | None
    """Whether the server samples and stores even without pages. None if pages can't change that."""
    sample: Sample | None
    """The newest sample. None if there have been no clients yet; in that case the next message contains a
    sample."""
    history: History
    """The stored history, including ``sample``."""


@dataclass(frozen=True, slots=True)
class AlwaysOn:
    """A message of a stream: a page has changed whether the server samples and stores even without pages."""

    type: Literal["always_on"]
    always_on: bool


@dataclass(frozen=True, slots=True)
class SampleMessage:
    """A message of a stream: a whole sample."""

    type: Literal["sample"]
    sample: Sample


@dataclass(frozen=True, slots=True)
class SampleChanges:
    """A message of a stream: the changes that turn the sample that the client received last into the new one.

    ``origin`` and ``gpus`` of the sample are unchanged.
    """

    type: Literal["changes"]
    time: float
    """``Sample.time`` of the new sample, in epoch seconds."""
    readings: tuple[PartialReading, ...]
    """For each reading of the sample, in the same order: the fields whose values have changed."""


@dataclass(frozen=True, slots=True)
class GpuHours:
    """What a notebook, or a kernel without a notebook, has used of this machine's GPUs since the server's
    start."""

    held_s: float
    """Seconds in which it held memory of a GPU, summed over the GPUs."""
    busy_s: float | None
    """Seconds in which a GPU worked while it was the only owner of processes there; None if unknown."""
    memory_byte_s: float | None
    """Byte-seconds of memory; None if unknown."""
    energy_j: float | None
    """Joules that GPUs drew while it was the only owner of processes there; None if unknown."""
    shared: bool
    """Whether it has shared its GPUs, so that ``busy_s`` and ``energy_j`` are only a part of its use."""
    price: float | None
    """Price of ``held_s`` in ``currency``; None if the administrator has set none."""
    currency: str


@dataclass(frozen=True, slots=True)
class IdleHolder:
    """A kernel that holds much memory and has neither run code nor worked on a GPU for a long time."""

    since: float
    """Start of that time in epoch seconds."""
    memory: int
    """Bytes that it holds on the GPUs where this is known."""
    complete: bool
    """False if it holds memory of unknown size on a GPU too, so that ``memory`` is a lower bound."""


@dataclass(frozen=True, slots=True)
class ServerKernel:
    """One of this server's kernels."""

    id: str
    """Jupyter's id of the kernel, as in ``GET api/kernels``."""
    spec: str
    """Name of the kernel's kernelspec, such as ``python3``."""
    state: Literal["starting", "idle", "busy", "restarting", "dead", "unknown"]
    idle_since: float | None
    """Start of the kernel's idle time in epoch seconds; None while the kernel is busy or if unknown."""
    session: str | None
    """Jupyter's id of the kernel's session; None if it has no session."""
    kind: str | None
    """Type of the session: ``notebook``, ``console`` or another front end's type; None without a session."""
    path: str | None
    """Path of the notebook's file relative to the server's root; None without a file."""
    name: str | None
    """Name of the notebook's file, else of the session; None without a session."""
    gpu_hours: GpuHours | None
    """The notebook's use of the GPUs, up to a minute ago; None without any, or if it is not counted."""
    idle_holder: IdleHolder | None
    """None if the kernel is no idle holder, or if the administrator has set no limit."""


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """GPU memory that is held by one kernel and its child processes, by one terminal, or by one other
    process.

    If the server hides other users' processes, the memory of all of them is one holder with ``other_users``,
    whose ``kernel``, ``terminal`` and ``pid`` are None.
    """

    kernel: str | None
    """``ServerKernel.id`` of the kernel; None if the holder is not a kernel of this server."""
    terminal: str | None
    """Name of the server's terminal, as in ``GET api/terminals``; None if the holder is not a terminal."""
    pid: int | None
    """Process id as NVML reports it; None if several processes hold the memory, if it is hidden, or if NVML
    reports the id 0."""
    user: str | None
    """Login name of the process's owner; None if it can't be read, and for a kernel or a terminal."""
    program: str | None
    """File name of the executable, with its script or module; None if it can't be read, and for a kernel."""
    memory: int | None
    """Bytes that are held; None if unknown."""
    source: Literal["driver", "torch"]
    """Source of ``memory``: the driver's process list, or torch in the kernel. torch is used if process ids
    can't be matched or the driver lists no size. torch's value is the bytes that its allocator has reserved,
    without the CUDA context.
    """
    other_users: bool
    """Whether the holder is all processes of other users together, which the server hides."""


@dataclass(frozen=True, slots=True)
class MeanUtilization:
    """The mean utilization of a GPU over a window that ends with the current sample."""

    seconds: float
    """Length of the window in seconds."""
    utilization: float | None
    """Percent, or None if the window was not sampled completely."""


@dataclass(frozen=True, slots=True)
class GpuMemoryOwnership:
    """The holders of the memory of one GPU."""

    uuid: str
    holdings: tuple[MemoryHolder, ...]
    """The holders, the one with the most memory first."""
    unattributed: int | None
    """Used bytes that belong to no holder; None if unknown."""
    reason: str | None
    """Sentences that explain which values or holders are unknown and why; None if nothing needs an
    explanation."""
    means: tuple[MeanUtilization, ...]
    """The mean utilization over each window, the shortest window first."""
    memory_used: int | None = None
    """Used bytes of the reading from which the holders were found, or of a newer one if ``older`` is true;
    None if unknown."""
    older: bool = False
    """Whether the holders are from an earlier reading than ``memory_used``, because the server has not found
    those of this reading within two seconds."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """The Slurm job in which this server runs."""

    id: str
    gpus: int | None
    """Number of GPUs that the job has on this machine; None if unknown."""
    end: float | None
    """When Slurm ends the job, in epoch seconds; None if unknown or if there is no limit."""
    warning_s: float
    """How many seconds before the end the user is warned."""


@dataclass(frozen=True, slots=True)
class MemoryOwnership:
    """A message of a stream: the owners of the memory.

    It is sent after the initial message, and again each time it changes.
    """

    type: Literal["usage"]
    time: float
    """Time of the newest sample that the message takes into account, in epoch seconds. The message is not
    sent again while only the time differs."""
    kernels: tuple[ServerKernel, ...]
    """All kernels of this server, including those without GPU memory."""
    gpus: tuple[GpuMemoryOwnership, ...]
    """One entry for each of the sample's GPUs, in the same order."""
    job: SlurmJob | None
    """The job in which this server runs; None if it runs in none."""


# -- cluster -------------------------------------------------------------------------------------------------

GpuExporter = Literal["gpuwidget", "dcgm", "nvidia_gpu"]
"""The exporter of a GPU's metrics: a Jupyter server with gpuwidget, dcgm-exporter or nvidia_gpu_exporter."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine whose GPUs Prometheus monitors."""

    name: str
    """Host name. The same machine has one name, whichever exporters run on it."""
    up: bool
    """Whether Prometheus's last scrape of any of the node's exporters returned its GPUs."""
    last_seen: float | None
    """Time of the newest value in epoch seconds; None if unknown."""


@dataclass(frozen=True, slots=True)
class ClusterGpu:
    """One GPU in the cluster. A GPU that several exporters report is one entry. Unknown values are None."""

    uuid: str
    """NVML's UUID. For a MIG slice, it may be the UUID of its GPU, a slash and the id of the GPU instance."""
    node: str
    """``ClusterNode.name`` of the GPU's machine."""
    index: int | None
    """NVML's index of the GPU on its machine."""
    model: str | None
    """Product name, such as ``NVIDIA H200``."""
    mig: str | None
    """Profile of the MIG slice, such as ``1g.18gb``; None for a whole GPU."""
    exporters: tuple[GpuExporter, ...]
    utilization: float | None
    """Percent, like ``Reading.utilization``."""
    memory_used: int | None
    """Bytes."""
    memory_total: int | None
    """Bytes."""
    power_w: float | None
    """Watts."""
    power_limit_w: float | None
    """Watts."""
    temperature_c: float | None
    """Degrees Celsius."""
    xid: int | None
    """The newest XID error within the last hour; None if there was none or if it is unknown."""
    ecc_uncorrected: int | None
    """Number of uncorrected memory errors within the last hour."""
    lost: bool
    """Whether an exporter reports that the GPU no longer responds, or answers but no longer lists it."""
    idle_s: float | None
    """Seconds for which the GPU has held memory without any utilization, up to an hour; 0 if it was utilized
    in the last interval or holds no memory."""
    users: tuple[str, ...]
    """Names of the users whose processes use the GPU, as far as an exporter reports them."""
    notebooks: tuple[str, ...]
    """Names of the notebooks that hold memory on the GPU or, if the administrator exports no names, their
    ids."""
    job: str | None
    """The job or pod that uses the GPU, as reported by dcgm-exporter, such as a Slurm job's id."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The newest values of all GPUs in the cluster: the response to ``GET api/cluster``."""

    time: float | None
    """Time of the values in epoch seconds. None if Prometheus has not answered yet."""
    interval_s: float
    """Seconds after which a further request may return newer values."""
    problem: str | None
    """Sentences that explain why values are missing or old; None if there is no problem."""
    nodes: tuple[ClusterNode, ...]
    """All nodes, by name. A node that no longer answers stays in the list for an hour."""
    gpus: tuple[ClusterGpu, ...]
    """All GPUs, ordered by node and index."""


# -- the journal of runs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunDeath:
    """Why a run died."""

    cause: str
    """A :data:`gpuwidget.journal.records.Cause`. Later versions may have more."""
    certainty: Certainty
    text: str
    """Sentences for the user, in the page's language: why the run died and, unless that is certain, what was
    checked."""


@dataclass(frozen=True, slots=True)
class JournalRun:
    """One run of the journal."""

    id: str
    state: Literal["running", "ended", "died"]
    status: Literal["ok", "error", "interrupted", "died"] | None
    """Status of the report; None while the run lasts."""
    path: str | None
    """Path of the notebook, relative to the server's root. None if it is unknown or elsewhere."""
    name: str | None
    """File name of the notebook, or None if unknown."""
    kernel: str | None
    """Id of the kernel, or None if unknown."""
    cell: str | None
    """Id of the cell; None for a run outside a cell, and if the front end has no cell ids."""
    code: str | None
    """CRC-32 of the cell's code in UTF-8, as 8 hexadecimal digits; None for a run outside a cell."""
    execution_count: int | None
    """The N of In[N], or None outside a cell."""
    label: str | None
    started: float
    """When the run began, in epoch seconds of the kernel's machine, as in the run's card."""
    seconds: float
    """How long the run took, has taken so far, or had taken at its last sample."""
    peak: int | None
    """Peak memory in bytes, as in the headline of the card."""
    peak_kind: Literal["torch", "process", "device"] | None
    death: RunDeath | None
    """Why the run died, or why it was interrupted, if Jupyter was asked to end its kernel. None otherwise."""


@dataclass(frozen=True, slots=True)
class JournalRuns:
    """The newest runs of the journal: the response to ``GET api/runs``."""

    problem: str | None
    """A sentence that explains why runs are missing; None if there is no problem."""
    runs: tuple[JournalRun, ...]
    """Running runs and at most the 200 newest others, the newest first."""


@dataclass(frozen=True, slots=True)
class JournalGpu:
    """Time series of one GPU in a run. Each has one value for each entry of ``JournalCard.t``."""

    uuid: str
    index: int
    """NVML's index, as in nvidia-smi."""
    utilization: tuple[float | None, ...]
    """Percent."""
    memory_used: tuple[int | None, ...]
    """Bytes in use on the whole GPU."""


@dataclass(frozen=True, slots=True)
class JournalCard:
    """One run with its card and its time series: the response to ``GET api/runs/ID``."""

    run: JournalRun
    data: Mapping[str, Any] | None
    """The card, a MIME bundle; None while the run lasts."""
    t: tuple[float, ...]
    """Seconds since the run's start, at most 240 entries."""
    gpus: tuple[JournalGpu, ...]
    """The GPUs that the card shows."""
