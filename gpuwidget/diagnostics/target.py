"""Who is examined, and how long at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwidget.diagnostics.probe_process import Environment
from gpuwidget.model.diagnosis import Place

PATIENCE_S = 15.0
"""How long the probes may take, all of them together. A first import of torch from a network disk may take
longer: it is reported as not finished, and not as broken."""
DEADLINE_S = 19.0
"""How long the whole examination may take before it is killed, which itself takes up to a second."""


@dataclass(frozen=True, slots=True)
class Notebook:
    """What only the notebook's own process knows."""

    torch: str | None = None
    """Version of the torch that it has loaded; None where it has none."""
    cudnn_off: bool = False
    """Whether that has ``torch.backends.cudnn.enabled = False``."""
    devices: Sequence[str | None] | None = None
    """UUIDs of the GPUs that its CUDA has, as torch says them; None where CUDA is not up there."""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined, and how."""

    place: Place
    version: str
    """gpuwidget's."""
    environment: Environment
    notebook: Notebook = field(default_factory=Notebook)
    root: Path = Path("/")
    """Where the machine's files are found."""
    patience_s: float = PATIENCE_S
