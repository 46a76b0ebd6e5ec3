"""Tests of the text of the live chart."""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from helpers_messages import reasons
from helpers_progress import REPLAY, gpu_progress, progress, reading
from helpers_samples import GIB

from gpuwidget.kernel.live.chart_layout import ChartLayout
from gpuwidget.kernel.live.live_text import (
    NO_GPU_IN_USE,
    NOT_ATTRIBUTED,
    NOT_LIVE,
    axes,
    hover,
    last_line,
    readings,
    run_header,
)
from gpuwidget.measure.progress import Progress, SoFar
from gpuwidget.model import translation
from gpuwidget.model.readings import Activity, Reading
from gpuwidget.model.report import Advice, Mark, Span
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
    """For a GPU in use, the chart shows the time, the peaks, sums and means so far, and then its name, its
    current utilization, memory, power and temperature.

    The chart also shows how much of the memory belongs to this notebook.
    """
    assert text(progress()) == (
        "3.0 s time 44.0 GiB peak memory sampled, of 140.0 GiB +2.0 GiB memory added 90 % GPU busy "
        "mean so far 612 W power of 700 W 0 H200 cuda:0 97 % 56.0 of 140.0 GiB mine 42.0 GiB "
        "612 of 700 W 612 W · 51 °C GPU utilization, % GPU memory, %"
    )


def test_figures_of_several_gpus() -> None:
    """Over several GPUs, changes and power are summed, utilization is a mean, and the peak is that of one
    GPU."""
    higher = SoFar(Span(1 * GIB, 2 * GIB, 50 * GIB), Span(0, 0, 0), 10.0)
    gpus = (gpu_progress(0), replace(gpu_progress(1), so_far=higher))
    assert visible(run_header(replace(progress(), gpus=gpus))) == (
        "3.0 s time 50.0 GiB peak memory sampled, on GPU 1 +3.0 GiB memory added 2 GPUs 50 % GPU busy "
        "mean so far 1225 W power of 1400 W"
    )


def test_figures_of_mig_slices() -> None:
    """A GPU that is divided into MIG slices does not count beside its slices, which have the same memory and
    power."""
    parent = gpu_progress(0)
    slices = tuple(
        replace(parent, gpu=replace(parent.gpu, uuid=f"MIG-{n}", mig_index=n, mig_parent=parent.gpu.uuid))
        for n in range(2)
    )
    header = visible(run_header(replace(progress(), gpus=(parent, *slices))))
    assert header == visible(run_header(replace(progress(), gpus=slices)))
    assert "+4.0 GiB memory added 2 GPUs 90 % GPU busy mean so far 1225 W" in header


@pytest.mark.parametrize(
    "changed",
    [
        replace(progress(), attributed=False),
        replace(
            progress(),
            gpus=(replace(gpu_progress(0), so_far=SoFar(None, Span(50 * GIB, 56 * GIB, 58 * GIB), 90.0)),),
        ),
    ],
    ids=["not attributed", "no process memory"],
)
def test_figures_of_the_whole_gpu(changed: Progress) -> None:
    """If this notebook's memory is unknown, the figures are those of the whole GPU, and say so."""
    assert "58.0 GiB peak memory sampled, whole GPU +6.0 GiB memory added whole GPU" in text(changed)


def test_unknown_figures() -> None:
    """An unknown figure is n/a, never 0."""
    gpu = replace(
        gpu_progress(0),
        so_far=SoFar(None, Span(None, None, None), None),
        reading=replace(reading(0), power_w=None),
    )
    assert visible(run_header(replace(progress(), gpus=(gpu,)))) == (
        "3.0 s time n/a peak memory n/a memory added n/a GPU busy mean so far n/a power"
    )


def test_hardware_counters() -> None:
    """How busy the multiprocessors and tensor cores are stands below the memory, as far as it is known."""
    fields: dict[str, Any] = {field.name: None for field in dataclasses.fields(Activity)}
    one = Activity(**{**fields, "since": 0.0, "until": 1.0, "sm": 41.5, "tensor": 12.0})
    assert "mine 42.0 GiB SM 42 % · tensor 12 % 612 of 700 W 612 W" in text(
        with_reading(replace(reading(0), activity=one))
    )
    known = replace(one, tensor=None)
    assert "mine 42.0 GiB SM 42 % 612 of 700 W 612 W" in text(
        with_reading(replace(reading(0), activity=known))
    )


def test_values_under_the_pointer() -> None:
    """Each column over the plots has the time, and the values of every GPU and the marks at that time. The
    columns reach as far as the newest values."""
    shown = replace(progress(2), t=(0.0, 1.0, 2.0), marks=(Mark(1.0, "<epoch>", "mark"),))
    html = hover(shown, ChartLayout.for_gpus(2), TimeAxis.reaching(3.0))
    texts = [unescape(found) for found in re.findall(r'data-text="([^"]*)"', html)]
    assert len(texts) == 40
    assert texts[0] == "25 ms\nGPU 0: util 97 %, 56.0 GiB\nGPU 1: util 97 %, 56.0 GiB"
    assert texts[20].splitlines()[1:] == [*texts[0].splitlines()[1:], "<epoch>"]
    assert "height:196px;--gpuwidget-shown:0.4000" in html


