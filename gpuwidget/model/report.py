"""The report of one measured run: what every card, file and program is made from.

The JSON form (``application/vnd.gpuwidget.report+json``, :meth:`Report.to_dict`) has exactly these names.
Bytes, seconds, watts, joules and percent throughout. Any value but ``schema``, ``uuid`` and ``index``
may be None; the ``missing`` of its GPU then says why.
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
"""Stands in for the call where the code waits for a child process."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where the numbers come from."""

    kind: str
    """``nvml``, ``replay`` or ``none``."""
    reason: str | None
    """Why there is no GPU, and what to do."""
    recording: str | None
    """The words that label a recording wherever it is shown; None for live GPUs."""

    @property
    def recorded(self) -> bool:
        """Whether the readings are a recording's."""
        return self.recording is not None


@dataclass(frozen=True, slots=True)
class SoftwareVersions:
    """What was loaded when the run ended; None for what was not."""

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
    """Seconds the GPU went on working after that; None where nobody waited for it."""
    status: Status


@dataclass(frozen=True, slots=True)
class Span:
    """A quantity of bytes at the run's start, at its end, and at its highest."""

    start: int | None
    end: int | None
    peak: int | None


@dataclass(frozen=True, slots=True)
class Level:
    """A quantity's time-weighted mean over the run, and its highest reading."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes a second over one kind of link, as the GPU sends and receives; None for what is not known."""

    tx: Level | None
    rx: Level | None


@dataclass(frozen=True, slots=True)
class TorchMemory:
    """What torch's caching allocator says of one device; the peaks are exact, not sampled."""

    allocated: Span
    reserved: Span
    alloc_retries: int | None
    """How often the cache was flushed to satisfy an allocation during the run (num_alloc_retries)."""
    ooms: int | None
    """Out-of-memory errors during the run (num_ooms)."""
    inactive_split: int | None
    """Bytes of the cache at the end that can't be given back, as they lie beside tensors (inactive_split)."""
    returnable: int | None = None
    """Bytes of what is reserved at the end that emptying the cache would give back to the driver, by torch's
    list of its segments (of expandable ones at most that much); None also where nobody looked, as the run
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
    """Bytes of it that the driver keeps for itself, and nobody can have."""
    shown: bool
    """Whether the card shows it: this kernel holds memory on it, or nobody can say who does."""
    device_memory: Span
    """The whole GPU, without what the driver reserves."""
    process_memory: Span | None
    """This process and its children."""
    torch: TorchMemory | None
    utilization: Level | None
    bursts: int | None
    """How often utilization rose from 10 percent or less to 20 or more; None where it is unknown."""
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
    """Seconds for which something held the clock down, by its words, idling left out; empty where nothing
    did. To two seconds: the driver is asked that seldom."""
    energy_j: float | None
    lost_since: float | None
    missing: Mapping[str, str]
    """For each field that is None: why."""
    children: tuple[str, ...] = ()
    """Programs (``python a.py``) of this process's children, and theirs, that were seen to hold memory there:
    at most four, each once, with their number where there are several of one."""
    children_memory: Span | None = None
    """Bytes of ``process_memory`` that these children held, by the driver's list; None where none did, or
    where it is not known."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment worth seeing on the timeline."""

    t: float
    """Seconds since the run's start."""
    label: str
    kind: MarkKind
    """``mark`` for ``w.mark()``, ``printed`` for a line the cell printed."""


