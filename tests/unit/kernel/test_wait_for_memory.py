"""Tests of %%gpuwatch --need: a cell runs only once its GPU has enough free memory.

--wait limits how long gpuwidget waits for the memory, and a status line shows why it waits.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fakes import FakeClock, FakeSource
from helpers_torch import make_torch

from gpuwidget import pytorch
from gpuwidget.kernel.cells import target_gpus, wait_for_memory
from gpuwidget.kernel.cells.options import parse
from gpuwidget.kernel.cells.target_gpus import find_target_gpus
from gpuwidget.kernel.cells.wait_for_memory import MemoryWait
from gpuwidget.model.errors import GpuLostError, OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.torch_state import DeviceBlocks
from gpuwidget.pytorch.device_switch import DeviceSwitch
from gpuwidget.sampler import NO_THREAD, Sampler
from gpuwidget.system.processes import own_user

GIB = 1024**3
TOTAL = 150_000_000_000


class FakeStatusLine:
    """A fake of the status line that a user sees during the wait; records its texts."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.closed = 0
        self.on_show: Callable[[], None] = lambda: None

    def show(self, text: str, progress: str) -> None:
        self.shown.append(f"{text} {progress}")
        self.on_show()

    def close(self) -> None:
        self.closed += 1


class Bench:
    """Two fake GPUs, and a clock that advances while gpuwidget waits for memory."""

    def __init__(self, reason: str | None = None, reserved: int | None = 0) -> None:
        self.clock = FakeClock()
        self.source = FakeSource(gpus=2, clock=self.clock)
        self.source.gpus = [replace(gpu, memory_reserved=reserved) for gpu in self.source.gpus]
        self.source.present = list(self.source.gpus)
        if reason is not None:
            self.source.present, self.source.reason, self.source.kind = [], reason, "none"
        self.sampler = Sampler(self.source, self.clock)
        self._keep = self.sampler.subscribe()
        self.clock.until(lambda: self.sampler.latest is not None)
        self.line = FakeStatusLine()

    def wait(self, line: str) -> str | None:
        """Wait for memory with these options of a cell while the clock advances; return the note for the
        card, or None if there is none."""
        options = parse(line)
        assert options.need is not None
        made: list[str | OptionError | None] = []
        shown: Any = self.line
        # The wait runs on the main thread, which receives interrupts; another thread advances the clock.
        over = threading.Event()

        def tick() -> None:
            # The clock does not advance during a reading. Otherwise, the reading could time out on a slow
            # machine.
            fast = self.sampler._fast
            while not over.wait(0.001):
                if fast.is_done(fast._requested):
                    self.clock.advance(0.1)

        ticking = threading.Thread(target=tick)
        ticking.start()
        try:
            made.append(MemoryWait(options, options.need, self.sampler, shown, self.clock).wait())
        except OptionError as error:
            made.append(error)
        finally:
            over.set()
            ticking.join()
        (outcome,) = made
        if isinstance(outcome, OptionError):
            raise outcome
        return outcome

    def error_of(self, options: str) -> str:
        """Wait for memory with these options. Assert that the cell is skipped; return the error's message."""
        with pytest.raises(OptionError) as raised:
            self.wait(options)
        text = str(raised.value)
        assert "\n" not in text
        return text


def test_no_wait_without_threads(no_threads: None) -> None:
    """If no thread can be started, a cell with --need is not run. The error does not blame the driver."""
    clock, line, options = FakeClock(), FakeStatusLine(), parse("--need 1GiB")
    sampler = Sampler(FakeSource(gpus=1), clock)
    shown: Any = line
    assert options.need is not None
    with sampler.subscribe(), pytest.raises(OptionError) as raised:
        MemoryWait(options, options.need, sampler, shown, clock).wait()
    assert (str(raised.value), clock.monotonic()) == (NO_THREAD, 0.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pytorch, "default_device", lambda: None)
    monkeypatch.setattr(pytorch, "current_cuda_device", lambda: None)
    monkeypatch.setattr(pytorch, "devices", tuple)
    made = Bench()
    yield made
    made.sampler.stop()


