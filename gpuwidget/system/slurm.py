"""The Slurm job of a process: its variables, and Slurm's programs.

The programs are run with a time-out, because Slurm's controller and its accounting may not answer.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple

TIMEOUT_S = 10.0
_MAX_ID = 64


class JobState(NamedTuple):
    """What Slurm's accounting has recorded of a job."""

    state: str
    """Such as ``RUNNING`` or ``TIMEOUT``, without further words, as in ``CANCELLED by 1000``."""
    end: float | None
    """When the job ended, in epoch seconds. None if it still runs."""


def job_in(environment: Mapping[str, str]) -> str | None:
    """Return the id of the job in an environment, or None if there is none."""
    job = environment.get("SLURM_JOB_ID", "")
    return job if _is_job(job) else None


def end_in(environment: Mapping[str, str]) -> float | None:
    """Return the job's end in an environment, in epoch seconds, or None if there is none. Slurm sets it since
    version 22.05."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    return float(end) if end.isascii() and end.isdigit() else None


def job_state(job: str) -> JobState | None:
    """Return the state of a job according to ``sacct``, or None if it is unknown. Takes up to 10 s."""
    if not _is_job(job):
        return None
    try:
        text = run(
            *("sacct", "-X", f"--jobs={job}", "--noheader", "--parsable2", "--format=State,End"),
            environment=os.environ,
        )
        state, _, end = text.splitlines()[-1].partition("|")
        return JobState(state.split()[0], None if end in ("", "Unknown", "None") else epoch(end))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def run(*command: str, environment: Mapping[str, str]) -> str:
    """Return the output of one of Slurm's programs. Raise OSError or SubprocessError if it fails."""
    done = subprocess.run(
        command,
        env={**environment, "SLURM_TIME_FORMAT": "standard"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout.strip()


def epoch(text: str) -> float:
    """Return the epoch seconds of a time in Slurm's standard format. Raise ValueError if it isn't one."""
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def _is_job(job: str) -> bool:
    # The id is passed to Slurm's programs. It is a number, with a suffix in a job array.
    return bool(job) and len(job) <= _MAX_ID and job.replace("_", "").isalnum() and job.isascii()
