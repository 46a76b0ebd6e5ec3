"""Generate the labextension's TypeScript types and parsers from the Python dataclasses.

``python -m tools.wire`` writes the file; with ``--check`` it compares the file instead. Each dataclass
becomes an interface. The docstrings of the dataclass and its fields, including units, become comments. If the
page receives the dataclass, it also becomes a parser with the interface's name.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any, get_args, get_type_hints

from gpuwidget.model import kernel_requests, kernel_state, samples
from gpuwidget.model.messages import Message
from gpuwidget.server import wire
from gpuwidget.sources import throttle_reasons, xids
from tools import wire_parsers
from tools.dataclass_types import field_docstrings, paragraphs, reached, write_type

_PROJECT = Path(__file__).resolve().parent.parent
FILE = _PROJECT / "labextension" / "src" / "wire" / "wire.ts"

HEADER = f"""\
// GENERATED from gpuwidget's dataclasses by `python -m tools.wire`: change those, never this file.

{wire_parsers.IMPORTS}"""


def _without_comments(code: str) -> str:
    """Return Python code without docstrings, comments, blank lines and type hints, and with one space per
    level of indentation, as every browser loads it."""
    lines = list(StringIO(code))
    dropped: set[int] = set()
    inside_texts: set[int] = set()
    hints = [
        (hint, before)
        for node in ast.walk(ast.parse(code))
        for name, before in (("annotation", ": "), ("returns", " -> "))
        if isinstance(hint := getattr(node, name, None), ast.expr)
    ]
    for hint, before in sorted(hints, key=lambda found: found[0].col_offset, reverse=True):
        line = lines[hint.lineno - 1]
        lines[hint.lineno - 1] = line[: hint.col_offset - len(before)] + line[hint.end_col_offset :]
    code = "".join(lines)
    for token in tokenize.generate_tokens(iter(tuple(lines)).__next__):
        number, column = token.start
        if token.type == tokenize.STRING:
            inside_texts.update(range(number + 1, token.end[0] + 1))
        if token.type in (tokenize.COMMENT, tokenize.NL):
            kept = lines[number - 1][:column].rstrip()
            if not kept:
                dropped.add(number)
            elif token.type == tokenize.COMMENT:
                lines[number - 1] = f"{kept}\n"
    for node in ast.walk(ast.parse(code)):
        # Only a docstring, or a text below an assignment, is a statement that consists of a string.
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case (
                ast.If(test=ast.Name("TYPE_CHECKING"))
                | ast.Assign(targets=[ast.Name("TYPE_CHECKING")])
                | ast.ImportFrom(module="__future__")
            ):
                dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    made = ""
    for number, line in enumerate(lines, 1):
        if number not in dropped:
            spaces = 0 if number in inside_texts else len(line) - len(line.lstrip(" "))
            made += " " * (spaces // 4) + line[spaces:]
    ast.parse(made)  # A class or function that had only a docstring would be a syntax error.
    return made


CONSTANTS: Mapping[str, tuple[object, str]] = {
    "STREAM_SCHEMA": (wire.STREAM_SCHEMA, "Version of the stream's messages that this labextension reads."),
    "SAMPLE_SCHEMA": (samples.SAMPLE_SCHEMA, "Version of single samples that this labextension reads."),
    "KERNEL_SCHEMA": (
        kernel_state.KERNEL_SCHEMA,
        "Version of the kernel's replies that this labextension reads.",
    ),
    "KERNEL_REQUEST": (kernel_requests.REQUEST, "Message type of a request to a kernel."),
    "KERNEL_REPLY": (kernel_requests.REPLY, "Message type of a kernel's reply."),
    "LOAD_CODE": (
        _without_comments(
            (_PROJECT / "gpuwidget" / "kernel" / "load_from_panel.py").read_text(encoding="utf-8")
        ),
        "Python code that loads gpuwidget in a kernel: gpuwidget/kernel/load_from_panel.py.",
    ),
    "SILENT_XIDS": (
        xids.silent_xids(),
        "Errors of the driver (XID) that a user's own program may cause, or that need no action.",
    ),
}
ENUMS: Mapping[str, tuple[str, Sequence[str], str]] = {
    "THROTTLE_REASONS": (
        "ThrottleReason",
        throttle_reasons.ALL_NAMES,
        "Reasons why a clock is throttled, the worst first. A newer driver may report others.",
    ),
}
"""The protocol's lists of values, by name. For each list: the name of its union type, the values and a
comment."""
SUBSETS: Mapping[str, tuple[str, Sequence[str], str]] = {
    "HARMFUL_THROTTLE_REASONS": (
        "ThrottleReason",
        throttle_reasons.HARMFUL,
        "Throttle reasons that indicate a problem of power or cooling.",
    ),
}
"""Lists that contain only some of the values of a union type, in the format of ``ENUMS``."""
UNIONS: Mapping[str, tuple[Sequence[type], str]] = {
    "StreamMessage": (
        (wire.InitialMessage, wire.SampleMessage, wire.SampleChanges, wire.MemoryOwnership, wire.AlwaysOn),
        "Messages of the stream.",
    ),
    "ReceivedMessage": (
        (wire.InitialMessage, wire.SampleMessage, wire.MemoryOwnership, wire.AlwaysOn),
        "Messages of the stream after changes were applied, so that every sample is whole.",
    ),
    "KernelRequest": (
        get_args(kernel_requests.Request),
        "Content of a request to a kernel.",
    ),
    "KernelReply": (
        get_args(kernel_requests.Reply),
        "Content of a kernel's reply.",
    ),
}
ROOTS: Sequence[type] = (
    samples.Sample,
    wire.History,
    wire.MetricHistory,
    wire.ActivityRequest,
    wire.RateRequest,
    wire.ClusterSnapshot,
    wire.JournalRuns,
    wire.JournalCard,
    kernel_state.KernelState,
    *(member for members, _ in UNIONS.values() for member in members),
)
"""Dataclasses of the messages between the labextension and Python: the server or a kernel. The dataclasses of
their fields need not be listed."""

TAGS: Mapping[str, str] = {"StreamMessage": "type", "KernelReply": "status"}
"""The unions that the page receives, with the field that tells their members apart. They have parsers, as
have ``RECEIVED`` and the dataclasses of all their fields."""
RECEIVED: Sequence[type] = (wire.MetricHistory, wire.ClusterSnapshot, wire.JournalRuns, wire.JournalCard)
_WIDTH = 110


def typescript() -> str:
    """Return the text of the generated file."""
    received = _received()
    common_fields = wire_parsers.common_fields(received)
    parts = [HEADER]
    for name, (value, comment) in CONSTANTS.items():
        parts.append(f"{_comment(comment, '')}export const {name} = {_literal(value)};\n")
    for name, (type_name, values, comment) in ENUMS.items():
        parts.append(
            f"{_comment(comment, '')}export const {name} = {_list(values)} as const;\n"
            f"export type {type_name} = (typeof {name})[number];\n"
        )
    for name, (type_name, values, comment) in SUBSETS.items():
        parts.append(
            f"{_comment(comment, '')}export const {name}: readonly {type_name}[] = {_list(values)};\n"
        )
    for message_type in reached(ROOTS):
        parts.append(_interface(message_type))
        if message_type in received:
            parts[-1] += wire_parsers.object_parser(
                message_type, field_docstrings(message_type), common_fields[message_type]
            )
    for name, (members, comment) in UNIONS.items():
        names = [member.__name__ for member in members]
        line = f"export type {name} = {' | '.join(names)};"
        if len(line) > _WIDTH:
            below = f"  {' | '.join(names)};"
            line = f"export type {name} =\n" + (
                below if len(below) <= _WIDTH else "  | " + "\n  | ".join(names) + ";"
            )
        parts.append(f"{_comment(comment, '')}{line}\n")
        if name in TAGS:
            parts[-1] += wire_parsers.union_parser(name, members, TAGS[name])
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Write the file. With ``--check``, compare it instead, and return 1 if it differs."""
    text = typescript()
    if "--check" in arguments:
        if FILE.is_file() and FILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{FILE.name} does not match the dataclasses: run python -m tools.wire.", file=sys.stderr)
        return 1
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text, encoding="utf-8")
    return 0


