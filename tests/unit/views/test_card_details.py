"""Tests of the card's details about lines of code: the memory and the time of each line."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import helpers_reports as reports
from helpers_reports import HOSTILE, gib

from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import CodeTime, FrameTime, Level, LineMemory, LineTime, Report
from gpuwidget.views import card
from gpuwidget.views.card_details import memory_rows, time_facts, time_lines
from gpuwidget.views.styles import BLUE, IDLE, UNKNOWN

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
    """In the details, each line of code is shown with its memory, its source text and the line that called
    it. An unknown value is shown as n/a.
    """
    made = replace(reports.starved(), lines=(STEP, OWN, OTHERS))
    assert memory_rows(made) == [
        ["", "at the peak", "at the end", "total"],
        [
            "src/model.py line 41 in forward, called from In [5] line 7: hidden = self.attention(x)",
            *("9.4 GiB", "0 MiB", "96.2 GiB"),
        ],
        ["In [5] line 3: x = torch.empty(n)", "n/a", "2.0 GiB", "2.0 GiB"],
        ["torch: allocated by libraries", "512 B", "512 B", "512 B"],
    ]
    html = card.bundle(made)["text/html"]
    assert html.index("<summary>Memory") < html.index("torch: allocated by libraries")


def test_memory_lines_in_the_text() -> None:
    """The text form of the card has a table of the memory by line. The line with the highest memory is
    first.
    """
    text = card.bundle(replace(reports.starved(), lines=(STEP, OWN)))["text/plain"]
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[rows.index("torch's memory by line:") + 1 :][:3] == [
        "at the peak at the end total",
        "src/model.py line 41 in forward, called from In [5] line 7: hidden = self.attention(x) 9.4 GiB "
        "0 MiB 96.2 GiB",
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


def texts(*lines: LineTime) -> list[tuple[str, str, str]]:
    """Return the number, the source, and the figures and the place of each line of code."""
    both = "{0.text} / {0.place}"
    return [
        (line.number, line.source, both.format(line).removesuffix(" / "))
        for line in time_lines(timed(*lines))
    ]


def test_a_line_of_code() -> None:
    """A line of code has its number, its source, its share of the time, the GPU's activity and the line's
    most frequent call.
    """
    assert texts(LOADER) == [("7", "for x, y in loader:", "61 % · GPU 4.1 % busy / in DataLoader._next_data")]


def test_code_keeps_its_indentation() -> None:
    """A line is indented as in the cell."""
    assert [source for _, source, _ in texts(replace(LOADER, indent=4))] == ["    for x, y in loader:"]


def test_the_bar_of_a_line() -> None:
    """The length of a line's bar is its share of the time. Its color tells how much of this time the GPU was
    busy, and it is gray if that is unknown."""
    busy, unknown = time_lines(
        timed(LineTime(7, "a", 60.0, 25.0, None, None), LineTime(8, "b", 3.0, None, None, None))
    )
    assert busy.parts == [(15.0, BLUE), (45.0, IDLE)]
    assert unknown.parts == [(3.0, UNKNOWN)]


def test_lines_are_in_the_order_of_the_code() -> None:
    """Lines are shown in their order in the cell, and time outside of them at the end."""
    outside = LineTime(None, "", 3.0, None, None, None)
    step = LineTime(2, "step(x)", 30.0, None, None, None)
    assert texts(LOADER, outside, step)[0] == ("2", "step(x)", "30 %")
    assert texts(LOADER, outside, step)[2] == ("", "outside the cell's lines", "3.0 %")


def test_a_line_whose_time_is_in_the_users_modules() -> None:
    """If a line calls the user's own module, its text contains the frame in that module.

    The frame's share of the time is shown too, unless it is nearly the same as the line's share.
    """
    frames = (
        FrameTime("train.py:31 step", 20.0, None, None),
        FrameTime("train.py:33 step", 10.0, None, None),
    )
    one = LineTime(2, "step(x)", 30.0, None, None, "train.py:31 step", frames=frames)
    assert texts(one) == [("2", "step(x)", "30 % / at train.py:31 step (20 %)")]
    assert texts(replace(one, frames=frames[:1], share=21.0))[0][2].endswith("at train.py:31 step")


def test_a_call_with_a_part_of_its_lines_time() -> None:
    """The text about a line contains its most frequent call.

    The call's share of the time is shown too, unless it is nearly the same as the line's share.
    """
    assert texts(replace(LOADER, call_share=60.0))[0][2].endswith("in DataLoader._next_data")
    assert texts(replace(LOADER, call_share=20.0))[0][2].endswith("in DataLoader._next_data (20 %)")


def test_lines_that_can_not_be_separated() -> None:
    """If the profiler could not separate some lines, they have one bar, and their range as number."""
    several = texts(replace(LOADER, until=9, call=None))
    assert several == [("7–9", "for x, y in loader:", "61 % · GPU 4.1 % busy")]  # noqa: RUF001 a range's dash


def test_where_the_time_went() -> None:
    """The lines of code are open if there is advice, and folded otherwise. The precision of the shares, CPU
    use, warm-up, and the energy that GPUs used while idle are folded.
    """
    made = timed(LOADER, LineTime(8, "step(x)", 38.0, 96.0, None, None))
    assert time_facts(made) == [
        ["Samples", "1890 samples, ±2.3 points; patterns under 20 ms not resolved"],
        ["CPU", "104 % of a core by this process, 382 % by its child processes"],
        ["Warm-up", "the steady state began after 2.5 s"],
        ["Energy while idle", "at least 1.6 kJ of 2.3 kJ (70 %)"],
    ]
    text = card.bundle(made)["text/plain"]
    assert "  line 7 `for x, y in loader:`: 61 % · GPU 4.1 % busy · in DataLoader._next_data" in text
    html = card.bundle(made)["text/html"]
    assert html.index("<details><summary>Where the time went</summary>") < html.index("step(x)")
    advised = card.bundle(replace(made, advice=reports.advised().advice[:1]))["text/html"]
    assert advised.index("step(x)") < advised.index("<details")
    assert "1890 samples" in advised


def test_energy_while_idle_is_a_lower_bound() -> None:
    """The energy used while idle is shown as 'at least', because pauses that are shorter than the driver's
    utilization windows are not measured.

    If the GPU was busy or idle during the whole run, the value is exact.
    """

    def idle_energy(utilization: float, idle: float) -> str | None:
        gpu = reports.gpu(0, utilization=Level(utilization, utilization))
        made = replace(reports.starved(), gpus=(replace(gpu, energy_j=2000.0),), energy_idle_j=idle)
        facts = time_facts(replace(made, time=code_time(LOADER)))
        return next((text for name, text in facts if name == "Energy while idle"), None)

    assert idle_energy(6.7, 100.0) == "at least 100 J of 2.0 kJ (5.0 %)"
    assert idle_energy(49.0, 0.0) is None
    assert idle_energy(100.0 - 1e-13, 0.0) == "0.0 J of 2.0 kJ (0 %)"
    assert idle_energy(0.0, 2000.0) == "2.0 kJ of 2.0 kJ (100 %)"


def test_unknown_times_are_omitted() -> None:
    """If the run was not sampled or was too short, the card has no details about time."""
    assert (time_lines(reports.starved()), time_facts(reports.starved())) == ([], [])
    short = replace(reports.short(), time=code_time(reason="The run was too short.", warm_up_s=None))
    assert (time_lines(short), time_facts(short)) == ([], [])


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
