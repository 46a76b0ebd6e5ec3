"""Tests of the card of a run: its text, HTML, JSON and size. Also tests of the other ways to show a
report.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable
from dataclasses import fields, replace
from html import unescape
from html.parser import HTMLParser
from typing import Any

import helpers_reports as reports
import pytest
from helpers_reports import HOSTILE, bare_gpu, gib, gpu, marks
from IPython.core.formatters import DisplayFormatter

from gpuwidget.measure.run_report import empty_report
from gpuwidget.model.messages import message
from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import CodeTime, GpuReport, Level, LineMemory, LineTime, Report, Span, TorchMemory
from gpuwidget.views import card, reductions, size_budget, styles
from gpuwidget.views.card import CardReport, Reports
from gpuwidget.views.card_gpus import table_columns
from gpuwidget.views.card_summary import total_energy
from gpuwidget.views.chart import UNTRUSTED
from gpuwidget.views.detail_levels import COMPACT, FEWER_LINES, FULL, REDUCED
from gpuwidget.views.size_budget import LIMIT

pytestmark = pytest.mark.usefixtures("in_utc")

WORKERS = ("python train.py --rank 1", HOSTILE)
EVERY = pytest.mark.parametrize("make", reports.ALL.values(), ids=reports.ALL.keys())
TAGS = {
    *("div", "span", "b", "i", "br", "pre", "code", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "text", "circle", "metadata"),
}
ATTRIBUTES = {
    *(
        "style",
        "class",
        "data-runs",
        "title",
        "scope",
        "cellpadding",
        "width",
        "height",
        "role",
        "aria-label",
        "viewbox",
    ),
    *("preserveaspectratio", "d", "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity"),
    *(
        "vector-effect",
        "x",
        "y",
        "dx",
        "cx",
        "cy",
        "r",
        "text-anchor",
        "font-size",
        "font-weight",
        "overflow",
    ),
}


class Page(HTMLParser):
    """Parser that collects the text, tags, attributes and labels of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.styles: list[str] = []
        self.text = ""
        self.labels: list[str] = []
        self.inside_svg = ""
        self._svg = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self.labels += [value or "" for name, value in attrs if name in ("title", "aria-label")]
        self._svg += tag == "svg"
        if tag in ("div", "tr", "br", "summary", "pre"):
            self.text += "\n"
        elif tag in ("td", "th"):
            self.text += "|"

    def handle_endtag(self, tag: str) -> None:
        self._svg -= tag == "svg"

    def handle_data(self, data: str) -> None:
        if self._svg:
            self.inside_svg += data
        else:
            self.text += data.replace("\N{NO-BREAK SPACE}", " ")


def html(report: Report) -> str:
    """Return the full card as HTML."""
    made = card.bundle(report)["text/html"]
    assert isinstance(made, str)
    return made


def facts(report: Report) -> list[tuple[str, str]]:
    """Return the names and the texts of the details that are not figures."""
    return [
        (unescape(a), unescape(b)) for a, b in re.findall(r"<b>([^<]*)</b> <div>([^<]*)</div>", html(report))
    ]


def rows(report: Report) -> list[str]:
    """Return the rows of all tables of the card."""
    return [line for line in Page(html(report)).text.splitlines() if line.startswith("|")]


def text(report: Report) -> str:
    """Return the full card as text."""
    made = card.bundle(report)["text/plain"]
    assert isinstance(made, str)
    return made


def stored(report: Report) -> dict[str, Any]:
    """Return the JSON of the full card."""
    values = card.bundle(report)[MIME_TYPE]
    assert isinstance(values, dict)
    return values


def size(bundle: dict[str, Any]) -> int:
    """Return the number of bytes that a bundle takes when a kernel sends it."""
    return len(json.dumps(bundle, ensure_ascii=False).encode())


# -- values on the card ---------------------------------------------------------------------------------


FIGURE = re.compile(
    r"<div><b style='font-size:19px[^>]*>([^<]*)</b><br>([^<]*)(?:<br><span[^>]*>(.*?)</span>)?</div>"
)
ONE_GPU = "GPU busy 11 % (SM 10 %, tensor 0.1 %) · energy 2.3 kJ (165 W)"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            reports.starved,
            f"time 14.0 s · peak memory 14.6 GiB (exact, of 140.4 GiB) · memory kept +2.9 GiB · {ONE_GPU}",
        ),
        (
            reports.ddp,
            "time 14.0 s · peak memory 14.6 GiB (exact, on GPU 0) · memory kept +11.6 GiB (4 GPUs) · "
            "GPU busy 98 % (mean of 4 GPUs) · energy 34.8 kJ",
        ),
        (
            reports.replay,
            "time 14.0 s · peak memory 16.1 GiB (sampled, whole GPU 0) · memory kept n/a (a recording) · "
            "GPU busy 11 % (mean of 4 GPUs) · energy 9.3 kJ",
        ),
        (
            reports.no_torch,
            f"time 14.0 s · peak memory 15.6 GiB (sampled, of 140.4 GiB) · memory kept +3.2 GiB · {ONE_GPU}",
        ),
        (
            reports.little_known,
            "time 14.0 s · peak memory 16.1 GiB (sampled, whole GPU) · memory kept +3.2 GiB "
            "(whole GPU) · GPU busy 11 % · energy n/a",
        ),
        (
            reports.lost,
            "time 14.0 s · peak memory 14.6 GiB (exact, on GPU 0) · memory kept +5.8 GiB (2 GPUs) · "
            "GPU busy 11 % (mean of 2 GPUs) · energy ≥ 2.3 kJ",
        ),
        (
            reports.failed,
            "time 1.2 s (stopped by an error) · peak memory 14.6 GiB (exact, of 140.4 GiB) · "
            f"memory kept +2.9 GiB · {ONE_GPU}",
        ),
        (
            reports.interrupted,
            "time 42.0 s (interrupted) · peak memory 14.6 GiB (exact, of 140.4 GiB) · "
            f"memory kept +2.9 GiB · {ONE_GPU}",
        ),
        (
            reports.short,
            "time 2.1 ms · peak memory 15.7 GiB (exact, of 140.4 GiB) · memory kept +64 MiB · GPU busy n/a · "
            "energy n/a",
        ),
        (
            reports.left_behind,
            "time 14.0 s · peak memory 10.0 GiB (exact, of 140.4 GiB) · memory kept +10.0 GiB "
            f"(largest: optimizer) · {ONE_GPU}",
        ),
        (
            reports.mig,
            "time 14.0 s · peak memory 14.6 GiB (exact, on GPU 0 MIG 0) · memory kept +5.8 GiB (2 GPUs) · "
            "GPU busy n/a · energy 4.6 kJ",
        ),
        (
            reports.unused,
            "time 2.0 s · no GPU used · host memory peak 2.4 GiB (this notebook) · host memory kept +205 MiB "
            "(this notebook)",
        ),
        (
            reports.no_gpu,
            "time 1.2 s · no GPU · host memory peak 2.4 GiB (this notebook) · host memory kept +205 MiB "
            "(this notebook)",
        ),
    ],
)
def test_the_figures(make: Callable[[], Report], line: str) -> None:
    """The first row of the card has five labeled figures: time, peak memory, memory kept, GPU busy and
    energy. What limits a figure, such as that it is sampled, is small below it. In a terminal, they are one
    line.
    """
    assert text(make()).splitlines()[0] == line
    shown = [
        f"{label} {value}" + (f" ({below.replace('<br>', ', ').replace(' · ', ', ')})" if below else "")
        for value, label, below in FIGURE.findall(html(make()))
    ]
    assert shown == [part for part in line.split(" · ") if part not in ("no GPU", "no GPU used")]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            reports.starved,
            "GPU 1 H200 (cuda:1) · torch 11.4 → 14.3 GiB · this notebook 12.4 → 15.6 of 140.4 GiB",
        ),
        (
            reports.ddp,
            "GPUs 0–3 H200 (cuda:0 to cuda:3) · torch 45.6 → 57.2 GiB"  # noqa: RUF001 a range's dash
            " · this notebook 49.6 → 62.4 of 561.6 GiB",
        ),
        (reports.no_torch, "GPU 0 H200 · this notebook 12.4 → 15.6 of 140.4 GiB"),
        (reports.little_known, "GPU 0 Tesla K80 · whole GPU 12.9 → 16.1 of 22.4 GiB"),
        (
            reports.first_context,
            "GPU 0 H200 (cuda:0) · torch 0 → 64 MiB · this notebook 0 → 682 MiB of 140.4 GiB,"
            " first use: its CUDA context included",
        ),
    ],
)
def test_second_line_has_the_owner_of_the_memory(make: Callable[[], Report], line: str) -> None:
    """The second line shows the memory of torch and of this notebook. If they are unknown, it shows the
    memory of the whole GPU.
    """
    assert text(make()).splitlines()[1].strip() == f"{line} · started 2026-11-21 10:04"


