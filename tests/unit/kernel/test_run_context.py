"""What is known around a run when it ends."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from types import ModuleType

import helpers_reports as reports
import pytest

from gpuwidget.kernel.cells import run_context
from gpuwidget.kernel.cells.run_context import Around
from gpuwidget.measure.advice.evidence import Ends
from gpuwidget.model.report import Report, Span
from gpuwidget.system import host_limits, processes


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_context, "_past", OrderedDict())


def ended(start: int, end: int, label: str | None = None, duration: float = 5.0) -> Report:
    """A run on one GPU in which torch's memory went so."""
    made = reports.gpu(0)
    assert made.torch is not None
    torch = replace(made.torch, allocated=Span(start, end, end))
    return reports.report(replace(made, torch=torch), cell=reports.cell(duration, label=label))


UUID = reports.gpu(0).uuid


def test_the_users_variables_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders and models among the notebook's names, those with a leading underscore left out."""
    torch = pytest.importorskip("torch")
    main = ModuleType("__main__")
    loader = torch.utils.data.DataLoader([1, 2], num_workers=1)
    model = torch.nn.Linear(4, 4)
    vars(main).update(loader=loader, model=model, _3=model)
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = Around("for x in loader: model(x)")(ended(0, 1))
    assert [one.name for one in found.loaders] == ["loader"]
    assert [(one.name, one.on_cpu) for one in found.models] == [("model", 80)]
    assert found.switches is not None
    assert found.can_use_cuda is (torch.version.cuda is not None)
    assert (found.cores, found.cell) == (host_limits.usable_cores(), "for x in loader: model(x)")
    assert found.process_cpu is not None


def test_an_odd_variable_silences_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """``globals()[1] = 2`` is no name; where one part can't be found out, the others are there."""
    torch = pytest.importorskip("torch")
    main = ModuleType("__main__")
    vars(main).update(model=torch.nn.Linear(4, 4))
    vars(main)[1] = 2  # type: ignore[index]
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = Around("model(x)")(ended(0, 1))
    assert [one.name for one in found.models] == ["model"]

    def fails() -> None:
        raise OSError

    monkeypatch.setattr(host_limits, "usable_cores", fails)
    found = Around("model(x)")(ended(0, 1))
    assert found.cores is None
    assert [one.name for one in found.models] == ["model"]


def test_other_libraries_and_children_may_work_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX or CuPy in this process, or a process that it started."""
    monkeypatch.setattr(processes, "has_children", lambda: False)
    assert Around("x")(ended(0, 1)).other_gpu_work is False
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    assert Around("x")(ended(0, 1)).other_gpu_work is True
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(processes, "has_children", lambda: True)
    assert Around("x")(ended(0, 1)).other_gpu_work is True


def test_a_short_code_after_which_the_gpu_goes_on_is_looked_up() -> None:
    """Its GPU's figures are of the whole time."""
    made = ended(0, 1, duration=0.5)
    assert Around("x")(made).process_cpu is None
    assert Around("x")(replace(made, cell=replace(made.cell, gpu_tail_s=9.0))).process_cpu is not None


def test_of_a_short_run_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cell costs next to nothing; what it left is remembered all the same."""
    monkeypatch.setattr(host_limits, "usable_cores", lambda: pytest.fail("looked up"))
    found = Around("x = 1")(ended(1, 2, duration=0.01))
    assert (found.loaders, found.cores, found.process_cpu) == ((), None, None)
    assert found.earlier == {UUID: (Ends(1, 2),)}


def test_runs_of_the_same_code_are_put_together() -> None:
    """By the cell's text or by the label; the last four, and nothing of other code."""
    for n in range(6):
        found = Around(" train()\n")(ended(n, n + 1))
    assert found.earlier == {UUID: tuple(Ends(n, n + 1) for n in range(2, 6))}
    assert Around("train(2)")(ended(6, 7)).earlier == {UUID: (Ends(6, 7),)}
    Around(None)(ended(0, 1, label="epoch"))
    assert Around(None)(ended(1, 2, label="epoch")).earlier == {UUID: (Ends(0, 1), Ends(1, 2))}
    assert Around(None)(ended(1, 2)).earlier == {}


def test_what_is_unknown_is_not_compared() -> None:
    """A run without its start or end leaves no trace in the course."""
    made = reports.gpu(0, torch=None, process_memory=Span(None, 5, 5))
    assert Around("x")(reports.report(made)).earlier == {}


def test_the_past_is_bounded() -> None:
    """A notebook of a thousand cells keeps the last hundred."""
    for n in range(150):
        Around(f"cell {n}")(ended(0, 1, duration=0.1))
    assert len(run_context._past) == 100
    assert next(iter(run_context._past))[0] == "cell 50"


def test_the_line_of_a_frame_in_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the notebook's own list of its cells; a module's file, or a list that is none, gives nothing."""
    main = ModuleType("__main__")
    vars(main)["In"] = ["", "import torch", "def step():\n    return loss.item()"]
    monkeypatch.setitem(sys.modules, "__main__", main)
    source_of = Around("step()")(ended(0, 1)).source_of
    assert source_of is not None
    assert source_of("In[2]:2 step") == "    return loss.item()"
    assert [source_of(frame) for frame in ("In[2]:9 step", "In[7]:1 step", "train.py:2 step")] == ["", "", ""]
    vars(main)["In"] = 3
    assert source_of("In[2]:2 step") == ""
