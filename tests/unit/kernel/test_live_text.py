"""What the live chart says in words and figures."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html import unescape

import pytest
from helpers_progress import REPLAY, gpu_progress, progress, reading

from gpuwidget.kernel.live.chart_layout import Layout
from gpuwidget.kernel.live.live_text import NO_GPU_IN_USE, NOT_ATTRIBUTED, frame, header, number, words
from gpuwidget.kernel.live.time_axis import TimeAxis
from gpuwidget.measure.progress import Progress
from gpuwidget.model.readings import Reading
from gpuwidget.model.report import Advice, Mark

NOW = 2000.0


def seen(html: str) -> str:
    """What a reader sees of it, in one line."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def with_reading(changed: Reading) -> Progress:
    """One GPU that reads so."""
    return replace(progress(), gpus=(replace(gpu_progress(0), reading=changed),))


def text(shown: Progress) -> str:
    """All words of that progress."""
    return seen(words(shown, Layout.of(len(shown.gpus)), NOW))


def test_one_gpu() -> None:
    """A GPU in use says who it is, how busy, its memory with this notebook's part, power and temperature."""
    assert text(progress()) == (
        "3.0 s busy memory, % of the GPU 0 H200 cuda:0 97 % 56.0 of 140.0 GiB · 42.0 GiB here "
        "612 of 700 W · 51 °C"
    )


def test_tiles_say_the_same_shorter() -> None:
    """Many GPUs have the same figures, without the power's limit."""
    assert text(progress(5)).count("H200 cuda:") == 5
    assert "0 H200 cuda:0 97 % 56.0 of 140.0 GiB 612 W 42.0 GiB here 51 °C 1 H200" in text(progress(5))


def test_unknown_says_why() -> None:
    """A value that is not known reads n/a with its reason at hand, and is no 0."""
    missing = {"utilization": "not available for a MIG slice", "temperature_c": "not supported by this GPU"}
    html = words(
        with_reading(replace(reading(0), utilization=None, temperature_c=None, missing=missing)),
        Layout.of(1),
        NOW,
    )
    assert '<span title="not available for a MIG slice">n/a</span>' in html
    assert '<span title="not supported by this GPU">n/a</span>' in html


@pytest.mark.parametrize("gpus", [1, 5])
def test_lost_gpu(gpus: int) -> None:
    """A lost GPU says since when, and none of its old values."""
    lost = replace(gpu_progress(0), reading=replace(reading(0), lost_since=NOW))
    shown = text(replace(progress(gpus), gpus=(lost,) * gpus))
    assert time.strftime("lost since %H:%M:%S", time.localtime(NOW)) in shown
    assert "97 %" not in shown
    assert "56.0" not in shown


def test_silent_gpu() -> None:
    """A GPU whose driver does not return says for how long it has not answered."""
    assert "no answer for 12 s" in text(with_reading(replace(reading(0), silent_since=NOW - 12.0)))


def test_recording_is_labelled() -> None:
    """A recording is never taken for this machine."""
    assert "recorded on four H200s" in seen(header(replace(progress(), origin=REPLAY)))


def test_not_attributed_says_so() -> None:
    """Where nobody can tell whose memory it is, all GPUs are shown and it says so."""
    assert NOT_ATTRIBUTED in seen(header(replace(progress(4), attributed=False)))


def test_no_gpu_in_use() -> None:
    """A notebook that uses no GPU yet is told so, beside the time."""
    assert text(progress(0)) == f"3.0 s {NO_GPU_IN_USE}"


def test_newest_mark_is_named() -> None:
    """The newest of the user's own marks is named; printed lines are not, for they stand below."""
    marks = (Mark(1.0, "epoch 1", "mark"), Mark(2.0, "epoch 2", "mark"), Mark(2.5, "loss", "printed"))
    shown = seen(header(replace(progress(), marks=marks)))
    assert shown.endswith("epoch 2")


def test_everything_foreign_is_escaped() -> None:
    """Names and labels are text, whatever they hold."""
    evil = "<script>alert('x')</script>"
    gpu = gpu_progress(0)
    gpu = replace(gpu, gpu=replace(gpu.gpu, name=evil), torch_device=evil)
    shown = replace(progress(marks=(Mark(1.0, evil, "mark"),)), gpus=(gpu,))
    shown = replace(shown, origin=replace(REPLAY, recording=evil))
    assert "<script" not in words(shown, Layout.of(1), NOW)


def test_bar_never_overflows() -> None:
    """This notebook's part of the bar is at most what the GPU has in use."""
    gpu = replace(gpu_progress(0), process_memory=2**60)
    html = words(replace(progress(), gpus=(gpu,)), Layout.of(1), NOW)
    assert re.findall(r"width:([\d.]+)%", html) == ["40.0", "0.0"]


def test_nothing_attributed_to_here() -> None:
    """Where this notebook's part is not known none is named."""
    assert "here" not in text(replace(progress(), gpus=(replace(gpu_progress(0), process_memory=None),)))


def test_mig_slice_has_its_parents_number() -> None:
    """A slice is named by its parent's number and its own."""
    gpu = gpu_progress(3).gpu
    assert [number(gpu), number(replace(gpu, mig_index=1))] == ["3", "3:1"]


def test_frame_numbers_both_axes() -> None:
    """Each row has percent at its left and time below, with the unit at its last number."""
    assert seen(frame(Layout.of(1), TimeAxis.reaching(7.0))) == "0 2 4 6 8 10 s 0 50 100"


def test_frame_of_tiles_is_bare() -> None:
    """Small multiples have a floor each, and no numbers."""
    html = frame(Layout.of(8), TimeAxis.reaching(7.0))
    assert html.count('class="gpuwidget-plot"') == 8
    assert seen(html) == ""


def test_advice_has_its_place_before_it_comes() -> None:
    """One line below the charts, there from the beginning so that nothing moves; whole when pointed at."""
    one = Advice("copies", True, "GPU 0 <moved> 5 GiB/s.", "Keep it there.", {}, None)
    empty = words(progress(), Layout.of(1), NOW)
    assert empty.endswith('<div class="gpuwidget-advice"></div>')
    shown = words(replace(progress(), advice=one), Layout.of(1), NOW)
    assert shown.endswith(
        '<div class="gpuwidget-advice" title="GPU 0 &lt;moved&gt; 5 GiB/s. Keep it there.">'
        '<span class="gpuwidget-quiet">Advice:</span> GPU 0 &lt;moved&gt; 5 GiB/s. '
        '<span class="gpuwidget-quiet">Keep it there.</span></div>'
    )


def test_all_gpus_at_once_get_no_advice() -> None:
    """The dashboard is about nobody's run."""
    assert "gpuwidget-advice" not in words(progress(), Layout.of(1), NOW, overview=True)
    assert "gpuwidget-advice" not in words(replace(progress(), gpus=()), Layout.of(0), NOW)