@EVERY
def test_the_day_of_a_saved_card(make: Callable[[], Report]) -> None:
    """The details show on which day and at what time the run started, because a saved notebook is read later.
    The text form shows it too."""
    report = make()
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.cell.started))
    assert any(line.endswith(f"started {started}") for line in text(report).splitlines()[:3])
    assert f"In [3], {started}" in dict(facts(report))["Started"]


def test_the_peak_is_that_of_the_gpu_that_worked() -> None:
    """If several GPUs have the same peak, the first line names the GPU whose memory changed most. A GPU with
    a visibly higher peak is named even if its memory did not change."""

    def holding(index: int, start: float, peak: float) -> GpuReport:
        torch = gpu(index).torch
        assert torch is not None
        return gpu(index, torch=replace(torch, allocated=Span(gib(start), gib(start), gib(peak))))

    tied = text(reports.report(holding(0, 11.5, 11.5), holding(1, 2.0, 11.49))).splitlines()[0]
    assert "peak memory 11.5 GiB (exact, on GPU 1)" in tied
    higher = text(reports.report(holding(0, 11.5, 11.5), holding(1, 2.0, 11.4))).splitlines()[0]
    assert "peak memory 11.5 GiB (exact, on GPU 0)" in higher


def test_the_card_in_a_terminal() -> None:
    """In a terminal, the card of one GPU is a line of figures and a line about the memory's owner. Several
    GPUs have a table with aligned columns."""
    assert text(reports.starved()) == (
        "time 14.0 s · peak memory 14.6 GiB (exact, of 140.4 GiB) · memory kept +2.9 GiB · "
        "GPU busy 11 % (SM 10 %, tensor 0.1 %) · energy 2.3 kJ (165 W)\n"
        "  GPU 1 H200 (cuda:1) · torch 11.4 → 14.3 GiB · this notebook 12.4 → 15.6 of 140.4 GiB"
        " · started 2026-11-21 10:04"
    )
    header, units, *gpus = map(str.split, text(reports.report(gpu(0), gpu(1))).splitlines()[2:])
    assert " ".join(header) == (
        "GPU whole GPU Δ torch Δ torch peak reserved util SM tensor DRAM power energy"
    )
    assert units == [*["GiB"] * 4, *["%"] * 4, "W", "kJ"]
    assert [" ".join(row) for row in gpus] == [
        "0 H200 · cuda:0 +3.2 +2.9 14.6 15.0 11 10 0.1 3.1 165 2.3",
        "1 H200 · cuda:1 +3.2 +2.9 14.6 15.0 11 10 0.1 3.1 165 2.3",
    ]


@EVERY
def test_the_text_form_is_short(make: Callable[[], Report]) -> None:
    """The text form of one GPU's card has at most twelve lines, however much there is to say. The last one
    then tells how much is left out. An empty block has at most four lines."""
    report = make()
    lines = text(report).splitlines()
    assert len(lines) <= 12 or len(report.shown) > 1
    many = replace(reports.left_behind(), notes=("a note",) * 20)
    assert (len(text(many).splitlines()), text(many).splitlines()[-1]) == (
        12,
        "  and 16 more lines in the HTML form",
    )
    assert len(text(reports.short()).splitlines()) <= 4


def test_the_text_form_keeps_what_was_not_measured() -> None:
    """In the text form, what was not measured and why values are unknown stands above what the notebook left
    in memory, notes and lines of code, so that the latter are left out first."""
    line = LineTime(1, "x = step()", 50.0, None, None, None)
    made = replace(
        reports.left_behind(),
        time=CodeTime((line,), 100, 0.1, None, None, None, None),
        gpus=(
            reports.changed(reports.left_behind().gpus[0], power_w=None, missing={"power_w": "no sensor"}),
        ),
        notes=(message("a note", "a note"),),
    ).with_notes(reports.not_measured("time by line"))
    found = [line.strip().partition(":")[0] for line in text(made).splitlines()[2:]]
    assert found[0].startswith("Could not be measured")
    assert found[1:7] == ["n/a", *["left behind"] * 4, "a note"]
    assert found[7].startswith("line 1 `x = step()`")


def test_the_text_form_with_many_warnings() -> None:
    """More warnings than the text form has lines leave a last line that tells how much is left out."""
    lost = [gpu(n, lost_since=1e9 + 60 * n) for n in range(12)]
    made = replace(reports.report(*lost, points=20), notes=("a note",) * 5)
    assert "  and 6 more lines in the HTML form" in text(made).splitlines()
    assert "  a note" not in text(made).splitlines()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (reports.no_gpu, "The NVIDIA driver is not installed here. Install it to see GPUs."),
        (reports.unused, "This notebook holds no memory on any of the 2 GPUs."),
        (
            reports.replay,
            "Recording of 4 NVIDIA H200, made 2026-11-21: the values come from the recording, not from this "
            "notebook",
        ),
        (
            reports.little_known,
            "Couldn't tell which GPUs this notebook uses, so all watched GPUs are shown.",
        ),
        (reports.lost, "GPU 1 lost since "),
    ],
)
def test_important_facts_are_visible_without_the_details(make: Callable[[], Report], sentence: str) -> None:
    """Without opening the card's details, a user can see that values come from a recording, that it is
    unknown which GPUs the notebook uses, that the notebook uses no GPU, that a GPU is lost, or that there
    is no driver.
    """
    assert sentence in text(make())
    assert sentence in Page(html(make()).partition("<details")[0]).text


