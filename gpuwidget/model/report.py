"""The report of one measured run. Every card (the display below the cell), file and export of the run is made
from it.

The JSON form (``application/vnd.gpuwidget.report+json``, :meth:`Report.to_dict`) uses the same names. All
values are in bytes, seconds, watts, joules or percent. Any value except ``schema``, ``uuid`` and ``index``
may be None. If a GPU's value is None, the GPU's ``missing`` contains the reason as text, and ``missing_ids``
the reason's id and parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gpuwidget.model import flat_metrics
from gpuwidget.model.messages import Message, MessageId, message_ids
from gpuwidget.model.samples import without_mig_parents
from gpuwidget.model.to_json import INLINED, encodable, to_json
from gpuwidget.model.translation import joined, translatable

REPORT_SCHEMA = 1

Status = Literal["ok", "error", "interrupted", "died"]
"""``died``: the process of the run ended during the run. The report ends at the run's last sample."""
MarkKind = Literal["mark", "printed", "step"]
HolderKind = Literal["variable", "notebook", "unknown", "outside torch"]
WorkerKind = Literal["child", "rank", "dask"]
WorkerStatus = Literal["running", "ended", "failed", "lost"]
MemoryKind = Literal["torch", "process", "device"]
"""``torch`` for torch's allocations, ``process`` for this process, ``device`` for whole GPUs."""


WAITING_FOR_CHILD = translatable("waiting for a child process")
"""Shown instead of a call's name while the code waits for a child process."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """The source of the readings."""

    kind: str
    """Kind of source: ``nvml``, ``replay`` or ``none``."""
    reason: Message | None
    """Why there is no GPU and what to do, or None if there is one."""
    recording: str | None
    """The recording's label, which is shown wherever the recording's values are shown. None for live GPUs."""
    reason_id: MessageId | None = field(init=False)
    """The id and parameters of :attr:`reason`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason_id", None if self.reason is None else self.reason.message_id)

    @property
    def recorded(self) -> bool:
        """Whether the readings come from a recording."""
        return self.recording is not None


@dataclass(frozen=True, slots=True)
class SoftwareVersions:
    """Versions of the software that was loaded when the run ended, and torch's default device.

    A version is None if the software was not loaded.
    """

    driver: str | None
    cuda_driver: str | None
    torch: str | None
    cuda: str | None
    cudnn: str | None
    default_device: str | None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Data about the run as a whole."""

    execution_count: int | None
    """The N of In[N], or None outside a cell."""
    label: str | None
    started: float
    """When the run began, in epoch seconds."""
    duration_s: float
    """Seconds from the first statement to the end of the Python code."""
    gpu_tail_s: float | None
    """Seconds for which the GPU continued to work after the Python code, or None if the run did not wait
    until the GPU had finished."""
    status: Status


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes at the run's start and end, and their peak."""

    start: int | None
    end: int | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class Level:
    """Time-weighted mean and highest reading of a value over the run."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes per second that the GPU sent and received over one kind of link. An unknown rate is None."""

    tx: Level | None
    rx: Level | None


