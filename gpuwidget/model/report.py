"""The report of one measured run: the data behind every card, file and export.

The JSON form (``application/vnd.gpuwidget.report+json``, :meth:`Report.to_dict`) has exactly these names. All
values are in bytes, seconds, watts, joules and percent. Any value but ``schema``, ``uuid`` and ``index`` may
be None; ``missing`` of its GPU then has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpuwidget.model import flat_metrics
from gpuwidget.model.to_json import to_json

MIME_TYPE = "application/vnd.gpuwidget.report+json"
REPORT_SCHEMA = 1

Status = Literal["ok", "error", "interrupted"]
MarkKind = Literal["mark", "printed"]
HolderKind = Literal["variable", "notebook", "unknown", "outside torch"]


WAITING_FOR_CHILD = "waiting for a child process"
"""Takes the place of the call where the code waits for a child process."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """The source of the readings."""

    kind: str
    """``nvml``, ``replay`` or ``none``."""
    reason: str | None
    """Why there is no GPU, and what to do."""
    recording: str | None
    """The label of a recording, shown wherever its values are; None for live GPUs."""

    @property
    def recorded(self) -> bool:
        """Whether the readings are a recording's."""
        return self.recording is not None


@dataclass(frozen=True, slots=True)
class SoftwareVersions:
    """Versions of the software that was loaded when the run ended; None for what was not."""

    driver: str | None
    cuda_driver: str | None
    torch: str | None
    cuda: str | None
    cudnn: str | None
    default_device: str | None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run itself."""

    execution_count: int | None
    """The N of In[N]; None outside a cell."""
    label: str | None
    started: float
    """Epoch seconds."""
    duration_s: float
    """Seconds from the first statement to the end of the Python code."""
    gpu_tail_s: float | None
    """Seconds for which the GPU went on working after that; None where the run did not wait for it."""
    status: Status


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes at the run's start and end, and their peak."""

    start: int | None
    end: int | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class Level:
    """Time-weighted mean of a value over the run, and its highest reading."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes a second over one kind of link, sent and received by the GPU; None for an unknown direction."""

    tx: Level | None
    rx: Level | None


@dataclass(frozen=True, slots=True)
class TorchMemory:
    """Counters of torch's caching allocator for one device; the peaks are exact, not sampled."""

    allocated: Span
    reserved: Span
    alloc_retries: int | None
    """How often the allocator freed its cache to satisfy an allocation during the run (num_alloc_retries)."""
    ooms: int | None
    """Out-of-memory errors during the run (num_ooms)."""
    inactive_split: int | None
    """Bytes of the cache at the end that can't be freed, as they share blocks with tensors
    (inactive_split)."""
    returnable: int | None = None
    """Bytes reserved at the end that emptying the cache would return to the driver, by torch's list of its
    segments (at most that many for expandable ones). None also where the list was not read, as the run
    changed nothing there."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU during the run."""

    uuid: str
    index: int
    mig_index: int | None
    name: str
    torch_device: str | None
    """``cuda:N`` in this process, None where torch does not see it or CUDA is not up."""
    mig_parent: str | None
    memory_total: int | None
    memory_reserved: int | None
    """Bytes of it that the driver reserves and no process can have."""
    shown: bool
    """Whether the card shows it: this kernel holds memory on it, or its share is unknown."""
    device_memory: Span
    """The whole GPU, without what the driver reserves."""
    process_memory: Span | None
    """This process and its children."""
    torch: TorchMemory | None
    utilization: Level | None
    bursts: int | None
    """How often utilization rose from 10 percent or less to 20 or more; None where unknown."""
    memory_utilization: Level | None
    sm_activity: Level | None
    sm_occupancy: Level | None
    tensor_activity: Level | None
    fp32_activity: Level | None
    dram_activity: Level | None
    pcie: Traffic | None
    nvlink: Traffic | None
    power_w: Level | None
    power_limit_w: float | None
    throttled: Mapping[str, float] | None
    """Seconds for which the clock was throttled, by reason, without idling; empty where it was not. Accurate
    to two seconds, the interval at which the driver is read."""
    energy_j: float | None
    lost_since: float | None
    missing: Mapping[str, str]
    """The reason for each field that is None."""
    children: tuple[str, ...] = ()
    """Programs (``python a.py``) of this process's descendants that held memory there: at most four, each
    once, with a count where several processes ran it."""
    children_memory: Span | None = None
    """Bytes of ``process_memory`` that these descendants held, by the driver's list; None where none did, or
    where unknown."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A marked moment on the timeline."""

    t: float
    """Seconds since the run's start."""
    label: str
    kind: MarkKind
    """``mark`` for ``w.mark()``, ``printed`` for a line that the cell printed."""


