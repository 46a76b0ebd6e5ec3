"""Tests of the card of a run: its text, HTML, JSON and size. Also tests of the other ways to show a
report.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from html.parser import HTMLParser
from typing import Any

import helpers_reports as reports
import pytest
from helpers_reports import HOSTILE, bare_gpu, gib, gpu, marks
from IPython.core.formatters import DisplayFormatter

from gpuwidget.measure.run_report import empty_report
from gpuwidget.model.messages import MessageId
from gpuwidget.model.report import (
    MIME_TYPE,
    CodeTime,
    GpuReport,
    Level,
    LineMemory,
    LineTime,
    Report,
    Span,
    TorchMemory,
)
from gpuwidget.views import card, size_budget
from gpuwidget.views.card import CardReport, Reports
from gpuwidget.views.card_gpus import table_columns
from gpuwidget.views.card_summary import total_energy
from gpuwidget.views.detail_levels import COMPACT, REDUCED
from gpuwidget.views.size_budget import LIMIT
from gpuwidget.views.sparkline import UNTRUSTED

WORKERS = ("python train.py --rank 1", HOSTILE)
EVERY = pytest.mark.parametrize("make", reports.ALL.values(), ids=reports.ALL.keys())
TAGS = {
    *("div", "span", "b", "em", "i", "br", "pre", "details", "summary"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "path", "metadata"),
}
ATTRIBUTES = {
    *("style", "title", "scope", "rowspan", "cellpadding", "height", "role", "aria-label", "viewbox"),
    *("preserveaspectratio", "d", "fill", "stroke", "stroke-width", "stroke-dasharray", "opacity"),
    "vector-effect",
}


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the time zone to UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


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
        self._svg = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self.labels += [value or "" for name, value in attrs if name in ("title", "aria-label")]
        self._svg = self._svg or tag == "svg"
        if tag in ("div", "tr", "br", "summary", "pre"):
            self.text += "\n"
        elif tag in ("td", "th"):
            self.text += "|"

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self._svg = False

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\N{NO-BREAK SPACE}", " ")
        if self._svg:
            self.inside_svg += data


def html(report: Report) -> str:
    """Return the full card as HTML."""
    made = card.bundle(report)["text/html"]
    assert isinstance(made, str)
    return made


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


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (reports.starved, "14.0 s · +2.9 GiB, peak 14.6 GiB · GPU utilization 11 % · 2.3 kJ"),
        (
            reports.ddp,
            "14.0 s · +11.6 GiB summed over 4 GPUs, peak 14.6 GiB on GPU 0 · mean GPU utilization 98 % · "
            "34.8 kJ",
        ),
        (
            reports.replay,
            "14.0 s · n/a summed over 4 GPUs, all processes, sampled peak 16.1 GiB on GPU 0 · "
            "mean GPU utilization 11 % · 9.3 kJ",
        ),
        (reports.no_torch, "14.0 s · +3.2 GiB, sampled peak 15.6 GiB · GPU utilization 11 % · 2.3 kJ"),
        (
            reports.little_known,
            "14.0 s · +3.2 GiB on the whole GPU, sampled peak 16.1 GiB · GPU utilization 11 % · energy n/a",
        ),
        (
            reports.lost,
            "14.0 s · +5.8 GiB summed over 2 GPUs, peak 14.6 GiB on GPU 0 · mean GPU utilization "
            "11 % · at least 2.3 kJ",
        ),
        (
            reports.failed,
            "Stopped by an error after 1.2 s · +2.9 GiB, peak 14.6 GiB · GPU utilization 11 % · 2.3 kJ",
        ),
        (
            reports.interrupted,
            "Interrupted after 42.0 s · +2.9 GiB, peak 14.6 GiB · GPU utilization 11 % · 2.3 kJ",
        ),
        (reports.short, "2.1 ms · +64 MiB, peak 15.7 GiB · GPU utilization and energy n/a"),
        (
            reports.mig,
            "14.0 s · +5.8 GiB summed over 2 GPUs, peak 14.6 GiB on GPU 0 MIG 0 · GPU utilization n/a · 4.6 "
            "kJ",
        ),
        (reports.unused, "2.0 s · no GPU used · host memory +205 MiB, peak 2.4 GiB"),
        (reports.no_gpu, "1.2 s · no GPU · host memory +205 MiB, peak 2.4 GiB"),
    ],
)
def test_headline(make: Callable[[], Report], line: str) -> None:
    """The first line of the card contains time, memory, utilization and energy. If the run failed or was
    interrupted, the line starts with this status.
    """
    assert text(make()).splitlines()[0] == line
    assert Page(html(make())).text.strip().splitlines()[0] == line


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
def test_the_day_of_a_saved_card_is_visible_without_the_details(make: Callable[[], Report]) -> None:
    """A card shows on which day and at what time its run started, because a saved notebook is read later."""
    report = make()
    started = time.strftime("started %Y-%m-%d %H:%M", time.localtime(report.cell.started))
    assert any(line.endswith(started) for line in text(report).splitlines()[:3])
    assert started in Page(html(report).partition("<details")[0]).text


def test_the_peak_is_that_of_the_gpu_that_worked() -> None:
    """If several GPUs have the same peak, the first line names the GPU whose memory changed most. A GPU with
    a visibly higher peak is named even if its memory did not change."""

    def holding(index: int, start: float, peak: float) -> GpuReport:
        torch = gpu(index).torch
        assert torch is not None
        return gpu(index, torch=replace(torch, allocated=Span(gib(start), gib(start), gib(peak))))

    tied = text(reports.report(holding(0, 11.5, 11.5), holding(1, 2.0, 11.49))).splitlines()[0]
    assert ", peak 11.5 GiB on GPU 1 · " in tied
    higher = text(reports.report(holding(0, 11.5, 11.5), holding(1, 2.0, 11.4))).splitlines()[0]
    assert ", peak 11.5 GiB on GPU 0 · " in higher


def test_the_card_in_a_terminal() -> None:
    """In a terminal, the card is a few lines of text and a table with aligned columns."""
    assert text(reports.starved()) == (
        "14.0 s · +2.9 GiB, peak 14.6 GiB · GPU utilization 11 % · 2.3 kJ\n"
        "  GPU 1 H200 (cuda:1) · torch 11.4 → 14.3 GiB · this notebook 12.4 → 15.6 of 140.4 GiB"
        " · started 2026-11-21 10:04\n"
        "  GPU              whole GPU Δ  torch Δ  torch peak  reserved  util  SM  tensor  DRAM  power  "
        "energy\n"
        "                           GiB      GiB         GiB       GiB     %   %       %     %      W      "
        "kJ\n"
        "  1 H200 · cuda:1         +3.2     +2.9        14.6      15.0    11  10     0.1   3.1    165     "
        "2.3\n"
        "  GPU 1, mean: SM occupancy 4.4 % · float32 pipes 8.1 % · PCIe 4.4 MiB/s in, 1.1 MiB/s out · "
        "NVLink 0 MiB/s in, 0 MiB/s out"
    )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (reports.no_gpu, "The NVIDIA driver is not installed here. Install it to see GPUs."),
        (reports.unused, "This notebook holds no memory on any of the 2 GPUs here."),
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
    assert "1 out-of-memory error on GPU 0" in unfolded
    assert "torch flushed its cache 3 times on GPU 0 to find memory" in unfolded


def test_warnings_of_several_gpus_are_one_line_each() -> None:
    """If several GPUs have the same kind of warning, one line covers all of them."""

    def tight(index: int, ooms: int, flushes: int) -> GpuReport:
        torch = gpu(index).torch
        assert torch is not None
        return gpu(index, torch=replace(torch, ooms=ooms, alloc_retries=flushes))

    lines = text(reports.report(*(tight(n, 1, 3 + n // 3) for n in range(4)))).splitlines()
    assert lines[2:4] == [
        "  1 out-of-memory error on each of GPUs 0–3",  # noqa: RUF001 a range's dash
        "  torch flushed its cache 3 to 4 times on each of GPUs 0–3 to find memory",  # noqa: RUF001
    ]
    lines = text(reports.report(tight(0, 0, 0), tight(1, 2, 1))).splitlines()
    assert lines[2:4] == [
        "  2 out-of-memory errors on GPU 1",
        "  torch flushed its cache 1 time on GPU 1 to find memory",
    ]


def test_gpu_work_after_the_code() -> None:
    """If the GPU was still working when the code ended, the first line shows for how long it worked after the
    code, next to the duration of the code."""
    late = reports.report(gpu(0), duration=0.02, cell=reports.cell(0.02, gpu_tail_s=1.4))
    assert text(late).startswith("20 ms + 1.4 s on the GPU · ")


def test_the_label_is_above_the_card() -> None:
    """If a watch has a label, the label is the first line of its card, so that the cards of several watches
    in a cell can be told apart.
    """
    named = replace(reports.starved(), cell=reports.cell(label="forward pass"))
    assert text(named).splitlines()[0] == "forward pass:"
    assert Page(html(named)).text.strip().splitlines()[0] == "forward pass"


# -- unknown values -------------------------------------------------------------------------------------


def test_unknown_values_read_na_with_their_reason() -> None:
    """An unknown value is shown as 'n/a', never as 0. The details contain the reason."""
    page = Page(html(reports.little_known()))
    row = next(line for line in page.text.splitlines() if line.startswith("|0|"))
    assert row == "|0|+3.2|16.1|11|n/a|n/a"
    for reason in (
        "Not known: memory of this process: the driver does not list processes",
        "Not known: torch's memory: torch is not loaded",
        "Not known: SM activity, SM occupancy, tensor activity, float32 activity, DRAM activity, PCIe, "
        "NVLink: "
        "the hardware counters (GPM, Hopper and later) are not available here",
        "Not known: power, energy: not supported by this GPU",
    ):
        assert reason in page.text.splitlines()


def test_unified_memory_is_labelled() -> None:
    """The card says that a GPU uses the host's memory."""
    shared = reports.report(reports.gpu(0, name="NVIDIA GB10", unified_memory=True))
    assert "GPU 0 GB10, unified memory" in Page(html(shared)).text
    assert "GPU 0 GB10, unified memory" in text(shared)