@dataclass(frozen=True, slots=True)
class TorchMemory:
    """Counters of torch's caching allocator for one device. The peaks are exact, not sampled."""

    allocated: Span
    reserved: Span
    alloc_retries: int | None
    """How often the allocator freed its cache to satisfy an allocation during the run (num_alloc_retries)."""
    ooms: int | None
    """Out-of-memory errors during the run (num_ooms)."""
    inactive_split: int | None
    """Cached bytes at the run's end that can't be freed, because tensors use other parts of the same segments
    (inactive_split)."""
    returnable: int | None = None
    """Bytes reserved at the run's end that emptying the cache would return to the driver, according to
    torch's list of segments. For expandable segments, this is an upper limit. None if unknown, or if the list
    was not read because the run did not change torch's memory on the device."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU during the run."""

    uuid: str
    index: int
    mig_index: int | None
    name: str
    torch_device: str | None
    """``cuda:N`` in this process, or None if the GPU is not visible to torch or CUDA is not initialized."""
    mig_parent: str | None
    memory_total: int | None
    memory_reserved: int | None
    """Bytes of ``memory_total`` that the driver reserves, so that no process can use them."""
    shown: bool
    """Whether the card shows the GPU. It does if the GPU is selected, if this kernel uses it, or if it is
    unknown which GPUs this kernel uses."""
    device_memory: Span
    """Memory in use on the whole GPU, without the memory that the driver reserves."""
    process_memory: Span | None
    """Memory of this process and its children on the GPU."""
    torch: TorchMemory | None
    utilization: Level | None
    bursts: int | None
    """How often utilization rose from 10 percent or less to 20 percent or more, or None if unknown."""
    levels: Mapping[str, Level | None] = field(metadata=INLINED)
    """The other metrics, by the names in :data:`~gpuwidget.model.metrics.REPORTED`. The JSON has them beside
    ``utilization``."""
    pcie: Traffic | None
    nvlink: Traffic | None
    power_w: Level | None
    power_limit_w: float | None
    throttled: Mapping[str, float] | None
    """Seconds during which the clock was throttled, by reason. A clock that is lower because the GPU is idle
    does not count. Empty if the clock was not throttled. Accurate to two seconds, the interval between
    readings."""
    energy_j: float | None
    """Joules that the GPU drew during the run, from the driver's energy counter and its samples of the
    power."""
    lost_since: float | None
    missing: Mapping[str, Message]
    """The reason why each unknown value is None, by field name."""
    children: tuple[str, ...] = ()
    """Programs (such as ``python a.py``) of this process's descendants that held memory on the GPU. At most
    four are listed, each once, with a count if several processes ran it. A last entry such as ``3 more``
    counts the remaining processes."""
    children_memory: Span | None = None
    """The part of :attr:`process_memory` that the descendants in :attr:`children` held, according to the
    driver's list of processes. None if they held none, or if that is unknown."""
    missing_ids: Mapping[str, MessageId] = field(init=False)
    """The ids and parameters of the reasons in :attr:`missing`, by field name. When a card is shortened for
    many GPUs, only the first GPU with a reason keeps its text and id. For every other GPU with this reason,
    the text in :attr:`missing` is, for example, ``as for GPU 0``, and there is no entry here."""
    worked: bool | None = None
    """Whether this notebook worked on the GPU during the run. False if there is no sign of it, although other
    processes may have worked there. None if unknown, and for GPUs that were selected with ``--gpu``."""
    energy_at_least_j: float | None = None
    """Joules of the known part of the run if :attr:`energy_j` is None because power is unknown for a part of
    the run, or None."""
    energy_error_j: float | None = None
    """Joules by which :attr:`energy_j` may be wrong (two standard deviations), or None if that is at most 5
    percent of it."""
    unified_memory: bool = False
    """Whether the GPU uses the host's memory, as GB10 and Jetson do."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_ids", message_ids(self.missing))

    def value(self, name: str) -> Any:
        """Return the value that the JSON has under ``name``."""
        return self.levels[name] if name in self.levels else getattr(self, name)

    @property
    def used_by_others_only(self) -> bool:
        """Whether only other processes worked on the GPU during the run, as far as this is known."""
        return self.worked is False and self.utilization is not None and self.utilization.max > 0


@dataclass(frozen=True, slots=True)
class RunTotals:
    """The figures of the run as a whole, over the GPUs in :attr:`Report.counted`."""

    gpus: int
    """Number of these GPUs."""
    memory_kind: MemoryKind | None
    """What :attr:`memory` measures, or None if the card shows no GPU."""
    memory: Span | None
    """Sums of the bytes at the run's start and end, and the highest peak of any one GPU. Peaks are not added,
    because they may occur at different times."""
    utilization: float | None
    """Mean of the GPUs' mean utilizations, in percent, over the GPUs for which it is known."""
    utilization_gpus: int
    """Number of GPUs whose utilization is known."""
    energy_j: float | None
    """Joules of all GPUs, as far as they are known. A lower bound if the energy of a GPU is unknown."""
    energy_gpus: int
    """Number of GPUs whose energy is known."""
    ooms: int
    """Torch's out-of-memory errors, over all shown GPUs."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the timeline with a label."""

    t: float
    """Seconds since the run's start."""
    label: str
    kind: MarkKind
    """``mark`` for ``w.mark()``, ``printed`` for a line that the cell printed, ``step`` for a rank's step."""


