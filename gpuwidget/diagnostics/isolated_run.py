"""The examination in a child of its own: nobody is held up or disturbed, and it ends in time."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from gpuwidget.diagnostics.probe_process import Child, Environment, be_modest, say, without_working_directory
from gpuwidget.diagnostics.target import DEADLINE_S, PATIENCE_S, Notebook, Patient
from gpuwidget.model.diagnosis import SCHEMA, Doctor, Link, Place
from gpuwidget.model.errors import DoctorError
from gpuwidget.model.to_json import to_json

_LEAST_S = 1.0
_NO_NOTEBOOK = Notebook()


def main(_path: Sequence[str]) -> None:
    """In the child: examine the environment that it was given."""
    # Not above: who sends the child needs nothing of it.
    from gpuwidget.diagnostics.run_checks import examine

    be_modest()
    order = json.loads(sys.argv[1])
    patient = Patient(
        order["place"],
        order["version"],
        replace(Environment.own(), path=order["path"]),
        Notebook(**order["notebook"]),
        patience_s=_left(order["patience_s"], time.time() - order["time"]),
    )
    say(doctor=to_json(examine(patient)))


def _left(patience_s: float, passed_s: float) -> float:
    """What is left of the probes' time after this child's start, unless the clock was set meanwhile."""
    return max(_LEAST_S, patience_s - passed_s) if 0.0 <= passed_s <= DEADLINE_S else patience_s


def visit(
    place: Place,
    version: str,
    environment: Environment,
    *,
    notebook: Notebook = _NO_NOTEBOOK,
    patience_s: float = PATIENCE_S,
) -> Doctor:
    """Examine that environment; takes seconds, at most 20. Raises DoctorError where it comes to no end.

    A notebook or a command finds modules in its working directory, which is why the examination gets the
    path with it: it looks which file comes first there, but runs none. A server does not.
    """
    path = list(environment.path) if place != "server" else without_working_directory(environment.path)
    order = {
        "path": path,
        "time": time.time(),
        "place": place,
        "version": version,
        "notebook": to_json(notebook),
        "patience_s": patience_s,
    }
    child = Child("gpuwidget.diagnostics.isolated_run", environment, [json.dumps(order)], leads=True)
    said = child.said(time.monotonic() + DEADLINE_S)
    if "doctor" in said.values:
        return doctor_of(said.values["doctor"])
    if said.ending == "hung":
        why = f"it came to no end within {DEADLINE_S:.0f} s"
    else:
        why = said.how or "it said nothing"
    raise DoctorError(
        f"The doctor could not look at this environment ({why}). "
        "In a terminal, 'gpuwidget doctor' may say more."
    )


def doctor_of(values: Any) -> Doctor:
    """A diagnosis from its JSON, without fields of a newer version. Raises DoctorError for what is none."""
    try:
        if values["schema"] != SCHEMA:
            raise DoctorError(f"It is a diagnosis of another version (schema {values['schema']!r}).")
        # Versions before these fields were added did not write them.
        links = tuple(Link(**_known(Link, {"command": None, **link})) for link in values["links"])
        if not all(
            isinstance(one, dict) for one in (values["variables"], *(link.evidence for link in links))
        ):
            raise TypeError
        known = _known(Doctor, {"unfinished": (), **values})
        return Doctor(**{**known, "unfinished": tuple(known["unfinished"]), "links": links})
    except (KeyError, TypeError, AttributeError) as error:
        raise DoctorError("It is no diagnosis of gpuwidget's.") from error


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: values[field.name] for field in fields(kind)}


async def in_thread(look: Callable[[], Doctor]) -> Doctor:
    """What ``look`` returns or raises, without holding up the loop.

    The thread is a daemon: an examination that goes on does not hold up the end of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Doctor] = loop.create_future()

    def finish(doctor: Doctor | None, error: Exception | None) -> None:
        if future.done():
            return
        if doctor is not None:
            future.set_result(doctor)
        else:
            future.set_exception(error or DoctorError("The doctor said nothing."))

    def run() -> None:
        doctor, failed = None, None
        try:
            doctor = look()
        except Exception as error:
            failed = error
        try:
            loop.call_soon_threadsafe(finish, doctor, failed)
        except RuntimeError:
            return  # The loop has ended, and with it who asked.

    threading.Thread(target=run, name="gpuwidget-doctor", daemon=True).start()
    return await future