def test_memory_errors_are_visible_without_the_details() -> None:
    """Without opening the card's details, a user can see out-of-memory errors and flushes of torch's
    cache.
    """
    torch = gpu(0).torch
    assert torch is not None
    tight = reports.report(gpu(0, torch=replace(torch, alloc_retries=3, ooms=1)))
    unfolded = Page(html(tight).partition("<details")[0]).text
    assert "1 out-of-memory error" in unfolded
    assert "flushed its cache 3 times" in unfolded


def test_warnings_of_several_gpus_are_one_line_each() -> None:
    """If several GPUs have the same kind of warning, one line covers all of them."""

    def tight(index: int, ooms: int, flushes: int) -> GpuReport:
        torch = gpu(index).torch
        assert torch is not None
        return gpu(index, torch=replace(torch, ooms=ooms, alloc_retries=flushes))

    lines = text(reports.report(*(tight(n, 1, 3 + n // 3) for n in range(4)))).splitlines()
    assert "each of GPUs 0–3" in lines[2]  # noqa: RUF001 a range's dash
    assert "3 to 4 times on each of GPUs 0–3" in lines[3]  # noqa: RUF001
    assert [sum(word in line for line in lines) for word in ("out-of-memory", "flushed")] == [1, 1]
    lines = text(reports.report(tight(0, 0, 0), tight(1, 2, 1))).splitlines()
    assert lines[2].startswith("  2 out-of-memory errors")
    assert "1 time on GPU 1" in lines[3]


def test_gpu_work_after_the_code() -> None:
    """If the GPU was still working when the code ended, the time's figure shows for how long it worked after
    the code."""
    late = reports.report(gpu(0), duration=0.02, cell=reports.cell(0.02, gpu_tail_s=1.4))
    assert text(late).startswith("time 20 ms (+ 1.4 s on the GPU) · ")


def test_the_label_is_above_the_card() -> None:
    """If a watch has a label, its card starts with the label, so that the cards of several watches
    in a cell can be told apart.
    """
    named = replace(reports.starved(), cell=reports.cell(label="forward pass"))
    assert text(named).startswith("forward pass: time 14.0 s · ")
    assert Page(html(named)).text.strip().splitlines()[0] == "forward pass"


# -- unknown values -------------------------------------------------------------------------------------


def test_unknown_values_read_na_with_their_reason() -> None:
    """An unknown value is shown as 'n/a', never as 0. The details contain the reason, and how many there are.
    The tooltip of an unknown figure contains it, too."""
    made = html(reports.little_known())
    assert ("n/a", "energy", "") in FIGURE.findall(made)
    assert "title='not supported by this GPU'>n/a</b>" in made
    assert "Why n/a (4)" in Page(made).text
    unknown = [
        ("memory of this process", "the driver does not list processes"),
        ("torch's memory", "torch is not loaded"),
        (
            "SM activity, SM occupancy, tensor activity, float32 activity, DRAM activity, PCIe, NVLink",
            "the hardware counters (GPM, Hopper and later) are not available here",
        ),
        ("power, energy", "not supported by this GPU"),
    ]
    assert facts(reports.little_known())[:4] == unknown
    line = "; ".join(f"{values} ({reason})" for values, reason in unknown)
    assert f"  n/a: {line}" in text(reports.little_known()).splitlines()


@pytest.mark.parametrize("kind", ["torch", "process_memory", "device_memory"])
def test_unknown_memory_has_no_qualifier(kind: str) -> None:
    """If the peak and the change of memory are unknown, the figures do not say how exact they are, but why
    they are unknown."""
    unknown, reserved = Span(None, None, None), Span(gib(1), gib(1), gib(1))
    less: dict[str, Any] = {} if kind == "torch" else {"torch": None}
    less |= {"process_memory": None} if kind == "device_memory" else {}
    less[kind] = TorchMemory(unknown, reserved, 0, 0, 0) if kind == "torch" else unknown
    if kind == "process_memory":
        less[kind] = Span(None, None, gib(3))
    made = reports.report(gpu(0, **less, missing={kind: "for a reason"}))
    line = text(made).splitlines()[0]
    assert "memory kept n/a · " in line
    if kind != "process_memory":  # a process without a known peak is not the headline's
        assert "peak memory n/a · " in line
        assert "title='for a reason'>n/a</b><br>peak memory</div>" in html(made)
    assert "title='for a reason'>n/a</b><br>memory kept</div>" in html(made)


def test_unified_memory_is_labeled() -> None:
    """The card says that a GPU uses the host's memory."""
    shared = reports.report(reports.gpu(0, name="NVIDIA GB10", unified_memory=True))
    assert ("GPUs", "GPU 0 GB10, unified memory (cuda:0)") in facts(shared)
    assert "GPU 0 GB10, unified memory" in text(shared)


def test_a_value_unknown_for_one_gpu_names_it() -> None:
    """On the card of several GPUs, the reason for an unknown value names the GPU to which it applies."""
    fields = "memory of the whole GPU, memory of this process, energy"
    assert (f"{fields} of GPU 1", "the GPU is lost") in facts(reports.lost())


def test_a_value_unknown_without_a_reason() -> None:
    """If a value is unknown and the report contains no reason, the details state that no reason was given."""
    report = reports.report(gpu(0, energy_j=None))
    assert ("energy", "no reason was given") in facts(report)


@pytest.mark.parametrize(
    ("values", "headline", "column"),
    [
        ({"energy_j": None, "energy_at_least_j": 4100.0}, "≥ 4.1 kJ", "≥ 4.1"),
        ({"energy_j": 161.0, "energy_error_j": 20.4}, "161 ± 20 J", "161 ± 20"),
        ({"energy_j": 1061.0, "energy_error_j": 54.0}, "1.1 ± 0.1 kJ", "1.1 ± 0.1"),
        ({"energy_j": 161.0}, "161 J", "161"),
    ],
    ids=["lower limit", "stated error", "error in the same unit", "exact"],
)
def test_the_accuracy_of_the_energy(values: dict[str, float | None], headline: str, column: str) -> None:
    """An energy that is known only for a part of the run is a lower limit, and an energy with an error of
    more than 5 % shows its error, in the same unit."""
    one = gpu(0, **values)
    assert total_energy([one]) == headline
    assert [each.cells for each in table_columns([one, one]) if each.title == "energy"] == [(column, column)]


def test_nan_and_infinity_are_unknown() -> None:
    """NaN and infinity are shown as unknown values. The card's JSON does not contain them."""
    odd = gpu(0, utilization=Level(float("nan"), float("nan")), energy_j=float("inf"))
    bundle = card.bundle(reports.report(odd))
    assert "nan" not in bundle["text/plain"]
    assert json.dumps(bundle, allow_nan=False)
    assert bundle["text/plain"].startswith(
        "time 14.0 s · peak memory 14.6 GiB (exact, of 140.4 GiB) · memory kept +2.9 GiB · GPU busy n/a · "
        "energy n/a"
    )


# -- HTML -----------------------------------------------------------------------------------------------


@EVERY
def test_the_html_is_static(make: Callable[[], Report]) -> None:
    """The card's HTML contains no scripts, style sheets, links or images, so showing it loads nothing from
    elsewhere.
    """
    page = Page(html(make()))
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert not any("url(" in style for style in page.styles)


@EVERY
def test_the_card_is_readable_without_svg_and_styles(make: Callable[[], Report]) -> None:
    """In a notebook that is not trusted, front ends remove the elements of SVG and styles. The card still
    shows all its text, and in place of the chart how to see it."""
    page = Page(html(make()))
    drawn = html(make()).count("<path") > 0
    assert page.inside_svg.startswith(UNTRUSTED) == drawn
    without_labels = re.sub(r"<(text|metadata)\b[^>]*>[^<]*</\1>", "", html(make()))
    stripped = re.sub(r"</?(svg|g|path|circle)\b[^>]*>", "", without_labels)
    assert Page(re.sub(r" style='[^']*'", "", stripped)).text == page.text


@EVERY
def test_colors_have_a_fallback(make: Callable[[], Report]) -> None:
    """Every CSS variable of JupyterLab's theme has a fallback value, so that the card is readable in front
    ends without this theme.
    """
    for variable in re.findall(r"var\([^)]*\)", html(make())):
        assert re.fullmatch(r"var\(--jp-[a-z0-9-]+,[^,)].*\)", variable)


def test_untrusted_text_is_escaped() -> None:
    """HTML markup in labels, printed lines, names, versions and reasons is escaped."""
    made = html(reports.hostile())
    assert "<img" not in made
    assert HOSTILE in Page(made).text
    assert HOSTILE[:20] in " ".join(Page(made).labels)
    assert "<img" not in (card.line_bundle(reports.hostile()) or {})["text/html"]
    table = Reports([reports.hostile()])._repr_mimebundle_()[0]["text/html"]
    assert "<img" not in table


def test_escape_sequences_are_removed() -> None:
    """Terminal escape sequences in printed lines, such as those of a progress bar, are removed."""
    colored = reports.report(gpu(0), marks=marks(1, label="\x1b[31mred\x1b[0m\rbar\u202eend"))
    assert card.bundle(colored)[MIME_TYPE]["timeline"]["marks"][0]["label"] == "red bar end"


def test_screen_readers() -> None:
    """For screen readers, the chart has a label, and the header cells of the table have a scope."""
    made = html(reports.report(gpu(0), gpu(1)))
    assert "<svg role='img' aria-label='Utilization and memory over 14.0 s'" in made
    table = made.partition("<details")[0]
    assert (table.count("<th scope='col'"), table.count("<th scope='row'")) == (11, 2)


def test_errors_have_text_and_a_color() -> None:
    """The time of a failed run has the qualifier 'stopped by an error', and the card has a left border in the
    theme's error color.
    """
    made = html(reports.failed())
    assert f"border-left:3px solid {styles.ERROR}" in made
    assert f"<span style='color:{styles.ERROR}'>stopped by an error</span>" in made


def test_marks_are_listed_with_their_times() -> None:
    """The details list marks and printed lines with their times. Marks are labeled 'mark'."""
    lines = Page(html(reports.starved())).text.splitlines()
    assert "583 ms  mark  epoch 0: loss 0.4321" in lines
    assert " 1.8 s  epoch 1: loss 0.4321" in lines


def test_tooltips_of_the_picture() -> None:
    """The chart's tooltips contain the time, the values at that time, and the marks."""
    titles = Page(html(reports.starved())).labels
    assert "525 ms\nutil 3.0 %, 13.1 GiB\nepoch 0: loss 0.4321" in titles


# -- size limit and omissions ---------------------------------------------------------------------------


@EVERY
def test_every_card_is_small(make: Callable[[], Report]) -> None:
    """A card takes at most 20 kB of the notebook file, counting its text, HTML and JSON together."""
    assert size(card.bundle(make())) <= LIMIT == 20_000
    assert size(card.line_bundle(make()) or {}) <= LIMIT


def test_memory_left_behind_is_listed_by_holder() -> None:
    """The details have a row for each holder of memory that the run did not free, with all names of the
    holder, and a line about the fragmentation of torch's cache."""
    listed = rows(reports.left_behind())
    start = listed.index("|left behind|memory")
    assert listed[start + 1 :][:4] == [
        "|optimizer (AdamW)|6.0 GiB",
        "|model (Net), also optimizer, trainer.model|3.0 GiB",
        "|Out[3], also _, _3|512 MiB",
        "|autograd or unknown|512 MiB",
    ]
    fragmentation = (
        "3.0 GiB of the 13.0 GiB reserved by torch is not in tensors; 2.0 GiB of it "
        "can't be freed, because it shares segments with tensors (fragmentation); the cache was not flushed"
    )
    assert fragmentation in Page(html(reports.left_behind())).text.splitlines()
    assert [line.strip() for line in text(reports.left_behind()).splitlines()[2:]] == [
        "left behind: optimizer (AdamW): 6.0 GiB",
        "left behind: model (Net), also optimizer, trainer.model: 3.0 GiB",
        "left behind: Out[3], also _, _3: 512 MiB",
        "left behind: autograd or unknown: 512 MiB",
        fragmentation,
    ]


def test_returnable_cache() -> None:
    """The details show how much of torch's cache can be returned to the GPU, and how often the cache was
    flushed.

    GPUs with the same values share one line.
    """

    def cached(index: int, returnable: float, flushes: int | None = 0) -> GpuReport:
        torch = TorchMemory(
            Span(0, gib(10), gib(12)), Span(0, gib(13), gib(13)), flushes, 0, 0, gib(returnable)
        )
        return gpu(index, torch=torch)

    def lines_of(*gpus: GpuReport) -> list[str]:
        lines = Page(html(reports.report(*gpus, points=20))).text.splitlines()
        return [line for line in lines if "reserved by torch" in line]

    (line,) = lines_of(cached(0, 3))
    assert line.startswith("3.0 GiB of the 13.0 GiB reserved by torch")
    assert "3.0 GiB of it can be freed (%gpu free --yes)" in line
    assert line.endswith("not flushed")
    both, third = lines_of(cached(0, 1, 2), cached(1, 1, 2), cached(2, 0, None))
    assert "each of GPUs 0, 1" in both
    assert "1.0 GiB of it can be freed (%gpu free --yes)" in both
    assert both.endswith("flushed 2 times")
    assert "on GPU 2" in third
    assert "none of it can be freed" in third
    assert third.endswith("unknown")
    # In a terminal, fragmentation is shown only if there is much of it.
    assert "fragmentation" not in text(reports.report(cached(0, 3)))


def test_omitted_holders_have_a_note() -> None:
    """If not all holders fit on the card, the largest ones are shown, and a note contains how many were
    omitted.
    """
    report = reports.much_left_behind()
    values = stored(report)
    kept = values["holders"]
    assert [(one["bytes"], one["kind"]) for one in kept] == [
        (one.bytes, one.kind) for one in report.holders[: len(kept)]
    ]
    assert f"{30 - len(kept)} of 30 holders" in values["notes"][-1]


def test_sixteen_gpus_keep_every_value() -> None:
    """Even the largest card (16 GPUs, full timelines, 60 marks with long labels) fits into 20 kB, and still
    has a row and exact sizes for each GPU.
    """
    report = reports.sixteen()
    bundle = card.bundle(report)
    assert size(bundle) <= 20_000
    stored = bundle[MIME_TYPE]["gpus"]
    assert [one["uuid"] for one in stored] == [one.uuid for one in report.gpus]
    whole = report.to_dict()["gpus"][5]["torch"]
    assert stored[5]["torch"].items() <= whole.items()
    assert whole.keys() - stored[5]["torch"].keys() == {"inactive_split", "returnable"}
    assert bundle["text/html"].count("<th scope='row'") == 16
    assert "<svg role='img'" in bundle["text/html"]
    assert any("this card omits" in note for note in bundle[MIME_TYPE]["notes"])
    assert {"mig_index", "mig_parent", "lost_since", "missing"} & stored[5].keys() == set()


def fullest(*gpus: GpuReport) -> Report:
    """Return a report of these GPUs in which everything is long: notes, advice, holders, marks, and the lists
    of code lines with their memory and time."""
    line = LineMemory("In[5]", 8, None, "loss.backward()", None, "cuda:0", gib(44), gib(1), gib(3))
    times = tuple(
        LineTime(n, f"history_{n}.append(loss.item())", 30.0 - n, 4.0, "Tensor.item", None) for n in range(6)
    )
    time = CodeTime(times, 1890, 0.02, "Other processes used the GPU as well.", 104.0, 382.0, 2.5)
    made = reports.report(*gpus, marks=marks(12), cell=reports.cell(label="baseline", gpu_tail_s=1.4))
    return replace(
        made,
        lines=(line,) * 6,
        time=time,
        advice=reports.advised().advice,
        holders=reports.left_behind().holders,
        notes=("A sentence of a hundred and twenty characters, " * 3,) * 3,
    )


def busy_gpu(index: int) -> GpuReport:
    """Return a GPU with child processes, warnings and throttling."""
    torch = TorchMemory(Span(0, gib(10), gib(12)), Span(0, gib(13), gib(13)), 3 + index, 1, gib(2), gib(1))
    return gpu(
        index, torch=torch, children=("torchrun train.py",), throttled={"too hot": 4.2, "power cap": 2.0}
    )


@pytest.mark.parametrize("count", [1, 4])
def test_a_full_card_keeps_what_matters_most(count: int) -> None:
    """If not everything fits on the card, details of single GPUs are omitted first. Notes, the evidence of
    advice, and the lines of code that the user requested are kept."""
    report = fullest(*map(busy_gpu, range(count)))
    bundle = card.bundle(report)
    assert size(bundle) <= LIMIT
    lines = Page(bundle["text/html"]).text.splitlines()
    notes = [line for line in lines if line.startswith("A sentence")]
    assert len(notes) == 3
    assert all(len(note) >= 115 for note in notes)
    assert sum("loss.backward()|3.0 GiB|" in line for line in lines) >= 3
    assert [text for name, text in facts(report) if name == "input-pipeline" and "num workers 0" in text]
    assert sum(line.startswith("|optimizer (AdamW)") for line in lines) == 1
    # With more GPUs, the tables of all readings are left to the JSON.
    assert sum(line.startswith("|torch reserved|") for line in lines) == (count == 1)
    stored = bundle[MIME_TYPE]
    assert len(stored["lines"]) >= 3
    assert [one["children"] for one in stored["gpus"]] == [["torchrun train.py"]] * count


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("points", [1, 10, 40, 240])
def test_start_of_the_search_does_not_change_the_card(
    count: int, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card has the most details that fit, at whichever level gpuwidget begins to search."""
    report = reports.report(*map(gpu, range(count)), points=points, marks=marks(6))
    found = []
    for level in (FULL, FEWER_LINES, REDUCED, COMPACT):
        with monkeypatch.context() as patch:
            patch.setattr(size_budget, "_likely_level", lambda _report, level=level: level)
            found.append(card.bundle(report))
    assert found == [card.bundle(report)] * 4


def test_omitted_fields_are_null_with_a_reason() -> None:
    """A field that was omitted because of the size limit is null in the card's JSON. The reason is stored
    with the first GPU.
    """
    stored = reductions.reduce(fullest(*map(busy_gpu, range(4))), COMPACT).stored
    assert [one["pcie"] for one in stored["gpus"]] == [None] * 4
    assert stored["gpus"][0]["torch"]["returnable"] is None
    for name in ("pcie", "inactive_split", "returnable"):
        assert stored["gpus"][0]["missing"][name] == "left out of this card"
    assert "time series, link and clock data" in stored["notes"][-1]
    one_with_torch = reports.report(bare_gpu(0, torch=None), busy_gpu(1))
    first = reductions.reduce(one_with_torch, COMPACT).stored["gpus"][0]
    assert (first["torch"], first["missing"]["returnable"]) == (None, "left out of this card")


def test_gpus_that_differ_have_separate_columns() -> None:
    """In the details, GPUs with different values have separate columns.

    If the card has to be smaller, these columns are replaced by one with the range of the values.
    """
    other = gpu(1, sm_occupancy=Level(23.0, 40.0), device_memory=Span(gib(1), gib(2), gib(2)))
    full = rows(reports.report(gpu(0), other, points=20))
    assert [row for row in full if "whole GPU|" in row or "SM occupancy" in row] == [
        "|whole GPU|12.9 → 16.1 GiB|16.1 GiB (sampled)|1.0 → 2.0 GiB|2.0 GiB (sampled)",
        "|SM occupancy|4.4 %|24 %|23 %|40 %",
    ]
    assert "||GPU 0, mean|GPU 0, highest|GPU 1, mean|GPU 1, highest" in full
    reduced = rows(fullest(gpu(0), other))
    assert [row for row in reduced if "whole GPU|" in row or "SM occupancy" in row] == [
        "|whole GPU|+1.0 to +3.2 GiB|2.0 to 16.1 GiB (sampled)",
        "|SM occupancy|4.4 to 23 %|24 to 40 %",
    ]


def test_a_value_that_some_gpus_lack_does_not_count_for_all() -> None:
    """In the details, a value that is unknown for a GPU is n/a in the GPU's column. In a column of several
    GPUs, the value tells for how many it is known. The memory of the host is not in a column of a GPU."""
    bare = gpu(1, sm_occupancy=None, process_memory=None, torch=None, throttled=None)
    made = reports.report(gpu(0, throttled={"too hot": 3.0}), bare, points=20)
    full = rows(made)
    assert [row for row in full if row.split("|")[1] in ("SM occupancy", "torch allocated", "throttled")] == [
        "|torch allocated|11.4 → 14.3 GiB|14.6 GiB|n/a|n/a",
        "|SM occupancy|4.4 %|24 %|n/a|n/a",
        "|throttled|too hot 3.0 s||n/a|n/a",
    ]
    place = full.index("|host memory of this process|1.9 → 2.1 GiB|2.4 GiB")
    assert full[place - 1] == "||start → end|peak"
    many = rows(reports.report(bare, *(gpu(n) for n in range(2, 8)), points=20))
    assert "|torch allocated|11.4 → 14.3 GiB (known for 6 of 7 GPUs)|14.6 GiB (known for 6 of 7 GPUs)" in many
    assert "|SM occupancy|4.4 % (known for 6 of 7 GPUs)|24 % (known for 6 of 7 GPUs)" in many


def test_means_of_many_gpus() -> None:
    """For eight GPUs, the values of the hardware counters are ranges in one column."""
    eight = reports.report(*(gpu(n, sm_occupancy=Level(4.0 + n, 20.0)) for n in range(8)), points=20)
    assert "|SM occupancy|4.0 to 11 %|20 %" in rows(eight)
    assert "|PCIe in|4.4 MiB/s|5.8 MiB/s" in rows(eight)


def test_sixteen_gpus_with_reasons() -> None:
    """If sixteen GPUs lack the same values, the reasons are stored with the first GPU. The other GPUs refer
    to it.
    """
    bundle = card.bundle(reports.report(*(bare_gpu(index) for index in range(16))))
    assert size(bundle) <= 20_000
    first, second = bundle[MIME_TYPE]["gpus"][:2]
    assert len(bundle[MIME_TYPE]["gpus"]) == 16
    assert first["missing"]["power_w"] == "not supported by this GPU"
    assert second["missing"]["power_w"] == "as for GPU 0"


def test_a_reason_has_its_id_once() -> None:
    """If GPUs of a reduced card lack a value for the same reason, the text and the id of the reason are
    stored only with the first GPU. The other GPUs refer to it."""
    unsupported = {"power_w": message("not-supported", "not supported by this GPU")}
    lacking = [bare_gpu(index, missing=unsupported) for index in range(2)]
    level = REDUCED
    stored = reductions.reduce(reports.report(*lacking), level).stored["gpus"]
    assert [one["missing_ids"] for one in stored] == [{"power_w": {"id": "not-supported", "params": {}}}, {}]
    full = card.bundle(reports.report(*lacking))[MIME_TYPE]["gpus"]
    assert [one["missing_ids"] for one in full] == [{"power_w": {"id": "not-supported", "params": {}}}] * 2
    small = reductions.reduce(reports.report(*lacking), COMPACT).stored["gpus"]
    assert [one["missing_ids"] for one in small] == [{}, {}]


@pytest.mark.parametrize("shown", [True, False])
def test_more_gpus_than_a_card_can_hold(shown: bool) -> None:
    """If not all of 56 MIG slices fit on the card, slices that the run used are kept first, and a note
    contains how many were omitted.
    """
    slices = (gpu(n // 7, mig_index=n % 7, uuid=f"MIG-{n}", shown=shown or n == 50) for n in range(56))
    report = reports.report(*slices)
    bundle = card.bundle(report)
    assert size(bundle) <= 20_000
    stored = bundle[MIME_TYPE]["gpus"]
    assert "MIG-50" in [one["uuid"] for one in stored] or shown
    assert f"{56 - len(stored)} of 56 GPUs" in bundle[MIME_TYPE]["notes"][-1]
    assert f" · memory kept {'+162.4 GiB (56 GPUs)' if shown else '+2.9 GiB'} · " in text(report)


def test_resampling_keeps_the_peak() -> None:
    """If the timeline is reduced to fewer points, it still contains the highest memory value, and its times
    are in order."""
    report = reports.starved()
    assert report.timeline is not None
    series = report.timeline.gpus[0]
    spike = gib(99)
    spiked = replace(series, device_memory=(*series.device_memory[:100], spike, *series.device_memory[101:]))
    report = replace(report, timeline=replace(report.timeline, gpus=(spiked,)))
    reduced = stored(report)["timeline"]
    assert report.timeline is not None
    assert 20 <= len(reduced["t"]) <= 80
    assert max(reduced["gpus"][0]["device_memory"]) == spike
    assert reduced["t"] == sorted(reduced["t"])
    assert reduced["t"][-1] == round(report.timeline.t[-1], 3)


def test_the_users_own_marks_are_kept_first() -> None:
    """If not all marks and printed lines fit on the card, printed lines are omitted first."""
    many = reports.report(gpu(0), marks=marks(180, label="a line of the training log, {n}"))
    values = stored(many)
    kept = values["timeline"]["marks"]
    assert sum(mark["kind"] == "mark" for mark in kept) == 18
    assert len(kept) < 180
    assert f"{180 - len(kept)} of 180 marks and printed lines" in values["notes"][-1]


def test_a_small_report_is_stored_unchanged() -> None:
    """If a report fits on the card, it is stored completely, and has no note about omissions."""
    report = reports.short()
    assert stored(report)["gpus"] == report.to_dict()["gpus"]
    assert stored(report)["notes"] == []


# -- other ways to show a report -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            reports.short,
            "time 2.1 ms · peak memory 15.7 GiB (exact, of 140.4 GiB) · memory kept +64 MiB · GPU 1",
        ),
        (
            reports.ddp,
            "time 14.0 s · peak memory 14.6 GiB (exact, on GPU 0) · memory kept +11.6 GiB (4 GPUs) · "
            "GPU busy 98 % · energy 34.8 kJ · GPUs 0–3",  # noqa: RUF001 a range's dash
        ),
        (
            reports.little_known,
            "time 14.0 s · peak memory 16.1 GiB (sampled, whole GPU) · memory kept +3.2 GiB "
            "(whole GPU) · GPU busy 11 % · GPU 0",
        ),
        (
            reports.replay,
            "time 14.0 s · peak memory 16.1 GiB (sampled, whole GPU 0) · GPU busy 11 % · energy 9.3 kJ · "
            "GPUs 0–3 · a recording",  # noqa: RUF001
        ),
        (reports.unused, "time 2.0 s · no GPU used"),
        (reports.no_gpu, "time 1.2 s · no GPU"),
        (
            reports.failed,
            "time 1.2 s (stopped by an error) · peak memory 14.6 GiB (exact, of 140.4 GiB) · "
            "memory kept +2.9 GiB · GPU busy 11 % · energy 2.3 kJ · GPU 0",
        ),
    ],
)
def test_the_one_line_form(make: Callable[[], Report], line: str) -> None:
    """While ``%gpu watch on`` is in effect, a cell's run is shown as a single line, which contains the values
    that are known.
    """
    bundle = card.line_bundle(make())
    assert bundle is not None
    assert bundle["text/plain"] == line
    assert Page(bundle["text/html"]).text.strip() == line
    assert bundle[MIME_TYPE]["timeline"] is None


def unchanged(**changes: Any) -> Report:
    """Return the report of a short cell that left torch's memory as it was."""
    held = Span(gib(1), gib(1), gib(1))
    torch = TorchMemory(held, held, 0, 0, 0)
    same = gpu(0, torch=torch, process_memory=Span(gib(2), gib(2), gib(2)))
    return replace(reports.report(same, duration=0.2, points=2), **changes)


def grown(**changes: Any) -> Report:
    """Return :func:`unchanged` with other memory of its GPU."""
    made = unchanged()
    return replace(made, gpus=(replace(made.gpus[0], **changes),))


@pytest.mark.parametrize(
    ("report", "silent"),
    [
        (unchanged(), True),
        (replace(reports.unused(), cell=reports.cell(0.2)), True),
        (replace(reports.no_gpu(), cell=reports.cell(0.2)), True),
        (reports.no_gpu(), False),
        (unchanged(cell=reports.cell(0.2, status="error")), False),
        (unchanged(cell=reports.cell(0.2, gpu_tail_s=1.0)), False),
        (reports.short(), False),
        (unchanged(advice=reports.advised().advice), False),
        (unchanged(workers=(reports.worker(),)), False),
        (
            replace(
                unchanged(),
                gpus=(gpu(0, device_memory=Span(None, None, None), torch=None, process_memory=None),),
            ),
            False,
        ),
        (unchanged().with_notes(reports.not_measured("the run")), False),
        (empty_report(CardReport, reports.cell(0.2)), False),
        (replace(reports.replay(), cell=reports.cell(0.2)), True),
        (grown(process_memory=Span(gib(2), gib(7), gib(7))), False),
        (grown(process_memory=Span(gib(2), gib(2), None)), False),
        (grown(torch=TorchMemory(Span(gib(1), gib(1), None), Span(gib(1), gib(1), gib(1)), 0, 0, 0)), False),
        (grown(process_memory=None), False),
    ],
    ids=[
        *("unchanged", "no GPU used", "no GPU", "long", "error", "long on the GPU", "kept memory", "advice"),
        *("workers", "unknown memory", "not measured", "GPUs unknown", "recording", "process grew"),
        *("no process peak", "no torch peak", "GPU grew"),
    ],
)
def test_silence(report: Report, silent: bool) -> None:
    """While ``%gpu watch on`` is in effect, there is no card below a cell that ended well, was short and
    changed nothing. A failure to measure is never silent. What changes in a recording is not the cell's."""
    assert (card.line_bundle(report) is None) == silent


def test_memory_that_the_figures_do_not_show() -> None:
    """If torch's memory is as it was, but the process's memory grew, the one-line card has both kinds of
    memory."""
    bundle = card.line_bundle(grown(process_memory=Span(gib(2), gib(7), gib(7))))
    assert bundle is not None
    assert bundle["text/plain"].endswith(
        "memory kept ±0 · GPU busy 11 % · energy 2.3 kJ · GPU 0 H200 (cuda:0) · torch 1.0 → 1.0 GiB · "
        "this notebook 2.0 → 7.0 of 140.4 GiB"
    )


def test_a_report_displays_as_its_card() -> None:
    """If a report is the result of a cell, its card is displayed. The card's JSON has the documented
    fields.
    """
    report = reports.as_card(reports.starved())
    shown, _ = DisplayFormatter().format(report)  # type: ignore[no-untyped-call]
    assert shown == card.bundle(reports.starved())
    assert list(shown) == ["text/plain", "text/html", MIME_TYPE]
    assert set(shown[MIME_TYPE]) == {field.name for field in fields(Report)} | {"totals"}
    assert shown[MIME_TYPE]["schema"] == 1


def test_a_report_in_print_and_in_other_objects() -> None:
    """print() shows a report as its card. In a list, the report is shown as one line.

    A changed copy of a report still displays as a card.
    """
    report = reports.as_card(reports.starved())
    line = text(report).splitlines()[0]
    assert str(report) == text(report)
    assert repr([report]) == f"[<gpuwidget report: {line}>]"
    assert copy.copy(report) == report
    assert isinstance(replace(report, timeline=None), CardReport)


def test_many_reports_display_as_a_table() -> None:
    """``gpuwidget.reports()`` is displayed as a table with one line per run. If a run's GPUs are unknown, its
    line doesn't claim that there is none."""
    several = Reports(
        [
            replace(reports.starved(), cell=reports.cell(label="warm-up")),
            reports.unused(),
            empty_report(CardReport, reports.cell(2.0)),
            replace(reports.failed(), cell=reports.cell(1.2, status="error", execution_count=None)),
        ]
    )
    assert repr(several) == (
        "  cell    label      time     memory Δ      peak  util  energy  status\n"
        "  In [3]  warm-up  14.0 s     +2.9 GiB  14.6 GiB  11 %  2.3 kJ      ok\n"
        "  In [3]            2.0 s  no GPU used                              ok\n"
        "  In [3]            2.0 s     GPUs n/a                              ok\n"
        "                    1.2 s     +2.9 GiB  14.6 GiB  11 %  2.3 kJ   error"
    )
    bundle, _ = several._repr_mimebundle_()
    assert bundle["text/plain"] == repr(several)
    assert Page(bundle["text/html"]).tags <= TAGS
    assert "|In [3]|warm-up|14.0 s|+2.9 GiB|14.6 GiB|11 %|2.3 kJ|ok" in Page(bundle["text/html"]).text
    assert repr(Reports()) == "no reports yet"


def test_the_table_of_reports_marks_means_and_samples() -> None:
    """If a run used several GPUs, the table's utilization is called a mean. A peak that is not torch's exact
    count is marked as sampled."""
    assert repr(Reports([reports.ddp(), reports.no_torch()])) == (
        "  cell    label    time   memory Δ                peak  mean util   energy  status\n"
        "  In [3]         14.0 s  +11.6 GiB            14.6 GiB       98 %  34.8 kJ      ok\n"
        "  In [3]         14.0 s   +3.2 GiB  15.6 GiB (sampled)       11 %   2.3 kJ      ok"
    )


def test_memory_of_child_processes() -> None:
    """If child processes held memory, the card shows the memory of this process and its children together
    instead of torch's memory."""
    made = reports.report(gpu(0, children=WORKERS))
    first, second, *_ = text(made).splitlines()
    assert "peak memory 15.6 GiB (sampled, of 140.4 GiB) · memory kept +3.2 GiB · " in first
    assert "this notebook 12.4" in second
    # Only the details show torch's memory.
    assert "|torch allocated|11.4 → 14.3 GiB|14.6 GiB" in rows(made)
    of_two = text(reports.report(gpu(0, children=WORKERS), gpu(1)))
    assert "whole GPU Δ  this process Δ  process peak (sampled)  util" in of_two
    assert "<img" not in html(made)
    crowd = tuple(gpu(index, children=(HOSTILE * 4,) * 4) for index in range(16))
    assert size(card.bundle(replace(reports.sixteen(), gpus=crowd))) <= LIMIT


def of_children(index: int = 0, peak: float = 3.7, **changes: Any) -> GpuReport:
    """Return a GPU on which only a child process held memory."""
    held = Span(0, 0, reports.gib(peak))
    children = {"children": ("python child.py",), "children_memory": held}
    return gpu(index, **{"torch": None, "torch_device": None, "process_memory": held, **children, **changes})


def test_memory_that_only_children_held() -> None:
    """If only child processes held memory, the first line of the card states this, and the second line names
    their program."""
    made = reports.report(of_children())
    first, second, *_ = text(made).splitlines()
    assert "peak memory 3.7 GiB (sampled, of 140.4 GiB, in child processes) · " in first
    assert second == (
        "  GPU 0 H200 · this notebook 0 → 0 of 140.4 GiB, in child processes up to 3.7 GiB (python child.py)"
        " · started 2026-11-21 10:04"
    )
    assert (
        "3.7 GiB (sampled, of 140.4 GiB, in child processes)" in (card.line_bundle(made) or {})["text/plain"]
    )
    assert rows(made)[2:4] == [
        "|this notebook|0 → 0 MiB|3.7 GiB (sampled)",
        "|of which child processes (python child.py)|0 → 0 MiB|3.7 GiB (sampled)",
    ]


def test_memory_that_children_and_the_notebook_held() -> None:
    """If this notebook and its child processes held memory, the card shows the children's part and the total.

    With several GPUs, the children's part is shown for the GPU on which it was largest.
    """
    whole = Span(reports.gib(1), reports.gib(1), reports.gib(5))
    first, second, *_ = text(reports.report(of_children(process_memory=whole))).splitlines()
    assert "peak memory 5.0 GiB (sampled, of 140.4 GiB, with child processes) · " in first
    assert (
        "this notebook 1.0 → 1.0 of 140.4 GiB, in child processes up to 3.7 GiB (python child.py)" in second
    )
    first, second, *_ = text(reports.report(of_children(), of_children(1, 2.0))).splitlines()
    assert "peak memory 3.7 GiB (sampled, on GPU 0, in child processes) · " in first
    assert second.endswith(
        ", in child processes up to 3.7 GiB on GPU 0 (python child.py) · started 2026-11-21 10:04"
    )


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("The GPU waits for its data. Loading took 97 %.", "<b>The GPU waits for its data.</b> Loading took"),
        ("The GPU waits for its data: 61 % of the time.", "<b>The GPU waits for its data:</b> 61 %"),
        (f"{'long ' * 12}first sentence. A second one.", "long first sentence. A second one."),
        ("Only one sentence.", "Only one sentence."),
        (
            "The GPU waits in `for a in b: pass` now. Why?",
            "<b>The GPU waits in <code>for a in b: pass</code> now.</b>",
        ),
    ],
)
def test_the_title_of_a_piece_of_advice(said: str, title: str) -> None:
    """A short first clause of a piece of advice is its title, in bold. A long or an only clause is not."""
    (advice, *_) = reports.advised().advice
    made = html(replace(reports.advised(), advice=(replace(advice, text=said),)))
    assert title in made
    assert ("<b>The GPU" in made) == title.startswith("<b>")


def test_one_piece_of_advice_is_open() -> None:
    """One piece of advice is shown below the chart, what to type marked as code. At most two others are in
    the details. HTML markup in them is escaped.
    """
    made = html(reports.advised())
    opened, _, folded = made.partition("<details")
    assert "<b>The GPU waits for its data:</b> 61 %" in opened
    assert "<code>for x, y in loader:</code>" in opened
    assert "<code>num_workers=0, pin_memory=False</code>" in opened
    typed = "num_workers=15, pin_memory=True, persistent_workers=True"
    assert f"<code class='gpuwidget-copy'>{typed}</code>" in opened
    assert "ran at a lower clock" not in opened
    lines = Page(folded).text.splitlines()
    assert "More advice (2)" in lines
    second = reports.advised().advice[1]
    assert f"{second.text} {second.fix}" in lines
    assert f"(unsure) {HOSTILE} moved 5.0 GiB/s {HOSTILE}" in lines
    assert "A fourth" not in made
    assert "  advice: The GPU waits for its data: 61 %" in text(reports.advised())


def test_evidence_of_advice_is_in_the_details() -> None:
    """For each piece of advice, the details contain its evidence with units. One row shows where the
    documentation of the rules is.
    """
    assert facts(reports.advised())[:4] == [
        (
            "input-pipeline",
            "share 61.2 · gpu busy 4.0 · utilization 11.0 · call DataLoader._next_data · cores 15.5 · "
            "shared memory free 60.0 GiB · num workers 0 · pin memory False",
        ),
        ("throttled", "too hot 12.0 s · run 14.0 s · gpus 1"),
        ("copies", f"call {HOSTILE}"),
        (
            "Rules",
            "docs/reference/advice.md explains each rule; it is in the folder of gpuwidget.__file__ "
            "(in a clone: in its root)",
        ),
    ]


def test_the_hardware_in_the_details() -> None:
    """The details contain the mean and the highest reading of each hardware metric. They also contain how
    long the clock was throttled, and why."""
    table = rows(reports.report(reports.gpu(0, throttled={"too hot": 3.0})))
    assert table[table.index("||mean|highest") + 1 :] == [
        "|utilization|11 %|96 %",
        "|SM|10 %|62 %",
        "|SM occupancy|4.4 %|24 %",
        "|tensor|0.1 %|1.5 %",
        "|float32 pipes|8.1 %|42 %",
        "|DRAM|3.1 %|20 %",
        "|power|165 W|403 W",
        "|PCIe in|4.4 MiB/s|5.8 MiB/s",
        "|PCIe out|1.1 MiB/s|2.3 MiB/s",
        "|NVLink in|0 MiB/s|0 MiB/s",
        "|NVLink out|0 MiB/s|0 MiB/s",
        "|throttled|too hot 3.0 s|",
    ]


def test_the_json_contains_the_reports_advice() -> None:
    """For each piece of advice, the card's JSON contains the rule, the evidence, and whether the advice is
    sure.
    """
    stored = card.bundle(reports.advised())[MIME_TYPE]["advice"]
    assert [one["rule"] for one in stored] == ["input-pipeline", "throttled", "copies"]
    assert stored[1]["evidence"] == {"held_down_s": {"too hot": 12.0}, "run_s": 14.0, "gpus": [1]}
    assert (stored[0]["sure"], stored[2]["sure"]) == (True, False)


def test_sixteen_gpus_keep_the_first_advice() -> None:
    """The card of 16 GPUs has a row for each GPU, and the first piece of advice."""
    report = replace(reports.sixteen(), advice=reports.advised().advice)
    bundle = card.bundle(report)
    assert size(bundle) <= LIMIT
    stored = bundle[MIME_TYPE]
    assert [one["rule"] for one in stored["advice"]] == ["input-pipeline"]
    assert stored["advice"][0]["evidence"]["num_workers"] == 0
    assert len(stored["gpus"]) == 16
    assert "<b>The GPU waits for its data" in bundle["text/html"]


def test_the_figures_of_a_run_that_ran_out_of_memory_are_folded() -> None:
    """Below the card of an out-of-memory error, the run's own card is folded, except that a GPU was lost."""
    made = card.bundle(reports.lost(), {"text/plain": "oom", "text/html": "<b>oom</b>"})["text/html"]
    outside, _, inside = made.partition("<details><summary>Figures of this run</summary>")
    assert outside.startswith("<b>oom</b>")
    assert ["lost since" in part for part in (outside, inside)] == [True, True]
    assert ["peak memory" in part for part in (outside, inside)] == [False, True]