@dataclass(frozen=True, slots=True)
class GpuTimeline:
    """Time series of one GPU, with one value per entry of :attr:`Timeline.t`. Unknown values are None."""

    uuid: str
    utilization: tuple[float | None, ...]
    device_memory: tuple[int | None, ...]
    power_w: tuple[float | None, ...]
    sm_activity: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Time series of the GPUs that the card shows, with at most 240 points."""

    t: tuple[float, ...]
    """Seconds since the run's start, in ascending order."""
    marks: tuple[Mark, ...]
    gpus: tuple[GpuTimeline, ...]
    gaps: tuple[tuple[float, float], ...] = ()
    """The beginning and end, in seconds since the run's start, of each time in which nothing could be
    sampled. If there are many, only the longest are included."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice about the user's code, with its evidence."""

    rule: str
    """Name of the rule that gave the advice, as in docs/reference/advice.md."""
    sure: bool
    """Whether the numbers prove the observation. If False, they only suggest it, and the text presents it as
    a possibility."""
    text: str
    """The observation, as a sentence with the numbers that support it."""
    fix: str
    """What the user should do, as a sentence."""
    evidence: Mapping[str, Any]
    """The numbers that the observation is based on, by name."""
    link: str | None
    """The section of the documentation that explains the rule, as a path relative to gpuwidget's folder or,
    in a clone, to the clone's root."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A name, or group of names, that keeps memory on one device alive."""

    kind: HolderKind
    """``variable``: the user's variables. ``notebook``: Out[n], _ and the last error's traceback.
    ``unknown``: autograd, or objects without a name. ``outside torch``: CUDA context, other libraries and
    other processes."""
    names: tuple[str, ...]
    """All names that lead to the memory, as they are written in code (``model``, ``Out[3]``,
    ``batch[0]``)."""
    type: str | None
    """Name of the holder's type, or None if the holder is not an object."""
    device: str
    """``cuda:N``."""
    bytes: int
    """Bytes of torch's allocated memory that the holder keeps alive. Each byte counts for only one holder."""
    cell: int | None
    """The N of the In[N] that allocated most of the memory, or None if unknown."""


@dataclass(frozen=True, slots=True)
class LineMemory:
    """Memory that one line of the user's code allocated on one device during the run (``--lines``).

    Each byte counts for one line: the innermost line of the user's code on the call stack.
    """

    file: str | None
    """``In[N]``, ``a cell`` if its number is unknown, or the path of the user's module. None for allocations
    without a line of the user's code."""
    line: int | None
    function: str | None
    """Name of the function, or None at the top level of the cell or module."""
    source: str
    """The line's text or, without a line, a description of the code that allocated the memory."""
    called_from: str | None
    """The line of the cell whose calls to this line allocated the most bytes, such as ``In[5] line 7``. None
    if no line of the cell called this line."""
    device: str
    allocated: int
    """All bytes that the line allocated."""
    held: int
    """The part of :attr:`allocated` that was still held at the run's end."""
    at_peak: int | None
    """The part of :attr:`allocated` that was held when memory was highest, or None if that moment is
    unknown."""


@dataclass(frozen=True, slots=True)
class FrameTime:
    """Time of the main thread in one frame of the user's code that a line of the cell called."""

    frame: str
    """The frame's name, such as ``train.py:31 step`` or ``In[2]:4 step``."""
    share: float
    """Percentage of the running time of the cell's code."""
    gpu_busy: float | None
    """Percentage of this frame's time in which a GPU was busy, determined as for
    :attr:`LineTime.gpu_busy`."""
    call: str | None
    call_share: float | None = None
    """Percentage of the running time of the cell's code that ``call`` alone took, or None if there is no
    call."""


