"""Tests of the card's details about lines of code: the memory and the time of each line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import helpers_reports as reports
from helpers_reports import HOSTILE, gib

from gpuwidget.model.report import MIME_TYPE, CodeTime, FrameTime, Level, LineMemory, LineTime, Report
from gpuwidget.views import card
from gpuwidget.views.card_details import time_details, time_line

STEP = LineMemory(
    file="src/model.py",
    line=41,
    function="forward",
    source="hidden = self.attention(x)",
    called_from="In[5] line 7",
    device="cuda:1",
    allocated=gib(96.2),
    held=0,
    at_peak=gib(9.4),
)
OWN = LineMemory("In[5]", 3, None, "x = torch.empty(n)", None, "cuda:1", gib(2.0), gib(2.0), None)
OTHERS = LineMemory(None, None, None, "allocated by libraries", None, "cuda:1", 512, 512, 512)


def test_memory_lines_in_the_details() -> None:
    """In the details, each line of code is shown with its memory and its source text. An unknown value is
    shown as n/a.
    """
    html = card.bundle(replace(reports.starved(), lines=(STEP, OWN, OTHERS)))["text/html"]
    assert (
        "<b>Where the memory went:</b> src/model.py line 41 in forward `hidden = "
        "self.attention(x)`: 9.4 GiB at the peak, 0 MiB at the end, 96.2 GiB in total, called from "
        "In [5] line 7<"
    ) in html
    assert (
        "&emsp;In [5] line 3 `x = torch.empty(n)`: n/a at the peak, 2.0 GiB at the end, 2.0 GiB in total<"
    ) in html
    assert "&emsp;torch, allocated by libraries: 512 B at the peak, 512 B at the end, 512 B in total<" in html


def test_memory_lines_in_the_text() -> None:
    """In the text form of the card, a table of the memory by line follows the table of GPUs. The line with
    the highest memory is first.
    """
    text = card.bundle(replace(reports.starved(), lines=(STEP, OWN)))["text/plain"]
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[rows.index("torch's memory by line:") + 1 :][:3] == [
        "at the peak at the end total",
        "src/model.py line 41 in forward: hidden = self.attention(x) 9.4 GiB 0 MiB 96.2 GiB",
        "In [5] line 3: x = torch.empty(n) n/a 2.0 GiB 2.0 GiB",
    ]


def test_memory_lines_of_several_devices() -> None:
    """If lines allocated memory on more than one device, each entry names its device."""
    other = replace(OWN, device="cuda:0")
    html = card.bundle(replace(reports.starved(), lines=(OWN, other)))["text/html"]
    assert "In [5] line 3, cuda:1" in html
    assert "In [5] line 3, cuda:0" in html


def test_many_long_lines_stay_small() -> None:
    """Even with hundreds of long lines of code on a card of 16 GPUs, the card takes at most 20 kB.

    HTML markup in the lines is escaped, and a note contains how many lines were omitted.
    """
    hostile = replace(STEP, file=HOSTILE * 20, function=HOSTILE * 5, source=HOSTILE * 5)
    for base in (reports.sixteen(), reports.starved()):
        data = card.bundle(replace(base, lines=(hostile,) * 300))
        assert len(json.dumps(data, ensure_ascii=False).encode()) <= 20_000
        assert "<img" not in data["text/html"]
        (note,) = [note for note in data[MIME_TYPE]["notes"] if note.startswith("To keep the notebook small")]
        assert "of 300 lines of code" in note


# -- time by line of code ----------------------------------------------------------------------------------

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
    """The text about a line of code contains its source, its share of the time, the GPU's activity and the
    line's most frequent call.
    """
    assert time_line(LOADER) == (
        "line 7 `for x, y in loader:`: 61 % of the time, GPU 4.1 % busy, in DataLoader._next_data"
    )


def test_a_line_whose_time_is_in_the_users_modules() -> None:
    """If a line calls the user's own module, its text contains the frame in that module.

    The frame's share of the time is shown too, unless it is nearly the same as the line's share.
    """
    frames = (
        FrameTime("train.py:31 step", 20.0, None, None),
        FrameTime("train.py:33 step", 10.0, None, None),
    )
    one = LineTime(2, "step(x)", 30.0, None, None, "train.py:31 step", frames=frames)
    assert time_line(one) == "line 2 `step(x)`: 30 % of the time, at train.py:31 step (20 %)"
    assert time_line(replace(one, frames=frames[:1], share=21.0)).endswith("at train.py:31 step")


def test_a_call_with_a_part_of_its_lines_time() -> None:
    """The text about a line contains its most frequent call.

    The call's share of the time is shown too, unless it is nearly the same as the line's share.
    """
    assert time_line(replace(LOADER, call_share=60.0)).endswith("in DataLoader._next_data")
    assert time_line(replace(LOADER, call_share=20.0)).endswith("in DataLoader._next_data (20 %)")


def test_lines_that_can_not_be_separated() -> None:
    """If the profiler could not separate some lines, the text contains their range.

    Time outside the lines of the cell is shown as 'outside the cell's lines'.
    """
    assert time_line(replace(LOADER, until=9, call=None)) == "lines 7 to 9: 61 % of the time, GPU 4.1 % busy"
    assert (
        time_line(LineTime(None, "", 3.0, None, None, None)) == "outside the cell's lines: 3.0 % of the time"
    )


def test_time_details() -> None:
    """The details about time contain the lines with the largest shares, the precision of the shares, CPU use,
    warm-up, and the energy that GPUs used while idle.
    """
    made = timed(LOADER, LineTime(8, "step(x)", 38.0, 96.0, None, None))
    assert time_details(made) == [
        ("Where the time went", time_line(LOADER)),
        ("", "line 8 `step(x)`: 38 % of the time, GPU 96 % busy"),
        ("", "1890 samples, ±2.3 points; patterns under 20 ms not resolved"),
        ("CPU", "104 % of a core by this process, 382 % by its child processes"),
        ("Warm-up", "the steady state began after 2.5 s"),
        ("Energy while idle", "at least 1.6 kJ of 2.3 kJ (70 %)"),
    ]
    text = card.bundle(made)["text/plain"]
    assert "  where the time went: line 7 `for x, y in loader:`: 61 % of the time" in text
    html = card.bundle(made)["text/html"]
    assert html.index("<summary>") < html.index("Where the time went")


def test_energy_while_idle_is_a_lower_bound() -> None:
    """The energy used while idle is shown as 'at least', because pauses that are shorter than the driver's
    utilization windows are not measured.

    If the GPU was busy or idle during the whole run, the value is exact.
    """

    def idle_energy(utilization: float, idle: float) -> str | None:
        gpu = reports.gpu(0, utilization=Level(utilization, utilization))
        made = replace(reports.starved(), gpus=(replace(gpu, energy_j=2000.0),), energy_idle_j=idle)
        return dict(time_details(replace(made, time=code_time(LOADER)))).get("Energy while idle")

    assert idle_energy(6.7, 100.0) == "at least 100 J of 2.0 kJ (5.0 %)"
    assert idle_energy(49.0, 0.0) is None
    assert idle_energy(100.0 - 1e-13, 0.0) == "0.0 J of 2.0 kJ (0 %)"
    assert idle_energy(0.0, 2000.0) == "2.0 kJ of 2.0 kJ (100 %)"


def test_unknown_times_are_omitted() -> None:
    """If the run was not sampled or was too short, the card has no details about time."""
    assert time_details(reports.starved()) == []
    short = replace(reports.short(), time=code_time(reason="The run was too short.", warm_up_s=None))
    assert time_details(short) == []


def test_sources_and_names_are_escaped() -> None:
    """HTML markup in source lines and in names of files and functions is escaped."""
    bad = LineTime(
        1, reports.HOSTILE, 50.0, 1.0, reports.HOSTILE, reports.HOSTILE,
        frames=(FrameTime(reports.HOSTILE, 50.0, 1.0, reports.HOSTILE),),
    )  # fmt: skip
    html = card.bundle(timed(bad, reason=reports.HOSTILE))["text/html"]
    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_many_long_time_lines_stay_small() -> None:
    """A card with twelve long lines of code takes at most 20 kB, with one GPU as well as with sixteen."""
    long = "é<" * 200
    frames = tuple(FrameTime(f"{n}{long}", 8.123456, 33.333333, long) for n in range(4))
    lines = [LineTime(n, long, 8.333333, 33.333333, long, long, frames=frames) for n in range(12)]
    for made in (reports.starved(), reports.ddp(), reports.sixteen()):
        bundle = card.bundle(replace(made, time=code_time(*lines, reason=long)))
        assert len(json.dumps(bundle, ensure_ascii=False).encode()) <= 20_000
        stored = bundle[MIME_TYPE]["time"]
        assert stored["samples"] == 1890
        assert len(stored["lines"]) >= 1