def test_a_value_unknown_for_one_gpu_names_it() -> None:
    """On the card of several GPUs, the reason for an unknown value names the GPU to which it applies."""
    lines = Page(html(reports.lost())).text.splitlines()
    fields = "memory of the whole GPU, memory of this process, energy"
    assert f"Not known: {fields} of GPU 1: the GPU is lost" in lines


def test_a_value_unknown_without_a_reason() -> None:
    """If a value is unknown and the report contains no reason, the details state that no reason was given."""
    report = reports.report(gpu(0, energy_j=None))
    assert "Not known: energy: no reason was given" in Page(html(report)).text


@pytest.mark.parametrize(
    ("values", "headline", "column"),
    [
        ({"energy_j": None, "energy_at_least_j": 4100.0}, "at least 4.1 kJ", "≥ 4.1"),
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
        "14.0 s · +2.9 GiB, peak 14.6 GiB · GPU utilization and energy n/a"
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
    assert page.inside_svg == (UNTRUSTED if drawn else "")
    stripped = re.sub(r"</?(svg|path|metadata)\b[^>]*>", "", html(make()))
    assert "<path" not in stripped
    assert Page(re.sub(r" style='[^']*'", "", stripped)).text == page.text


@EVERY
def test_colours_have_a_fallback(make: Callable[[], Report]) -> None:
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
    line = card.line_bundle(reports.hostile())["text/html"]
    assert "<img" not in line
    table = Reports([reports.hostile()])._repr_mimebundle_()[0]["text/html"]
    assert "<img" not in table


def test_escape_sequences_are_removed() -> None:
    """Terminal escape sequences in printed lines, such as those of a progress bar, are removed."""
    coloured = reports.report(gpu(0), marks=marks(1, label="\x1b[31mred\x1b[0m\rbar\u202eend"))
    assert card.bundle(coloured)[MIME_TYPE]["timeline"]["marks"][0]["label"] == "red bar end"


def test_screen_readers() -> None:
    """For screen readers, the chart has a label, and the header cells of the table have a scope."""
    made = html(reports.starved())
    label = "Utilization and memory over 14.0 s: +2.9 GiB, peak 14.6 GiB, GPU utilization 11 %, 2.3 kJ"
    assert f"<svg role='img' aria-label='{label}'" in made
    assert made.count("<th scope='col'") == 11
    assert made.count("<th scope='row'") == 1


def test_errors_have_text_and_a_colour() -> None:
    """The card of a failed run starts with 'Stopped by an error', and has a left border in the theme's error
    colour.
    """
    made = html(reports.failed())
    assert "border-left:3px solid var(--jp-error-color1,#e5393f)" in made
    assert "<span style='color:var(--jp-error-color1,#e5393f)'>Stopped by an error after 1.2 s</span>" in made


def test_marks_are_listed_with_their_times() -> None:
    """The details list marks and printed lines with their times. Marks are labelled 'mark'."""
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
    assert size(card.line_bundle(make())) <= LIMIT


def test_memory_left_behind_is_listed_by_holder() -> None:
    """The details have a line for each holder of memory that the run did not free, with all names of the
    holder, and a line about the fragmentation of torch's cache."""
    html = card.bundle(reports.left_behind())["text/html"]
    lines = [line for line in Page(html).text.splitlines() if "behind" in line or "Frag" in line]
    assert lines == [
        "Left behind: optimizer (AdamW): 6.0 GiB",
        "Left behind: model (Net), also optimizer, trainer.model: 3.0 GiB",
        "Left behind: Out[3], also _, _3: 512 MiB",
        "Left behind: autograd or unknown: 512 MiB",
        "Fragmentation: 3.0 GiB of the 13.0 GiB reserved by torch is not in tensors; 2.0 GiB of it "
        "can't be freed, because it shares segments with tensors (fragmentation); the cache was not flushed",
    ]
    in_a_terminal = text(reports.left_behind()).splitlines()
    assert [line.strip().lower() for line in in_a_terminal if "behind" in line or "frag" in line] == [
        line.lower() for line in lines
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
        return [line.removeprefix("Fragmentation: ") for line in lines if "Frag" in line]

    assert lines_of(cached(0, 3)) == [
        "3.0 GiB of the 13.0 GiB reserved by torch is not in tensors; up to 3.0 GiB of it can be "
        "freed (%gpu free); the cache was not flushed"
    ]
    assert lines_of(cached(0, 1, 2), cached(1, 1, 2), cached(2, 0, None)) == [
        "3.0 GiB of the 13.0 GiB reserved by torch is not in tensors on each of GPUs 0, 1; up to "
        "1.0 GiB of it can be freed (%gpu free), the rest shares segments with tensors; the cache "
        "was flushed 2 times",
        "3.0 GiB of the 13.0 GiB reserved by torch is not in tensors on GPU 2; none of it can be "
        "freed, because it shares segments with tensors; the number of cache flushes is unknown",
    ]
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
    notes = [line for line in lines if line.startswith("Note: A sentence")]
    assert len(notes) == 3
    assert all(len(note) >= 120 for note in notes)
    assert sum("`loss.backward()`: 3.0 GiB at the peak" in line for line in lines) >= 3
    rests = [line for line in lines if line.startswith("Advice input-pipeline:")]
    assert [line for line in rests if "num workers 0" in line] == rests != []
    assert sum(line.startswith("Left behind: ") for line in lines) >= 2
    names = "GPU 0" if count == 1 else "GPUs 0–3"  # noqa: RUF001 a range's dash
    assert sum(line.startswith(f"{names}, memory: ") for line in lines) == 1
    stored = bundle[MIME_TYPE]
    assert len(stored["lines"]) >= 3
    whole = report.to_dict()
    for kept, gpu_values in zip(stored["gpus"], whole["gpus"], strict=True):
        # A small card leaves out rare fields without a value.
        assert gpu_values.keys() - kept.keys() <= {"energy_at_least_j", "energy_error_j", "unified_memory"}
        assert kept["torch"].keys() == gpu_values["torch"].keys()
        assert kept["children"] == ["torchrun train.py"]


def test_omitted_fields_are_null_with_a_reason() -> None:
    """A field that was omitted because of the size limit is null in the card's JSON. The reason is stored
    with the first GPU.
    """
    stored = card.bundle(fullest(*map(busy_gpu, range(4))))[MIME_TYPE]
    assert [one["pcie"] for one in stored["gpus"]] == [None] * 4
    assert stored["gpus"][0]["torch"]["returnable"] is None
    for name in ("pcie", "inactive_split", "returnable"):
        assert stored["gpus"][0]["missing"][name] == "left out of this card"
    assert "in its JSON: time series, link and clock data" in stored["notes"][-1]
    one_with_torch = size_budget.reduce(reports.report(bare_gpu(0, torch=None), busy_gpu(1)), COMPACT)
    first = size_budget.to_json(one_with_torch)["gpus"][0]
    assert (first["torch"], first["missing"]["returnable"]) == (None, "left out of this card")


def test_gpus_that_differ_have_separate_lines() -> None:
    """In the details, GPUs with different values have separate lines.

    If the card has to be smaller, these lines are replaced by one line with the range of the values.
    """
    other = gpu(1, sm_occupancy=Level(23.0, 40.0), device_memory=Span(gib(1), gib(2), gib(2)))
    full = Page(html(reports.report(gpu(0), other, points=20))).text.splitlines()
    assert [line.partition(" ·")[0] for line in full if ", mean" in line or ", memory" in line] == [
        "GPU 0, memory: whole GPU 12.9 → 16.1 GiB, sampled peak 16.1 GiB",
        "GPU 1, memory: whole GPU 1.0 → 2.0 GiB, sampled peak 2.0 GiB",
        "GPU 0, mean: SM occupancy 4.4 %",
        "GPU 1, mean: SM occupancy 23 %",
    ]
    reduced = Page(html(fullest(gpu(0), other))).text.splitlines()
    assert [line.partition(" ·")[0] for line in reduced if ", mean" in line or ", memory" in line] == [
        "GPUs 0, 1, memory: whole GPU +1.0 to +3.2 GiB, sampled peak 2.0 to 16.1 GiB",
        "GPUs 0, 1, mean: SM occupancy 4.4 to 23 %",
    ]


def test_means_of_many_gpus() -> None:
    """For eight GPUs, the mean values of the hardware counters are shown as ranges in one line, both in HTML
    and in text."""
    eight = reports.report(*(gpu(n, sm_occupancy=Level(4.0 + n, 20.0)) for n in range(8)), points=20)
    line = (
        "GPUs 0–7, mean: SM occupancy 4.0 to 11 % · float32 pipes 8.1 % · PCIe 4.4 MiB/s in, "  # noqa: RUF001
        "1.1 MiB/s out · NVLink 0 MiB/s in, 0 MiB/s out"
    )
    assert line in Page(html(eight)).text.splitlines()
    assert f"  {line}" in text(eight).splitlines()


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
    unsupported = {"power_w": MessageId("not-supported", {})}
    lacking = [bare_gpu(index, missing_ids=unsupported) for index in range(2)]
    level = REDUCED
    stored = size_budget.to_json(size_budget.reduce(reports.report(*lacking), level))["gpus"]
    assert [one["missing_ids"] for one in stored] == [{"power_w": {"id": "not-supported", "params": {}}}, {}]
    full = card.bundle(reports.report(*lacking))[MIME_TYPE]["gpus"]
    assert [one["missing_ids"] for one in full] == [{"power_w": {"id": "not-supported", "params": {}}}] * 2
    small = size_budget.to_json(size_budget.reduce(reports.report(*lacking), COMPACT))["gpus"]
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
    change = "+162.4 GiB summed over 56 GPUs" if shown else "+2.9 GiB"
    assert text(report).startswith(f"14.0 s · {change}, peak 14.6 GiB")


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
        (reports.short, "2.1 ms · +64 MiB on GPU 1 · peak 15.7 GiB"),
        (
            reports.ddp,
            "14.0 s · +11.6 GiB summed over 4 GPUs · peak 14.6 GiB on GPU 0 · mean GPU utilization 98 % · "
            "34.8 kJ",
        ),
        (
            reports.little_known,
            "14.0 s · +3.2 GiB on whole GPU 0 · sampled peak 16.1 GiB · GPU utilization 11 %",
        ),
        (
            reports.replay,
            "14.0 s · n/a summed over 4 GPUs, all processes · sampled peak 16.1 GiB on GPU 0 · "
            "mean GPU utilization 11 % · 9.3 kJ"
            " · a recording",
        ),
        (reports.unused, "2.0 s · no GPU used"),
        (reports.no_gpu, "1.2 s · no GPU"),
        (
            reports.failed,
            "Stopped by an error after 1.2 s · +2.9 GiB on GPU 0 · peak 14.6 GiB · GPU utilization 11 % · "
            "2.3 kJ",
        ),
    ],
)
def test_the_one_line_form(make: Callable[[], Report], line: str) -> None:
    """While ``%gpu watch on`` is in effect, a cell's run is shown as a single line, which contains the values
    that are known.
    """
    bundle = card.line_bundle(make())
    assert bundle["text/plain"] == line
    assert Page(bundle["text/html"]).text.strip() == line
    assert bundle[MIME_TYPE]["timeline"] is None


def as_card(report: Report) -> CardReport:
    """Return ``report`` as the type of report that a run returns."""
    return CardReport(**{field.name: getattr(report, field.name) for field in fields(report)})


def test_a_report_displays_as_its_card() -> None:
    """If a report is the result of a cell, its card is displayed. The card's JSON has the documented
    fields.
    """
    report = as_card(reports.starved())
    shown, _ = DisplayFormatter().format(report)  # type: ignore[no-untyped-call]
    assert shown == card.bundle(reports.starved())
    assert list(shown) == ["text/plain", "text/html", MIME_TYPE]
    assert set(shown[MIME_TYPE]) == {field.name for field in fields(Report)} | {"totals"}
    assert shown[MIME_TYPE]["schema"] == 1


def test_a_report_in_print_and_in_other_objects() -> None:
    """print() shows a report as its card. In a list, the report is shown as one line.

    A changed copy of a report still displays as a card.
    """
    report = as_card(reports.starved())
    line = "14.0 s · +2.9 GiB, peak 14.6 GiB · GPU utilization 11 % · 2.3 kJ"
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
    assert "+3.2 GiB, sampled peak 15.6 GiB" in first
    assert "this notebook 12.4" in second
    # The table shows the memory of the processes, and only the details show torch's.
    assert not re.search("process peak|torch peak|reserved", text(made))
    assert "torch allocated 11.4 → 14.3 GiB, peak 14.6 GiB" in Page(html(made)).text
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
    assert ", sampled peak 3.7 GiB in child processes · " in first
    assert second == (
        "  GPU 0 H200 · this notebook 0 → 0 of 140.4 GiB, in child processes up to 3.7 GiB (python child.py)"
        " · started 2026-11-21 10:04"
    )
    assert "sampled peak 3.7 GiB in child processes" in card.line_bundle(made)["text/plain"]
    page = Page(html(made)).text
    assert (
        "this notebook 0 → 0 MiB, sampled peak 3.7 GiB · of which "
        "child processes 0 → 0 MiB, sampled peak 3.7 GiB" in page
    )
    assert "in child processes up to 3.7 GiB (python child.py)" in page.replace("\xa0", " ")


def test_memory_that_children_and_the_notebook_held() -> None:
    """If this notebook and its child processes held memory, the card shows the children's part and the total.

    With several GPUs, the children's part is shown for the GPU on which it was largest.
    """
    whole = Span(reports.gib(1), reports.gib(1), reports.gib(5))
    first, second, *_ = text(reports.report(of_children(process_memory=whole))).splitlines()
    assert ", sampled peak 5.0 GiB with child processes · " in first
    assert (
        "this notebook 1.0 → 1.0 of 140.4 GiB, in child processes up to 3.7 GiB (python child.py)" in second
    )
    first, second, *_ = text(reports.report(of_children(), of_children(1, 2.0))).splitlines()
    assert ", sampled peak 3.7 GiB on GPU 0 in child processes · " in first
    assert second.endswith(
        ", in child processes up to 3.7 GiB on GPU 0 (python child.py) · started 2026-11-21 10:04"
    )


def test_advice_is_below_the_headline() -> None:
    """Below the first line, at most three pieces of advice are shown with their text and fix. HTML markup in
    them is escaped.
    """
    page = Page(html(reports.advised()))
    lines = page.text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("Advice: The GPU waits for its data"))
    assert lines[first] == (
        "Advice: The GPU waits for its data: 61 % of the time went to line 7 `for x, y in loader:` in "
        "DataLoader._next_data, and the GPU was 4 % busy meanwhile. loader has num_workers=0, "
        "pin_memory=False "
        "now. Try num_workers=15, pin_memory=True, persistent_workers=True."
    )
    assert lines[first + 1] == (
        "Advice: GPU 1 ran at a lower clock for 12 of 14 s: too hot. "
        "Ask the administrator to check the cooling."
    )
    assert lines[first + 2] == f"Advice (unsure): {HOSTILE} moved 5.0 GiB/s {HOSTILE}"
    assert "A fourth" not in page.text
    assert "  advice: GPU 1 ran at a lower clock for 12 of 14 s: too hot. Ask the" in text(reports.advised())


