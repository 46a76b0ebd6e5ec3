"""Run the checks in a subprocess, which can't crash or disturb the caller's process, and is killed if it
takes too long."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gpuwidget.diagnostics.private_data import UserPaths, clean_text
from gpuwidget.diagnostics.probe_process import (
    ProbeEnvironment,
    ProbeProcess,
    lower_priority,
    send,
    without_working_directory,
)
from gpuwidget.diagnostics.target import PROBE_TIMEOUT_S, RUN_TIMEOUT_S, NotebookState, Target
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.diagnosis import DIAGNOSIS_SCHEMA, Check, Diagnosis, EnvironmentKind, Fix, Issue, Problem
from gpuwidget.model.errors import DoctorError
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import restore_texts, text_sources, translatable

_MIN_TIMEOUT_S = 1.0
_NO_NOTEBOOK = NotebookState()


def main(_path: Sequence[str]) -> None:
    """In the subprocess: run the checks with the arguments that the caller passed."""
    # Imported here, since the parent process does not need it.
    from gpuwidget.diagnostics.run_checks import run_checks

    lower_priority()
    arguments = json.loads(sys.argv[1])
    target = Target(
        arguments["place"],
        arguments["version"],
        replace(ProbeEnvironment.current(), path=arguments["path"]),
        NotebookState(**arguments["notebook"]),
        timeout_s=_remaining_s(arguments["timeout_s"], SYSTEM_CLOCK.time() - arguments["time"]),
    )
    diagnosis = run_checks(target)
    send(diagnosis=to_json(diagnosis), texts=text_sources(diagnosis))


def _remaining_s(timeout_s: float, elapsed_s: float) -> float:
    """Return the time left for the probes, given the time since the caller started.

    If the elapsed time is impossible, the system clock was changed, and the elapsed time is ignored.
    """
    return max(_MIN_TIMEOUT_S, timeout_s - elapsed_s) if 0.0 <= elapsed_s <= RUN_TIMEOUT_S else timeout_s


def run_in_subprocess(
    place: EnvironmentKind,
    version: str,
    environment: ProbeEnvironment,
    *,
    notebook: NotebookState = _NO_NOTEBOOK,
    timeout_s: float = PROBE_TIMEOUT_S,
) -> Diagnosis:
    """Run the checks for an environment, in at most 20 s. Raises DoctorError if they do not finish.

    A notebook or a command can import modules from its working directory. The checks therefore search a
    ``sys.path`` that includes the working directory, to find which of its files would be imported. They do
    not run these files. For a server, the searched ``sys.path`` does not include the working directory.
    """
    path = list(environment.path) if place != "server" else without_working_directory(environment.path)
    arguments = {
        "path": path,
        "time": SYSTEM_CLOCK.time(),
        "place": place,
        "version": version,
        "notebook": to_json(notebook),
        "timeout_s": timeout_s,
    }
    process = ProbeProcess(
        "gpuwidget.diagnostics.isolated_run", environment, [json.dumps(arguments)], own_session=True
    )
    result = process.wait(SYSTEM_CLOCK.monotonic() + RUN_TIMEOUT_S)
    if "diagnosis" in result.values:
        return parse_diagnosis(restore_texts(result.values["diagnosis"], result.values["texts"]))
    if result.ending == "hung":
        why: str = translatable("it did not finish within {seconds:.0f} s", seconds=RUN_TIMEOUT_S)
    else:
        detail = clean_text(result.detail, UserPaths.find(environment.variables))
        why = detail or translatable("it printed nothing")
    raise DoctorError(
        translatable(
            "The doctor could not check this environment ({why}). In a terminal, 'gpuwidget doctor' may show "
            "more.",
            why=why,
        )
    )


def parse_diagnosis(values: Any) -> Diagnosis:
    """Parse a diagnosis, ignoring fields of newer versions. Raises DoctorError if it is invalid."""
    try:
        if values["schema"] != DIAGNOSIS_SCHEMA:
            raise DoctorError(
                f"The diagnosis was made by another version of gpuwidget (schema {values['schema']!r})."
            )
        links = tuple(map(_parse_check, values["links"]))
        if not all(
            isinstance(mapping, dict)
            for mapping in (values["variables"], *(check.evidence for check in links))
        ):
            raise TypeError
        # Diagnoses of older versions lack these two fields.
        known = _select_fields(Diagnosis, {"unfinished": (), "problems": (), **values})
        known["unfinished"] = tuple(known["unfinished"])
        known["problems"] = tuple(map(_parse_problem, known["problems"]))
        return Diagnosis(**{**known, "links": links})
    except (KeyError, TypeError, AttributeError) as error:
        raise DoctorError("This is not a diagnosis made by gpuwidget.") from error


def _parse_check(values: Mapping[str, Any]) -> Check:
    # Diagnoses of older versions lack these fields.
    known = _select_fields(Check, {"command": None, "issues": (), **values})
    return Check(**{**known, "issues": tuple(map(_parse_issue, known["issues"]))})


def _parse_issue(values: Mapping[str, Any]) -> Issue:
    known = _select_fields(Issue, values)
    return Issue(**{**known, "params": _parse_params(values["params"]), "fix": _parse_fix(values["fix"])})


def _parse_fix(values: Mapping[str, Any] | None) -> Fix | None:
    if values is None:
        return None
    return Fix(**{**_select_fields(Fix, values), "params": _parse_params(values["params"])})


def _parse_problem(values: Mapping[str, Any]) -> Problem:
    known = _parse_params(_select_fields(Problem, values))
    return Problem(**{**known, "fix": _parse_fix(values["fix"])})


def _parse_params(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _select_fields(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(kind)}