def other_process(memory: int | None, program: str = "python train.py", user: str | None = "anna") -> Process:
    return Process(pid=1, kind="compute", memory=memory, user=user, program=program)


def test_enough_free_memory(bench: Bench) -> None:
    """If enough memory is free, the cell runs immediately, and its card has no note about waiting."""
    assert bench.wait("--need 20GiB --wait 10m") is None
    assert bench.line.shown == []


def test_need_without_wait(bench: Bench) -> None:
    """Without --wait, a cell is skipped if its GPU has too little free memory.

    The message contains the free memory and the processes that hold the rest.
    """
    bench.source.memory[0] = TOTAL - 12 * GIB
    mine = own_user()
    bench.source.processes[0] = (
        *(other_process(10 * GIB, "<b>") for _ in range(3)),
        other_process(None, "quiet"),
        other_process(50 * GIB, user=mine),
        other_process(4 * GIB, user=None),
    )
    text = bench.error_of("--need 20GiB")
    assert text.startswith("--need: the cell was not run. It needs 20.0 GiB free on GPU 0 H200 (")
    assert "; the GPU has 12.0 of 139.7 GiB free (holders: " in text
    assert text.partition("holders: ")[2].partition("). ")[0].split(", ") == [
        "another process: python train.py 50.0 GiB",
        "3 processes of other users 30.0 GiB",
        "another process (1) 4.0 GiB",
        "another process of another user",
    ]
    assert "With --wait 10m" in text
    assert bench.line.shown == []
    assert bench.line.closed > 0


def test_waiting_until_memory_is_free(bench: Bench) -> None:
    """With --wait, the cell runs as soon as enough memory is free.

    A status line is shown during the wait, and the card contains a note about it.
    """
    bench.source.memory[1] = TOTAL - 12 * GIB

    def free_memory() -> None:
        if len(bench.line.shown) == 3:
            bench.source.memory[1] = TOTAL - 21 * GIB

    bench.line.on_show = free_memory
    note = bench.wait("--need 20GiB --wait 10m --gpu 1")
    assert bench.line.shown[0].startswith("Waiting for 20.0 GiB free on GPU 1 H200 (--gpu): ")
    assert bench.line.shown[0].endswith("12.0 of 139.7 GiB free. 0 s of at most 10 min 00 s")
    assert note is not None
    assert note.startswith("Waited ")
    assert note.endswith("s for 20.0 GiB free on GPU 1 H200 (--gpu).")
    assert bench.line.closed > 0


def test_memory_that_is_not_free_in_time(bench: Bench) -> None:
    """If the memory does not become free in time, the cell is skipped.

    The message contains the last reading of the free memory.
    """
    bench.source.memory[0] = TOTAL - 12 * GIB
    text = bench.error_of("--need 20GiB --wait 90s")
    assert "It waited 1 min 30 s for 20.0 GiB free on GPU 0 H200" in text
    assert text.endswith("; the GPU has 12.0 of 139.7 GiB free.")


def test_more_memory_than_the_gpu_has(bench: Bench) -> None:
    """A cell that needs more memory than the GPU has is skipped without waiting."""
    assert bench.error_of("--need 1TiB --wait 10m").endswith("; GPU 0 has a total of 139.7 GiB.")
    assert bench.line.shown == []


def test_memory_that_the_driver_reserves(bench: Bench) -> None:
    """Memory that the driver reserves does not count as free.

    If a cell needs more than the total minus the reserved memory, it is skipped without waiting.
    """
    keeps = Bench(reserved=GIB)
    keeps.source.memory[0] = TOTAL - 21 * GIB
    assert keeps.wait("--need 20GiB") is None
    assert "; the GPU has 20.0 of 139.7 GiB free." in keeps.error_of("--need 20.5GiB")
    text = keeps.error_of("--need 139GiB --wait 10m")
    assert text.endswith("; GPU 0 has a total of 139.7 GiB, of which the driver reserves 1.0 GiB.")
    assert keeps.line.shown == []
    keeps.sampler.stop()