def test_evidence_of_advice_is_in_the_details() -> None:
    """For each piece of advice, the details contain its evidence with units. One line shows where the
    documentation of the rules is.
    """
    lines = Page(html(reports.advised())).text.splitlines()
    assert (
        "Advice input-pipeline: share 61.2 · gpu busy 4.0 · utilization 11.0 · call "
        "DataLoader._next_data · cores "
        "15.5 · shared memory free 60.0 GiB · num workers 0 · pin memory False"
    ) in lines
    assert "Advice throttled: too hot 12.0 s · run 14.0 s · gpus 1" in lines
    rules = "docs/advice.md explains each rule; it is in the folder of gpuwidget.__file__"
    assert f"Rules: {rules} (in a clone: in its root)" in lines


def test_means_beside_utilization_are_in_the_details() -> None:
    """The details contain the mean values of SM occupancy, of the activity of the float32 pipes, and of PCIe
    and NVLink traffic. They also contain how long the clock was throttled."""
    hot = reports.gpu(0, throttled={"too hot": 3.0})
    lines = Page(html(reports.report(hot))).text.splitlines()
    assert (
        "GPU 0, mean: SM occupancy 4.4 % · float32 pipes 8.1 % · PCIe 4.4 MiB/s in, 1.1 MiB/s out · "
        "NVLink 0 MiB/s "
        "in, 0 MiB/s out · clock held down: too hot 3.0 s"
    ) in lines


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
    assert "The GPU waits for its data" in bundle["text/html"]
