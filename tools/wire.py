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
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gpuwidget.model import kernel_requests, kernel_state, samples
from gpuwidget.model.messages import Message
from gpuwidget.server import wire
from gpuwidget.sources import throttle_reasons, xids
from tools import wire_parsers

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
    "XIDS_OF_PROGRAMS": (
        list(xids.APPLICATION_XIDS),
        "Errors of the driver (XID) that a user's own program may cause: the GPU is healthy.",
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
    kernel_state.KernelState,
    *(member for members, _ in UNIONS.values() for member in members),
)
"""Dataclasses of the messages between the labextension and Python: the server or a kernel. The dataclasses of
their fields need not be listed."""

TAGS: Mapping[str, str] = {"StreamMessage": "type", "KernelReply": "status"}
"""The unions that the page receives, with the field that tells their members apart. They have parsers, as
have ``RECEIVED`` and the dataclasses of all their fields."""
RECEIVED: Sequence[type] = (wire.MetricHistory, wire.ClusterSnapshot)
_NAMES = {
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    Any: "unknown",
    Message: "string",
    wire.PartialReading: "Partial<Reading>",
}
_WORDS = {"None": "null", "True": "true", "False": "false"}
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
    for message_type in _reached(ROOTS):
        parts.append(_interface(message_type))
        if message_type in received:
            parts[-1] += wire_parsers.object_parser(
                message_type, _field_docstrings(message_type), common_fields[message_type]
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
    return _reached([*RECEIVED, *members], read=True)


def _reached(roots: Sequence[type], *, read: bool = False) -> list[type]:
    """Return ``roots`` and all dataclasses of their fields; if ``read``, without those of unread fields. Each
    comes after the dataclasses that it contains."""
    found: dict[type, None] = {}

    def visit(annotation: Any) -> None:
        if is_dataclass(annotation):
            for name, hint in get_type_hints(annotation).items():
                if not read or wire_parsers.is_read(annotation, name):
                    visit(hint)
            assert isinstance(annotation, type)
            found.setdefault(annotation)
        for argument in () if get_origin(annotation) is Literal else get_args(annotation):
            visit(argument)

    for root in roots:
        visit(root)
    return list(found)


def _interface(message_type: type) -> str:
    hints, docstrings = get_type_hints(message_type), _field_docstrings(message_type)
    lines = [
        _comment(inspect.cleandoc(message_type.__doc__ or ""), ""),
        f"export interface {message_type.__name__} {{\n",
    ]
    for field in fields(message_type):
        lines.append(_comment(docstrings.get(field.name, ""), "  "))
        lines.append(f"  readonly {field.name}: {_type(hints[field.name])};\n")
    return "".join(lines) + "}\n"


def _type(hint: Any) -> str:
    if hint in _NAMES:
        return _NAMES[hint]
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return hint.__name__
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(_literal(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(_type(argument) for argument in arguments))
    if origin is tuple and arguments[1:] == (Ellipsis,):
        item = _type(arguments[0])
        return f"readonly ({item})[]" if " " in item else f"readonly {item}[]"
    if origin is Mapping and arguments[0] is str:
        return f"Readonly<Record<string, {_type(arguments[1])}>>"
    raise TypeError(f"{hint!r} has no TypeScript type: add one to tools/wire.py.")


def _literal(value: object) -> str:
    if isinstance(value, str) and "\n" in value:
        return "`" + re.sub(r"[\\`]|\$(?=\{)", r"\\\g<0>", value) + "`"
    # Use single quotes, like the labextension's other files.
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def _list(values: Sequence[str]) -> str:
    return "[\n  " + ",\n  ".join(map(_literal, values)) + "\n]"


def _field_docstrings(message_type: type) -> dict[str, str]:
    """Return the docstring below each field, by field name, from the source; Python does not store them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(message_type))).body
    assert isinstance(tree, ast.ClassDef)
    return dict(_documented(tree.body))


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            yield statement.target.id, inspect.cleandoc(str(after.value.value))


def _comment(text: str, indent: str) -> str:
    if not text:
        return ""
    # Editors render comments as Markdown, so convert Python's markup to Markdown.
    cleaned = re.sub(r":class:`(?:[\w.]+\.)?(\w+)`", r"`\1`", text).replace("``", "`").replace("*/", "* /")
    cleaned = re.sub(r"\b(None|True|False)\b", lambda found: _WORDS[found[0]], cleaned)
    paragraphs = [" ".join(paragraph.split()) for paragraph in cleaned.split("\n\n")]
    if len(paragraphs) == 1 and len(indent + paragraphs[0]) + len("/**  */") <= _WIDTH:
        return f"{indent}/** {paragraphs[0]} */\n"
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += ["", *textwrap.wrap(paragraph, _WIDTH - len(indent) - 3, break_on_hyphens=False)]
    body = "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines[1:])
    return f"{indent}/**\n{body}{indent} */\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
