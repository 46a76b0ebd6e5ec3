"""The doctor's diagnosis: the results of its checks, from PyTorch down to the GPU.

Every class is frozen and no field has a default: an unknown value is None, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SCHEMA = 1
"""Version of the diagnosis's schema, sent with every diagnosis."""

CheckStatus = Literal["ok", "broken", "warning", "unknown", "skipped"]
EnvironmentKind = Literal["kernel", "server", "shell"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check, with the reason and the fix where it is not ok."""

    id: str
    """Its id, the same in every version: ``torch``, ``cuda``, ``cudnn``, ``nccl``, ``driver``,
    ``device_files``, ``gpu``, in the order of the chain; then ``visible``, ``sharing``, ``health``, ``pcie``,
    ``peers``, ``shm`` and ``package``."""
    title: str
    """Its name for users."""
    status: CheckStatus
    """``broken``: torch can't compute on a GPU until it is fixed. ``warning``: it works, but worse than it
    could or not for long. ``unknown``: it could not be checked. ``skipped``: there is nothing to check, which
    is no fault."""
    found: str
    """The observation, in a few words."""
    reason: str | None
    """Why it is not ``ok``, as a sentence; None where it is ``ok``."""
    remedy: str | None
    """The fix, as a sentence; None where nothing is to be done."""
    command: str | None
    """The shell command in ``remedy``, ready to run; None without one."""
    evidence: Mapping[str, str]
    """The values read, by name, without those that change from minute to minute."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The results of all checks of one environment on one machine at one moment."""

    schema: int
    version: str
    """gpuwidget's version in that environment."""
    time: float
    """When the checks ran, epoch seconds."""
    place: EnvironmentKind
    """The process whose environment was checked."""
    python: str
    """Path of its Python interpreter."""
    variables: Mapping[str, str]
    """Its environment variables that concern GPUs, by name; no other variable is read."""
    status: Literal["ok", "broken", "warning"]
    """The worst status of the checks: ``warning`` also where one is ``unknown``."""
    summary: str
    """One sentence about all: the first broken check, or that all is well."""
    unfinished: tuple[str, ...]
    """The steps that did not finish, as ``'import torch'``; empty where all did."""
    links: tuple[Check, ...]
    """The checks from PyTorch down to the GPU, then the others."""

    @property
    def ok(self) -> bool:
        """Whether all checks finished and none is broken."""
        return self.status != "broken" and not self.unfinished
