"""The parsers of messages that ``tools.wire`` generates, from the types, names and units of the fields.

A parser consists of the functions in ``labextension/src/wire/parsing.ts``. An invalid value becomes null if
the field may be None; otherwise it makes the message invalid. So does a missing field that all versions with
the present schemas send. Any other field may be missing, and is then unknown.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gpuwidget.model import diagnosis, kernel_requests, kernel_state, samples
from gpuwidget.model.messages import Message
from gpuwidget.model.readings import Reading
from gpuwidget.server import wire

OLDEST = Path(__file__).resolve().parent.parent / "labextension" / "tests" / "oldest_messages.json"
"""The oldest messages of the present schemas that the page receives, by dataclass. A new dataclass needs a
message, too. A new field does not belong there: older versions don't send it."""
IMPORTS = """\
import {
  amount,
  count,
  dictionary,
  flag,
  index,
  later,
  list,
  nullable,
  number,
  object,
  oneOf,
  orElse,
  orNull,
  record,
  series,
  size,
  text,
  texts,
  time,
  times,
  union,
  unread,
  validItems,
  webAddress,
  within
} from './parsing';
"""

SPECIAL: Mapping[type, Mapping[str, str]] = {
    samples.Sample: {"schema": "oneOf(SAMPLE_SCHEMA)"},
    samples.Origin: {"reason_id": "unread(null)", "recording": "nullable($)"},
    samples.Gpu: {"mig_index": "nullable($)", "mig_parent": "nullable($)"},
    Reading: {
        "silent_since": "nullable($)",
        "lost_since": "nullable($)",
        "processes": "unread(null)",
        "missing_ids": "unread({})",
    },
    wire.History: {"gpus": "validItems($)"},
    wire.MetricSeries: {
        "mean": "series(number)",
        "min": "nullable(series(number))",
        "max": "nullable(series(number))",
    },
    wire.MetricHistory: {"gpus": "validItems($)"},
    wire.InitialMessage: {
        "schema": "oneOf(STREAM_SCHEMA)",
        "interval_s": "within(0.01, 3600)",
        "documentation": "orNull(webAddress)",
        "sample": "nullable($)",
        "history": "orElse($, { t: [], gpus: [] })",
    },
    wire.MemoryHolder: {"kernel": "nullable($)", "terminal": "nullable($)"},
    wire.GpuMemoryOwnership: {"means": "validItems($)"},
    wire.MemoryOwnership: {"kernels": "validItems($)", "gpus": "validItems($)"},
    wire.ClusterGpu: {"exporters": "validItems($)"},
    wire.ClusterSnapshot: {
        "time": "nullable($)",
        "problem": "nullable($)",
        "nodes": "list($, 100_000)",
        "gpus": "list($, 100_000)",
    },
    kernel_state.KernelState: {
        "schema": "oneOf(KERNEL_SCHEMA)",
        "torch": "nullable($)",
        "unavailable": "nullable($)",
    },
    kernel_state.DeviceState: {"chosen": "nullable($)"},
    kernel_state.Switch: {"pending": "nullable($)"},
    kernel_requests.ErrorReply: {"state": "nullable($)"},
    kernel_requests.DoctorReply: {"state": "nullable($)"},
    diagnosis.Fix: {"command": "nullable($)"},
    diagnosis.Issue: {"fix": "nullable($)"},
    diagnosis.Problem: {"fix": "nullable($)"},
    diagnosis.Check: {"reason": "nullable($)", "remedy": "nullable($)", "command": "nullable($)"},
}
"""The parsers that do not follow from a field's type, name and unit. ``$`` is the parser of the value that is
not None, or of an item.

- ``nullable``: None says something other than unknown, such as *not lost*, which an invalid value must not.
- ``validItems``: without an invalid item, the other items are still true.
- ``unread``: no view reads the field.
- ``series(number)``: the metric may be a temperature below 0.
- ``within``: the sampling intervals in seconds for which the page has room for the history.
"""

_PARSERS: Mapping[Any, str] = {
    str: "text",
    Message: "text",
    bool: "flag",
    int: "index",
    int | None: "count",
    float: "size",
    float | None: "amount",
    Mapping[str, Any]: "record",
    Mapping[str, str]: "texts",
    Mapping[str, Message]: "texts",
    wire.PartialReading: "Reading.partial",
}
_PARSERS_OF_UNITS: Mapping[str, Mapping[Any, str]] = {
    "epoch seconds": {float: "time", float | None: "orNull(time)", tuple[float, ...]: "times"},
    "degrees celsius": {float | None: "number"},
}
"""Parsers of numbers that may be negative, by the unit in the field's docstring."""


