"""The lines that a cell prints, heard without touching what it prints."""

from __future__ import annotations

import io
import sys
import traceback
from itertools import pairwise
from types import FrameType

import pytest

from gpuwidget.measure.printed_lines import Printed
from gpuwidget.measure.timeline_marks import Marks
from gpuwidget.model.report import Mark


class Stream(io.StringIO):
    """A stream that has a __dict__, as a kernel's and a terminal's have."""


def test_whole_lines_are_heard_and_the_output_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a line count when it is complete; every character arrives where it should."""
    monkeypatch.setattr(sys, "stdout", out := Stream())
    heard: list[str] = []
    printed = Printed()
    printed.listen(heard.append)
    print("loss", end=" ")
    print(0.5)
    print("a\nb\n\nunfinished", end="")
    printed.leave(heard.append)
    print("after")
    assert heard == ["loss 0.5", "a", "b"]
    assert out.getvalue() == "loss 0.5\na\nb\n\nunfinishedafter\n"


def test_a_progress_bar_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a line that is rewritten, what is left standing counts."""
    monkeypatch.setattr(sys, "stdout", Stream())
    heard: list[str] = []
    printed = Printed()
    printed.listen(heard.append)
    print("\r10 %", end="")
    print("\r100 %", end="")
    print()
    printed.leave(heard.append)
    assert heard == ["100 %"]


def test_a_long_progress_bar_counts_in_its_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is rewritten, and however long it is, its end is what stands."""
    monkeypatch.setattr(sys, "stdout", Stream())
    heard: list[str] = []
    printed = Printed()
    printed.listen(heard.append)
    for percent in range(101):
        print(f"\r{percent}% |{'#' * 60}|", end="")
    print()
    printed.leave(heard.append)
    assert heard == ["100% |" + "#" * 60 + "|"]


def test_printing_within_printing_does_not_hang() -> None:
    """A signal handler or a finalizer may print while a line is being noted."""
    marks = Marks()
    with marks._lock:
        marks.printed(1.0, "from a handler")
    assert [mark.label for mark in marks.all()] == ["from a handler"]


def test_pieces_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for the text itself hears it as it is written."""
    monkeypatch.setattr(sys, "stdout", Stream())
    heard: list[str] = []
    printed = Printed()
    printed.listen(heard.append, whole_lines=False)
    print("a", end="")
    printed.leave(heard.append)
    assert heard == ["a", ""]


def test_the_stream_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last listener nothing of ours is on the stream; two listeners hear each line once."""
    monkeypatch.setattr(sys, "stdout", out := Stream())
    one: list[str] = []
    two: list[str] = []
    printed = Printed()
    listen_one, listen_two = one.append, two.append
    printed.listen(listen_one)
    printed.listen(listen_two)
    print("x")
    printed.leave(listen_one)
    print("y")
    printed.leave(listen_two)
    printed.leave(listen_two)
    assert (one, two) == (["x"], ["x", "y"])
    assert "write" not in out.__dict__


def test_a_kernels_stream_is_heard_through_its_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stands before its write, so that even a traceback through it is as it was."""

    class KernelStream(Stream):
        echo: object = None

        def write(self, text: str) -> int:
            if self.echo is not None:
                self.echo.write(text)  # type: ignore[attr-defined]
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", out := KernelStream())
    heard: list[str] = []
    printed = Printed()
    printed.listen(heard.append)
    print("a line")
    assert "write" not in out.__dict__
    printed.leave(heard.append)
    print("another")
    assert (heard, out.echo) == (["a line"], None)


def test_another_replacement_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that replaced write meanwhile keeps its own."""
    monkeypatch.setattr(sys, "stdout", out := Stream())
    heard: list[str] = []
    printed = Printed()
    printed.listen(heard.append)
    mine = lambda text: len(text)  # noqa: E731
    out.write = mine  # type: ignore[method-assign]
    printed.leave(heard.append)
    assert out.__dict__["write"] is mine


def test_marks_in_the_order_of_time() -> None:
    """Marks and printed lines stand on one timeline."""
    marks = Marks()
    marks.printed(2.0, "epoch 2")
    marks.mark(1.0, "warm")
    assert marks.all() == (Mark(1.0, "warm", "mark"), Mark(2.0, "epoch 2", "printed"))
    assert marks.left_out() == []


def test_a_cell_that_prints_a_million_lines() -> None:
    """The timeline keeps an even choice of them, and says so."""
    marks = Marks()
    for number in range(1_000):
        marks.printed(float(number), str(number))
    kept = [int(mark.label) for mark in marks.all()]
    assert len(kept) <= 100
    assert {after - before for before, after in pairwise(kept)} == {16}
    assert marks.left_out() == ["1000 lines were printed; every 16th is on the timeline."]


def test_too_many_marks_are_counted() -> None:
    """The first 200 marks are kept, and the report says how many there were."""
    marks = Marks()
    for number in range(300):
        marks.mark(float(number), "x")
    assert len(marks.all()) == 200
    assert marks.left_out() == ["300 marks were set; the first 200 are kept."]


def test_an_interrupt_as_we_listen_shows_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C that strikes while a printed line is taken in leaves one frame, marked as hidden for IPython."""

    class KernelStream:
        echo = None

        def write(self, text: str) -> None:
            self.echo.write(text)  # type: ignore[attr-defined]

    for stream in (KernelStream(), Stream()):
        monkeypatch.setattr(sys, "stdout", stream)
        printed = Printed()
        printed.listen(interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            print_while_handling_an_error()
        printed.leave(interrupt)
        ours = [frame for frame in traceback.walk_tb(raised.value.__traceback__) if is_ours(frame[0])]
        assert [frame.f_locals["__tracebackhide__"] for frame, _ in ours] == [True]
        assert isinstance(raised.value.__context__, ValueError)
        assert not raised.value.__suppress_context__


def print_while_handling_an_error() -> None:
    try:
        raise ValueError
    except ValueError:
        print("a line")


def interrupt(_line: str) -> None:
    raise KeyboardInterrupt


def is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals["__name__"]).startswith("gpuwidget")
