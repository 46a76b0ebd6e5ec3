"""Reports that resemble those of real runs, for tests of views and exports."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import helpers_messages

from gpuwidget.measure import notes, reasons
from gpuwidget.model.messages import Message, message
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.report import (
    REPORT_SCHEMA,
    Advice,
    GpuReport,
    GpuTimeline,
    Holder,
    Level,
    Mark,
    Report,
    RunInfo,
    SoftwareVersions,
    SourceInfo,
    Span,
    Timeline,
    TorchMemory,
    Traffic,
    WorkerReport,
)
from gpuwidget.model.units import GIB, MIB
from gpuwidget.views.card import CardReport

H200 = 150_754_820_096
"""The size of an H200's memory in bytes."""
KEPT = 644_939_776
"""The bytes of an H200's memory that the driver reserves."""
HOSTILE = "<img src=x onerror=alert(1)>"
NO_COUNTERS = "the hardware counters (GPM, Hopper and later) are not available here"
TOO_SHORT = "the run was shorter than two of the driver's windows of 0.2 s"
NO_TORCH = "torch is not loaded"
NOT_REPORTED = reasons.WORKER_NOT_REPORTED
RECORDED = "the recorded processes are not this machine's"
_ACTIVITIES = (
    *("sm_activity", "sm_occupancy", "tensor_activity", "fp32_activity", "dram_activity"),
    *("pcie", "nvlink"),
)


def not_measured(part: str) -> Message:
    """Return the note that an OSError prevented a part of the run from being measured."""
    return notes.NOT_MEASURED(parts=(part,), errors=("OSError",))


def gib(size: float) -> int:
    """Return ``size`` GiB as a number of bytes."""
    return round(size * GIB)


def gpu(index: int = 0, **changes: Any) -> GpuReport:
    """Return the report of an H200 during training.
    Every value is known, and 3.2 GiB more are in use at the end than at the start."""
    made = GpuReport(
        uuid=f"GPU-{index:08x}-1b2c-4d3e-8f90-a1b2c3d4e5f6",
        index=index,
        mig_index=None,
        name="NVIDIA H200",
        torch_device=f"cuda:{index}",
        mig_parent=None,
        memory_total=H200,
        memory_reserved=KEPT,
        shown=True,
        device_memory=Span(gib(12.9), gib(16.1), gib(16.1)),
        process_memory=Span(gib(12.4), gib(15.6), gib(15.6)),
        torch=TorchMemory(
            allocated=Span(gib(11.4), gib(14.3), gib(14.6)),
            reserved=Span(gib(11.8), gib(15.0), gib(15.0)),
            alloc_retries=0,
            ooms=0,
            inactive_split=0,
        ),
        utilization=Level(11.04, 96.0),
        bursts=9,
        levels={
            **{reported.name: Level(1.0, 2.0) for _, reported in REPORTED},
            "memory_utilization": Level(2.2, 31.0),
            "sm_activity": Level(10.2, 62.0),
            "sm_occupancy": Level(4.4, 23.5),
            "tensor_activity": Level(0.12, 1.5),
            "fp32_activity": Level(8.1, 41.7),
            "dram_activity": Level(3.1, 20.4),
        },
        pcie=Traffic(Level(1.2e6, 2.4e6), Level(4.6e6, 6.1e6)),
        nvlink=Traffic(Level(0.0, 0.0), Level(0.0, 0.0)),
        power_w=Level(165.4, 402.7),
        power_limit_w=700.0,
        throttled={},
        energy_j=2315.6,
        lost_since=None,
        missing={},
    )
    return changed(made, **changes)


def changed(made: GpuReport, **changes: Any) -> GpuReport:
    """Return the report of a GPU with other values, by their names in the JSON."""
    levels = {name: changes.pop(name) for name in made.levels if name in changes}
    if "missing" in changes:
        changes["missing"] = helpers_messages.reasons(changes["missing"])
    return replace(made, **changes, levels={**made.levels, **levels})


def bare_gpu(index: int = 0, **changes: Any) -> GpuReport:
    """Return the report of a GPU with few known values: an old driver, no torch, and no process memory."""
    missing = dict.fromkeys(_ACTIVITIES, NO_COUNTERS)
    missing |= {
        "torch": NO_TORCH,
        "process_memory": "the driver does not list processes",
        "power_w": "not supported by this GPU",
        "energy_j": "not supported by this GPU",
    }
    unknown: dict[str, Any] = dict.fromkeys((*_ACTIVITIES, "torch", "torch_device", "process_memory"))
    unknown |= {"power_w": None, "energy_j": None, "missing": missing, "name": "Tesla K80"}
    return gpu(index, **(unknown | {"memory_total": gib(22.4)} | changes))