def test_unknown_reserved_memory(bench: Bench) -> None:
    """If it is unknown how much memory the driver reserves, the free memory is unknown too.

    The cell is then skipped without waiting.
    """
    unknown = Bench(reserved=None)
    text = unknown.error_of("--need 1GiB --wait 10m")
    assert "the cell was not run" in text
    assert "the free memory of GPU 0 is unknown" in text
    assert unknown.line.shown == []
    unknown.sampler.stop()


def test_a_gpu_that_is_lost(bench: Bench) -> None:
    """The free memory of a lost GPU is unknown, even if it was read before the loss."""
    bench.source.failing[0] = GpuLostError("GPU 0 fell off the bus.")
    assert bench.error_of("--need 1GiB --wait 2s").endswith(
        "; the free memory of the GPU is unknown (the GPU is lost)."
    )


def test_the_torch_cache_of_this_process_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused memory in torch's cache in this process counts as free, and the card has a note about it.

    If that is still not enough memory, the message contains the size of the unused cache.
    """
    cache = DeviceBlocks(0, (), (), (), 40 * GIB, returnable=30 * GIB, pending_free=0, private_pools=0)
    monkeypatch.setattr(pytorch, "memory_blocks", lambda: {0: cache})
    bench.source.memory[0] = TOTAL - 12 * GIB
    bench.source.processes[0] = (other_process(30 * GIB),)
    assert (
        "; the GPU has 12.0 of 139.7 GiB free (and 30.0 GiB in this notebook's torch cache, not in tensors) "
        "(holders: "
    ) in (bench.error_of("--need 43GiB"))
    note = bench.wait("--need 42GiB") or ""
    assert note.startswith("GPU 0 had 12.0 GiB free. ")
    assert "30.0 GiB in this notebook's torch cache" in note
    assert note.endswith("torch.cuda.empty_cache().")
    assert bench.wait("--need 12GiB") is None
    monkeypatch.setattr(pytorch, "memory_blocks", lambda: 1 / 0)
    assert "; the GPU has 12.0 of 139.7 GiB free (holders: " in bench.error_of("--need 20GiB")


def test_a_failing_check_skips_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the memory check itself fails, the cell is skipped with a one-line message."""
    monkeypatch.setattr(wait_for_memory, "process_sampler", lambda: 1 / 0)
    with pytest.raises(OptionError) as raised:
        wait_for_memory.wait_for_memory(parse("--need 1GiB"), None)
    assert str(raised.value).startswith("The cell was not run: ")
    assert str(raised.value).endswith("(ZeroDivisionError: division by zero).")


