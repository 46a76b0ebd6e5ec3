"""Tests of the TypeScript types that are generated from the Python dataclasses, including the units in their
comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from gpuwidget.measure.run_report import GPUS_UNKNOWN
from tools import wire


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
