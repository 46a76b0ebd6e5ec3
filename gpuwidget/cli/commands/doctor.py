"""``gpuwidget doctor``: the diagnosis of the environment in which the command runs, as text or JSON."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
from pathlib import Path

from gpuwidget.cli.command import FAILED, SILENCE_S, Command, add_json_option, report
from gpuwidget.diagnostics.compare import compare
from gpuwidget.diagnostics.isolated_run import parse_diagnosis
from gpuwidget.diagnostics.private_data import UserPaths, remove_private_data
from gpuwidget.diagnostics.probe_process import ProbeEnvironment
from gpuwidget.diagnostics.run_checks import run_checks
from gpuwidget.diagnostics.target import RUN_TIMEOUT_S, Target
from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.errors import DoctorError, OptionError
from gpuwidget.model.to_json import to_json
from gpuwidget.version import __version__
from gpuwidget.views import diagnosis_view


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)
    parser.add_argument(
        "--diff",
        type=Path,
        metavar="FILE",
        help="show what changed since an earlier diagnosis, whose JSON is in FILE",
    )


def _run(options: argparse.Namespace) -> int:
    # The output names a step that hangs, but only after all steps had enough time.
    silence = threading.Timer(
        SILENCE_S, report, (f"checking… This takes at most {RUN_TIMEOUT_S + 1:.0f} seconds.",)
    )
    silence.daemon = True
    silence.start()
    try:
        text, ok = _diagnose(options)
    finally:
        silence.cancel()
    print(text, flush=True)
    return 0 if ok else FAILED


COMMAND = Command(
    description="Check this environment and machine, from PyTorch down to the GPU. The output shows "
    "what was found, what is broken and how to fix it. The exit status is 0, or 1 if "
    "something is broken or a check did not finish.",
    add_options=_add_options,
    run=_run,
)


def _diagnose(options: argparse.Namespace) -> tuple[str, bool]:
    """Return the text to print, and whether all checks finished and no check has the status ``broken``.

    Raises OptionError if the file of ``--diff`` is not a diagnosis.
    """
    before = None if options.diff is None else _read(options.diff)
    diagnosis = run_checks(Target("shell", __version__, ProbeEnvironment.current()))
    since = None if before is None else compare(before, diagnosis)
    if options.json:
        values = to_json(diagnosis) if since is None else {**to_json(diagnosis), "changes": to_json(since)}
        text = json.dumps(values, indent=2)
    else:
        text = diagnosis_view.text(diagnosis, shutil.get_terminal_size((110, 24)).columns, since)
    return text, diagnosis.ok


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
