"""Tests of requests to change one of torch's switches, such as cudnn.benchmark.

A request is applied immediately or, while a cell runs, before the next cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.kernel.commands.switches_command import command
from gpuwidget.kernel.devices.switch_requests import SwitchRequests
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import Switch

BENCHMARK = "torch.backends.cudnn.benchmark = {}"


class _Cudnn:
    """A fake of ``torch.backends.cudnn`` that records the assignments to its flags."""

    ran: list[str]
    flags: dict[str, bool]
    frozen: bool

    def __init__(self) -> None:
        flags = {"enabled": True, "benchmark": False, "deterministic": False}
        self.__dict__.update(ran=[], flags=flags, frozen=False)

    def __setattr__(self, name: str, value: bool) -> None:
        if name == "frozen":
            self.__dict__[name] = value
            return
        if self.frozen:
            raise RuntimeError("flags are frozen\nfor good")
        self.ran.append(f"{name}={value}")
        self.flags[name] = value


@pytest.fixture
def cudnn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace torch by a fake of torch < 2.9 whose ``backends.cudnn`` is a :class:`_Cudnn`; return that
    object."""
    made, torch = _Cudnn(), make_torch()
    torch._C = SimpleNamespace(
        **{f"_get_cudnn_{name}": lambda name=name: made.flags[name] for name in made.flags}
    )
    torch.backends = SimpleNamespace(cudnn=made)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


class Cells:
    """Stores whether a cell is running."""

    def __init__(self) -> None:
        self.running = False


@pytest.fixture
def cells() -> Cells:
    return Cells()


@pytest.fixture
def switches(cells: Cells) -> Iterator[SwitchRequests]:
    made = SwitchRequests()
    made.attach(lambda: cells.running)
    yield made
    made.detach()


def benchmark(switches: SwitchRequests) -> Switch:
    """Return the state of the switch ``cudnn.benchmark``."""
    return next(one for one in switches.state if one.name == "cudnn.benchmark")


def test_a_request_between_cells_is_applied_at_once(cudnn: Any, switches: SwitchRequests) -> None:
    """A request between cells is applied immediately.

    The equivalent Python statement is returned, and is shown in the state of the switch afterwards.
    """
    assert switches.request("cudnn.benchmark", "on") == BENCHMARK.format(True)
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("on", None, BENCHMARK.format(True))
    assert cudnn.ran == ["benchmark=True"]


def test_a_request_during_a_cell_is_pending(cudnn: Any, switches: SwitchRequests, cells: Cells) -> None:
    """A request while a cell runs is pending until the next cell, so that the running cell keeps its
    values."""
    cells.running = True
    assert (
        switches.request("cudnn.benchmark", "on")
        == f"Takes effect in the next cell: {BENCHMARK.format(True)}"
    )
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("off", "on", BENCHMARK.format(True))
    assert cudnn.ran == []
    switches.apply_pending()
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("on", None, BENCHMARK.format(True))
    switches.apply_pending()
    assert cudnn.ran == ["benchmark=True"]


def test_a_withdrawn_request_runs_nothing(cudnn: Any, switches: SwitchRequests, cells: Cells) -> None:
    """If the user requests "on" and then "off" for a switch that is off, while a cell runs, no value is
    set."""
    cells.running = True
    switches.request("cudnn.benchmark", "on")
    assert switches.request("cudnn.benchmark", "off") == "cudnn.benchmark is already off."
    assert benchmark(switches).pending is None
    switches.apply_pending()
    assert cudnn.ran == []


def test_the_last_request_wins(cudnn: Any, switches: SwitchRequests, cells: Cells) -> None:
    """If there are several requests for a switch while a cell runs, only the last one is applied.

    If requests for several switches are pending, the switches are set in the order of their last requests.
    """
    cells.running = True
    switches.request("cudnn.benchmark", "on")
    switches.request("cudnn.enabled", "off")
    switches.request("cudnn.benchmark", "off")
    switches.request("cudnn.benchmark", "on")
    switches.apply_pending()
    assert cudnn.ran == ["enabled=False", "benchmark=True"]