@dataclass(frozen=True, slots=True)
class LineTime:
    """Time of the main thread in one line of the cell and in the calls that the line makes."""

    line: int | None
    """Line number in the cell, or None for time that belongs to no line of the cell."""
    source: str
    share: float
    """Percentage of the running time of the cell's code."""
    gpu_busy: float | None
    """Percentage of the line's time in which a GPU was busy for this process, or None if it can't be
    determined."""
    call: str | None
    """The call with the largest share, such as ``DataLoader._next_data`` or ``waiting for a child process``.
    None if most of the time was spent in the line itself."""
    frame: str | None
    """Name of the first of :attr:`frames`. None if there is no frame, or if it took less than a tenth of the
    line's time."""
    until: int | None = None
    """The last line if the entry stands for several lines that can't be distinguished, else None."""
    frames: tuple[FrameTime, ...] = ()
    """The frames in which this line's calls spent time: at most four, all in the user's code outside the
    cell, the one with the largest share first. Time counts for the deepest such frame on the stack."""
    call_share: float | None = None
    """Percentage of the running time of the cell's code that ``call`` alone took, or None if there is no
    call."""
    indent: int = 0
    """Number of columns by which :attr:`source` is indented."""


@dataclass(frozen=True, slots=True)
class CodeTime:
    """The distribution of the run's time over the lines of its code, and the run's CPU use."""

    lines: tuple[LineTime, ...]
    """The lines, the one with the largest share first."""
    samples: int
    """Number of stack samples of the main thread."""
    resolution_s: float
    """Length in seconds of the shortest pattern that can be resolved. If lines alternate faster than this,
    their times can't be told apart."""
    reason: str | None
    """Sentences that explain why lines, shares or ``gpu_busy`` are missing or less accurate, or None."""
    cpu: float | None
    """Mean CPU use of this process, in percent of one core."""
    cpu_children: float | None
    """Mean CPU use of all child processes together, in percent of one core."""
    warm_up_s: float | None
    """Seconds from the run's start to its steady state, or None if no warm-up was found."""
    reason_ids: tuple[MessageId, ...] = ()
    """The ids and parameters of the sentences in :attr:`reason`, in the same order."""
    steady_until_s: float | None = None
    """Seconds from the run's start to the end of its steady state, before its workers' shutdown. None if the
    steady state lasts until the run's end."""

    def with_reasons(self, *reasons: Message) -> CodeTime:
        """Return a copy whose :attr:`reason` also contains the sentences ``reasons``."""
        sentences = [
            *([self.reason] if self.reason is not None else []),
            *reasons,
        ]
        return replace(
            self,
            reason=joined(sentences, " ") if sentences else None,
            reason_ids=(*self.reason_ids, *(message.message_id for message in reasons)),
        )


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """One worker of the run on one GPU: a child process, a rank of distributed training, or a Dask worker.

    A worker that used several GPUs has one entry per GPU. Values about the process, such as ``cpu``, are the
    same in all of its entries.
    """

    kind: WorkerKind
    """``rank`` for a process with a rank, ``dask`` for a Dask worker, ``child`` for any other child
    process."""
    name: str | None
    """The name of a Dask worker, or the program of a process, such as ``python train.py``."""
    host: str | None
    """Host name, or None for a process of the notebook's own host."""
    pid: int
    rank: int | None
    """Rank in the whole job (RANK, as set by torchrun)."""
    local_rank: int | None
    """Rank among the processes of the same host (LOCAL_RANK)."""
    world_size: int | None
    """Number of ranks of the whole job (WORLD_SIZE)."""
    gpu: str | None
    """UUID of the GPU, or None if the process used no GPU or if its GPU is unknown."""
    memory: Span | None
    """Memory of the process on the GPU, according to the driver (nvidia-smi: GPU Memory Usage)."""
    torch_allocated: Span | None
    """Torch's allocated memory. The peak is exact. Only the process itself can report this."""
    torch_reserved: Span | None
    """Torch's reserved memory. The peak is exact. Only the process itself can report this."""
    utilization: Level | None
    """Utilization of the GPU while the process ran. None if other processes also used the GPU."""
    energy_j: float | None
    """Joules that the GPU drew while the process ran. None if other processes also used the GPU."""
    cpu: float | None
    """Mean CPU use of the process, in percent of one core."""
    steps: int | None
    """Number of steps that the process reported (``gpuwidget.rank().step()``)."""
    step_s: float | None
    """Mean seconds per reported step."""
    status: WorkerStatus
    """State at the run's end. ``running``: the process still existed. ``ended``: it ended before the run did.
    ``failed``: it reported an error or an exit code other than 0. ``lost``: it is on another host and stopped
    reporting."""
    exit_code: int | None
    """The exit code of the process, or None if it is still running or did not report its exit code."""
    started_s: float | None
    """When the process started, in seconds since the run's start. 0 if it existed before the run. If its
    start is unknown, this is when it was first seen."""
    ended_s: float | None
    """When the process ended, in seconds since the run's start, or None if it still ran."""
    missing: Mapping[str, Message] = field(default_factory=dict)
    """The reason why each unknown value is None, by field name."""
    missing_ids: Mapping[str, MessageId] = field(init=False)
    """The ids and parameters of the reasons in :attr:`missing`, by field name."""
    energy_error_j: float | None = None
    """Joules by which :attr:`energy_j` may be wrong (two standard deviations), or None if that is at most 5
    percent of it or if :attr:`energy_j` is None."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing_ids", message_ids(self.missing))


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one run: its time, its memory and the activity of the GPUs."""

    schema: int
    source: SourceInfo
    environment: SoftwareVersions
    cell: RunInfo
    host_memory: Span
    """Resident memory of this process at the run's start and end, and its peak."""
    gpus: tuple[GpuReport, ...]
    """All GPUs of the source, or only those selected with the option ``--gpu``."""
    attributed: bool
    """Whether it is known which GPUs this kernel uses. If not, the card shows all GPUs, and a note explains
    why."""
    timeline: Timeline | None
    notes: tuple[str, ...]
    time: CodeTime | None
    """Time per line, or None if the main thread was not sampled."""
    advice: tuple[Advice, ...]
    """Advice about the code, the most important first."""
    holders: tuple[Holder, ...]
    """The holders of the memory that the run allocated and did not free, the largest first."""
    lines: tuple[LineMemory, ...]
    """Memory per line, sorted by the bytes held at the peak, most bytes first. Empty without the option
    ``--lines``."""
    energy_idle_j: float | None = None
    """Joules that all GPUs in :attr:`counted` together drew while they were idle. The driver averages
    utilization over short windows, and a GPU counts as idle in each window in which no CUDA kernel ran.
    Shorter pauses are therefore not included. None if unknown."""
    note_ids: tuple[MessageId, ...] = field(init=False)
    """The ids and parameters of :attr:`notes`, in the same order. Notes that only a card adds have no id."""
    workers: tuple[WorkerReport, ...] = ()
    """Other processes that worked for the run: child processes that used a GPU, ranks of distributed training
    in the order of their ranks, and Dask workers."""

    def __post_init__(self) -> None:
        ids = tuple(note.message_id for note in self.notes if isinstance(note, Message))
        object.__setattr__(self, "note_ids", ids)

    def with_notes(self, *notes: Message) -> Report:
        """Return the report with ``notes`` added to its notes."""
        return replace(self, notes=(*self.notes, *notes))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values: dicts, lists, str, finite float, int, bool and None."""
        values = to_json(self)
        assert isinstance(values, dict)
        return {**values, "totals": to_json(self.totals)}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as JSON text, on one line or indented by ``indent`` spaces.

        A lone surrogate, which a file name may contain, can't be encoded and becomes a ``?``.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)
        return encodable(text)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per GPU in :attr:`gpus`. Unknown values are NaN.

        Raise MissingPackageError if pandas is not installed.
        """
        return flat_metrics.data_frame(self.to_dict())

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the run and of the GPUs that the card shows, by name, for any logger.

        Names look like ``gpu0/energy_j``; docs/reference/report.md lists them. Unknown values are left out.
        """
        return flat_metrics.metrics(self.to_dict())

    @property
    def shown(self) -> tuple[GpuReport, ...]:
        """The GPUs that the card shows."""
        return tuple(gpu for gpu in self.gpus if gpu.shown)

    @property
    def counted(self) -> tuple[GpuReport, ...]:
        """The shown GPUs that count in headlines, totals and comparisons.

        These are the GPUs on which this notebook worked or may have worked, each once (see
        :func:`~gpuwidget.model.samples.without_mig_parents`). If it worked on none, these are the GPUs on
        which no other process worked either.
        """
        gpus = without_mig_parents(self.shown)
        possible = tuple(gpu for gpu in gpus if gpu.worked is not False)
        return possible or tuple(gpu for gpu in gpus if not gpu.used_by_others_only)

    @property
    def totals(self) -> RunTotals:
        """The figures of the run as a whole."""
        gpus = self.counted
        kind = self.memory_kinds()[0] if self.shown else None
        busy = [gpu.utilization.mean for gpu in gpus if gpu.utilization is not None]
        known = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
        energies = [*known, *(gpu.energy_at_least_j for gpu in gpus if gpu.energy_at_least_j is not None)]
        return RunTotals(
            gpus=len(gpus),
            memory_kind=kind,
            memory=None if kind is None else sum_of_spans(self.memory_spans(kind)),
            utilization=sum(busy) / len(busy) if busy else None,
            utilization_gpus=len(busy),
            energy_j=sum(energies) if energies else None,
            energy_gpus=len(known),
            ooms=sum(gpu.torch.ooms or 0 for gpu in self.shown if gpu.torch is not None),
        )

    @property
    def memory_gpus(self) -> tuple[GpuReport, ...]:
        """The GPUs whose memory the headline shows: those in :attr:`counted`.

        If there are none, these are all shown GPUs, because this process's memory is its own even where only
        others worked."""
        return self.counted or without_mig_parents(self.shown)

    def memory_kinds(self) -> list[MemoryKind]:
        """Return the kinds of memory that are known for all of :attr:`memory_gpus`, closest to the user's
        tensors first.

        A kind that is known only for some GPUs is omitted, because a sum of different kinds has no meaning.
        """
        gpus = self.memory_gpus
        torch = [gpu.torch for gpu in gpus if gpu.torch is not None]
        process = [gpu.process_memory for gpu in gpus if gpu.process_memory is not None]
        found: list[MemoryKind] = []
        if len(torch) == len(gpus) and any(memory.reserved.peak for memory in torch):
            found.append("torch")
        if len(process) == len(gpus) and any(span.peak is not None for span in process):
            # If child processes held memory, the process's memory comes first, because torch's counters
            # exclude the memory of child processes.
            found.insert(0 if any(gpu.children for gpu in gpus) else len(found), "process")
        return [*found, "device"]

    def memory_spans(self, kind: MemoryKind) -> list[Span]:
        """Return the memory on each of :attr:`memory_gpus`. ``kind`` is one of :meth:`memory_kinds`."""
        gpus = self.memory_gpus
        if kind == "torch":
            return [gpu.torch.allocated for gpu in gpus if gpu.torch is not None]
        if kind == "process":
            return [gpu.process_memory for gpu in gpus if gpu.process_memory is not None]
        return [gpu.device_memory for gpu in gpus]


def sum_of_spans(spans: Iterable[Span]) -> Span:
    """Return the sums of start and end, each None if any value is unknown, and the highest known peak."""
    spans = list(spans)
    peaks = [span.peak for span in spans if span.peak is not None]
    return Span(
        _sum([span.start for span in spans]), _sum([span.end for span in spans]), max(peaks, default=None)
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def in_call(call: str) -> str:
    """Return a phrase such as ``in json.loads`` for a call. Return :data:`WAITING_FOR_CHILD` unchanged."""
    return WAITING_FOR_CHILD if call == WAITING_FOR_CHILD else translatable("in {call}", call=call)