def timeline(gpus: tuple[GpuReport, ...], points: int = 240, duration: float = 14.0) -> Timeline:
    """Return a timeline on which the memory in use rises.
    A GPU works steadily if its mean utilization exceeds 50 %; otherwise it works in bursts."""
    t = tuple(duration * (n + 1) / points for n in range(points))

    def course(place: int) -> GpuTimeline:
        of = gpus[place]
        start, end = of.device_memory.start or 0, of.device_memory.end or of.device_memory.start or 0
        steady = of.utilization is not None and of.utilization.mean > 50
        at_work = [n < 0.95 * points if steady else (n + place) % 16 < 2 for n in range(points)]
        busy = tuple(96.0 + n % 4 * steady if work else 2.0 + n % 3 for n, work in enumerate(at_work))
        return GpuTimeline(
            uuid=of.uuid,
            utilization=(None, *busy[1:]),
            device_memory=tuple(int(start + (end - start) * min(1.0, 2 * n / points)) for n in range(points)),
            power_w=tuple(120.4 + 2.8 * value for value in busy),
            sm_activity=tuple(0.93 * value * abs(math.cos(n)) for n, value in enumerate(busy)),
        )

    return Timeline(t=t, marks=(), gpus=tuple(course(place) for place in range(len(gpus))))


def marks(count: int, duration: float = 14.0, label: str = "epoch {n}: loss 0.4321") -> tuple[Mark, ...]:
    """Return ``count`` marks at equal distances over the run.
    The user has set every tenth mark; the others are printed lines."""
    return tuple(
        Mark(duration * (n + 0.5) / count, label.format(n=n), "mark" if n % 10 == 0 else "printed")
        for n in range(count)
    )


def report(
    *gpus: GpuReport, duration: float = 14.0, points: int = 240, marks: tuple[Mark, ...] = (), **changes: Any
) -> Report:
    """Return the report of a run on ``gpus``.
    ``changes`` replace other fields of the report, such as ``cell``."""
    shown = tuple(one for one in gpus if one.shown)
    made = Report(
        schema=REPORT_SCHEMA,
        source=SourceInfo("nvml", None, None),
        environment=SoftwareVersions("580.159.04", "13.0", "2.13.0+cu130", "13.0", "9.13.0", "cuda:0"),
        cell=cell(duration),
        host_memory=Span(gib(1.9), gib(2.1), gib(2.4)),
        gpus=gpus,
        attributed=True,
        timeline=replace(timeline(shown, points, duration), marks=marks),
        notes=(),
        time=None,
        advice=(),
        holders=(),
        lines=(),
    )
    return replace(made, **changes)


def as_card(report: Report) -> CardReport:
    """Return ``report`` as the type of report that a run returns."""
    return CardReport(**{field.name: getattr(report, field.name) for field in fields(report) if field.init})


def worker(rank: int | None = 0, **changes: Any) -> WorkerReport:
    """Return a rank that trained on the GPU with the same number."""
    made = WorkerReport(
        kind="child" if rank is None else "rank",
        name="python train.py",
        host=None,
        pid=100 + (rank or 0),
        rank=rank,
        local_rank=rank,
        world_size=2,
        gpu=gpu(rank or 0).uuid,
        memory=Span(0, gib(3), gib(4)),
        torch_allocated=None,
        torch_reserved=None,
        utilization=Level(97.2, 100.0),
        energy_j=5310.0,
        cpu=101.3,
        steps=None,
        step_s=None,
        status="running",
        exit_code=None,
        started_s=0.8,
        ended_s=None,
        missing=dict.fromkeys(("torch_allocated", "torch_reserved"), NOT_REPORTED),
    )
    return replace(made, **changes)


def cell(duration: float = 14.0, **changes: Any) -> RunInfo:
    """Return the run info of a cell that ended without an error."""
    made = RunInfo(
        execution_count=3,
        label=None,
        started=1_795_255_445.25,
        duration_s=duration,
        gpu_tail_s=0.0,
        status="ok",
    )
    return replace(made, **changes)


def starved() -> Report:
    """Return the report of a training run that prints a log, on a GPU that often waits for data."""
    return report(gpu(1), marks=marks(12))


def ddp() -> Report:
    """Return the report of data-parallel training on four GPUs."""
    gpus = tuple(
        gpu(
            index,
            utilization=Level(97.0 + index / 2, 100.0),
            tensor_activity=Level(31.2, 44.0),
            power_w=Level(611.0 + 10 * index, 698.0),
            energy_j=8554.0 + 100 * index,
        )
        for index in range(4)
    )
    return report(*gpus, marks=marks(5))


