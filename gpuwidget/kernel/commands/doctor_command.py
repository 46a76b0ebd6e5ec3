"""``gpuwidget.doctor()`` and ``%gpu doctor``: the checks of this notebook's environment.

The checks run in a subprocess, so that they neither import modules nor initialize CUDA in this process.
Ctrl-C stops them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

from gpuwidget import pytorch
from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.diagnostics.target import NotebookState
from gpuwidget.kernel.cells.run_context import user_variables
from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.model.boundary import Boundary
from gpuwidget.model.diagnosis import Diagnosis, EnvironmentKind
from gpuwidget.model.errors import OptionError
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import translatable
from gpuwidget.system.daemon_thread import run_in_daemon_thread
from gpuwidget.version import __version__
from gpuwidget.views import diagnosis_view
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

_WIDTH = 100
_USAGE = translatable("%gpu doctor has no options. It checks everything from PyTorch down to the GPU.")


class DiagnosisDisplay:
    """A diagnosis that displays as text and HTML. Its JSON is what ``gpuwidget doctor --json`` prints."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self.doctor = diagnosis
        """The results of all checks."""

    @property
    def ok(self) -> bool:
        """Whether all checks finished and no check has the status ``broken``."""
        return self.doctor.ok

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        values: dict[str, Any] = to_json(self.doctor)
        return values

    def to_json(self, indent: int | None = 2) -> str:
        """Return the diagnosis as JSON text, which ``gpuwidget doctor --diff`` can read."""
        return json.dumps(self.to_dict(), indent=indent)

    def __repr__(self) -> str:
        return diagnosis_view.text(self.doctor, _WIDTH)

    def bundle(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": diagnosis_view.html(self.doctor)}

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        return self.bundle(), output_metadata()


def doctor() -> DiagnosisDisplay:
    """Check this environment and machine, from PyTorch down to the GPU; takes some seconds, at most 20.

    Raises DoctorError if the checks do not finish.
    """
    return DiagnosisDisplay(_run_checks())


def command(invocation: Invocation) -> None:
    """Run ``%gpu doctor``."""
    if invocation.arguments:
        raise OptionError(_USAGE)
    invocation.display(doctor().bundle())


class SharedDiagnosis:
    """Runs the checks for the panel, one run at a time: concurrent requests share one result."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Diagnosis] | None = None

    async def diagnosis(self) -> Diagnosis:
        """Return the diagnosis without blocking the event loop. Raises DoctorError like :func:`doctor`."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(run_in_daemon_thread(_run_checks, "gpuwidget-doctor"))
        # If one request is cancelled, the checks continue for the other requests.
        return await asyncio.shield(self._task)


def _run_checks() -> Diagnosis:
    switches = pytorch.compute_switches()
    notebook = NotebookState(
        torch=pytorch.torch_version(),
        cudnn_off=switches is not None and switches.cudnn is False,
        devices=_devices(),
        cpu_threads=pytorch.cpu_threads(),
        loaders=_loaders_without_workers(),
    )
    place: EnvironmentKind = "kernel" if "ipykernel" in sys.modules else "shell"
    return isolated_run.run_in_subprocess(place, __version__, ProbeEnvironment.current(), notebook=notebook)


def _loaders_without_workers() -> list[str]:
    # If this fails, the checks run without the DataLoaders.
    with Boundary(_LOG, "the DataLoaders could not be listed"):
        found = pytorch.loaders(user_variables())
        return [loader.name for loader in found if loader.num_workers == 0]
    return []


def _devices() -> list[str | None] | None:
    # After a CUDA error, torch may raise anything. The checks then run without the devices.
    with Boundary(_LOG, "torch's devices could not be listed", foreign=True):
        return [device.uuid for device in pytorch.devices()] or None
    return None
