"""The output of a watched cell: a chart while the cell runs, and in its place a card afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from helpers_lab import Notebook, runs_until

from gpuwidget.views.chart import UNTRUSTED

CARD = "application/vnd.gpuwidget.report+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
FIGURES = """return [...panel.node.querySelectorAll('.jp-OutputArea-output b')]
  .filter(value => value.nextElementSibling?.tagName === 'BR')
  .map(value => [value.textContent, value.nextSibling.nextSibling.textContent]);"""
LOAD = "%load_ext gpuwidget"
THREE_SECONDS = "%%gpuwatch\nimport time\ntime.sleep(3)"
BUSY = """%%gpuwatch
import pathlib
while not pathlib.Path({end!r}).exists():
    sum(i * i for i in range(1_000_000))"""
CLEAR_OUTPUT = """%%gpuwatch
from IPython.display import clear_output
{wait}
print("before"); clear_output(); print("after")
{wait_again}"""
PROGRESS_BAR = """%%gpuwatch
import time
for i in range(8):
    print(f"\\r{i}", end="", flush=True); time.sleep(0.3)"""

DIES = "%%gpuwatch\nimport os, signal\n{wait}\nos.kill(os.getpid(), signal.SIGKILL)"

LIVE = ".gpuwidget-live"
NOT_LIVE = f"{LIVE} .gpuwidget-not-live"
LINES = f"{LIVE} .bqplot path.line"
# JavaScript that waits until lines of the chart have changed ``argument`` times. One update of the chart
# changes several lines, so changes within 100 ms count once.
REDRAWN = """
let [redraws, last] = [0, -Infinity];
const chart = document.querySelector('.gpuwidget-live');
await new Promise(done => {
    const observer = new MutationObserver(changes => {
        const lines = changes.filter(({ target }) => target.matches('path.line'));
        const isChanged = lines.some(({ target, oldValue }) => target.getAttribute('d') !== oldValue);
        if (!isChanged || performance.now() - last < 100) return;
        [redraws, last] = [redraws + 1, performance.now()];
        if (redraws === argument) done(observer.disconnect());
    });
    observer.observe(chart, {subtree: true, attributeFilter: ['d'], attributeOldValue: true});
});
"""
REMEMBER_CHART = """
window.charts ??= [];
window.charts.push(new WeakRef(document.querySelector('.gpuwidget-live .bqplot')));
"""
COLORS = """
const style = name => getComputedStyle(document.querySelector(name));
return {text: style('.gpuwidget-live .gpuwidget-header').color, page: style('.jp-Notebook').backgroundColor};
"""

# JavaScript that returns the left and right edges of the live chart's last plot, or of the floors of all
# plots in the card's chart, and the distance of its lower edge from the outputs' upper edge.
LAST_PLOT = """
const top = panel.content.widgets[1].outputArea.node.getBoundingClientRect().top;
const node = [...document.querySelectorAll('.gpuwidget-live .gpuwidget-plot')].at(-1) ??
    document.querySelector('.jp-RenderedHTML svg[role=img] path');
const { left, right, bottom } = node.getBoundingClientRect();
return [left, right, bottom - top];
"""
# JavaScript that notes the height of gpuwidget's output in every frame.
WATCH_FRAMES = """
const area = panel.content.widgets[1].outputArea.node;
window.heights = [];
const watch = () => {
    window.heights.push(area.querySelector('.jp-OutputArea-child').offsetHeight);
    requestAnimationFrame(watch);
};
watch();
"""

Open = Callable[..., Notebook]


def outputs_with(notebook: Notebook, cell: int, mime_type: str) -> list[dict[str, Any]]:
    """Return the MIME bundles in a cell's outputs that contain ``mime_type``."""
    bundles = [output.get("data", {}) for output in notebook.outputs(cell)]
    return [bundle for bundle in bundles if mime_type in bundle]


