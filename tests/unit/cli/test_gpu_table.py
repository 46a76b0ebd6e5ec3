"""Tests of the text of the GPU table that the ``gpuwidget`` command prints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timezone

import pytest
from fakes import EPOCH
from helpers_samples import GIB, LIVE, h200, process, reading, sample

from gpuwidget.cli.gpu_table import render_table
from gpuwidget.model.messages import message
from gpuwidget.model.samples import Sample, origin_without_gpus


def lines(one: Sample, width: int = 80) -> list[str]:
    """Return the table as lines, with times in UTC."""
    return render_table(one, width=width, tz=timezone.utc).splitlines()


def test_all_gpus_and_their_processes_read_in_eighty_columns() -> None:
    """The table fits into 80 columns. It has one row per GPU, then one row per process, sorted by memory
    with the largest first. The column titles contain the units."""
    first, second = h200(0), h200(1)
    one = sample(
        (
            first,
            reading(first, processes=(process(7, GIB), process(31415, 59 * GIB, program="python train.py"))),
        ),
        (
            second,
            reading(
                second,
                utilization=0.0,
                memory_used=4 * 1024**2,
                power_w=79.6,
                sm_clock_mhz=345.0,
                temperature_c=29.0,
                throttle=("idle",),
            ),
        ),
    )
    assert lines(one) == [
        "2023-11-14 22:13:20 · driver 580.159.04 · CUDA 13.0",
        "",
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200      97   60.0 / 140.0  612 / 700  51  1980",
        "  1  NVIDIA H200       0   <0.1 / 140.0   80 / 700  29   345",
        "",
        "GPU    PID  User   GiB  Program",
        "  0  31415  anna  59.0  python train.py",
        "  0      7  anna   1.0  python",
    ]


def test_an_unknown_value_is_not_a_zero() -> None:
    """An unknown value is shown as n/a, and the columns stay aligned."""
    one, two = h200(0), h200(1)
    values = ("utilization", "memory_used", "power_w", "power_limit_w", "temperature_c", "sm_clock_mhz")
    unknown = reading(one, **dict.fromkeys((*values, "throttle", "processes")))
    known = reading(two, processes=(process(7, None, user=None, program=None),))
    assert lines(sample((replace(one, memory_total=None), unknown), (two, known)))[2:] == [
        "GPU  Name         Util %     Memory GiB    Power W   °C   MHz  Throttled",
        "  0  NVIDIA H200     n/a    n/a /   n/a  n/a / n/a  n/a   n/a  n/a",
        "  1  NVIDIA H200      97   60.0 / 140.0  612 / 700   51  1980",
        "",
        "GPU  PID  User  GiB  Program",
        "  0  n/a  not reported by the driver",
        "  1    7  n/a   n/a  n/a",
    ]


def test_a_gpu_that_cannot_be_read_has_the_reason_in_its_row() -> None:
    """The row of a lost GPU shows when it was lost, instead of its values. The row of a GPU that does not
    answer shows how long it has not answered. The rows of other GPUs are unaffected."""
    gpus = [h200(index) for index in range(5)]
    gone = {"processes": None, "missing": {"processes": "the GPU is lost"}}
    one = sample(
        (gpus[0], reading(gpus[0], lost_since=EPOCH - 60, **gone)),
        (gpus[1], reading(gpus[1], lost_since=EPOCH - 86400, **gone)),
        (gpus[2], reading(gpus[2], silent_since=EPOCH - 12.5, **gone)),
        (gpus[3], reading(gpus[3], answered=None, silent_since=EPOCH - 3, **gone)),
        (gpus[4], reading(gpus[4])),
    )
    assert lines(one)[2:] == [
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200  lost since 22:12:20",
        "  1  NVIDIA H200  lost since 2023-11-13 22:13:20",
        "  2  NVIDIA H200  no answer for 12.5 s",
        "  3  NVIDIA H200  no answer for 3.0 s",
        "  4  NVIDIA H200      97   60.0 / 140.0  612 / 700  51  1980",
    ]


def test_a_gpu_that_has_not_answered_yet_is_not_called_free() -> None:
    """Until a GPU has been read once, its row shows "no answer yet", and the output does not contain "No
    process uses a GPU"."""
    one = h200(0)
    assert lines(sample((one, reading(one, answered=None, processes=None))))[2:] == [
        "GPU  Name",
        "  0  NVIDIA H200  no answer yet",
    ]


def test_a_recording_is_labelled_before_anything_else() -> None:
    """If the readings come from a recording, the first line of the output names the recording."""
    origin = replace(LIVE, kind="replay", recording="Recording of 1 \N{MULTIPLICATION SIGN} NVIDIA H200")
    one = h200(0)
    assert lines(sample((one, reading(one)), origin=origin)) == [
        "Recording of 1 \N{MULTIPLICATION SIGN} NVIDIA H200",
        "2023-11-14 22:13:20 · driver 580.159.04 · CUDA 13.0",
        "",
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200      97   60.0 / 140.0  612 / 700  51  1980",
        "",
        "No process uses a GPU.",
    ]