def test_the_magic_takes_effect_at_once(cudnn: Any, switches: SwitchRequests, cells: Cells) -> None:
    """``%gpu switches`` in a cell sets the switch immediately, as any other code in the cell would.

    A pending request for the same switch is dropped.
    """
    cells.running = True
    switches.request("cudnn.benchmark", "on")
    assert switches.set_now("cudnn.benchmark", "off") == BENCHMARK.format(False)
    assert benchmark(switches).pending is None
    switches.apply_pending()
    assert cudnn.ran == ["benchmark=False"]


def test_a_pending_request_that_fails_has_a_note(cudnn: Any, switches: SwitchRequests, cells: Cells) -> None:
    """If a pending request fails, the cell still runs.

    The switch has a note with the reason until the next request.
    """
    cells.running = True
    switches.request("cudnn.benchmark", "on")
    cudnn.frozen = True
    switches.apply_pending()
    found = benchmark(switches)
    assert (found.value, found.pending, found.statement) == ("off", None, None)
    assert found.note == ("torch.backends.cudnn.benchmark = True failed: RuntimeError: flags are frozen")
    cudnn.frozen = cells.running = False
    switches.request("cudnn.benchmark", "on")
    assert benchmark(switches).note is None


def test_a_request_that_fails_raises(cudnn: Any, switches: SwitchRequests) -> None:
    """If a request between cells fails, the error contains torch's reason, and no statement is recorded."""
    cudnn.frozen = True
    with pytest.raises(OptionError, match=r"RuntimeError: flags are frozen$"):
        switches.request("cudnn.benchmark", "on")
    assert benchmark(switches).statement is None


def test_unloading_drops_pending_requests(cudnn: Any, switches: SwitchRequests, cells: Cells) -> None:
    """If the extension is unloaded, pending requests are dropped, and values that were already set stay
    set."""
    switches.request("cudnn.deterministic", "on")
    cells.running = True
    switches.request("cudnn.benchmark", "on")
    switches.detach()
    switches.apply_pending()
    assert cudnn.ran == ["deterministic=True"]


def test_before_torch_is_imported(monkeypatch: pytest.MonkeyPatch, switches: SwitchRequests) -> None:
    """Before the user imports torch, switches have no value, and a request fails without importing torch."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert {(one.value, one.note) for one in switches.state} == {(None, "torch is not imported yet.")}
    with pytest.raises(OptionError, match="torch is not imported yet: import it in a cell first"):
        switches.request("cudnn.benchmark", "on")


def shown(*words: str) -> str:
    """Return the text that ``%gpu switches`` shows for these arguments."""
    published: list[str] = []
    publisher = SimpleNamespace(publish=lambda data, metadata: published.append(data["text/plain"]))
    watcher: Any = None
    line = " ".join(("switches", *words))
    command(Invocation(SimpleNamespace(display_pub=publisher), watcher, line))
    return published[0]


def test_the_magic(cudnn: Any) -> None:
    """``%gpu switches`` shows all switches, or one switch if a name is given.

    With a name and a value, it sets the switch and shows the statement. An unknown name is an error.
    """
    assert shown("cudnn.benchmark").splitlines()[:4] == [
        "switch           value  default  values",
        "cudnn.benchmark  off    off      on, off",
        "",
        "On: cuDNN times its algorithms on each new shape and keeps the fastest. Faster if shapes repeat, "
        "slower if they change; another run may use another algorithm.",
    ]
    assert shown("cudnn.benchmark", "on") == f"Ran: {BENCHMARK.format(True)}"
    assert shown("cudnn.benchmark").splitlines()[1] == "cudnn.benchmark  on     off      on, off"
    with pytest.raises(OptionError, match="'cudnn' is not a switch"):
        shown("cudnn")
    with pytest.raises(OptionError, match="'%gpu switches a b c' is not a command"):
        shown("a", "b", "c")