def test_a_cell_without_need_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --need, gpuwidget does not query the driver before the cell."""
    monkeypatch.setattr(wait_for_memory, "process_sampler", lambda: 1 / 0)
    assert wait_for_memory.wait_for_memory(parse(""), None) is None


def test_unknown_free_memory(bench: Bench) -> None:
    """If the driver does not report the used memory, the cell is skipped, and the message contains the
    reason."""
    bench.source.memory[0] = None
    bench.source.missing = {"memory_used": "not supported by this GPU"}
    text = bench.error_of("--need 1GiB --wait 2s")
    assert text.endswith("; the free memory of the GPU is unknown (not supported by this GPU).")


def test_an_interrupt_ends_the_wait(bench: Bench) -> None:
    """If the user clicks stop during the wait, the cell is skipped without a KeyboardInterrupt."""
    bench.source.memory[0] = TOTAL - 12 * GIB
    bench.line.on_show = lambda: signal.raise_signal(signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    text = bench.error_of("--need 20GiB --wait 10m")
    assert text.startswith("Interrupted after ")
    assert text.endswith("the cell was not run.")
    assert signal.getsignal(signal.SIGINT) is before


def test_several_gpus(bench: Bench) -> None:
    """Each GPU in --gpu must have enough free memory. The message names the GPUs that do not."""
    bench.source.memory[1] = TOTAL - 12 * GIB
    assert "; GPU 1 has 12.0 of 139.7 GiB free. With" in bench.error_of("--need 20GiB --gpu 0 1")
    assert bench.wait("--need 12GiB --gpu 0 1") is None


# -- the GPU that --need applies to ----------------------------------------------------------------------


def chosen(bench: Bench, options: str = "") -> tuple[list[int], str]:
    """Return the indices of the GPUs that --need applies to for these options, and the reason for the
    choice."""
    sample = bench.sampler.read_now(1.0)
    found, selected_by = find_target_gpus(parse(options), sample)
    return [target.gpu.index for target in found], selected_by


@pytest.mark.parametrize(
    ("options", "default", "current", "visible", "expected"),
    [
        ("", None, None, None, ([0], "the first that CUDA sees")),
        ("", None, None, "1", ([1], "the only GPU")),
        ("", "cpu", None, "1,0", ([1], "the first that CUDA sees")),
        ("", "cuda:1", 0, None, ([1], "torch's default device, cuda:1")),
        ("", "cpu", 1, None, ([1], "the current CUDA device, cuda:1")),
        ("--gpu 1", "cuda:0", 0, None, ([1], "--gpu")),
        ("--gpu 0 1", None, None, None, ([0, 1], "--gpu")),
        ("--device cuda:1 --gpu 0", None, None, None, ([1], "--device cuda:1")),
    ],
)
def test_how_the_gpu_is_chosen(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    default: str | None,
    current: int | None,
    visible: str | None,
    expected: tuple[list[int], str],
) -> None:
    """--need applies to the GPU in the cell's options, else to torch's GPU, else to CUDA's first GPU.

    The reason for the choice is part of the message.
    """
    monkeypatch.setattr(pytorch, "default_device", lambda: default)
    monkeypatch.setattr(pytorch, "current_cuda_device", lambda: current)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert chosen(bench, options) == expected


def test_a_device_choice_before_cuda_is_initialized(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If `%gpu device cuda:1 --light` was run before CUDA is initialized, --need applies to cuda:1."""
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    switch = DeviceSwitch()
    monkeypatch.setattr(target_gpus, "DEVICE_SWITCH", switch)
    switch.attach(threading.get_ident())
    switch.choose("cuda:1", new_tensors=False)
    assert chosen(bench) == ([0], "the first that CUDA sees")  # the choice takes effect before the next cell
    switch.before_cell()
    assert chosen(bench) == ([1], "chosen as the current CUDA device, cuda:1")
    monkeypatch.setattr(pytorch, "current_cuda_device", lambda: 0)  # as if user code chose cuda:0
    assert chosen(bench) == ([0], "the current CUDA device, cuda:0")
    switch.detach()
    monkeypatch.setattr(pytorch, "current_cuda_device", lambda: None)
    assert chosen(bench) == ([0], "the first that CUDA sees")


@pytest.mark.parametrize(
    ("options", "visible", "message"),
    [
        ("--device cpu", None, "--device cpu is not a GPU"),
        ("--device cuda:7", None, "Couldn't tell which GPU cuda:7 is, so start CUDA in an earlier cell"),
        ("", "", "CUDA_VISIBLE_DEVICES hides every GPU"),
    ],
)
def test_no_gpu_can_be_chosen(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, options: str, visible: str | None, message: str
) -> None:
    """If it cannot be determined which GPU the cell uses, an error gives the reason."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(OptionError, match=message):
        chosen(bench, options)


def test_a_machine_without_a_gpu(bench: Bench) -> None:
    """On a machine without a GPU, a cell with --need is skipped, and the message contains the reason."""
    without = Bench(reason="The driver is not installed.")
    assert without.error_of("--need 1GiB --wait 10m") == "The cell needs a GPU. The driver is not installed."
    without.sampler.stop()