@dataclass(frozen=True, slots=True)
class GpuTimeline:
    """One GPU's course over the run, a value for each ``t`` of the timeline; None where unknown."""

    uuid: str
    utilization: tuple[float | None, ...]
    device_memory: tuple[int | None, ...]
    power_w: tuple[float | None, ...]
    sm_activity: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The run's course, at most 240 points, of the GPUs that the card shows."""

    t: tuple[float, ...]
    """Seconds since the run's start, rising."""
    marks: tuple[Mark, ...]
    gpus: tuple[GpuTimeline, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    """What may be worth a change, and what it rests on."""

    rule: str
    """The rule's name, one of those in docs/advice.md."""
    sure: bool
    """False where the figures only look like it; the text then says so."""
    text: str
    """What was seen, as a sentence with the figures."""
    fix: str
    """What to do, as a sentence."""
    evidence: Mapping[str, Any]
    """The figures, by name."""
    link: str | None
    """The section that explains it, as a path in gpuwidget's folder (where it is a clone: in the clone's)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps memory on one device alive."""

    kind: HolderKind
    """``variable``: names of the user's; ``notebook``: Out[n], _, the last error's traceback; ``unknown``:
    autograd's, or what no name leads to; ``outside torch``: CUDA context, other libraries and processes."""
    names: tuple[str, ...]
    """Every name that leads to it, in words as a person writes them (``model``, ``Out[3]``, ``batch[0]``)."""
    type: str | None
    """Name of the type; None where it is no object."""
    device: str
    """``cuda:N``."""
    bytes: int
    """Bytes of torch's allocated memory that it keeps alive, each counted once over all holders."""
    cell: int | None
    """The N of the In[N] that allocated most of it; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class LineMemory:
    """What one line of the user's code allocated on one device during the run (``--lines``).

    Each byte counts for one line: the innermost of the user's that was at work.
    """

    file: str | None
    """``In[N]``, or the path of the user's module; None for what no line of the user's asked for."""
    line: int | None
    function: str | None
    """None at the cell's own level, or the module's."""
    source: str
    """The line's text; without a line, who allocated it in words."""
    called_from: str | None
    """The cell's line through which most of it came, as ``In[5] line 7``; None where that is this line."""
    device: str
    allocated: int
    """Bytes asked for in all."""
    held: int
    """Bytes of it that are still held at the end."""
    at_peak: int | None
    """Bytes of it that were held when memory was highest; None where that moment is not known."""


@dataclass(frozen=True, slots=True)
class FrameTime:
    """Where the main thread was in the user's own code below a line of the cell."""

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
    """Where the main thread was, as seen from one line of the cell."""

    line: int | None
    """Line number in the cell; None for what is no line of it."""
    source: str
    share: float
    """Percent of the time of the cell's code."""
    gpu_busy: float | None
    """Percent of that time in which a GPU was busy for this process; None where the witnesses can't tell."""
    call: str | None
    """The call it was in most, as ``DataLoader._next_data``, or ``waiting for a child process``; None in the
    line itself."""
    frame: str | None
    """The frame of the user's own code, the deepest below the cell, that it was in most; None without one."""
    until: int | None = None
    """The last of several lines that can't be told apart; None for one line."""
    frames: tuple[FrameTime, ...] = ()
    """The user's own frames below it, at most 4, those with the largest share first."""
    call_share: float | None = None
    """What ``call`` itself had: percent of the whole time, as ``share``; None without a call."""


@dataclass(frozen=True, slots=True)
class CodeTime:
    """Where the run's time went."""

    lines: tuple[LineTime, ...]
    """Those with the largest share first."""
    samples: int
    """How many looks at the main thread this rests on."""
    resolution_s: float
    """Seconds: patterns shorter than this can't be told."""
    reason: str | None
    """Why there is no ``gpu_busy``, or what limits it, as a sentence; None where all is well."""
    cpu: float | None
    """Percent of one core that this process took, on average."""
    cpu_children: float | None
    """The same of its child processes together."""
    warm_up_s: float | None
    """Seconds from the start until the steady state began; None where no beginning can be told apart."""


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
    """Every GPU the source sees, or those that ``--gpu`` names."""
    attributed: bool
    """False where nobody can say which GPU this kernel uses; the card then shows all and says so."""
    timeline: Timeline | None
    notes: tuple[str, ...]
    time: CodeTime | None
    """None where nobody looked."""
    advice: tuple[Advice, ...]
    """The weightiest first."""
    holders: tuple[Holder, ...]
    """What keeps alive the memory that the run left behind, the largest first."""
    lines: tuple[LineMemory, ...]
    """Empty without ``--lines``; the largest at the peak first."""
    energy_idle_j: float | None = None
    """Joules of all GPUs shown, drawn in windows of the driver's in which no kernel ran: shorter pauses are
    not in it. None where that is unknown."""
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
        """The report as JSON values: dicts, lists, str, finite float, int, bool and None."""
        values = to_json(self)
        assert isinstance(values, dict)
        return values

    def to_json(self, *, indent: int | None = None) -> str:
        """The report as JSON text, on one line or indented by so many blanks.

        Half a character (a lone surrogate), as names of files may have, is a ``?``: no file takes it.
        """
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)
        return text.encode(errors="replace").decode()

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row for each of :attr:`gpus`; what is unknown is NaN.

        Raises MissingPackageError where pandas is not installed.
        """
        return flat_metrics.frame(self.to_dict())

    def metrics(self) -> dict[str, float]:
        """The figures of the GPUs that the card shows, by name, for any logger: ``gpu0/energy_j``.

        What is unknown has no entry. docs/python.md lists the names.
        """
        return flat_metrics.metrics(self.to_dict())

    @property
    def shown(self) -> tuple[GpuReport, ...]:
        """The GPUs that a card shows."""
        return tuple(gpu for gpu in self.gpus if gpu.shown)


def in_call(call: str) -> str:
    """``in json.loads`` for a call; :data:`WAITING_FOR_CHILD` as it is."""
    return call if call == WAITING_FOR_CHILD else f"in {call}"
