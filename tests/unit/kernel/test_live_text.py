"""Tests of the text of the live chart."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html import unescape

import pytest
from helpers_progress import REPLAY, gpu_progress, progress, reading

from gpuwidget.kernel.live.chart_layout import ChartLayout
from gpuwidget.kernel.live.live_text import (
    NO_GPU_IN_USE,
    NOT_ATTRIBUTED,
    NOT_LIVE,
    axes,
    readings,
    run_header,
)
from gpuwidget.measure.progress import Progress
from gpuwidget.model import translation
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Advice, Mark
from gpuwidget.views.time_axis import TimeAxis
from tools import translation as tool

NOW = 2000.0


def visible(html: str) -> str:
    """Return the visible text of ``html`` on one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def with_reading(changed: Reading) -> Progress:
    """Return the progress of a run whose only GPU has this reading."""
    return replace(progress(), gpus=(replace(gpu_progress(0), reading=changed),))


def text(shown: Progress) -> str:
    """Return all visible text of the chart's readings."""
    return visible(readings(shown, ChartLayout.for_gpus(len(shown.gpus)), NOW))


def test_one_gpu() -> None:
    """For a GPU in use, the chart shows its name, utilization, memory, power and temperature.

    The chart also shows how much of the memory belongs to this notebook.
    """
    assert text(progress()) == (
        "3.0 s GPU utilization memory, % of the GPU 0 H200 cuda:0 97 % 56.0 of 140.0 GiB · mine 42.0 GiB "
        ""
        "612 of 700 W · 51 °C"
    )


@pytest.mark.parametrize("overview", [False, True])
def test_every_update_says_what_to_show_without_a_further_one(overview: bool) -> None:
    """Every update carries the text that the front end shows if no other update follows within ten seconds.

    Updates differ, even if all readings are the same, because equal texts are not sent.
    """
    same = progress()
    layout = ChartLayout.for_gpus(1)
    first, second = (readings(same, layout, NOW + later, overview=overview) for later in (0.0, 4.0))
    assert first != second
    assert f'data-text="{NOT_LIVE}"' in first
    assert NOT_LIVE not in visible(first)


def test_tiles_have_the_same_readings() -> None:
    """Tiles for many GPUs show the same readings as rows, except for the power limit."""
    assert text(progress(5)).count("H200 cuda:") == 5
    assert "0 H200 cuda:0 97 % 56.0 of 140.0 GiB 612 W mine 42.0 GiB 51 °C 1 H200" in text(progress(5))


def test_an_unknown_value_has_its_reason_as_tooltip() -> None:
    """An unknown value is shown as n/a, with the reason as its tooltip, and never as 0."""
    missing = {"utilization": "not available for a MIG slice", "temperature_c": "not supported by this GPU"}
    html = readings(
        with_reading(replace(reading(0), utilization=None, temperature_c=None, missing=missing)),
        ChartLayout.for_gpus(1),
        NOW,
    )
    assert '<span title="not available for a MIG slice">n/a</span>' in html
    assert '<span title="not supported by this GPU">n/a</span>' in html


@pytest.mark.parametrize("gpus", [1, 5])
def test_lost_gpu(gpus: int) -> None:
    """For a lost GPU, the chart shows when the GPU was lost, and none of the GPU's old values."""
    lost = replace(gpu_progress(0), reading=replace(reading(0), lost_since=NOW))
    shown = text(replace(progress(gpus), gpus=(lost,) * gpus))
    assert time.strftime("lost since %H:%M:%S", time.localtime(NOW)) in shown
    assert "97 %" not in shown
    assert "56.0" not in shown


def test_silent_gpu() -> None:
    """If the driver does not answer for a GPU, the chart shows how long it has not answered."""
    assert "no answer for 12 s" in text(with_reading(replace(reading(0), silent_since=NOW - 12.0)))


def test_recording_is_labelled() -> None:
    """A recording is labelled so that users do not mistake it for readings of this machine."""
    assert "recorded on four H200s" in visible(run_header(replace(progress(), origin=REPLAY)))


def test_unattributed_gpus_have_a_note() -> None:
    """If it is unknown which GPUs this notebook uses, all GPUs are shown, with a note that explains why."""
    assert NOT_ATTRIBUTED in visible(run_header(replace(progress(4), attributed=False)))


def test_no_gpu_in_use() -> None:
    """If this notebook uses no GPU yet, a note beside the elapsed time states this."""
    assert text(progress(0)) == f"3.0 s {NO_GPU_IN_USE}"


def test_newest_mark_is_named() -> None:
    """The header shows the newest mark that the user set.

    It shows none of the lines that the cell printed, because the cell's output contains them already.
    """
    marks = (Mark(1.0, "epoch 1", "mark"), Mark(2.0, "epoch 2", "mark"), Mark(2.5, "loss", "printed"))
    shown = visible(run_header(replace(progress(), marks=marks)))
    assert shown.endswith("epoch 2")


