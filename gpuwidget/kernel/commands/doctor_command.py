"""``gpuwidget.doctor()`` and ``%gpu doctor``: the examination of this notebook's environment.

It happens in a process of its own: nothing is imported here, no CUDA is started, and Ctrl-C ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.model.diagnosis import Diagnosis, EnvironmentKind
from gpuwidget.model.errors import OptionError
from gpuwidget.model.to_json import to_json
from gpuwidget.pytorch import cuda_state, torch_switches
from gpuwidget.version import __version__
from gpuwidget.views import diagnosis_view

_WIDTH = 100
_USAGE = "%gpu doctor: why torch does not use the GPU, link by link. It takes no words."


class DiagnosisDisplay:
    """A diagnosis that displays as text and as HTML; its JSON is that of ``gpuwidget doctor --json``."""

    def __init__(self, doctor: Diagnosis) -> None:
        self.doctor = doctor
        """All that was found, check by check."""

    @property
    def ok(self) -> bool:
        """Whether the examination is complete and no check is broken."""
        return self.doctor.ok

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values: dict[str, Any] = to_json(self.doctor)
        return values

    def to_json(self, indent: int | None = 2) -> str:
        """The same as text, for ``gpuwidget doctor --diff``."""
        return json.dumps(self.to_dict(), indent=indent)

    def __repr__(self) -> str:
        return diagnosis_view.text(self.doctor, _WIDTH)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": diagnosis_view.html(self.doctor)}


def doctor() -> DiagnosisDisplay:
    """Examine this environment and machine, from PyTorch down to the GPU; takes seconds, 20 at most.

    Raises DoctorError where the examination comes to no end.
    """
    return DiagnosisDisplay(_examine())


def command(shell: Any, words: Sequence[str]) -> None:
    """``%gpu doctor``."""
    if words:
        raise OptionError(_USAGE)
    shell.display_pub.publish(data=doctor()._repr_mimebundle_(), metadata={})


class SharedDiagnosis:
    """The examination for a view: one at a time, and who asks meanwhile gets the same."""

    def __init__(self) -> None:
        self._under_way: asyncio.Task[Diagnosis] | None = None

    async def diagnosis(self) -> Diagnosis:
        """What :func:`doctor` says, without holding up the loop. Raises DoctorError."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(isolated_run.run_in_thread(_examine))
        # One who gives up asking does not end it for the others.
        return await asyncio.shield(self._under_way)


def _examine() -> Diagnosis:
    torch, switches = cuda_state.loaded_torch(), torch_switches.compute_switches()
    version = getattr(torch, "__version__", None)
    notebook = NotebookState(
        torch=None if version is None else str(version),
        cudnn_off=switches is not None and switches.cudnn is False,
        devices=_devices(),
    )
    place: EnvironmentKind = "kernel" if "ipykernel" in sys.modules else "shell"
    return isolated_run.run_in_subprocess(place, __version__, ProbeEnvironment.current(), notebook=notebook)


def _devices() -> list[str | None] | None:
    try:
        return [device.uuid for device in cuda_state.devices()] or None
    except Exception:  # whatever torch raises after an error of CUDA's: all the more is to be examined
        return None
