"""Tests that the lines which a cell prints are read without changing the cell's output."""

from __future__ import annotations

import io
import sys
import traceback
from types import FrameType

import pytest

from gpuwidget.measure.printed_lines import PrintedLines


class Stream(io.StringIO):
    """A stream with a ``__dict__``, as the streams of a kernel and of a terminal have."""


def test_complete_lines_are_read_and_the_output_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscriber receives each line as soon as it is complete, and the stream receives every
    character."""
    monkeypatch.setattr(sys, "stdout", out := Stream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    printed_lines.subscribe(lines.append)
    print("loss", end=" ")
    print(0.5)
    print("a\nb\n\nunfinished", end="")
    printed_lines.unsubscribe(lines.append)
    print("after")
    assert lines == ["loss 0.5", "a", "b"]
    assert out.getvalue() == "loss 0.5\na\nb\n\nunfinishedafter\n"


def test_a_progress_bar_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a line is rewritten with carriage returns, the subscriber receives it once, with its last text."""
    monkeypatch.setattr(sys, "stdout", Stream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    printed_lines.subscribe(lines.append)
    print("\r10 %", end="")
    print("\r100 %", end="")
    print()
    printed_lines.unsubscribe(lines.append)
    assert lines == ["100 %"]


def test_a_long_progress_bar_counts_with_its_last_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a progress bar's output is, the subscriber receives the text after the last carriage
    return."""
    monkeypatch.setattr(sys, "stdout", Stream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    printed_lines.subscribe(lines.append)
    for percent in range(101):
        print(f"\r{percent}% |{'#' * 60}|", end="")
    print()
    printed_lines.unsubscribe(lines.append)
    assert lines == ["100% |" + "#" * 60 + "|"]


def test_pieces_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber to pieces receives each piece of text as it is written."""
    monkeypatch.setattr(sys, "stdout", Stream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    printed_lines.subscribe_to_pieces(lines.append)
    print("a", end="")
    printed_lines.unsubscribe(lines.append)
    assert lines == ["a", ""]


def test_cleared_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cell clears its output, subscribers drop their lines, and so does a line's first part."""
    monkeypatch.setattr(sys, "stdout", Stream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    callback = lines.append
    printed_lines.subscribe(callback, lines.clear)
    print("first")
    print("part of a", end="")
    printed_lines.clear()
    print("line")
    printed_lines.unsubscribe(callback)
    assert lines == ["line"]


def test_the_stream_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook is removed from the stream when the last subscriber unsubscribes.

    Until then, each subscriber receives each line once.
    """
    monkeypatch.setattr(sys, "stdout", out := Stream())
    one: list[str] = []
    two: list[str] = []
    printed_lines = PrintedLines()
    callback_one, callback_two = one.append, two.append
    printed_lines.subscribe(callback_one)
    printed_lines.subscribe(callback_two)
    print("x")
    printed_lines.unsubscribe(callback_one)
    print("y")
    printed_lines.unsubscribe(callback_two)
    printed_lines.unsubscribe(callback_two)
    assert (one, two) == (["x"], ["x", "y"])
    assert "write" not in out.__dict__


def test_a_kernels_stream_is_read_through_its_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of a kernel's stream are read through its ``echo`` attribute.

    The stream's write method is not replaced, because a replacement would appear in the user's tracebacks.
    """

    class KernelStream(Stream):
        echo: object = None

        def write(self, text: str) -> int:
            if self.echo is not None:
                self.echo.write(text)  # type: ignore[attr-defined]
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", out := KernelStream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    printed_lines.subscribe(lines.append)
    print("a line")
    assert "write" not in out.__dict__
    printed_lines.unsubscribe(lines.append)
    print("another")
    assert (lines, out.echo) == (["a line"], None)


def test_another_replacement_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """If other code replaces the stream's write method during the run, that replacement is kept."""
    monkeypatch.setattr(sys, "stdout", out := Stream())
    lines: list[str] = []
    printed_lines = PrintedLines()
    printed_lines.subscribe(lines.append)
    mine = lambda text: len(text)  # noqa: E731
    out.write = mine  # type: ignore[method-assign]
    printed_lines.unsubscribe(lines.append)
    assert out.__dict__["write"] is mine


def test_an_interrupt_in_the_hook_shows_no_frame_of_gpuwidget(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Ctrl-C arrives while gpuwidget's hook on the stream runs, the traceback has only one frame of
    gpuwidget, and IPython hides that frame."""

    class KernelStream:
        echo = None

        def write(self, text: str) -> None:
            self.echo.write(text)  # type: ignore[attr-defined]

    for stream in (KernelStream(), Stream()):
        monkeypatch.setattr(sys, "stdout", stream)
        printed_lines = PrintedLines()
        printed_lines.subscribe(interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            print_while_handling_an_error()
        printed_lines.unsubscribe(interrupt)
        frames = [
            frame for frame in traceback.walk_tb(raised.value.__traceback__) if is_gpuwidget_frame(frame[0])
        ]
        assert [frame.f_locals["__tracebackhide__"] for frame, _ in frames] == [True]
        assert isinstance(raised.value.__context__, ValueError)
        assert not raised.value.__suppress_context__


def print_while_handling_an_error() -> None:
    try:
        raise ValueError
    except ValueError:
        print("a line")


def interrupt(_line: str) -> None:
    raise KeyboardInterrupt


def is_gpuwidget_frame(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).startswith("gpuwidget")
