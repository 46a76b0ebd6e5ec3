"""The Slurm job in which the server runs, with a stand-in for squeue."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeSource
from helpers_server import Server
from server.test_memory_ownership import usage_where

from gpuwidget.server.slurm import SlurmMonitor
from gpuwidget.server.wire import SlurmJob

JOB = {"SLURM_JOB_ID": "1234", "SLURM_GPUS_ON_NODE": "2"}
END = 1_800_000_000.0


def squeue(folder: Path, script: str) -> dict[str, str]:
    """Return the environment of a job whose ``squeue`` is this shell script."""
    program = folder / "squeue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {**JOB, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12; rm"}, None),
        ({"SLURM_JOB_ID": "7"}, SlurmJob("7", None, None, 900.0)),
        (JOB | {"SLURM_JOB_END_TIME": "1800000000"}, SlurmJob("1234", 2, END, 900.0)),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,2,3"}, SlurmJob("7", 3, None, 900.0)),
        (JOB | {"SLURM_GPUS_ON_NODE": "", "SLURM_JOB_END_TIME": "x"}, SlurmJob("1234", None, None, 900.0)),
    ],
)
def test_the_job_in_the_environment(environment: dict[str, str], job: SlurmJob | None) -> None:
    """Id, GPUs and end come from Slurm's variables. What is missing or invalid is unknown."""
    monitor = SlurmMonitor(environment, 900.0, logging.getLogger("test"))
    assert monitor.job == job
    assert monitor.needs_refresh is (job is not None and job.end is None)


async def test_the_end_from_squeue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the variable, squeue is asked for the end. While it fails, the last known end is kept, and the
    reason is logged."""
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(END))
    environment = squeue(tmp_path, f'[ "$*" = "--noheader --jobs=1234 --format=%e" ] && echo {local}')
    monitor = SlurmMonitor(environment, 900.0, logging.getLogger("test"))
    await monitor.refresh()
    assert monitor.job == SlurmJob("1234", 2, END, 900.0)
    squeue(tmp_path, "exit 1")
    await monitor.refresh()
    assert monitor.job == SlurmJob("1234", 2, END, 900.0)
    (line,) = caplog.messages
    assert line.startswith("The end of Slurm job 1234 could not be read: squeue failed (")
    assert line.endswith("squeue runs again in 5 min.")
    squeue(tmp_path, "echo N/A")
    await monitor.refresh()
    assert monitor.job == SlurmJob("1234", 2, None, 900.0)


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the server in a Slurm job."""
    for name, value in (JOB | {"SLURM_JOB_END_TIME": "1800000000"}).items():
        monkeypatch.setenv(name, value)


async def test_the_job_on_the_stream_and_in_the_metrics(
    in_a_job: None, server: Server, source: FakeSource
) -> None:
    """Clients and Prometheus get the job, and pages open the stream for the warning before its end."""
    stream = await server.stream()
    usage: Any = await usage_where(stream, lambda one: True)
    assert usage["job"] == {"id": "1234", "gpus": 2, "end": END, "warning_s": 900.0}
    stream.close()
    text = (await server.fetch("gpuwidget", "metrics")).body.decode()
    assert 'gpuwidget_slurm_job_info{gpus="2",job="1234"} 1.0\n' in text
    assert 'gpuwidget_slurm_job_end_timestamp_seconds{job="1234"} 1.8e+09\n' in text
    assert server.app.web_app.settings["page_config_data"] == {"gpuwidgetNotifications": "true"}