def _received() -> list[type]:
    """Return the dataclasses that the page parses."""
    members = [member for name, (members, _) in UNIONS.items() if name in TAGS for member in members]
    return reached([*RECEIVED, *members], wire_parsers.is_read)


def _interface(message_type: type) -> str:
    hints, docstrings = get_type_hints(message_type), field_docstrings(message_type)
    lines = [
        _comment(inspect.cleandoc(message_type.__doc__ or ""), ""),
        f"export interface {message_type.__name__} {{\n",
    ]
    for field in fields(message_type):
        lines.append(_comment(docstrings.get(field.name, ""), "  "))
        lines.append(f"  readonly {field.name}: {write_type(hints[field.name], _NOTATION)};\n")
    return "".join(lines) + "}\n"


class _TypeScript:
    """How TypeScript writes types."""

    language = "TypeScript"
    names: Mapping[Any, str] = {
        str: "string",
        bool: "boolean",
        int: "number",
        float: "number",
        type(None): "null",
        Any: "unknown",
        Message: "string",
        wire.PartialReading: "Partial<Reading>",
    }

    def reference(self, message_type: type) -> str:
        return message_type.__name__

    def literals(self, values: Sequence[object]) -> str:
        return " | ".join(map(_literal, values))

    def union(self, members: Sequence[str]) -> str:
        return " | ".join(dict.fromkeys(members))

    def array(self, item: str) -> str:
        return f"readonly ({item})[]" if " " in item else f"readonly {item}[]"

    def sequence(self, items: Sequence[str]) -> str:
        return f"readonly [{', '.join(items)}]"

    def dictionary(self, value: str) -> str:
        return f"Readonly<Record<string, {value}>>"


_NOTATION = _TypeScript()


def _literal(value: object) -> str:
    if isinstance(value, str) and "\n" in value:
        return "`" + re.sub(r"[\\`]|\$(?=\{)", r"\\\g<0>", value) + "`"
    # Use single quotes, like the labextension's other files.
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def _list(values: Sequence[str]) -> str:
    return "[\n  " + ",\n  ".join(map(_literal, values)) + "\n]"


def _comment(text: str, indent: str) -> str:
    if not text:
        return ""
    # Editors render comments as Markdown.
    found = paragraphs(text.replace("*/", "* /"))
    if len(found) == 1 and len(indent + found[0]) + len("/**  */") <= _WIDTH:
        return f"{indent}/** {found[0]} */\n"
    lines: list[str] = []
    for paragraph in found:
        lines += ["", *textwrap.wrap(paragraph, _WIDTH - len(indent) - 3, break_on_hyphens=False)]
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines[1:])
    return f"{indent}/**\n{body}{indent} */\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