def test_names_and_labels_are_escaped() -> None:
    """HTML markup in the names of GPUs and devices is shown as text."""
    evil = "<script>alert('x')</script>"
    gpu = gpu_progress(0)
    gpu = replace(gpu, gpu=replace(gpu.gpu, name=evil), torch_device=evil)
    shown = replace(progress(marks=(Mark(1.0, evil, "mark"),)), gpus=(gpu,))
    shown = replace(shown, origin=replace(REPLAY, recording=evil))
    assert "<script" not in readings(shown, ChartLayout.for_gpus(1), NOW)


def test_bar_never_overflows() -> None:
    """In the memory bar, this notebook's part is never wider than the GPU's used memory."""
    gpu = replace(gpu_progress(0), process_memory=2**60)
    html = readings(replace(progress(), gpus=(gpu,)), ChartLayout.for_gpus(1), NOW)
    assert re.findall(r"width:([\d.]+)%", html) == ["40.0", "0.0"]


def test_unknown_process_memory_is_omitted() -> None:
    """If this notebook's memory on a GPU is unknown, the chart shows no value for it."""
    assert "here" not in text(replace(progress(), gpus=(replace(gpu_progress(0), process_memory=None),)))


def test_number_of_a_mig_slice() -> None:
    """A MIG slice is labelled with the index of its GPU and the index of the slice, such as 3:1."""
    gpu = gpu_progress(3).gpu
    one = replace(progress(), gpus=(replace(gpu_progress(3), gpu=replace(gpu, mig_index=1)),))
    assert " 3:1 H200" in text(one)


def test_axes_of_rows() -> None:
    """If GPUs are shown as rows, each row has percentages at its left, and times with their unit below it."""
    assert visible(axes(ChartLayout.for_gpus(1), TimeAxis.reaching(7.0))) == "0 2 4 6 8 10 s 0 50 100"


def test_axes_of_tiles() -> None:
    """If GPUs are shown as tiles, each tile has a baseline, but its axes have no numbers."""
    html = axes(ChartLayout.for_gpus(8), TimeAxis.reaching(7.0))
    assert html.count('class="gpuwidget-plot"') == 8
    assert visible(html) == ""


def test_the_line_of_advice_is_reserved() -> None:
    """One line below the charts is reserved for advice.

    The tooltip of that line contains the whole advice.
    """
    one = Advice("copies", True, "GPU 0 <moved> 5 GiB/s.", "Keep it there.", {}, None)
    empty = readings(progress(), ChartLayout.for_gpus(1), NOW)
    assert empty.endswith('<div class="gpuwidget-advice"></div>')
    shown = readings(replace(progress(), advice=one), ChartLayout.for_gpus(1), NOW)
    assert shown.endswith(
        '<div class="gpuwidget-advice" title="GPU 0 &lt;moved&gt; 5 GiB/s. Keep it there.">'
        '<span class="gpuwidget-quiet">Advice:</span> GPU 0 &lt;moved&gt; 5 GiB/s. '
        '<span class="gpuwidget-quiet">Keep it there.</span></div>'
    )
    unsure = readings(replace(progress(), advice=replace(one, sure=False)), ChartLayout.for_gpus(1), NOW)
    assert '<span class="gpuwidget-quiet">Advice (unsure):</span> GPU 0' in unsure


def test_the_dashboard_has_no_advice() -> None:
    """The dashboard has no line for advice, because it does not show a run. A live chart without GPUs has no
    line for advice either."""
    assert "gpuwidget-advice" not in readings(progress(), ChartLayout.for_gpus(1), NOW, overview=True)
    assert "gpuwidget-advice" not in readings(replace(progress(), gpus=()), ChartLayout.for_gpus(0), NOW)


def test_the_chart_is_in_the_pages_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, notes, readings, advice and axes are in the language of the page."""
    tool.main(["--compile"])
    translation._languages.cache_clear()
    monkeypatch.setattr(translation._ViewLanguage, "name", "zh_CN")
    assert text(progress()) == (
        "3.0 s GPU 利用率 显存，占 GPU 的 % 0 H200 cuda:0 97 % 56.0 / 140.0 GiB · 此笔记本 42.0 GiB "
        "612 / 700 W · 51 °C"
    )
    silent = with_reading(replace(reading(0), silent_since=NOW - 12, memory_used=None, missing={}))
    assert "12 s 没有响应" in text(silent)
    assert "此笔记本尚未占用显存。" in run_header(replace(progress(), gpus=()))
    assert "现在" in axes(ChartLayout.for_gpus(1), TimeAxis.last(120.0))
