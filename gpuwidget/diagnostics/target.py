"""Who is examined, and how long at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.model.diagnosis import EnvironmentKind

PROBE_TIMEOUT_S = 15.0
"""How long the probes may take, all of them together. A first import of torch from a network disk may take
longer: it is reported as not finished, and not as broken."""
RUN_TIMEOUT_S = 19.0
"""How long the whole examination may take before it is killed, which itself takes up to a second."""


@dataclass(frozen=True, slots=True)
class NotebookState:
    """What only the notebook's own process knows."""

    torch: str | None = None
    """Version of the torch that it has loaded; None where it has none."""
    cudnn_off: bool = False
    """Whether that has ``torch.backends.cudnn.enabled = False``."""
    devices: Sequence[str | None] | None = None
    """UUIDs of the GPUs that its CUDA has, as torch says them; None where CUDA is not up there."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is examined, and how."""

    place: EnvironmentKind
    version: str
    """gpuwidget's."""
    environment: ProbeEnvironment
    notebook: NotebookState = field(default_factory=NotebookState)
    root: Path = Path("/")
    """Where the machine's files are found."""
    timeout_s: float = PROBE_TIMEOUT_S