def test_no_values_under_the_pointer_where_none_were_read() -> None:
    """Over a time at which nothing was read, the values are n/a. On the dashboard, the times are negative."""
    shown = replace(progress(), t=(0.0, 60.0, 120.0))
    html = hover(shown, ChartLayout.for_gpus(1), TimeAxis.last(120.0))
    texts = [unescape(found) for found in re.findall(r'data-text="([^"]*)"', html)]
    assert texts[0] == "\N{MINUS SIGN}1 min 58 s\nutil 97 %, 56.0 GiB"
    assert texts[5].splitlines()[1] == "util n/a, n/a"
    assert hover(progress(5), ChartLayout.for_gpus(5), TimeAxis.reaching(3.0)) == ""


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
    assert "0 H200 cuda:0 97 % 56.0 of 140.0 GiB 56.0 GiB mine 42.0 GiB 612 W · 51 °C 1 H200" in text(
        progress(5)
    )


def test_an_unknown_value_has_its_reason_as_tooltip() -> None:
    """An unknown value is shown as n/a, with the reason as its tooltip, and never as 0."""
    missing = {"utilization": "not available for a MIG slice", "temperature_c": "not supported by this GPU"}
    html = readings(
        with_reading(replace(reading(0), utilization=None, temperature_c=None, missing=reasons(missing))),
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


def test_recording_is_labeled() -> None:
    """A recording is labeled so that users do not mistake it for readings of this machine."""
    assert "recorded on four H200s" in visible(last_line(replace(progress(), origin=REPLAY)))


def test_unattributed_gpus_have_a_note() -> None:
    """If it is unknown which GPUs this notebook uses, all GPUs are shown, with a note that explains why."""
    assert NOT_ATTRIBUTED in visible(last_line(replace(progress(4), attributed=False)))


def test_no_gpu_in_use() -> None:
    """If this notebook uses no GPU yet, a note below the elapsed time states this."""
    assert text(progress(0)) == f"3.0 s time {NO_GPU_IN_USE}"


def test_newest_mark_is_named() -> None:
    """The line below the charts shows the newest mark that the user set.

    It shows none of the lines that the cell printed, because the cell's output contains them already.
    """
    marks = (Mark(1.0, "epoch 1", "mark"), Mark(2.0, "epoch 2", "mark"), Mark(2.5, "loss", "printed"))
    assert visible(last_line(replace(progress(), marks=marks))).endswith("epoch 2")


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
    """A MIG slice is labeled with the index of its GPU and the index of the slice, such as 3:1."""
    gpu = gpu_progress(3).gpu
    one = replace(progress(), gpus=(replace(gpu_progress(3), gpu=replace(gpu, mig_index=1)),))
    assert " 3:1 H200" in text(one)


def test_axes_of_rows() -> None:
    """If GPUs are shown as rows, each row has percentages at its left, and times with their unit below it."""
    assert visible(axes(ChartLayout.for_gpus(1), TimeAxis.reaching(7.0))) == "0 2 4 6 8 s 0 50 100"


def test_axes_of_tiles() -> None:
    """If GPUs are shown as tiles, each tile has a baseline, but its axes have no numbers."""
    html = axes(ChartLayout.for_gpus(8), TimeAxis.reaching(7.0))
    assert html.count('class="gpuwidget-plot"') == 8
    assert visible(html) == ""


def test_the_line_below_the_charts() -> None:
    """One line below the charts has the legend, and as soon as there is advice, the advice.

    The tooltip of that line contains the whole advice.
    """
    one = Advice("copies", True, "GPU 0 <moved> 5 GiB/s.", "Keep it there.", {}, None)
    assert visible(last_line(progress())) == "GPU utilization, % GPU memory, %"
    assert last_line(replace(progress(), advice=one)) == (
        '<div class="gpuwidget-last"><span title="GPU 0 &lt;moved&gt; 5 GiB/s. Keep it there.">'
        '<span class="gpuwidget-quiet">Advice:</span> GPU 0 &lt;moved&gt; 5 GiB/s. '
        '<span class="gpuwidget-quiet">Keep it there.</span></span></div>'
    )
    unsure = last_line(replace(progress(), advice=replace(one, sure=False)))
    assert '<span class="gpuwidget-quiet">Advice (unsure):</span> GPU 0' in unsure


def test_the_dashboard_has_no_figures() -> None:
    """The dashboard has neither figures nor advice, because it does not show a run."""
    shown = replace(progress(), advice=Advice("copies", True, "Text.", "Fix.", {}, None))
    html = readings(shown, ChartLayout.for_gpus(1), NOW, overview=True)
    assert visible(html).startswith("GPU utilization, % GPU memory, % 0 H200")
    assert "Text." not in html


def test_the_chart_is_in_the_pages_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, notes, readings, advice and axes are in the language of the page."""
    tool.main(["--compile"])
    translation._languages.cache_clear()
    monkeypatch.setattr(translation._ViewLanguage, "name", "zh_CN")
    assert text(progress()) == (
        "3.0 s 时间 44.0 GiB 显存峰值 采样，共 140.0 GiB +2.0 GiB 新增显存 90 % GPU 忙碌 目前的平均值 "
        "612 W 功耗 上限 700 W 0 H200 cuda:0 97 % 56.0 / 140.0 GiB 此笔记本 42.0 GiB 612 / 700 W 612 W · "
        "51 °C GPU 利用率，% GPU 显存，%"
    )
    silent = with_reading(replace(reading(0), silent_since=NOW - 12, memory_used=None, missing={}))
    assert "12 s 没有响应" in text(silent)
    assert "此笔记本尚未占用显存。" in last_line(replace(progress(), gpus=()))
    assert "现在" in axes(ChartLayout.for_gpus(1), TimeAxis.last(120.0))
