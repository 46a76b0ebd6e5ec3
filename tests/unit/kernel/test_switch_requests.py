"""What is wished of torch's switches: done at once or before the next cell, never in the middle of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.kernel.devices.switch_requests import TorchSwitches, command
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import Switch

BENCHMARK = "torch.backends.cudnn.benchmark = {}"


class _Cudnn:
    """cuDNN's flags, with what was run on them."""

    ran: list[str]
    flags: dict[str, bool]
    refuse: bool

    def __init__(self) -> None:
        flags = {"enabled": True, "benchmark": False, "deterministic": False}
        self.__dict__.update(ran=[], flags=flags, refuse=False)

    def __setattr__(self, name: str, value: bool) -> None:
        if name == "refuse":
            self.__dict__[name] = value
            return
        if self.refuse:
            raise RuntimeError("flags are frozen\nfor good")
        self.ran.append(f"{name}={value}")
        self.flags[name] = value


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """cuDNN of a torch before 2.9."""
    made, torch = _Cudnn(), make_torch()
    torch._C = SimpleNamespace(
        **{f"_get_cudnn_{name}": lambda name=name: made.flags[name] for name in made.flags}
    )
    torch.backends = SimpleNamespace(cudnn=made)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


class Cells:
    """Cells that begin and end as told."""

    def __init__(self) -> None:
        self.running = False


@pytest.fixture
def cells() -> Cells:
    return Cells()


@pytest.fixture
def switches(cells: Cells) -> Iterator[TorchSwitches]:
    made = TorchSwitches()
    made.attach(lambda: cells.running)
    yield made
    made.detach()


def benchmark(switches: TorchSwitches) -> Switch:
    """The state of that one."""
    return next(one for one in switches.state if one.name == "cudnn.benchmark")


def test_while_no_cell_runs_it_is_done_at_once(cudnn: Any, switches: TorchSwitches) -> None:
    """And what was run is told, also later."""
    assert switches.wish("cudnn.benchmark", "on") == BENCHMARK.format(True)
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("on", None, BENCHMARK.format(True))
    assert cudnn.ran == ["benchmark=True"]


def test_while_a_cell_runs_it_waits_for_the_next(cudnn: Any, switches: TorchSwitches, cells: Cells) -> None:
    """The running cell keeps what it began with."""
    cells.running = True
    assert switches.wish("cudnn.benchmark", "on") == f"From the next cell: {BENCHMARK.format(True)}"
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("off", "on", BENCHMARK.format(True))
    assert cudnn.ran == []
    switches.before_cell()
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("on", None, BENCHMARK.format(True))
    switches.before_cell()
    assert cudnn.ran == ["benchmark=True"]


def test_taken_back_before_the_next_cell_nothing_is_run(
    cudnn: Any, switches: TorchSwitches, cells: Cells
) -> None:
    """On and off again while a cell runs leaves it alone."""
    cells.running = True
    switches.wish("cudnn.benchmark", "on")
    assert switches.wish("cudnn.benchmark", "off") == "cudnn.benchmark is off: nothing is to be run."
    assert benchmark(switches).pending is None
    switches.before_cell()
    assert cudnn.ran == []


def test_the_last_wish_counts(cudnn: Any, switches: TorchSwitches, cells: Cells) -> None:
    """Each switch is set once, in the order in which they were wished."""
    cells.running = True
    switches.wish("cudnn.benchmark", "on")
    switches.wish("cudnn.enabled", "off")
    switches.wish("cudnn.benchmark", "off")
    switches.wish("cudnn.benchmark", "on")
    switches.before_cell()
    assert cudnn.ran == ["enabled=False", "benchmark=True"]


def test_what_the_cell_itself_says_comes_at_once(cudnn: Any, switches: TorchSwitches, cells: Cells) -> None:
    """%gpu switches is the user's own code; it takes the place of a wish that waits."""
    cells.running = True
    switches.wish("cudnn.benchmark", "on")
    assert switches.run("cudnn.benchmark", "off") == BENCHMARK.format(False)
    assert benchmark(switches).pending is None
    switches.before_cell()
    assert cudnn.ran == ["benchmark=False"]


def test_a_wish_that_fails_before_a_cell_says_why(cudnn: Any, switches: TorchSwitches, cells: Cells) -> None:
    """The cell runs all the same; the reason stands until the next wish."""
    cells.running = True
    switches.wish("cudnn.benchmark", "on")
    cudnn.refuse = True
    switches.before_cell()
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("off", None, None)
    assert found.note == (
        "torch refused 'torch.backends.cudnn.benchmark = True': RuntimeError: flags are frozen"
    )
    cudnn.refuse = cells.running = False
    switches.wish("cudnn.benchmark", "on")
    assert benchmark(switches).note is None


def test_a_wish_that_fails_at_once_is_refused(cudnn: Any, switches: TorchSwitches) -> None:
    """With the reason, and nothing is said to have been run."""
    cudnn.refuse = True
    with pytest.raises(OptionError, match=r"RuntimeError: flags are frozen$"):
        switches.wish("cudnn.benchmark", "on")
    assert benchmark(switches).statement is None


def test_unloaded_it_forgets_what_waits(cudnn: Any, switches: TorchSwitches, cells: Cells) -> None:
    """And leaves what was set, as if the user's own code had."""
    switches.wish("cudnn.deterministic", "on")
    cells.running = True
    switches.wish("cudnn.benchmark", "on")
    switches.detach()
    switches.before_cell()
    assert cudnn.ran == ["deterministic=True"]


def test_before_torch_is_imported(monkeypatch: pytest.MonkeyPatch, switches: TorchSwitches) -> None:
    """Every switch is there without a value, and a wish is refused: nothing is imported for it."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert {(one.value, one.note) for one in switches.state} == {(None, "torch is not imported yet.")}
    with pytest.raises(OptionError, match="torch is not imported yet: import it in a cell first"):
        switches.wish("cudnn.benchmark", "on")


def shown(*words: str) -> str:
    """What ``%gpu switches`` with these words displays."""
    published: list[str] = []
    publisher = SimpleNamespace(publish=lambda data, metadata: published.append(data["text/plain"]))
    command(SimpleNamespace(display_pub=publisher), words)
    return published[0]


def test_the_magic(cudnn: Any) -> None:
    """It shows one or all, sets one and says what it ran; anything else is told with what there is."""
    assert shown("cudnn.benchmark").startswith(
        "cudnn.benchmark: off, or on\n  On: cuDNN tries its algorithms on each new shape"
    )
    assert shown("cudnn.benchmark", "on") == f"Ran: {BENCHMARK.format(True)}"
    assert shown("cudnn.benchmark").startswith("cudnn.benchmark: on, or off (torch's default)\n")
    assert [line.split(":")[0] for line in shown().splitlines() if not line.startswith(" ")] == [
        "cudnn.enabled",
        "cudnn.benchmark",
        "cudnn.deterministic",
        "cudnn.tf32",
        "matmul.precision",
        "deterministic",
    ]
    assert "cudnn.tf32: n/a, or on (torch's default), off\n  This torch does not say.\n" in shown()
    with pytest.raises(OptionError, match="'cudnn' is no switch"):
        shown("cudnn")
    with pytest.raises(OptionError, match="'%gpu switches a b c' is not known"):
        shown("a", "b", "c")
