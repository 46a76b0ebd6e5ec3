"""Tests of the Slurm job of a process, with a stand-in for sacct."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwidget.system import slurm
from gpuwidget.system.slurm import JobState

END = 1_795_255_505.0


@pytest.mark.usefixtures("in_utc")
@pytest.mark.parametrize(
    ("script", "state"),
    [
        pytest.param("echo 'TIMEOUT|2026-11-21T10:05:05'", JobState("TIMEOUT", END), id="ended"),
        pytest.param(
            "echo 'CANCELLED by 1000|2026-11-21T10:05:05'", JobState("CANCELLED", END), id="canceled"
        ),
        pytest.param("echo 'RUNNING|Unknown'", JobState("RUNNING", None), id="runs"),
        pytest.param("true", None, id="not found"),
        pytest.param("echo 'TIMEOUT|yesterday'", None, id="another format"),
        pytest.param("echo 'no accounting' >&2; exit 1", None, id="fails"),
    ],
)
def test_job_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: JobState | None
) -> None:
    """The state and the end of a job are those that sacct returns. If it fails, they are unknown."""
    expected = "-X --jobs=77 --noheader --parsable2 --format=State,End standard"
    program = tmp_path / "sacct"
    program.write_text(f'#!/bin/sh\n[ "$* $SLURM_TIME_FORMAT" = "{expected}" ] || exit 2\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert slurm.job_state("77") == state
    assert slurm.job_state("77; rm") is None


def test_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sacct, the state of a job is unknown."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.job_state("77") is None


def test_a_sacct_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If sacct does not answer in time, the state is unknown."""
    program = tmp_path / "sacct"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "TIMEOUT_S", 0.1)
    assert slurm.job_state("77") is None


@pytest.mark.parametrize(
    ("environment", "job", "end"),
    [
        pytest.param({}, None, None, id="none"),
        pytest.param({"SLURM_JOB_ID": "7_1", "SLURM_JOB_END_TIME": "1800000000"}, "7_1", 1.8e9, id="both"),
        pytest.param({"SLURM_JOB_ID": "7; rm", "SLURM_JOB_END_TIME": "x"}, None, None, id="invalid"),
    ],
)
def test_job_in_the_environment(environment: dict[str, str], job: str | None, end: float | None) -> None:
    """The job and its end are those of Slurm's variables, unless these are invalid."""
    assert (slurm.job_in(environment), slurm.end_in(environment)) == (job, end)
