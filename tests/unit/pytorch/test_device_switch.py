"""Tests of choosing the default device: what changes, at which time, on which thread, and what stays
unchanged.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from helpers_torch import make_torch

from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import DeviceState
from gpuwidget.model.torch_state import cuda_index
from gpuwidget.pytorch import device_switch
from gpuwidget.pytorch.device_switch import DeviceSwitch


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = make_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture
def switch() -> DeviceSwitch:
    """Return a device switch for a notebook whose cells run on the current thread."""
    made = DeviceSwitch()
    made.attach(threading.get_ident())
    return made


def cell(switch: DeviceSwitch, body: Callable[[], Any] = lambda: None) -> Any:
    """Run a cell with this body, and return the body's result."""
    switch.before_cell()
    result = body()
    switch.after_cell()
    return result


def in_a_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_choice_applies_from_the_next_cell(torch: Any, switch: DeviceSwitch) -> None:
    """If a device is chosen while a cell runs, the choice is pending: it is applied before the next cell, not
    in this cell.
    """
    switch.before_cell()
    switch.choose("cuda:1")
    assert switch.state == DeviceState("cuda:1", True, True, "cpu", None)
    assert str(torch.get_default_device()) == "cpu"
    switch.after_cell()
    assert str(cell(switch, torch.get_default_device)) == "cuda:1"
    assert (switch.state.pending, switch.state.present) == (False, "cuda:1")