def test_without_a_gpu_there_is_the_reason() -> None:
    """If there is no GPU, the output contains the reason instead of a table, wrapped to the width of the
    terminal."""
    reason = "No NVIDIA driver was found. Install one, or start the container with access to the GPUs."
    origin = origin_without_gpus(message("test", reason))
    assert lines(sample(origin=origin), width=60) == [
        "2023-11-14 22:13:20",
        "",
        "No NVIDIA driver was found. Install one, or start the",
        "container with access to the GPUs.",
    ]


def test_slices_follow_their_gpu_and_long_names_lose_their_maker() -> None:
    """The row of a MIG slice follows the row of its GPU. If a GPU's name is too long, the table omits the
    leading "NVIDIA"."""
    parent = h200(0)
    slice_ = h200(0, uuid="MIG-1", mig_index=1, mig_parent=parent.uuid, name="NVIDIA H200 MIG 1g.18gb")
    laptop = h200(1, name="NVIDIA GeForce RTX 4090 Laptop GPU")
    shared = h200(2, name="NVIDIA GB10", unified_memory=True)
    one = sample(*((gpu, reading(gpu, utilization=None)) for gpu in (parent, slice_, laptop, shared)))
    assert lines(one)[2:7] == [
        "GPU  Name                         Util %     Memory GiB    Power W  °C   MHz",
        "  0  NVIDIA H200                     n/a   60.0 / 140.0  612 / 700  51  1980",
        "0:1  H200 MIG 1g.18gb                n/a   60.0 / 140.0  612 / 700  51  1980",
        "  1  GeForce RTX 4090 Laptop GPU     n/a   60.0 / 140.0  612 / 700  51  1980",
        "  2  NVIDIA GB10 (unified)           n/a   60.0 / 140.0  612 / 700  51  1980",
    ]


@pytest.mark.parametrize("width", [1, 40, 64, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """No line is wider than the terminal. If the terminal has fewer than 40 columns, lines may have up to 40
    columns. Wide characters count as two columns."""
    one = h200(0, name="NVIDIA GeForce RTX 4090 Laptop GPU")
    wide = process(1, GIB, user="a" * 40, program="python 训练.py " + "x" * 300)
    made = render_table(
        sample((one, reading(one, throttle=("too hot (hardware)", "power cap"), processes=(wide,)))),
        width=width,
    )
    cells = [sum(2 if "一" <= c <= "鿿" else 1 for c in line) for line in made.splitlines()]
    assert max(cells) <= max(width, 40)


def test_reasons_are_kept_where_names_must_be_cut() -> None:
    """If a row does not fit into 80 columns, the GPU's name is cut and the throttle reason is shown in
    full."""
    one = h200(0, name="NVIDIA GeForce RTX 4090 Laptop GPU")
    assert lines(sample((one, reading(one, throttle=("too hot (hardware)",)))))[2:4] == [
        "GPU  Name         Util %     Memory GiB    Power W  °C   MHz  Throttled",
        "  0  GeForce RT…      97   60.0 / 140.0  612 / 700  51  1980  too hot (hardware)",
    ]


def test_names_cannot_control_the_terminal() -> None:
    """Escape sequences, line breaks and text-direction marks in the names of GPUs, users and programs are
    escaped, so that they have no effect on the terminal."""
    one = h200(0, name="H\x1b[2J200")
    evil = process(1, GIB, user="a\nb", program="\x1b]0;title\x07 \u202egpj.exe \udcff")
    shown = lines(sample((one, reading(one, processes=(evil,)))))
    assert shown[3].startswith("  0  H\\x1b[2J200  ")
    assert shown[6] == "  0    1  a\\nb  1.0  \\x1b]0;title\\x07 \\u202egpj.exe \\udcff"


def test_color_marks_the_rows_that_need_attention_and_nothing_else() -> None:
    """The rows of GPUs that are lost, do not answer or are throttled are yellow. Apart from the color, the
    table is the same as without color."""
    gpus = [h200(index) for index in range(4)]
    one = sample(
        (gpus[0], reading(gpus[0], lost_since=EPOCH)),
        (gpus[1], reading(gpus[1], silent_since=EPOCH)),
        (gpus[2], reading(gpus[2], throttle=("power cap",))),
        (gpus[3], reading(gpus[3], throttle=("idle", "clock setting"))),
    )
    plain = render_table(one).splitlines()
    colored = render_table(one, color=True).splitlines()
    expected = [f"\x1b[33m{line}\x1b[0m" if place in (3, 4, 5) else line for place, line in enumerate(plain)]
    assert colored == expected