def luminance(color: str) -> float:
    """Return the brightness of a CSS ``rgb()`` color, from 0 to 1."""
    red, green, blue = (int(part) for part in color.strip("rgba()").split(",")[:3])
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_chart_then_card(open_notebook: Open, tmp_path: Path, theme: str) -> None:
    """A running cell shows a chart whose colors match the theme. When the cell ends, a card replaces the
    chart: its own chart has the place and the size that the live one had, and no frame shows neither."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, f"%%gpuwatch\n{runs_until(end)}"], theme=theme)
    notebook.run_to_the_end(0)
    notebook.run(1)
    notebook.page.wait_for_selector(LINES, state="attached")
    colors = notebook.script(COLORS)
    assert abs(luminance(colors["text"]) - luminance(colors["page"])) > 0.5
    live = notebook.script(LAST_PLOT)
    notebook.script(WATCH_FRAMES)
    end.touch()
    notebook.wait_until_done()
    notebook.page.wait_for_selector(LIVE, state="detached")
    assert len(outputs_with(notebook, 1, CARD)) == 1
    assert outputs_with(notebook, 1, WIDGET) == []
    assert notebook.script(LAST_PLOT) == pytest.approx(live, abs=1.5)
    heights = notebook.script("return window.heights;")
    assert min(heights) == heights[0]


def test_the_page_frees_the_charts_of_ended_cells(open_notebook: Open, tmp_path: Path) -> None:
    """After a cell has ended, the browser can free the elements of its live chart. The newest chart may stay
    until the next one, because the browser keeps what it has laid out last."""
    ends = [tmp_path / f"end{count}" for count in range(3)]
    notebook = open_notebook([LOAD, *(f"%%gpuwatch\n{runs_until(end)}" for end in ends)])
    notebook.run_to_the_end(0)
    for cell, end in enumerate(ends, start=1):
        notebook.run(cell)
        # Playwright's selectors would keep the element.
        notebook.page.wait_for_function(f"() => document.querySelector('{LINES}') !== null")
        notebook.script(REMEMBER_CHART)
        end.touch()
        notebook.wait_until_done()
    session = notebook.page.context.new_cdp_session(notebook.page)

    def freed() -> bool:
        session.send("HeapProfiler.collectGarbage")
        left: list[bool] = notebook.script("return window.charts.map(chart => chart.deref() !== undefined);")
        return not any(left[:-1])

    notebook.wait_for(freed)


def test_the_chart_of_a_kernel_that_has_died_is_not_live(open_notebook: Open, tmp_path: Path) -> None:
    """If the kernel dies, its last chart says that it is not live."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, DIES.format(wait=runs_until(end))])
    notebook.run_to_the_end(0)
    notebook.run(1)
    notebook.page.wait_for_selector(LINES, state="attached")
    assert not notebook.page.is_visible(NOT_LIVE)
    end.touch()
    notebook.page.wait_for_selector(NOT_LIVE, state="visible")
    shown = "selector => getComputedStyle(document.querySelector(selector), '::after').content"
    assert notebook.page.evaluate(shown, NOT_LIVE) == '"Not live: no update for over 10 s"'


def test_the_card_is_where_the_chart_was(open_notebook: Open) -> None:
    """The card is above the text that the cell has printed, as the chart was. A saved notebook contains no
    other output of gpuwidget, even if the cell was too short for a chart."""
    notebook = open_notebook([LOAD, PROGRESS_BAR, "%%gpuwatch\nprint('short')"])
    notebook.run_to_the_end(0)
    for cell in (1, 2):
        notebook.run_to_the_end(cell)
    notebook.save()
    saved = nbformat.read(notebook.path, as_version=4)
    for cell in (1, 2):
        card, text = saved.cells[cell].outputs
        assert CARD in card.data
        assert text.output_type == "stream"


def test_values_under_the_pointer(open_notebook: Open, tmp_path: Path) -> None:
    """Above the chart of a running cell, the pointer shows the time and the values there."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, f"%%gpuwatch\n{runs_until(end)}"])
    notebook.run_to_the_end(0)
    notebook.run(1)
    column = notebook.page.locator(f"{LIVE} .gpuwidget-hover > i").nth(10)
    column.hover()
    # An update of the chart replaces the element under the pointer.
    shown = notebook.page.wait_for_function(
        """() => {
            const column = document.querySelector('.gpuwidget-hover > i:hover');
            return column && getComputedStyle(column, '::after').content.match(/^"(.+)"$/)?.[1];
        }"""
    )
    time, *gpus = shown.json_value().split("\\a ")
    assert time.endswith("s")
    assert [line.partition(":")[0] for line in gpus[:4]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    end.touch()
    notebook.wait_until_done()


def test_redrawn_while_busy(open_notebook: Open, tmp_path: Path) -> None:
    """While a cell keeps the kernel busy with pure Python, its chart keeps being redrawn."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, BUSY.format(end=str(end))])
    notebook.run_to_the_end(0)
    notebook.run(1)
    notebook.page.wait_for_selector(LINES, state="attached")
    notebook.script(REDRAWN, 5)
    end.touch()
    notebook.wait_until_done()