def sixteen(count: int = 16) -> Report:
    """Return the report with the largest card:
    16 GPUs, full timelines, 60 marks of 80 characters, and long hostile texts."""
    hostile = (HOSTILE * 40)[:1000]
    label = ("{n} " + HOSTILE * 3)[:80]
    return report(
        *(gpu(index) for index in range(count)),
        duration=8123.456789,
        marks=marks(60, 8123.4, label),
        cell=cell(8123.456789, label=hostile, gpu_tail_s=0.123456789),
        notes=(f"{hostile[:200]} note", "60 lines were printed; every 2nd is on the timeline."),
    )


def replay() -> Report:
    """Return the report of a run on the packaged recording, with all four GPUs shown."""
    unknown: dict[str, Any] = {
        "process_memory": None,
        "torch": None,
        "torch_device": None,
        "missing": {"process_memory": RECORDED, "torch": NO_TORCH},
    }
    return report(
        *(gpu(index, **unknown) for index in range(4)),
        attributed=False,
        source=SourceInfo("replay", None, "Recording of 4 NVIDIA H200, made 2026-11-21"),
        environment=SoftwareVersions("580.159.04", "13.0", None, None, None, None),
    )


def no_gpu() -> Report:
    """Return the report of a run on a machine without a driver."""
    return report(
        duration=1.2,
        source=SourceInfo(
            "none",
            message("test", "The NVIDIA driver is not installed here. Install it to see GPUs."),
            None,
        ),
        environment=SoftwareVersions(None, None, None, None, None, None),
    )


def unused() -> Report:
    """Return the report of a cell that used neither of the machine's two GPUs."""
    return report(gpu(0, shown=False), gpu(1, shown=False), duration=2.0)


def lost() -> Report:
    """Return the report of a run in which one of two GPUs fell off the bus halfway."""
    gone = gpu(
        1,
        device_memory=Span(gib(12.9), None, gib(16.1)),
        process_memory=Span(gib(12.4), None, gib(15.6)),
        energy_j=None,
        lost_since=1_795_255_452.0,
        missing={"device_memory": "the GPU is lost", "energy_j": "the GPU is lost"},
    )
    note = "GPU 1 was lost at 10:04:12: the driver can no longer reach it. The GPU may need a reset."
    return report(gpu(0), gone, notes=(note,))


def failed(duration: float = 1.2) -> Report:
    """Return the report of a cell that raised an exception."""
    return report(gpu(0), duration=duration, points=12, cell=cell(duration, status="error", gpu_tail_s=None))


def interrupted() -> Report:
    """Return the report of a cell that the user interrupted."""
    return report(gpu(0), duration=42.0, cell=cell(42.0, status="interrupted", gpu_tail_s=None))


def short() -> Report:
    """Return the report of a cell that took two milliseconds, too short for most metrics."""
    missing = dict.fromkeys(("utilization", *_ACTIVITIES), TOO_SHORT)
    missing |= dict.fromkeys(("power_w", "energy_j"), "the run was shorter than 0.1 s")
    unknown: dict[str, Any] = dict.fromkeys(missing)
    torch = TorchMemory(
        Span(gib(15.6), gib(15.6) + 64 * MIB, gib(15.7)), Span(gib(15.7), gib(15.7), gib(15.7)), 0, 0, 0
    )
    return report(gpu(1, torch=torch, missing=missing, **unknown), duration=0.0021, points=2)


def left_behind() -> Report:
    """Return the report of a cell that created a model and left torch's cache fragmented."""
    torch = TorchMemory(Span(0, gib(10), gib(10)), Span(0, gib(13), gib(13)), 0, 0, gib(2))
    holders = (
        Holder("variable", ("optimizer",), "AdamW", "cuda:1", gib(6), 3),
        Holder("variable", ("model", "optimizer", "trainer.model"), "Net", "cuda:1", gib(3), 3),
        Holder("notebook", ("Out[3]", "_", "_3"), "Tensor", "cuda:1", gib(0.5), 3),
        Holder("unknown", (), None, "cuda:1", gib(0.5), 3),
    )
    return report(gpu(1, torch=torch), holders=holders)


def much_left_behind() -> Report:
    """Return the report whose card has the most text: 16 GPUs, and 30 holders with long hostile names."""
    holders = tuple(
        Holder("variable", (HOSTILE * 9,) * 9, HOSTILE * 9, f"cuda:{n % 16}", gib(30 - n), 1234)
        for n in range(30)
    )
    return replace(sixteen(), holders=holders)


