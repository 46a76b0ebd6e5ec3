"""Tests of the TypeScript types and parsers that are generated from the Python dataclasses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytest

from gpuwidget.measure.run_report import GPUS_UNKNOWN
from tools import wire, wire_parsers
from tools.dataclass_types import reached


@dataclass(frozen=True)
class Inner:
    """What is within."""

    at: float
    """Epoch seconds; see :class:`gpuwidget.model.samples.Sample`."""


@dataclass(frozen=True)
class Outer:
    """What is sent.

    More of it: ``code`` and None.
    """

    kind: Literal["a", "b"]
    inner: Inner | None
    several: tuple[Inner, ...]
    unsure: tuple[int | None, ...]
    by_name: Mapping[str, str]
    ready: bool
    """True when it is ready, which takes so many words to say that they do not fit into one
    line of the file."""


@dataclass(frozen=True)
class Unknown:
    """A set has no TypeScript type."""

    names: set[str]


@dataclass(frozen=True)
class Ambiguous:
    """A union of two types has a TypeScript type, but no parser."""

    size: int | str


@dataclass(frozen=True)
class Received:
    """What the page receives."""

    kind: Literal["a", "b"]
    number: int
    seconds: float
    name: str | None
    memory: int | None
    time: float | None
    """Epoch seconds."""
    temperature_c: float | None
    """Degrees
    Celsius."""
    rows: tuple[float | None, ...]
    names: tuple[str, ...]
    inner: Inner | None
    reasons: Mapping[str, str]
    params: Mapping[str, Any]
    ready: bool


_OLDEST = {"kind": "a", "number": 1, "seconds": 1, "rows": [1], "inner": {"at": 1}, "params": {}}


def _receive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message_type: type, oldest: Mapping[str, object]
) -> None:
    """Have the page receive one dataclass only. ``oldest`` is the message of the oldest version."""
    monkeypatch.setattr(wire_parsers, "OLDEST", tmp_path / "oldest.json")
    (tmp_path / "oldest.json").write_text(json.dumps({message_type.__name__: oldest}))
    monkeypatch.setattr(wire, "ROOTS", (message_type,))
    monkeypatch.setattr(wire, "RECEIVED", (message_type,))
    monkeypatch.setattr(wire, "TAGS", {})


def test_the_file_matches_the_dataclasses() -> None:
    """wire.ts matches the dataclasses. If this fails, a dataclass was changed and wire.ts was not generated
    again."""
    assert wire.FILE.read_text(encoding="utf-8") == wire.typescript()
    assert wire.main(["--check"]) == 0


def test_drift_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``python -m tools.wire --check`` fails if wire.ts differs from the dataclasses or is missing. It does
    not write the file."""
    file = tmp_path / "src" / "wire.ts"
    monkeypatch.setattr(wire, "FILE", file)
    assert wire.main(["--check"]) == 1
    assert capsys.readouterr().err == "wire.ts does not match the dataclasses: run python -m tools.wire.\n"
    assert not file.exists()
    assert wire.main([]) == 0
    assert wire.main(["--check"]) == 0
    file.write_text("")
    assert wire.main(["--check"]) == 1


def test_a_dataclass_becomes_an_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataclass becomes a TypeScript interface: None becomes null, no field is optional, and docstrings
    become comments."""
    monkeypatch.setattr(wire, "ROOTS", (Outer,))
    monkeypatch.setattr(wire, "CONSTANTS", {"SCHEMA": (1, "Its version."), "NAME": ("x", "Its name.")})
    monkeypatch.setattr(wire, "ENUMS", {"LETTERS": ("Letter", ("a", "b"), "Its letters.")})
    monkeypatch.setattr(wire, "SUBSETS", {"VOWELS": ("Letter", ("a",), "Some of them.")})
    monkeypatch.setattr(wire, "UNIONS", {"Either": ((Inner, Outer), "One of them.")})
    assert wire.typescript() == wire.HEADER + (
        """
/** Its version. */
export const SCHEMA = 1;

/** Its name. */
export const NAME = 'x';

/** Its letters. */
export const LETTERS = [
  'a',
  'b'
] as const;
export type Letter = (typeof LETTERS)[number];

/** Some of them. */
export const VOWELS: readonly Letter[] = [
  'a'
];

/** What is within. */
export interface Inner {
  /** Epoch seconds; see `Sample`. */
  readonly at: number;
}

/**
 * What is sent.
 *
 * More of it: `code` and null.
 */
export interface Outer {
  readonly kind: 'a' | 'b';
  readonly inner: Inner | null;
  readonly several: readonly Inner[];
  readonly unsure: readonly (number | null)[];
  readonly by_name: Readonly<Record<string, string>>;
  /**
   * true when it is ready, which takes so many words to say that they do not fit into one line of the file.
   */
  readonly ready: boolean;
}

