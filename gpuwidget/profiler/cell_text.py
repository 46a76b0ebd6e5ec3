"""What a cell's author wrote, and which parts of it run as code of their own: the bodies of its magics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True, slots=True)
class Body:
    """A part of the cell that begins at its line ``shift + 1`` and runs as code of its own."""

    shift: int
    fits: Callable[[str], bool]
    """Whether this is the name of its code's file."""


_ALL_OF_IT = Body(0, lambda file: True)


@dataclass(frozen=True, slots=True)
class CellText:
    """A cell's lines, and its bodies from the outermost on, the whole cell first."""

    lines: tuple[str, ...] = ()
    bodies: tuple[Body, ...] = (_ALL_OF_IT,)

    def defines(self, body: Body, code: CodeType) -> bool:
        """Whether the code of a function stands where it says it does, counted from the body's beginning.

        The files of all cells' bodies bear the same name: it may be another cell's.
        """
        first = body.shift + code.co_firstlineno
        last = body.shift + max((line or 0 for _, _, line in code.co_lines()), default=0)
        text = "\n".join(self.lines[first - 1 : last])
        if code.co_name.startswith("<"):
            return {"<lambda>": "lambda", "<module>": ""}.get(code.co_name, " for ") in text and bool(text)
        return f"def {code.co_name}" in text or f"class {code.co_name}" in text


UNKNOWN_TEXT = CellText()