@dataclass(frozen=True, slots=True)
class GpuTimeline:
    """Time series of one GPU, one value for each ``t`` of the timeline; None where unknown."""

    uuid: str
    utilization: tuple[float | None, ...]
    device_memory: tuple[int | None, ...]
    power_w: tuple[float | None, ...]
    sm_activity: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The time series of the GPUs that the card shows, at most 240 points."""

    t: tuple[float, ...]
    """Seconds since the run's start, rising."""
    marks: tuple[Mark, ...]
    gpus: tuple[GpuTimeline, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on the code, with its evidence."""

    rule: str
    """The rule's name, one of those in docs/advice.md."""
    sure: bool
    """False where the numbers only suggest it; the text then says so."""
    text: str
    """The observation, as a sentence with its numbers."""
    fix: str
    """What to do, as a sentence."""
    evidence: Mapping[str, Any]
    """The numbers, by name."""
    link: str | None
    """The section that explains it, as a path in gpuwidget's folder (for a clone: in the clone)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps memory on one device alive."""

    kind: HolderKind
    """``variable``: names of the user; ``notebook``: Out[n], _, the last error's traceback; ``unknown``: held
    by autograd, or by objects without a name; ``outside torch``: CUDA context, other libraries and
    processes."""
    names: tuple[str, ...]
    """Every name that leads to it, in the user's notation (``model``, ``Out[3]``, ``batch[0]``)."""
    type: str | None
    """Name of the type; None where the holder is no object."""
    device: str
    """``cuda:N``."""
    bytes: int
    """Bytes of torch's allocated memory that it keeps alive, each counted once over all holders."""
    cell: int | None
    """The N of the In[N] that allocated most of it; None where unknown."""


@dataclass(frozen=True, slots=True)
class LineMemory:
    """Memory that one line of the user's code allocated on one device during the run (``--lines``).

    Each byte counts for one line: the innermost line of the user that was running.
    """

    file: str | None
    """``In[N]``, or the path of the user's module; None for allocations that no line of the user caused."""
    line: int | None
    function: str | None
    """None at the top level of the cell or module."""
    source: str
    """The line's text; without a line, a description of what allocated."""
    called_from: str | None
    """The cell's line that most of it was called from, as ``In[5] line 7``; None where that is this line."""
    device: str
    allocated: int
    """All bytes allocated."""
    held: int
    """Bytes of it that are still held at the end."""
    at_peak: int | None
    """Bytes of it that were held when memory was highest; None where that moment is unknown."""


@dataclass(frozen=True, slots=True)
class FrameTime:
    """Time of the main thread in the user's own code below a line of the cell."""

    frame: str
    """As ``train.py:31 step``, or ``In[2]:4 step``."""
    share: float
    """Percent of the time of the cell's code."""
    gpu_busy: float | None
    """As in :class:`LineTime`."""
    call: str | None
    call_share: float | None = None
    """As in :class:`LineTime`."""


@dataclass(frozen=True, slots=True)
class LineTime:
    """Time of the main thread in one line of the cell, and in the calls below it."""

    line: int | None
    """Line number in the cell; None for what belongs to no line of it."""
    source: str
    share: float
    """Percent of the time of the cell's code."""
    gpu_busy: float | None
    """Percent of that time in which a GPU was busy for this process; None where it can't be determined."""
    call: str | None
    """The call with the largest share, as ``DataLoader._next_data``, or ``waiting for a child process``; None
    where most time was in the line itself."""
    frame: str | None
    """The deepest frame of the user's own code below the cell with the largest share; None without one."""
    until: int | None = None
    """The last of several lines that can't be distinguished; None for one line."""
    frames: tuple[FrameTime, ...] = ()
    """The user's own frames below it, at most 4, the largest share first."""
    call_share: float | None = None
    """Share of ``call`` alone: percent of the whole time, as ``share``; None without a call."""


@dataclass(frozen=True, slots=True)
class CodeTime:
    """Where the run's time went."""

    lines: tuple[LineTime, ...]
    """The largest share first."""
    samples: int
    """Number of stack samples of the main thread."""
    resolution_s: float
    """Seconds: shorter patterns can't be distinguished."""
    reason: str | None
    """Why there is no ``gpu_busy``, or what limits it, as a sentence; None where nothing does."""
    cpu: float | None
    """Mean CPU use of this process, in percent of one core."""
    cpu_children: float | None
    """The same for its child processes together."""
    warm_up_s: float | None
    """Seconds from the start to the steady state; None where no warm-up was found."""


@dataclass(frozen=True, slots=True)
class NoteId:
    """Which note a text is, for programs: the text itself may change."""

    id: str
    params: Mapping[str, Any]
    """The values in the text, by name."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence about what happened during the run."""

    id: str
    params: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """What one run did to this machine's GPUs."""

    schema: int
    source: SourceInfo
    environment: SoftwareVersions
    cell: RunInfo
    host_memory: Span
    """This process's resident memory."""
    gpus: tuple[GpuReport, ...]
    """Every GPU of the source, or those that ``--gpu`` names."""
    attributed: bool
    """False where it is unknown which GPUs this kernel uses; the card then shows all and says so."""
    timeline: Timeline | None
    notes: tuple[str, ...]
    time: CodeTime | None
    """None where the main thread was not sampled."""
    advice: tuple[Advice, ...]
    """The most important first."""
    holders: tuple[Holder, ...]
    """What keeps alive the memory that the run left behind, the largest first."""
    lines: tuple[LineMemory, ...]
    """Empty without ``--lines``; the largest at the peak first."""
    energy_idle_j: float | None = None
    """Joules of all GPUs shown, drawn in utilization windows of the driver in which no kernel ran; shorter
    pauses are not included. None where unknown."""
    note_ids: tuple[NoteId, ...] = ()
    """The ids of :attr:`notes`, in their order; notes that a card adds have none."""

    def with_notes(self, *notes: Note) -> Report:
        """Return the report with further notes."""
        return replace(
            self,
            notes=(*self.notes, *(note.text for note in notes)),
            note_ids=(*self.note_ids, *(NoteId(note.id, note.params) for note in notes)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values: dicts, lists, str, finite float, int, bool and None."""
        values = to_json(self)
        assert isinstance(values, dict)
        return values

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the report as JSON text, on one line or indented by ``indent`` spaces.

        A lone surrogate, as names of files may contain, becomes a ``?``: it can't be encoded.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)
        return text.encode(errors="replace").decode()

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each of :attr:`gpus`; an unknown value is NaN.

        Raises MissingPackageError where pandas is not installed.
        """
        return flat_metrics.data_frame(self.to_dict())

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the GPUs that the card shows, by name, for any logger: ``gpu0/energy_j``.

        An unknown value has no entry. docs/python.md lists the names.
        """
        return flat_metrics.metrics(self.to_dict())

    @property
    def shown(self) -> tuple[GpuReport, ...]:
        """The GPUs that a card shows."""
        return tuple(gpu for gpu in self.gpus if gpu.shown)


def in_call(call: str) -> str:
    """Return ``in json.loads`` for a call, :data:`WAITING_FOR_CHILD` unchanged."""
    return call if call == WAITING_FOR_CHILD else f"in {call}"