def test_another_thread_sees_the_choice_while_it_is_applied(
    torch: Any, switch: DeviceSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panel, which reads the state on another thread, shows the chosen device at each moment while the
    choice is applied. A choice that is made in this moment stays pending."""
    apply = device_switch._AppliedChoice.apply
    seen: list[DeviceState] = []

    def slow_apply(self: Any, *given: Any) -> str | None:
        seen.append(in_a_thread(lambda: switch.state))
        note = apply(self, *given)
        seen.append(in_a_thread(lambda: switch.state))
        in_a_thread(lambda: switch.choose("cuda:0"))
        return note

    monkeypatch.setattr(device_switch._AppliedChoice, "apply", slow_apply)
    switch.choose("cuda:1")
    switch.before_cell()
    assert seen == [DeviceState("cuda:1", True, True, "cpu", None)] * 2
    assert switch.state == DeviceState("cuda:0", True, True, "cuda:1", None)


def test_new_tensors_cuda_and_the_current_device_follow(torch: Any, switch: DeviceSwitch) -> None:
    """After cuda:1 is chosen, new tensors, "cuda" without an index, and .cuda() use cuda:1."""
    torch.cuda.init()
    switch.choose("cuda:1")

    def body() -> list[str]:
        made = (torch.empty(3), torch.empty(3, device="cuda"), torch.empty(3, device="cpu").cuda())
        return [str(one.device) for one in made] + [str(torch.cuda.current_device())]

    assert cell(switch, body) == ["cuda:1", "cuda:1", "cuda:1", "1"]


def test_choosing_creates_no_context(torch: Any, switch: DeviceSwitch) -> None:
    """Choosing a device does not initialize CUDA. Until CUDA is initialized, a note explains that the choice
    is not applied yet.
    """
    switch.choose("cuda:1")
    for _ in range(3):
        cell(switch)
    assert (torch.cuda.is_initialized(), torch.events) == (False, [])
    assert "when your code first uses CUDA" in (switch.state.note or "")


def test_cuda_initialized_within_a_cell_uses_the_choice(torch: Any, switch: DeviceSwitch) -> None:
    """If a cell initializes CUDA, the chosen device is current from the first CUDA call on."""
    switch.choose("cuda:1", new_tensors=False)
    assert str(cell(switch, lambda: torch.empty(3, device="cuda").device)) == "cuda:1"
    assert torch.events == ["context on 1"]
    assert switch.state.note is None
    switch.choose(None)
    cell(switch)
    assert torch.cuda.current_device() == 0
    assert torch.events == ["context on 1"]


def test_cuda_initialized_by_another_thread_uses_the_choice_later(torch: Any, switch: DeviceSwitch) -> None:
    """If another thread initializes CUDA, the current device of that thread does not change.

    The chosen device is current from the next cell on.
    """
    switch.choose("cuda:1")
    current = cell(switch, lambda: in_a_thread(torch.cuda.current_device))
    assert (current, torch.events) == (0, [])
    assert cell(switch, torch.cuda.current_device) == 1


def test_light_mode_sets_only_the_current_device(torch: Any, switch: DeviceSwitch) -> None:
    """With new_tensors=False, a choice changes only the current CUDA device.

    It does not set torch's default device, because a default device slows down torch's calls.
    """
    torch.cuda.init()
    switch.choose("cuda:1", new_tensors=False)
    assert str(cell(switch, lambda: torch.empty(1).device)) == "cpu"
    assert torch.cuda.current_device() == 1
    assert torch._GLOBAL_DEVICE_CONTEXT.__dict__ == {}


def test_switching_to_light_mode_restores_the_default(torch: Any, switch: DeviceSwitch) -> None:
    """If the same device is chosen again with new_tensors=False, new tensors are created on the previous
    default device.
    """
    torch.cuda.init()
    switch.choose("cuda:1")
    cell(switch)
    switch.choose("cuda:1", new_tensors=False)
    assert str(cell(switch, torch.get_default_device)) == "cpu"
    assert torch.cuda.current_device() == 1


def test_none_restores_the_previous_device(torch: Any, switch: DeviceSwitch) -> None:
    """After any number of choices, 'none' restores the devices that user code had set before the first
    choice.
    """
    torch.set_default_device("meta")
    torch.cuda.set_device(1)
    for device in ("cuda:0", "cpu", "cuda:1", "cuda:0"):
        switch.choose(device)
        assert str(cell(switch, torch.get_default_device)) == device
    switch.choose(None)
    assert str(cell(switch, torch.get_default_device)) == "meta"
    assert torch.cuda.current_device() == 1
    assert switch.state == DeviceState(None, True, False, "meta", None)


def test_a_later_setting_of_user_code_is_kept(torch: Any, switch: DeviceSwitch) -> None:
    """If user code sets a default device after a device was chosen, the user's device stays, in later cells
    and after 'none'.
    """
    torch.cuda.init()
    switch.choose("cuda:1")
    cell(switch)
    cell(switch, lambda: torch.set_default_device("cuda:0"))
    said = "Your code has since set torch's default device to cuda:0. gpuwidget does not change it."
    assert switch.state == DeviceState("cuda:1", True, False, "cuda:0", said)
    assert str(cell(switch, torch.get_default_device)) == "cuda:0"
    switch.choose(None)
    assert str(cell(switch, torch.get_default_device)) == "cuda:0"
    assert switch.state == DeviceState(None, True, False, "cuda:0", said)


def test_an_equal_setting_of_user_code_is_kept(torch: Any, switch: DeviceSwitch) -> None:
    """If user code sets the same device that was chosen, 'none' does not undo the user's setting."""
    switch.choose("cpu")
    cell(switch)
    cell(switch, lambda: torch.set_default_device("cpu"))
    context = torch._GLOBAL_DEVICE_CONTEXT.device_context
    switch.choose(None)
    cell(switch)
    assert torch._GLOBAL_DEVICE_CONTEXT.device_context is context


def test_the_users_current_device_is_kept(torch: Any, switch: DeviceSwitch) -> None:
    """If user code calls torch.cuda.set_device after a device was chosen, the user's device stays current,
    even after 'none'.
    """
    torch.cuda.init()
    switch.choose("cuda:1")
    cell(switch)
    cell(switch, lambda: torch.cuda.set_device(0))
    said = "Your code has since set the current CUDA device to cuda:0. gpuwidget does not change it."
    assert switch.state.note == said
    switch.choose(None)
    cell(switch)
    assert torch.cuda.current_device() == 0


def test_a_choice_before_the_import_of_torch(monkeypatch: pytest.MonkeyPatch, switch: DeviceSwitch) -> None:
    """If a device is chosen before torch is imported, the choice is applied before the first cell after the
    import.
    """
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    switch.choose("cuda:1")
    cell(switch)
    assert "torch" not in sys.modules
    assert (switch.state.pending, (switch.state.note or "")[:30]) == (True, "torch is not imported yet: the")
    made = make_torch()
    cell(switch, lambda: monkeypatch.setitem(sys.modules, "torch", made))
    assert str(made.get_default_device()) == "cpu"
    assert str(cell(switch, made.get_default_device)) == "cuda:1"
    assert switch.state.pending is False


def test_torch_without_cuda_drops_the_choice(monkeypatch: pytest.MonkeyPatch, switch: DeviceSwitch) -> None:
    """If a device is chosen before torch is imported, and torch turns out to be built without CUDA, the
    choice is dropped, and a note gives the reason.
    """
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    switch.choose("cuda:1")
    monkeypatch.setenv("TORCH_STANDIN_GPUS", "0")
    made = make_torch()
    monkeypatch.setitem(sys.modules, "torch", made)
    cell(switch)
    note = switch.state.note or ""
    assert switch.state == DeviceState(None, True, False, "cpu", note)
    assert note.startswith("cuda:1 was chosen but")
    assert "(2.13.0+cpu)" in note


def test_a_device_that_cuda_refuses_is_reported(torch: Any, switch: DeviceSwitch) -> None:
    """If CUDA rejects the chosen device, a note contains the error in one line, and no cell fails."""
    switch.choose("cuda:7", new_tensors=False)
    cell(switch, torch.cuda.init)
    cell(switch)
    said = "cuda:7 can't be the current CUDA device: RuntimeError: CUDA error: invalid device ordinal"
    assert switch.state.note == said


def test_nothing_changes_within_the_users_device_context(torch: Any, switch: DeviceSwitch) -> None:
    """While the user is inside a `with torch.device(...)` that spans several cells, a choice is not applied.

    It is applied after the `with` block has ended.
    """
    scope = torch.device("meta")
    cell(switch, scope.__enter__)
    switch.choose("cuda:1")
    assert str(cell(switch, torch.get_default_device)) == "meta"
    assert switch.state.pending
    assert "inside a `with torch.device(...)`" in (switch.state.note or "")
    cell(switch, lambda: scope.__exit__(None, None, None))
    assert str(cell(switch, torch.get_default_device)) == "cuda:1"
    assert switch.state.pending is False


def test_other_threads_apply_nothing(torch: Any, switch: DeviceSwitch) -> None:
    """A cell on another thread (a subshell) does not apply a pending choice. The choice stays pending until a
    cell runs on the main thread.
    """
    switch.choose("cuda:1")
    assert str(in_a_thread(lambda: cell(switch, torch.get_default_device))) == "cpu"
    assert switch.state.pending
    assert str(cell(switch, torch.get_default_device)) == "cuda:1"


def test_one_cells_device(torch: Any, switch: DeviceSwitch) -> None:
    """``use_device`` sets the device for one cell, even if the user has chosen another one. Afterwards, the
    chosen device is restored. The choice 'none' still restores the devices that were set before the first
    choice.
    """
    torch.cuda.init()
    switch.choose("cuda:1")
    cell(switch)
    leave = switch.use_device("cuda:0")
    assert (str(torch.get_default_device()), torch.cuda.current_device()) == ("cuda:0", 0)
    assert leave() is None
    assert (str(torch.get_default_device()), torch.cuda.current_device()) == ("cuda:1", 1)
    assert leave() is None
    switch.choose(None)
    cell(switch)
    assert (str(torch.get_default_device()), torch.cuda.current_device()) == ("cpu", 0)


def test_one_cells_device_and_a_choice_made_in_it(torch: Any, switch: DeviceSwitch) -> None:
    """If a device is chosen in a cell with --device, the choice is applied before the next cell, not in the
    rest of this cell.
    """
    leave = switch.use_device("cuda:0")
    switch.choose("cuda:1")
    assert str(cell(switch, torch.get_default_device)) == "cuda:0"
    leave()
    assert str(cell(switch, torch.get_default_device)) == "cuda:1"


def test_one_cells_device_if_the_cell_initializes_cuda(torch: Any, switch: DeviceSwitch) -> None:
    """If a cell with --device initializes CUDA, the cell's device is current at once. After the cell, torch's
    default is current again.
    """
    leave = switch.use_device("cuda:1")
    assert str(torch.empty(1, device="cuda").device) == "cuda:1"
    leave()
    assert torch.cuda.current_device() == 0
    assert torch.events == ["context on 1"]


def test_one_cells_device_that_the_cell_changes(torch: Any, switch: DeviceSwitch) -> None:
    """If the code of a cell with --device sets a default device, the user's device stays after the cell, with
    a note.
    """
    leave = switch.use_device("cuda:1")
    torch.set_default_device("meta")
    assert "torch's default device to meta" in (leave() or "")
    assert str(torch.get_default_device()) == "meta"


def test_a_setting_by_the_code_of_one_cell_is_kept(torch: Any, switch: DeviceSwitch) -> None:
    """If the code of a cell with --device sets a default device, the user's device stays, even if another
    device was chosen earlier, and even after 'none'.
    """
    switch.choose("cuda:1")
    cell(switch)
    leave = switch.use_device("cuda:0")
    torch.set_default_device("meta")
    leave()
    cell(switch)
    said = "Your code has since set torch's default device to meta. gpuwidget does not change it."
    assert switch.state == DeviceState("cuda:1", True, False, "meta", said)
    switch.choose(None)
    assert str(cell(switch, torch.get_default_device)) == "meta"


def test_one_cells_device_on_another_thread(torch: Any, switch: DeviceSwitch) -> None:
    """If a device is chosen while a cell with --device runs in a subshell, the choice is still applied before
    the main shell's next cell. Afterwards, unloading gpuwidget still restores torch's devices.
    """
    torch.cuda.init()
    begun, over = threading.Event(), threading.Event()
    seen: list[str] = []

    def subshell() -> None:
        leave = switch.use_device("cuda:0")
        begun.set()
        over.wait(10)
        seen.append(str(torch.get_default_device()))
        leave()
        seen.append(str(torch.get_default_device()))

    thread = threading.Thread(target=subshell)
    thread.start()
    begun.wait(10)
    switch.choose("cuda:1")
    assert str(cell(switch, torch.get_default_device)) == "cuda:1"
    over.set()
    thread.join()
    assert seen == ["cuda:0", "cpu"]
    switch.detach()
    assert (str(torch.get_default_device()), torch.cuda.current_device()) == ("cpu", 0)


def test_one_cells_device_after_cuda_has_failed(
    torch: Any, switch: DeviceSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If CUDA has failed when a cell with --device ends, a note reports that the previous CUDA device can't
    be restored.

    The default device of new tensors is still restored.
    """
    torch.cuda.init()
    leave = switch.use_device("cuda:1")

    def failed() -> int:
        raise RuntimeError("CUDA error: device-side assert triggered\nCompile with TORCH_USE_CUDA_DSA")

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "current_device", failed)
        note = leave() or ""
        assert "can't be restored" in note
        assert note.endswith(": RuntimeError: CUDA error: device-side assert triggered")
    assert str(torch.get_default_device()) == "cpu"
    switch.choose("cpu")
    assert str(cell(switch, torch.get_default_device)) == "cpu"
    assert switch.state.pending is False


def test_one_cells_device_that_cuda_refuses(
    torch: Any, switch: DeviceSwitch, caplog: pytest.LogCaptureFixture
) -> None:
    """If --device names a device that does not exist, a warning reports it."""
    torch.cuda.init()
    switch.use_device("cuda:7")()
    assert "cuda:7 can't be the current CUDA device" in caplog.text


def test_a_forked_child_does_not_wait(torch: Any, switch: DeviceSwitch) -> None:
    """In a forked child process, the switch's lock is free, a choice is applied immediately, and 'none'
    undoes it.
    """
    switch.choose("cuda:1")
    cell(switch)
    held = threading.Thread(target=switch._lock.acquire)
    held.start()
    held.join()
    switch.reset_in_child()
    switch.choose("cuda:0")
    assert str(torch.get_default_device()) == "cuda:0"
    switch.choose(None)
    assert str(torch.get_default_device()) == "cpu"


def test_one_cells_device_without_torch(monkeypatch: pytest.MonkeyPatch, switch: DeviceSwitch) -> None:
    """If torch is not imported, --device raises an error."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(OptionError, match="torch is not imported yet"):
        switch.use_device("cuda:1")


def test_without_cells_a_choice_applies_immediately(torch: Any) -> None:
    """In a script, which has no cells, a choice is applied immediately."""
    switch = DeviceSwitch()
    switch.choose("cuda:1")
    assert str(torch.get_default_device()) == "cuda:1"
    switch.choose(None)
    assert str(torch.get_default_device()) == "cpu"


def test_unloading_restores_all_settings(torch: Any, switch: DeviceSwitch) -> None:
    """After %unload_ext, torch's devices are the same as before gpuwidget was loaded, and no device is
    chosen.
    """
    torch.cuda.init()
    switch.choose("cuda:1")
    cell(switch)
    switch.detach()
    assert (str(torch.get_default_device()), torch.cuda.current_device()) == ("cpu", 0)
    assert switch.state == DeviceState(None, True, False, None, None)


@pytest.mark.stops_errors
def test_subscribers_are_notified_of_every_change(torch: Any, switch: DeviceSwitch) -> None:
    """Subscribers are notified once when a device is chosen, once when the choice is applied, and once when
    user code changes the device.
    """
    heard: list[tuple[str | None, bool, str | None]] = []
    switch.subscribe(lambda state: heard.append((state.chosen, state.pending, state.present)))
    switch.subscribe(lambda state: 1 / 0)  # type: ignore[arg-type]
    switch.choose("cpu")
    cell(switch)
    cell(switch)
    cell(switch, lambda: torch.set_default_device("meta"))
    assert heard == [("cpu", True, "cpu"), ("cpu", False, "cpu"), ("cpu", False, "meta")]


def test_names_of_devices() -> None:
    """Only 'cuda:N', where N is a decimal number without leading zeros, is parsed as a CUDA device."""
    assert [cuda_index(name) for name in ("cuda:0", "cuda:1", "cuda:12")] == [0, 1, 12]
    for name in ("cuda", "cpu", "cuda:x", "cuda:01", "cuda:\N{SUPERSCRIPT TWO}", "cuda:1\n", "", None):
        assert cuda_index(name) is None