def is_read(message_type: Any, name: str) -> bool:
    """Return whether the page reads a field."""
    return not _special(message_type, name).startswith("unread")


def common_fields(received: Sequence[type]) -> Mapping[type, set[str]]:
    """Return the fields that all versions with the present schemas send, by dataclass.

    Raise TypeError if ``OLDEST`` contains no message with one of the dataclasses.
    """
    found: dict[type, set[str]] = {}

    def visit(hint: Any, value: Any) -> None:
        arguments = get_args(hint)
        if is_dataclass(hint) and value is not None:
            assert isinstance(hint, type)
            found[hint] = found.get(hint, {*value}) & {*value}
            for name, field_hint in get_type_hints(hint).items():
                visit(field_hint, value.get(name))
        elif get_origin(hint) in (Union, types.UnionType):
            visit(arguments[0], value)
        elif arguments and isinstance(value, list | dict):
            for item in value.values() if isinstance(value, dict) else value:
                visit(arguments[isinstance(value, dict)], item)

    messages = json.loads(OLDEST.read_text(encoding="utf-8"))
    for message_type in received:
        visit(message_type, messages.get(message_type.__name__))
    for message_type in received:
        if message_type not in found:
            raise TypeError(f"{OLDEST.name} has no {message_type.__name__}: add a message with one.")
    return found


def object_parser(message_type: type, docstrings: Mapping[str, str], common: set[str]) -> str:
    """Return the parser of a dataclass. ``docstrings`` are those of its fields; all versions send the fields
    in ``common``."""
    name = message_type.__name__
    if unknown := SPECIAL.get(message_type, {}).keys() - {field.name for field in fields(message_type)}:
        raise TypeError(
            f"{name} has no field {', '.join(sorted(unknown))}: correct SPECIAL in tools/wire_parsers.py."
        )
    lines = [f"export const {name} = object<{name}>({{"]
    for field, hint in get_type_hints(message_type).items():
        try:
            parser = _field_parser(hint, _special(message_type, field), docstrings.get(field, ""))
            if field not in common and is_read(message_type, field):
                parser = _parser_of_newer(parser, hint)
        except TypeError as error:
            raise TypeError(f"{name}.{field}: {error}") from None
        lines.append(f"  {field}: {parser},")
    return "\n".join(lines).removesuffix(",") + "\n});\n"


def union_parser(name: str, members: Sequence[type], tag: str) -> str:
    """Return the parser of a union of dataclasses, which the values of the field ``tag`` tell apart."""
    lines = [f"export const {name} = union<{name}>('{tag}', {{"]
    for member in members:
        (value,) = get_args(get_type_hints(member)[tag])
        lines.append(f"  {value}: {member.__name__},")
    return "\n".join(lines).removesuffix(",") + "\n});\n"


def _special(message_type: Any, name: str) -> str:
    return SPECIAL.get(message_type, {}).get(name, "")


def _field_parser(hint: Any, special: str, docstring: str) -> str:
    text = " ".join(docstring.lower().split())
    parsers = dict(_PARSERS)
    for unit, parsers_of_unit in _PARSERS_OF_UNITS.items():
        if unit in text:
            parsers.update(parsers_of_unit)
    if not special:
        return _parser(hint, parsers)
    value, *_ = get_args(hint) or (hint,)
    return special.replace("$", _parser(value, parsers))


def _parser(hint: Any, parsers: Mapping[Any, str]) -> str:
    if hint in parsers:
        return parsers[hint]
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return hint.__name__
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"oneOf({', '.join(repr(value) for value in arguments)})"
    if origin is tuple and arguments[1:] == (Ellipsis,):
        is_series = {float, int} & {arguments[0], *get_args(arguments[0])}
        return f"{'series' if is_series else 'list'}({_parser(arguments[0], parsers)})"
    if origin is Mapping and arguments[0] is str:
        return f"dictionary({_parser(arguments[1], parsers)})"
    if origin in (Union, types.UnionType) and arguments[1:] == (type(None),):
        return f"orNull({_parser(arguments[0], parsers)})"
    raise TypeError(f"{hint!r} has no parser: add one to {Path(__file__).name}.")


def _parser_of_newer(parser: str, hint: Any) -> str:
    """Return the parser of a field that older versions do not send. Its value is then unknown."""
    if type(None) in get_args(hint):
        return f"later({parser}, null)" if parser.startswith("nullable") else parser
    missing = {bool: "false", tuple: "[]", Mapping: "{}"}.get(get_origin(hint) or hint)
    if missing is None:
        raise TypeError(f"older versions do not send it, and {hint!r} has no value for unknown: add None.")
    return f"later({parser}, {missing})"