def test_recording_is_labeled(open_notebook: Open, tmp_path: Path) -> None:
    """If the GPUs come from a recording, the chart and the card show the recording's label."""
    end = tmp_path / "end"
    notebook = open_notebook([LOAD, f"%%gpuwatch\n{runs_until(end)}"])
    notebook.run_to_the_end(0)
    notebook.run(1)
    notebook.page.wait_for_selector(f"{LIVE} .gpuwidget-last .gpuwidget-chip")
    label = notebook.page.inner_text(f"{LIVE} .gpuwidget-last .gpuwidget-chip")
    end.touch()
    notebook.wait_until_done()
    recording = outputs_with(notebook, 1, CARD)[0][CARD]["source"]["recording"]
    assert label == recording
    assert recording in notebook.page.inner_text(".jp-Notebook")


def test_clear_output(open_notebook: Open, tmp_path: Path) -> None:
    """If a cell calls clear_output(), the chart disappears only briefly. When the cell has ended, the text
    printed after the call and the card are shown."""
    shown, shown_again = tmp_path / "shown", tmp_path / "again"
    cell = CLEAR_OUTPUT.format(wait=runs_until(shown), wait_again=runs_until(shown_again))
    notebook = open_notebook([LOAD, cell])
    notebook.run_to_the_end(0)
    notebook.run(1)
    notebook.page.wait_for_selector(LINES, state="attached")
    shown.touch()
    notebook.page.wait_for_selector(".jp-OutputArea-output >> text=after")
    notebook.page.wait_for_selector(LINES, state="attached")
    shown_again.touch()
    notebook.wait_until_done()
    notebook.page.wait_for_selector(LIVE, state="detached")
    printed = [output["text"] for output in notebook.outputs(1) if output["output_type"] == "stream"]
    assert printed == ["after\n"]
    assert len(outputs_with(notebook, 1, CARD)) == 1


def test_progress_bar_stays_one_line(open_notebook: Open) -> None:
    """A progress bar that a cell rewrites with carriage returns stays a single line, although the chart
    appears and disappears."""
    notebook = open_notebook([LOAD, PROGRESS_BAR])
    notebook.run_to_the_end(0)
    notebook.run_to_the_end(1)
    assert [o["text"] for o in notebook.outputs(1) if o["output_type"] == "stream"] == ["7"]


def test_saved_and_opened_without_kernel(open_notebook: Open) -> None:
    """A saved notebook shows its card even without a kernel, and nothing of the chart is saved. If it is not
    trusted, JupyterLab removes the card's chart with all its labels, and the card says how to see it."""
    notebook = open_notebook([LOAD, THREE_SECONDS])
    notebook.run_to_the_end(0)
    notebook.run_to_the_end(1)
    notebook.page.wait_for_selector(LIVE, state="detached")
    headline = outputs_with(notebook, 1, CARD)[0]["text/plain"].splitlines()[0].split(" · ")
    assert notebook.page.is_visible("svg >> text=GPU utilization, %")
    assert UNTRUSTED not in notebook.page.inner_text(".jp-Notebook")
    notebook.save()
    saved = notebook.path.read_text()
    assert WIDGET not in saved
    nbformat.validate(nbformat.reads(saved, as_version=4))
    copy = notebook.path.with_name(f"copy-{notebook.path.name}")
    # The copy's kernelspec does not exist, so no kernel starts. Because its content has changed, Jupyter does
    # not trust the copy.
    content = json.loads(saved)
    content["metadata"]["kernelspec"]["name"] = "no-such-kernel"
    copy.write_text(json.dumps(content))
    reopened = open_notebook(copy, kernel=False)
    shown = reopened.page.inner_text(".jp-Notebook")
    assert [part.split(" (")[0] for part in headline] == [
        f"{label} {value}" for value, label in reopened.script(FIGURES)
    ]
    # The text of the labels is left, and has no size.
    label = reopened.page.locator("div >> text=GPU utilization, %").last.bounding_box()
    assert label is None or label["height"] == 0
    assert "model not found" not in shown.lower()
    assert UNTRUSTED in shown
    trusted = reopened.script("return panel.content.widgets[1].model.trusted;")
    assert trusted is False
