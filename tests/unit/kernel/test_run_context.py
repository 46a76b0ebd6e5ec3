"""Tests of the context that is collected at the end of a run, and on which the run's advice is based."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from types import ModuleType

import helpers_reports as reports
import pytest

from gpuwidget.kernel.cells import run_context
from gpuwidget.kernel.cells.run_context import RunContextBuilder
from gpuwidget.measure.advice.evidence import EarlierRun
from gpuwidget.model.report import Report, Span
from gpuwidget.system import host_limits, processes


@pytest.fixture(autouse=True)
def _no_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_context, "_earlier_runs", OrderedDict())


def ended(start: int, end: int, label: str | None = None, duration: float = 5.0) -> Report:
    """Return the report of a run on one GPU with this allocated torch memory at its start and end."""
    made = reports.gpu(0)
    assert made.torch is not None
    torch = replace(made.torch, allocated=Span(start, end, end))
    return reports.report(replace(made, torch=torch), cell=reports.cell(duration, label=label))


UUID = reports.gpu(0).uuid


def test_loaders_and_models_among_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data loaders and models are found among the notebook's variables.

    Variables whose names begin with an underscore are skipped.
    """
    torch = pytest.importorskip("torch")
    main = ModuleType("__main__")
    loader = torch.utils.data.DataLoader([1, 2], num_workers=1)
    model = torch.nn.Linear(4, 4)
    vars(main).update(loader=loader, model=model, _3=model)
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = RunContextBuilder("for x in loader: model(x)")(ended(0, 1))
    assert [one.name for one in found.loaders] == ["loader"]
    assert [(one.name, one.on_cpu) for one in found.models] == [("model", 80)]
    assert found.switches is not None
    assert found.can_use_cuda is (torch.version.cuda is not None)
    assert (found.cores, found.cell) == (host_limits.usable_cores(), "for x in loader: model(x)")
    assert found.process_cpu is not None


@pytest.mark.stops_errors
def test_one_failing_query_loses_only_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The context is complete even if the notebook's namespace has a key that is not a string.

    ``globals()[1] = 2`` creates such a key. If one query fails, only the value of that query is missing.
    """
    torch = pytest.importorskip("torch")
    main = ModuleType("__main__")
    vars(main).update(model=torch.nn.Linear(4, 4))
    vars(main)[1] = 2  # type: ignore[index]
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = RunContextBuilder("model(x)")(ended(0, 1))
    assert [one.name for one in found.models] == ["model"]

    def fails() -> None:
        raise OSError

    monkeypatch.setattr(host_limits, "usable_cores", fails)
    found = RunContextBuilder("model(x)")(ended(0, 1))
    assert found.cores is None
    assert [one.name for one in found.models] == ["model"]


def test_other_libraries_and_children_may_work_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this process has imported CuPy or has child processes, the context records that they may use
    GPUs."""
    monkeypatch.setattr(processes, "has_children", lambda: False)
    assert RunContextBuilder("x")(ended(0, 1)).other_gpu_work is False
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    assert RunContextBuilder("x")(ended(0, 1)).other_gpu_work is True
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(processes, "has_children", lambda: True)
    assert RunContextBuilder("x")(ended(0, 1)).other_gpu_work is True


def test_child_processes_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes that ended during the run may have used GPUs if they took a second of CPU time."""
    monkeypatch.setattr(processes, "has_children", lambda: False)
    for seconds, expected in ((0.1, False), (5.0, True)):
        monkeypatch.setattr(processes, "ended_children_cpu_time", lambda: 7.0)
        build = RunContextBuilder("x")
        monkeypatch.setattr(processes, "ended_children_cpu_time", lambda s=seconds: 7.0 + s)
        assert build(ended(0, 1)).other_gpu_work is expected
    with_workers = replace(ended(0, 1), workers=(reports.worker(0),))
    assert RunContextBuilder("x")(with_workers).other_gpu_work is True


def test_short_code_with_a_long_gpu_drain() -> None:
    """After a short cell whose GPU work lasts longer than the cell, the whole context is collected.

    The run's GPU readings include that work, so there may be advice about it.
    """
    made = ended(0, 1, duration=0.5)
    assert RunContextBuilder("x")(made).process_cpu is None
    assert (
        RunContextBuilder("x")(replace(made, cell=replace(made.cell, gpu_tail_s=9.0))).process_cpu is not None
    )


def test_a_short_run_queries_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a very short run, only its memory is remembered; nothing else is queried, because that takes
    time."""
    monkeypatch.setattr(host_limits, "usable_cores", lambda: pytest.fail("queried"))
    found = RunContextBuilder("x = 1")(ended(1, 2, duration=0.01))
    assert (found.loaders, found.cores, found.process_cpu) == ((), None, None)
    assert found.earlier_runs == {UUID: (EarlierRun(1, 2),)}


def test_runs_of_the_same_code() -> None:
    """The context contains the last four runs of the same source or, outside a cell, with the same label."""
    for n in range(6):
        found = RunContextBuilder(" train()\n")(ended(n, n + 1))
    assert found.earlier_runs == {UUID: tuple(EarlierRun(n, n + 1) for n in range(2, 6))}
    assert RunContextBuilder("train(2)")(ended(6, 7)).earlier_runs == {UUID: (EarlierRun(6, 7),)}
    RunContextBuilder(None)(ended(0, 1, label="epoch"))
    assert RunContextBuilder(None)(ended(1, 2, label="epoch")).earlier_runs == {
        UUID: (EarlierRun(0, 1), EarlierRun(1, 2))
    }
    assert RunContextBuilder(None)(ended(1, 2)).earlier_runs == {}


def test_unknown_memory_is_not_compared() -> None:
    """A run is not remembered for comparison if its memory at the start or at the end is unknown."""
    made = reports.gpu(0, torch=None, process_memory=Span(None, 5, 5))
    assert RunContextBuilder("x")(reports.report(made)).earlier_runs == {}


def test_the_number_of_remembered_sources() -> None:
    """Earlier runs are remembered for the hundred sources that ran most recently."""
    for n in range(150):
        RunContextBuilder(f"cell {n}")(ended(0, 1, duration=0.1))
    assert len(run_context._earlier_runs) == 100
    assert next(iter(run_context._earlier_runs))[0] == "cell 50"


def test_the_line_of_a_frame_in_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source line of a frame in another cell is taken from the notebook's ``In``.

    It is empty if ``In`` does not contain the line.
    """
    main = ModuleType("__main__")
    vars(main)["In"] = ["", "import torch", "def step():\n    return loss.item()"]
    monkeypatch.setitem(sys.modules, "__main__", main)
    source_of = RunContextBuilder("step()")(ended(0, 1)).source_of
    assert source_of is not None
    assert source_of("In[2]:2 step") == "    return loss.item()"
    assert [source_of(frame) for frame in ("In[2]:9 step", "In[7]:1 step", "train.py:2 step")] == ["", "", ""]
    vars(main)["In"] = 3
    assert source_of("In[2]:2 step") == ""
