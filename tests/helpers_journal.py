"""Runs for tests of the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers_reports import starved

from gpuwidget.journal.records import JournaledRun, MachineState, ProcessIdentity
from gpuwidget.model.report import Report, Status

STARTED = 1_764_486_000.0
"""When the runs began: 2025-11-30 07:00 UTC."""
IDENTITY = ProcessIdentity(
    host="node-1",
    boot_id="b1",
    pid_namespace="pid:[1]",
    pid=4711,
    started="100",
    slurm_job=None,
    slurm_end=None,
)
MACHINE = MachineState(
    time=STARTED + 10,
    resident=2 * 1024**3,
    cgroup_used=None,
    cgroup_limit=None,
    cgroup_oom_kills=None,
    machine_available=None,
    machine_total=None,
    machine_oom_kills=None,
    xids=(),
    shutdown_requested=None,
    restart_requested=False,
)


def run_report(status: Status = "ok", **cell: Any) -> Report:
    """Return a report of a run that began at :data:`STARTED` and took 100 seconds."""
    made = starved()
    values = {"started": STARTED, "duration_s": 100.0, "status": status, **cell}
    return replace(made, cell=replace(made.cell, **values))


def journaled(made: Report | None = None, **changes: Any) -> JournaledRun:
    """Return a run of the cell ``c1`` of ``/home/ann/train.ipynb``."""
    run = JournaledRun(
        notebook="/home/ann/train.ipynb",
        cell_id="c1",
        code="0a1b2c3d",
        kernel_id="k1",
        process=IDENTITY,
        machine=MACHINE,
        report=run_report() if made is None else made,
    )
    return replace(run, **changes)
