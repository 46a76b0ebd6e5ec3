"""The environment that the checks run for, and their time limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.model.diagnosis import EnvironmentKind

PROBE_TIMEOUT_S = 15.0
"""The timeout of all probes together. A first import of torch from a network disk may take longer: it is
reported as unfinished, not as broken."""
RUN_TIMEOUT_S = 19.0
"""The timeout of a whole run; killing it afterwards takes up to a second."""


@dataclass(frozen=True, slots=True)
class NotebookState:
    """State that only the notebook's own process has."""

    torch: str | None = None
    """Version of the torch module that it imported; None without one."""
    cudnn_off: bool = False
    """Whether ``torch.backends.cudnn.enabled`` is False there."""
    devices: Sequence[str | None] | None = None
    """UUIDs of the notebook's CUDA devices according to torch; None before CUDA is initialized."""


@dataclass(frozen=True, slots=True)
class Target:
    """The environment to check, and how."""

    place: EnvironmentKind
    version: str
    """Version of gpuwidget."""
    environment: ProbeEnvironment
    notebook: NotebookState = field(default_factory=NotebookState)
    root: Path = Path("/")
    """The root of the machine's files."""
    timeout_s: float = PROBE_TIMEOUT_S
