"""Where the time went, on the card: in words, escaped, small, and silent where nothing is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import helpers_reports as reports

from gpuwidget.model.report import MIME_TYPE, CodeTime, FrameTime, Level, LineTime, Report
from gpuwidget.views import card
from gpuwidget.views.card_details import time_details, time_line

LOADER = LineTime(7, "for x, y in loader:", 61.2, 4.1, "DataLoader._next_data", None)


def code_time(*lines: LineTime, **changes: Any) -> CodeTime:
    made = CodeTime(
        lines=lines,
        samples=1890,
        resolution_s=0.02,
        reason=None,
        cpu=104.2,
        cpu_children=382.0,
        warm_up_s=2.5,
    )
    return replace(made, **changes)


def timed(*lines: LineTime, **changes: Any) -> Report:
    return replace(reports.starved(), time=code_time(*lines, **changes), energy_idle_j=1610.0)


def test_a_line_in_words() -> None:
    """The line, its source, its share, the GPU's activity there and the call it was in."""
    assert time_line(LOADER) == (
        "line 7 `for x, y in loader:`: 61 % of the time, GPU 4.1 % busy, in DataLoader._next_data"
    )


def test_a_line_whose_time_is_in_the_users_modules() -> None:
    """The user's own frame stands there, with its part of the line where it is not nearly all of it."""
    frames = (
        FrameTime("train.py:31 step", 20.0, None, None),
        FrameTime("train.py:33 step", 10.0, None, None),
    )
    one = LineTime(2, "step(x)", 30.0, None, None, "train.py:31 step", frames=frames)
    assert time_line(one) == "line 2 `step(x)`: 30 % of the time, at train.py:31 step (20 %)"
    assert time_line(replace(one, frames=frames[:1], share=21.0)).endswith("at train.py:31 step")


def test_a_call_with_a_part_of_its_lines_time() -> None:
    """The call that a line was in most has its own part beside it, where it is not nearly all."""
    assert time_line(replace(LOADER, call_share=60.0)).endswith("in DataLoader._next_data")
    assert time_line(replace(LOADER, call_share=20.0)).endswith("in DataLoader._next_data (20 %)")


def test_lines_that_can_not_be_told_apart() -> None:
    """Several lines in one row are named as several; what is no line of the cell says so."""
    assert time_line(replace(LOADER, until=9, call=None)) == "lines 7 to 9: 61 % of the time, GPU 4.1 % busy"
    assert (
        time_line(LineTime(None, "", 3.0, None, None, None)) == "none of the cell's lines: 3.0 % of the time"
    )


def test_what_the_details_hold() -> None:
    """The largest lines, what limits them, CPU, warm-up and the energy while idle."""
    made = timed(LOADER, LineTime(8, "step(x)", 38.0, 96.0, None, None))
    assert time_details(made) == [
        ("Where the time went", time_line(LOADER)),
        ("", "line 8 `step(x)`: 38 % of the time, GPU 96 % busy"),
        ("", "1890 looks: shares within 2.3 points; patterns shorter than 20 ms can't be told"),
        ("CPU", "104 % of a core by this process, 382 % by its child processes"),
        ("Warm-up", "the steady state began after 2.5 s"),
        ("Energy while idle", "at least 1.6 kJ of 2.3 kJ (70 %)"),
    ]
    text = card.bundle(made)["text/plain"]
    assert "  where the time went: line 7 `for x, y in loader:`: 61 % of the time" in text
    html = card.bundle(made)["text/html"]
    assert html.index("<summary>") < html.index("Where the time went")


def test_energy_while_idle_is_a_lower_bound() -> None:
    """Pauses within the driver's windows are not in it; exact where the GPU always worked, or never did."""

    def said(utilization: float, idle: float) -> str | None:
        gpu = reports.gpu(0, utilization=Level(utilization, utilization))
        made = replace(reports.starved(), gpus=(replace(gpu, energy_j=2000.0),), energy_idle_j=idle)
        return dict(time_details(replace(made, time=code_time(LOADER)))).get("Energy while idle")

    assert said(6.7, 100.0) == "at least 100 J of 2.0 kJ (5.0 %)"
    assert said(49.0, 0.0) is None
    assert said(100.0 - 1e-13, 0.0) == "0.0 J of 2.0 kJ (0 %)"
    assert said(0.0, 2000.0) == "2.0 kJ of 2.0 kJ (100 %)"


def test_what_is_not_known_is_silent() -> None:
    """A run that nobody looked at, or too short a one, has no word of it on its card."""
    assert time_details(reports.starved()) == []
    short = replace(reports.short(), time=code_time(reason="The run was too short.", warm_up_s=None))
    assert time_details(short) == []


def test_source_and_names_are_escaped() -> None:
    """Markup in a source line, a file's or a function's name does nothing."""
    bad = LineTime(
        1, reports.HOSTILE, 50.0, 1.0, reports.HOSTILE, reports.HOSTILE,
        frames=(FrameTime(reports.HOSTILE, 50.0, 1.0, reports.HOSTILE),),
    )  # fmt: skip
    html = card.bundle(timed(bad, reason=reports.HOSTILE))["text/html"]
    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_the_fullest_card_stays_small() -> None:
    """Twelve lines of long texts, with frames below each, on one GPU and on sixteen: 20 kB at most."""
    long = "é<" * 200
    frames = tuple(FrameTime(f"{n}{long}", 8.123456, 33.333333, long) for n in range(4))
    lines = [LineTime(n, long, 8.333333, 33.333333, long, long, frames=frames) for n in range(12)]
    for made in (reports.starved(), reports.ddp(), reports.sixteen()):
        bundle = card.bundle(replace(made, time=code_time(*lines, reason=long)))
        assert len(json.dumps(bundle)) <= 20_000
        stored = bundle[MIME_TYPE]["time"]
        assert stored["samples"] == 1890
        assert len(stored["lines"]) >= 1