def first_context() -> Report:
    """Return the report of a cell that used the GPU for the first time in its process."""
    torch = TorchMemory(Span(0, 64 * MIB, 64 * MIB), Span(0, 64 * MIB, 64 * MIB), 0, 0, 0)
    return report(
        gpu(
            0,
            torch=torch,
            process_memory=Span(0, 682 * MIB, 682 * MIB),
            device_memory=Span(0, 682 * MIB, 682 * MIB),
        ),
        notes=(
            "CUDA started on GPU 0 in this run: its context and libraries hold 618 MiB, which "
            "stays until the process ends and is not a leak.",
        ),
    )


def mig() -> Report:
    """Return the report of a run on two MIG slices of one H200."""
    reason = "a MIG slice has no utilization of its own"
    slices = tuple(
        gpu(
            0,
            uuid=f"MIG-0000000{number}-1b2c-4d3e-8f90-a1b2c3d4e5f6",
            mig_index=number,
            name="NVIDIA H200 MIG 3g.71gb",
            mig_parent="GPU-00000000-1b2c-4d3e-8f90-a1b2c3d4e5f6",
            torch_device="cuda:0" if number == 0 else None,
            memory_total=gib(69.5),
            utilization=None,
            missing={"utilization": reason},
        )
        for number in range(2)
    )
    return report(*slices)


def no_torch() -> Report:
    """Return the report of a cell that used CuPy on one GPU, without torch."""
    return report(gpu(0, torch=None, torch_device=None, missing={"torch": NO_TORCH}))


def little_known() -> Report:
    """Return the report of a run on an old GPU, with few known values and the reasons for the others."""
    return report(bare_gpu(0), attributed=False)


def hostile() -> Report:
    """Return a report with HTML markup in every text that a user, a driver or a program can choose."""
    bad = gpu(
        0,
        name=HOSTILE,
        torch_device=HOSTILE,
        uuid=HOSTILE,
        energy_j=None,
        missing={"energy_j": HOSTILE, HOSTILE: HOSTILE},
    )
    return report(
        bad,
        gpu(1, name=HOSTILE, utilization=None, missing={"utilization": HOSTILE}),
        source=SourceInfo("replay", message("test", HOSTILE), HOSTILE),
        environment=SoftwareVersions(*[HOSTILE] * 6),
        cell=cell(label=HOSTILE),
        marks=marks(6, label=HOSTILE),
        notes=(HOSTILE,),
    )


def advised() -> Report:
    """Return the report of a run on a GPU that waits for data.
    The report has more pieces of advice than a card shows, each with its evidence."""
    cores = {"cores": 15.5, "shared_memory_free_bytes": gib(60), "num_workers": 0, "pin_memory": False}
    return replace(
        starved(),
        advice=(
            Advice(
                "input-pipeline",
                True,
                "The GPU waits for its data: 61 % of the time went to line 7 `for x, y in loader:` in "
                "DataLoader._next_data, and the GPU was 4 % busy meanwhile.",
                "loader has `num_workers=0, pin_memory=False` now. Try num_workers=15, pin_memory=True, "
                "persistent_workers=True.",
                {"share": 61.2, "gpu_busy": 4.0, "utilization": 11.0, "call": "DataLoader._next_data"}
                | cores,
                "docs/reference/advice.md#input-pipeline",
            ),
            Advice(
                "throttled",
                True,
                "GPU 1 ran at a lower clock for 12 of 14 s: too hot.",
                "Ask the administrator to check the cooling.",
                {"held_down_s": {"too hot": 12.0}, "run_s": 14.0, "gpus": [1]},
                "docs/reference/advice.md#throttled",
            ),
            Advice("copies", False, f"{HOSTILE} moved 5.0 GiB/s", HOSTILE, {"call": HOSTILE}, None),
            Advice("small-kernels", False, "A fourth", "that no card shows.", {}, None),
        ),
    )


ALL = {
    "starved": starved,
    "ddp": ddp,
    "sixteen": sixteen,
    "replay": replay,
    "no_gpu": no_gpu,
    "unused": unused,
    "lost": lost,
    "failed": failed,
    "interrupted": interrupted,
    "short": short,
    "first_context": first_context,
    "mig": mig,
    "no_torch": no_torch,
    "left_behind": left_behind,
    "much_left_behind": much_left_behind,
    "little_known": little_known,
    "hostile": hostile,
    "advised": advised,
}
"""The functions above, keyed by name. Each function returns a report."""