/** One of them. */
export type Either = Inner | Outer;
"""
    )


def test_a_type_without_typescript_type_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the type of a field has no TypeScript type, TypeError is raised."""
    monkeypatch.setattr(wire, "ROOTS", (Unknown,))
    with pytest.raises(TypeError, match=r"set\[str\] has no TypeScript type"):
        wire.typescript()


def test_a_received_dataclass_becomes_a_parser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A parser follows from the types and units of the fields. A field that the oldest version does not send
    may be missing."""
    _receive(monkeypatch, tmp_path, Received, _OLDEST)
    code = wire.typescript()
    assert "export const Inner = object<Inner>({\n  at: time\n});\n" in code
    assert (
        """
export const Received = object<Received>({
  kind: oneOf('a', 'b'),
  number: index,
  seconds: size,
  name: orNull(text),
  memory: count,
  time: orNull(time),
  temperature_c: number,
  rows: series(amount),
  names: later(list(text), []),
  inner: orNull(Inner),
  reasons: later(texts, {}),
  params: record,
  ready: later(flag, false)
});
"""
        in code
    )


def test_a_new_field_without_a_value_for_unknown_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If older versions do not send a field, its type must have a value that means unknown."""
    oldest = {name: value for name, value in _OLDEST.items() if name != "seconds"}
    _receive(monkeypatch, tmp_path, Received, oldest)
    with pytest.raises(TypeError, match=r"^Received\.seconds: .*<class 'float'> has no value for unknown"):
        wire.typescript()


def test_a_dataclass_in_no_oldest_message_is_rejected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a message that contains a dataclass, it would be unknown which of its fields are new."""
    _receive(monkeypatch, tmp_path, Received, {**_OLDEST, "inner": None})
    with pytest.raises(TypeError, match=r"oldest\.json has no Inner"):
        wire.typescript()


def test_a_type_without_parser_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the type of a received field has no parser, TypeError with the field's name is raised."""
    _receive(monkeypatch, tmp_path, Ambiguous, {"size": 1})
    with pytest.raises(TypeError, match=r"^Ambiguous\.size: int \| str has no parser"):
        wire.typescript()


def test_every_field_of_every_received_message_has_a_parser() -> None:
    """The page parses every field of the messages that it receives, and of the dataclasses in them."""
    code = wire.FILE.read_text(encoding="utf-8")
    parsers = {
        name: re.findall(r"^  (\w+): ", body, re.MULTILINE)
        for name, body in re.findall(r"^export const (\w+) = object<\1>\(\{\n(.*?)\n\}\);", code, re.M | re.S)
    }
    sent = {
        message_type
        for message_type in reached(wire.ROOTS)
        if not message_type.__name__.endswith("Request") and message_type.__name__ != "Process"
    }
    assert parsers == {each.__name__: [field.name for field in fields(each)] for each in sent}


def test_special_parsers_are_those_of_fields() -> None:
    """Each entry in the list of special parsers is a field of a message that the page receives."""
    received = wire._received()
    for message_type, names in wire_parsers.SPECIAL.items():
        assert message_type in received
        assert names.keys() <= {field.name for field in fields(message_type)}


def test_code_without_comments() -> None:
    """`_without_comments()` removes docstrings, comments, blank lines, type hints and most indentation.
    It keeps the lines of texts, and raises SyntaxError if the rest is no Python code."""
    text = 'TEXT{} = """\n# no comment\n\n    # neither\n"""{}\n'
    function = 'def f(\n    a: int,\n    # comment\n\n) -> None:\n    """Docstring."""\n    ...  # comment\n'
    hints = "from __future__ import annotations\nTYPE_CHECKING = False\nif TYPE_CHECKING:\n    import x\n"
    code = f'"""Docstring.\n\nMore.\n"""\n{hints}\n# comment\n{text.format(": str", "  # comment")}{function}'
    assert wire._without_comments(code) == f"{text.format('', '')}def f(\n a,\n):\n ...\n"
    with pytest.raises(SyntaxError):
        wire._without_comments('class Empty:\n    """Docstring."""\n')


def test_the_page_knows_the_reasons_for_unknown_gpus() -> None:
    """For the same reasons as on the card, the list of cells does not claim that there was no GPU."""
    page = (Path(wire.__file__).parents[1] / "labextension/src/model/cells/report.ts").read_text()
    listed = re.search(r"GPUS_UNKNOWN: readonly unknown\[\] = \[(.*?)\]", page, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"'([^']+)'", listed[1])) == GPUS_UNKNOWN
