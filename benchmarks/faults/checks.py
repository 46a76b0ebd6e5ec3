"""The promises that must hold after every schedule. Each check yields one sentence per broken promise."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.faults.cells import Cell
from benchmarks.faults.services import Ran
from benchmarks.faults.streams import Received
from benchmarks.kernels import CARD_MIME

Values = Callable[[int, "int | None", str, float, float], Sequence[float]]
"""Returns what the driver returned to a process. The arguments are a GPU's index, a slice's index or None,
the name of the value, and two times."""

_OWN_FRAME = re.compile(r"[/\\]gpuwidget[/\\][\w/\\]*\.py")
_IGNORED = "Exception ignored in"
_NO_TRACEBACK = "\nKeyboardInterrupt\n\n"
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_INTERRUPT_MARGIN_S = 0.25
"""An interrupt must end the cell if the cell would otherwise run for at least this many more seconds."""
_MAX_AGE_S = 2.0
"""The highest acceptable age of a value that a client of the server receives."""
_LATE_S = 0.02
"""A value may be recorded this many seconds before or after the time in question."""
_COUNTERS = {
    "sm_activity": "gpm.2",
    "sm_occupancy": "gpm.3",
    "tensor_activity": "gpm.5",
    "dram_activity": "gpm.10",
    "fp32_activity": "gpm.12",
}
_ROUNDING = 0.006
"""A report has three significant digits or, if it has many GPUs, whole numbers."""
_OWN_MAX_AGE_S = 12.0
"""The list of processes is read again when the memory in use has changed, and otherwise more seldom."""


# -- the cell ------------------------------------------------------------------------------------------------


def check_cell(
    ran: Ran, cell: Cell, seconds: float, sent: float, interrupts: Sequence[float]
) -> Iterator[str]:
    """Check that the cell's outputs and status are as without gpuwidget.

    ``sent`` is when the request was sent, and ``interrupts`` are the times at which the kernel was
    interrupted, in seconds of ``time.monotonic()``.
    """
    assert ran.reply is not None
    status, ename = ran.reply["status"], ran.reply.get("ename")
    errors = [content for kind, content in ran.messages if kind == "error"]
    streams = {
        name: "".join(c["text"] for kind, c in ran.messages if kind == "stream" and c["name"] == name)
        for name in ("stdout", "stderr")
    }
    for error in errors:
        yield from _own_frames("\n".join(error["traceback"]), "the cell's traceback")
    yield from _own_frames(streams["stderr"], "stderr")
    if ename == "UsageError" and "--gpu" in ran.reply["evalue"]:
        return
    # ipykernel ends an ``await`` with this error.
    cancelled = ename == "CancelledError" and cell.ignores_interrupts
    if (ename == "KeyboardInterrupt" or cancelled) and interrupts:
        if not cell.stdout.startswith(streams["stdout"]):
            yield f"an interrupted cell printed {streams['stdout']!r}"
        # IPython shows no traceback if it is interrupted again while it makes the traceback.
        if len(errors) != 1 and len(interrupts) == 1:
            yield f"an interrupted cell has {len(errors)} errors"
        return
    began = ran.began
    if began is not None and not cell.ignores_interrupts:
        for at in interrupts:
            # An interrupt may be lost without gpuwidget, too, before the kernel reports that the cell begins.
            # The message that it begins may arrive late, so the code may already run then.
            lost = at > began and at + _INTERRUPT_MARGIN_S < sent + seconds
            if lost and _IGNORED not in streams["stderr"]:
                yield f"an interrupt {at - began:.2f} s after the cell's beginning was lost"
    if ename in cell.may_fail:
        return
    expected_error = cell.error or (None, None)
    if (ename, ran.reply.get("evalue")) != expected_error or status != ("error" if cell.error else "ok"):
        yield f"the cell ended with {status} {ename}: {ran.reply.get('evalue')}"
    # If an interrupt arrives while IPython makes a traceback, IPython prints this instead of the traceback.
    if cell.error is not None and interrupts and not errors and streams["stderr"].endswith(_NO_TRACEBACK):
        streams["stderr"] = streams["stderr"].removesuffix(_NO_TRACEBACK)
    elif len(errors) != (cell.error is not None):
        yield f"the cell shows {len(errors)} errors"
    for name, expected in (("stdout", cell.stdout), ("stderr", cell.stderr)):
        # Python ignores an interrupt in the callback of a weak reference, and prints that.
        if streams[name] != expected and not (interrupts and _IGNORED in streams[name]):
            yield f"{name} is {streams[name]!r}"
    results = [c["data"]["text/plain"] for kind, c in ran.messages if kind == "execute_result"]
    if results != ([] if cell.result is None else [cell.result]):
        yield f"the result is {results}"
    shown = [
        c["data"].get("text/plain") for kind, c in ran.messages if kind == "display_data" and not _is_own(c)
    ]
    if shown != ([] if cell.displayed is None else [cell.displayed]):
        yield f"the cell displays {shown}"


def _is_own(content: Mapping[str, Any]) -> bool:
    """Return whether an output is a card or belongs to a live chart."""
    display_id = content.get("transient", {}).get("display_id") or ""
    return CARD_MIME in content["data"] or display_id.startswith("gpuwidget")


def _own_frames(text: str, where: str) -> Iterator[str]:
    """Yield a problem if a text contains a frame of gpuwidget's code."""
    text = _COLOR.sub("", text)
    if _OWN_FRAME.search(text):
        yield f"{where} contains gpuwidget's code: {text[-3000:]}"


def check_log(text: str) -> Iterator[str]:
    """Check the new part of the log of the server and the kernel."""
    yield from _own_frames(text, "the log")


