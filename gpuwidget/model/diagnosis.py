"""The doctor's diagnosis: the results of its checks, from PyTorch down to the GPU.

All classes are frozen, and no field has a default. An unknown value is None, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

DIAGNOSIS_SCHEMA = 1
"""Version of the JSON schema, sent with every diagnosis."""

CheckStatus = Literal["ok", "broken", "warning", "unknown", "skipped"]
IssueStatus = Literal["broken", "warning", "unknown"]
EnvironmentKind = Literal["kernel", "server", "shell"]


@dataclass(frozen=True, slots=True)
class Fix:
    """What the user can do about an issue: a text, which may contain a shell command."""

    id: str
    """Identifies the fix for programs, because its text may change between versions."""
    params: Mapping[str, Any]
    """The values in the text, except the command, by name."""
    before: str
    """The text before the command; the whole text if there is no command."""
    command: str | None
    """The shell command, ready to run, or None if there is none."""
    after: str
    """The text after the command, including the punctuation that ends or continues the sentence. Empty if
    there is no command."""

    @property
    def text(self) -> str:
        """The whole text with the command."""
        return self.before if self.command is None else f"{self.before} {self.command}{self.after}"


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem that a check has found."""

    id: str
    """Identifies the problem for programs, because its text may change between versions."""
    status: IssueStatus
    params: Mapping[str, Any]
    """The values in ``reason``, by name."""
    reason: str
    """A sentence that explains the problem."""
    fix: Fix | None
    """What to do about the problem, or None if nothing can be done."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, with a reason and a fix if the result is not ``ok``."""

    id: str
    """The check's id, the same in every version: ``torch``, ``cuda``, ``cudnn``, ``nccl``, ``driver``,
    ``device_files`` and ``gpu`` in the order of the chain from PyTorch to the GPU; then ``visible``,
    ``sharing``, ``health``, ``pcie``, ``peers``, ``shm`` and ``package``."""
    title: str
    """The check's name for users."""
    status: CheckStatus
    """``broken``: torch can't compute on a GPU until this is fixed. ``warning``: torch works, but not as well
    as it could, or perhaps not for long. ``unknown``: the check was not possible. ``skipped``: there is
    nothing to check, which is not a problem."""
    found: str
    """What the check observed, in a few words."""
    reason: str | None
    """The ``reason`` of the worst issue, or None if there is no issue."""
    remedy: str | None
    """The whole text of the worst issue's fix, or None if there is nothing to do."""
    command: str | None
    """The shell command in ``remedy``, ready to run, or None if it contains no command."""
    evidence: Mapping[str, str]
    """The values that the check read, by name, without values that change from minute to minute. The entries
    ``finding 2``, ``finding 3`` and so on contain the ``reason`` of each other issue."""
    issues: tuple[Issue, ...]
    """All problems that the check has found, the worst first."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One cause with its fix, and the checks that fail because of it."""

    check: str
    """The id of the check that has found the cause."""
    status: IssueStatus
    """The worst status of the cause and of the issues that follow from it."""
    issues: tuple[str, ...]
    """The id of the issue that is the cause, and the ids of issues of the same check with the same fix."""
    reasons: tuple[str, ...]
    """A sentence for each item of ``issues``."""
    fix: Fix | None
    """What to do about the cause, or None if nothing can be done."""
    affects: tuple[str, ...]
    """The ids of the other checks that have issues that follow from the cause."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The results of all checks of one environment on one machine at one moment."""

    schema: int
    version: str
    """Version of gpuwidget in the checked environment."""
    time: float
    """When the checks ran, in epoch seconds."""
    place: EnvironmentKind
    """The kind of process whose environment was checked."""
    python: str
    """Path of the process's Python interpreter."""
    variables: Mapping[str, str]
    """The process's environment variables that concern GPUs, by name. No other variable is read."""
    status: Literal["ok", "broken", "warning"]
    """The worst status of all checks. A check that is ``unknown`` counts as ``warning``."""
    summary: str
    """A summary of all checks, such as the title and the reason of the first broken check."""
    unfinished: tuple[str, ...]
    """The steps of probes that did not finish, such as ``'import torch'``. Empty if all steps finished."""
    problems: tuple[Problem, ...]
    """The problems in the order of fixing. Each issue of a check is a problem, or follows from one."""
    links: tuple[Check, ...]
    """The results of the checks: first those from PyTorch down to the GPU, then the others."""

    @property
    def without_gpu(self) -> bool:
        """Whether the check of the GPUs was skipped, because the machine has no NVIDIA GPU."""
        return any(check.id == "gpu" and check.status == "skipped" for check in self.links)

    @property
    def ok(self) -> bool:
        """Whether all checks have finished and none is broken."""
        return self.status != "broken" and not self.unfinished
