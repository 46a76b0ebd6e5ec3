"""``gpuwidget doctor``: the diagnosis of the environment in which the command runs, as text or JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

from gpuwidget.diagnostics.compare import compare
from gpuwidget.diagnostics.isolated_run import parse_diagnosis
from gpuwidget.diagnostics.private_data import UserPaths, remove_private_data
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.diagnostics.run_checks import run_checks
from gpuwidget.diagnostics.target import Target
from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.errors import DoctorError, OptionError
from gpuwidget.model.to_json import to_json
from gpuwidget.views import diagnosis_view


def run(version: str, *, as_json: bool, earlier: Path | None, width: int) -> tuple[str, bool]:
    """Return the text to print, and whether all checks finished and no check has the status ``broken``.

    ``version`` is the version of gpuwidget. Raises OptionError if the file ``earlier`` is not a diagnosis.
    """
    before = None if earlier is None else _read(earlier)
    doctor = run_checks(Target("shell", version, ProbeEnvironment.current()))
    since = None if before is None else compare(before, doctor)
    if as_json:
        values = to_json(doctor) if since is None else {**to_json(doctor), "changes": to_json(since)}
        text = json.dumps(values, indent=2)
    else:
        text = diagnosis_view.text(doctor, width, since)
    return text, doctor.ok


def _read(path: Path) -> Diagnosis:
    try:
        diagnosis = parse_diagnosis(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, DoctorError) as error:
        if isinstance(error, OSError):
            why = f"{error.strerror or error}."
        else:
            why = str(error) if isinstance(error, DoctorError) else "The file isn't JSON."
        raise OptionError(
            f"Can't compare with {str(path)!r}: {why} Save a diagnosis with: gpuwidget doctor --json >FILE."
        ) from None
    # Older versions of gpuwidget did not shorten paths. This must not be listed as a change.
    return remove_private_data(diagnosis, UserPaths.find(os.environ))