def check_recorded(lines: Sequence[str]) -> Iterator[str]:
    """Check the warnings and exceptions that gpuwidget has logged."""
    for line in lines:
        found = json.loads(line)
        if found["error"] is not None:
            yield f"gpuwidget handled an unexpected exception: {found['text']}\n{found['error']}"


# -- the report ----------------------------------------------------------------------------------------------


def check_report(
    report: Mapping[str, Any], values: Values, sent: float, ran: Ran, seconds: float, *, full: bool
) -> Iterator[str]:
    """Check that a report agrees with the values that the driver returned at that time.

    Memory must be equal to a returned value. Means and the timeline must lie between the returned values, and
    the energy must be possible with the returned power.

    ``sent`` is when the request was sent, and ``full`` is whether the cell's code ran to its end.
    """
    assert ran.ended is not None
    ended = ran.ended
    text = json.dumps(report)
    if "unexpected error" in text:
        yield f"the report has an unexpected error: {text[:3000]}"
    # When the code began and ended is not known exactly, but it ran for ``seconds``.
    code_began = ended - seconds if full else ended
    code_ended = sent + seconds if full else sent
    for gpu in report["gpus"]:
        name = f"GPU {gpu['index']}" + ("" if gpu.get("mig_index") is None else f":{gpu['mig_index']}")

        def served(what: str, since: float, until: float, gpu: Mapping[str, Any] = gpu) -> Sequence[float]:
            return values(gpu["index"], gpu.get("mig_index"), what, since - _LATE_S, until + _LATE_S)

        for field, what in (("device_memory", "memory"), ("process_memory", "own")):
            span = gpu[field] or {"start": None, "end": None, "peak": None}
            for moment, since, until in (
                ("start", sent, code_began),
                ("end", code_ended, ended),
                ("peak", sent, ended),
            ):
                value = span[moment]
                # A process that is not in the list holds nothing.
                if value is None or (field == "process_memory" and value == 0):
                    continue
                if field == "process_memory":
                    since -= _OWN_MAX_AGE_S
                if value not in served(what, since, until):
                    yield f"{name}: the {field} at the {moment} is {value}, which was not returned then"
        for field, what in (("utilization", "util"), ("power_w", "power"), *_COUNTERS.items()):
            level = gpu.get(field)
            if level is None:
                # In a card of many GPUs, only the first has the reason for the fields that the card omits.
                if field not in gpu["missing"] and field != "fp32_activity":
                    yield f"{name}: {field} is unknown without a reason"
                continue
            found = served(what, sent, ended)
            if not found:
                yield f"{name}: {field} is {level}, but the driver returned none"
                continue
            margin = _margin(found)
            if field == "power_w":
                # It is the energy by its time. The energy may be wrong by 5 %, or by more if that is stated.
                found = [*found, *served("power drawn", sent, ended)]
                accuracy = max(0.05, (gpu.get("energy_error_j") or 0.0) / (gpu["energy_j"] or 1.0))
                margin += accuracy * max(found)
            if not min(found) - margin <= level["mean"] <= max(found) + margin:
                yield f"{name}: {field} is {level}, but the driver returned {min(found)} to {max(found)}"
        energy = gpu["energy_j"]
        if energy is not None:
            found = [*served("power", sent, ended), *served("power drawn", sent, ended)]
            if not found or energy > max(found) * (ended - sent) * 1.1:
                yield f"{name}: the energy is {energy}, but the power was {found[-3:]}"
        elif "energy_j" not in gpu["missing"]:
            yield f"{name}: energy_j is unknown without a reason"
    timeline = report["timeline"]
    by_uuid = {gpu["uuid"]: gpu for gpu in report["gpus"]}
    for series in timeline["gpus"] if timeline is not None else ():
        gpu = by_uuid[series["uuid"]]
        for field, what in (
            ("device_memory", "memory"),
            ("utilization", "util"),
            ("power_w", "power"),
            ("sm_activity", "gpm.2"),
        ):
            known = [value for value in series[field] if value is not None]
            found = values(gpu["index"], gpu.get("mig_index"), what, sent - _LATE_S, ended + _LATE_S)
            if known and not found:
                yield f"GPU {gpu['index']}: the timeline has {field}, but the driver returned none"
            elif known and not (min(found) - 0.5 <= min(known) and max(known) <= max(found) + 0.5):
                yield f"GPU {gpu['index']}: the timeline's {field} is outside of what the driver returned"


def _margin(found: Sequence[float]) -> float:
    """Return how much a rounded mean may differ from the values."""
    return max(0.51, max(found) * _ROUNDING)


# -- the stream ----------------------------------------------------------------------------------------------


def check_stream(received: Sequence[Received], values: Values, since: float) -> Iterator[str]:
    """Check that the memory, utilization and power that a client received are values that the driver returned
    shortly before.

    Samples received before ``since`` are not checked, because the driver's values from before are not known.
    """
    for each in received:
        if each.at < since:
            continue
        for gpu, reading in zip(each.gpus, each.readings, strict=True):
            for field, what in (("memory_used", "memory"), ("utilization", "util"), ("power_w", "power")):
                value = reading[field]
                if value is None:
                    if field not in reading["missing"]:
                        yield f"the stream has no {field} and no reason"
                elif value not in values(gpu["index"], gpu["mig_index"], what, each.at - _MAX_AGE_S, each.at):
                    yield (
                        f"the stream has the {field} {value} of GPU {gpu['index']}, which the driver has not "
                        f"returned in the last {_MAX_AGE_S:g} s"
                    )
