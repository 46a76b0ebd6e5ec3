"""The environment that is checked, and the time limits of the checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.model.diagnosis import EnvironmentKind

PROBE_TIMEOUT_S = 15.0
"""The timeout in seconds of all probes together. If a first import of torch from a network disk takes longer,
the import is reported as unfinished, not as broken."""
RUN_TIMEOUT_S = 19.0
"""The timeout in seconds of a whole run; killing the run afterwards takes up to a second more."""


@dataclass(frozen=True, slots=True)
class NotebookState:
    """State that exists only in the notebook's process."""

    torch: str | None = None
    """Version of the torch module that the notebook has imported; None if it has imported none."""
    cudnn_off: bool = False
    """Whether ``torch.backends.cudnn.enabled`` is False in the notebook."""
    devices: Sequence[str | None] | None = None
    """UUIDs of the CUDA devices that torch uses in the notebook; None before CUDA is initialized."""
    cpu_threads: int | None = None
    """How many CPU threads torch uses for one operation in the notebook; None if torch is not imported."""
    loaders: Sequence[str] = ()
    """Names of the notebook's DataLoaders without worker processes."""


@dataclass(frozen=True, slots=True)
class Target:
    """The environment to check, and the options of the run."""

    place: EnvironmentKind
    version: str
    """Version of gpuwidget."""
    environment: ProbeEnvironment
    notebook: NotebookState = field(default_factory=NotebookState)
    root: Path = Path("/")
    """The root of the file system that is inspected."""
    timeout_s: float = PROBE_TIMEOUT_S
