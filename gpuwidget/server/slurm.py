"""The Slurm job in which this server runs: its id, the GPUs granted to it, and when it ends.

Slurm puts the id and the GPUs into the environment, and since version 22.05 the end too. Otherwise ``squeue``
is run, on a thread and with a time-out, because Slurm's controller may not answer.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from logging import Logger

from gpuwidget.server.wire import SlurmJob
from gpuwidget.system import slurm
from gpuwidget.system.daemon_thread import run_in_daemon_thread

REFRESH_S = 300.0
"""Seconds between two runs of ``squeue``. The end changes if an administrator extends the job."""


class SlurmMonitor:
    """Reads the job of this server. All methods are called on the server's event loop."""

    def __init__(self, environment: Mapping[str, str], warning_s: float, log: Logger) -> None:
        """``warning_s`` is how many seconds before the job's end the user is warned."""
        self._environment = environment
        self._log = log
        self.job = _job(environment, warning_s)
        """The job; None if this server does not run in one."""

    @property
    def needs_refresh(self) -> bool:
        """Whether the end must be requested from Slurm, because the environment does not contain it."""
        return self.job is not None and slurm.end_in(self._environment) is None

    async def refresh(self) -> None:
        """Request the job's end from Slurm. If that fails, the last known end is kept."""
        job = self.job
        if job is None:
            return
        try:
            end = await run_in_daemon_thread(
                partial(_request_end, job.id, self._environment), "gpuwidget-slurm"
            )
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self._log.warning(
                "The end of Slurm job %s could not be read: squeue failed (%s). squeue runs again "
                "in %.0f min.",
                *(job.id, error, REFRESH_S / 60),
            )
            return
        self.job = SlurmJob(job.id, job.gpus, end, job.warning_s)


def _job(environment: Mapping[str, str], warning_s: float) -> SlurmJob | None:
    job = slurm.job_in(environment)
    if job is None:
        return None
    return SlurmJob(job, _gpus_in(environment), slurm.end_in(environment), warning_s)


def _gpus_in(environment: Mapping[str, str]) -> int | None:
    """Return the number of GPUs that the job has on this machine; None if unknown."""
    count = environment.get("SLURM_GPUS_ON_NODE", "")
    if count.isascii() and count.isdigit():
        return int(count)
    indices = [part for part in environment.get("SLURM_JOB_GPUS", "").split(",") if part]
    return len(indices) or None


def _request_end(job: str, environment: Mapping[str, str]) -> float | None:
    """Return the job's end in epoch seconds, or None if it has no time limit. Raises OSError,
    SubprocessError and ValueError."""
    text = slurm.run("squeue", "--noheader", f"--jobs={job}", "--format=%e", environment=environment)
    if text in ("N/A", "NOT_SET", "UNLIMITED"):
        return None
    return slurm.epoch(text)


def server_job(warning_minutes: float, log: Logger) -> SlurmMonitor:
    """Return the monitor of this server's job, by the process's environment."""
    return SlurmMonitor(dict(os.environ), 60.0 * warning_minutes, log)
