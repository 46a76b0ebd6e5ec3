"""What the doctor says: the chain from PyTorch to the GPU, link by link.

Every class is frozen and every field without a default: what nobody knows is None, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SCHEMA = 1
"""Version of the diagnosis's shape, sent with every one."""

CheckStatus = Literal["ok", "broken", "warning", "unknown", "skipped"]
EnvironmentKind = Literal["kernel", "server", "shell"]


@dataclass(frozen=True, slots=True)
class Check:
    """One link of the chain: found, or broken with the reason and the one remedy."""

    id: str
    """Which one, the same in every version: ``torch``, ``cuda``, ``cudnn``, ``nccl``, ``driver``,
    ``device_files``, ``gpu``, the chain in its order; then ``visible``, ``sharing``, ``health``, ``pcie``,
    ``peers``, ``shm`` and ``package``."""
    title: str
    """Its name for people."""
    status: CheckStatus
    """``broken``: torch can't compute on a GPU until it is mended. ``warning``: it works, but worse than it
    could or not for long. ``unknown``: it could not be looked at. ``skipped``: nothing to look at, and that
    is no fault."""
    found: str
    """What was found, in a few words."""
    reason: str | None
    """Why it is not ``ok``, as a sentence; None where it is."""
    remedy: str | None
    """What to do about it, as a sentence; None where nothing is to be done."""
    command: str | None
    """The command line in ``remedy``, for a shell, that can be run as it is; None where there is none."""
    evidence: Mapping[str, str]
    """What was read, by what it is; what changes from minute to minute is left out."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All links of one environment on one machine at one moment."""

    schema: int
    version: str
    """gpuwidget's, in that environment."""
    time: float
    """When it was examined, epoch seconds."""
    place: EnvironmentKind
    """Whose environment it is."""
    python: str
    """Path of its interpreter."""
    variables: Mapping[str, str]
    """Its environment variables that decide about GPUs, by name; no other one is looked at."""
    status: Literal["ok", "broken", "warning"]
    """The worst of the links: ``warning`` also where one is ``unknown``."""
    summary: str
    """The whole in one sentence: what is broken first, or that all was found."""
    unfinished: tuple[str, ...]
    """The steps of the examination that did not finish, as ``'import torch'``; empty where all did."""
    links: tuple[Check, ...]
    """The chain from PyTorch down to the GPU, then what surrounds it."""

    @property
    def ok(self) -> bool:
        """Whether the examination is complete and no link is broken."""
        return self.status != "broken" and not self.unfinished
