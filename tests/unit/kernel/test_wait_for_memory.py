"""Cells that wait for free memory: on which GPU, how long, and what they show."""

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

from gpuwidget.kernel.cells import target_gpus as targets_module
from gpuwidget.kernel.cells import wait_for_memory
from gpuwidget.kernel.cells.options import parse
from gpuwidget.kernel.cells.target_gpus import targets
from gpuwidget.kernel.cells.wait_for_memory import MemoryWait
from gpuwidget.model.errors import GpuLostError, OptionError
from gpuwidget.model.samples import Process
from gpuwidget.pytorch import allocator, cuda_state
from gpuwidget.pytorch.allocator import DeviceBlocks
from gpuwidget.pytorch.device_switch import DeviceSwitch
from gpuwidget.sampler import Sampler
from gpuwidget.system.processes import own_user

GIB = 1024**3
TOTAL = 150_000_000_000


class Line:
    """What a user sees meanwhile."""

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
    """A clock that goes on by itself, two GPUs, and cells that wait for them."""

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
        self.line = Line()

    def wait(self, line: str) -> str | None:
        """Wait as a cell with those options does; its card's note. The clock advances meanwhile."""
        options = parse(line)
        assert options.need is not None
        made: list[str | OptionError | None] = []
        shown: Any = self.line
        # Interrupts belong to the main thread: the clock goes on in another.
        over = threading.Event()

        def tick() -> None:
            # Not while a reading is under way: on a slow machine the time for it would be over.
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

    def refused(self, options: str) -> str:
        """The sentence with which a cell is refused."""
        with pytest.raises(OptionError) as raised:
            self.wait(options)
        text = str(raised.value)
        assert "\n" not in text
        return text


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda_state, "default_device", lambda: None)
    monkeypatch.setattr(cuda_state, "current_cuda_device", lambda: None)
    monkeypatch.setattr(cuda_state, "devices", tuple)
    made = Bench()
    yield made
    made.sampler.stop()


def stranger(memory: int | None, program: str = "python train.py", user: str | None = "anna") -> Process:
    return Process(pid=1, kind="compute", memory=memory, user=user, program=program, arguments="--key X")


def test_room_is_there(bench: Bench) -> None:
    """With room enough the cell begins at once, and its card says nothing of it."""
    assert bench.wait("--need 20GiB --wait 10m") is None
    assert bench.line.shown == []
    assert wait_for_memory.collectors(None) == []


def test_looking_once(bench: Bench) -> None:
    """Without --wait a cell that has no room is refused: how much there is, and who holds the rest."""
    bench.source.memory[0] = TOTAL - 12 * GIB
    mine = own_user()
    bench.source.processes[0] = (
        *(stranger(10 * GIB, "<b>") for _ in range(3)),
        stranger(None, "quiet"),
        stranger(50 * GIB, user=mine),
        stranger(4 * GIB, user=None),
    )
    text = bench.refused("--need 20GiB")
    assert text == (
        "--need: the cell was not run. It asks for 20.0 GiB free on GPU 0 H200 (the first that CUDA sees); "
        "it has 12.0 of 139.7 GiB free, held by another process: python train.py 50.0 GiB, "
        "3 processes of other users 30.0 GiB, another process (1) 4.0 GiB, another process of another user. "
        "With --wait 10m it waits for that."
    )
    assert bench.line.shown == []
    assert bench.line.closed > 0


def test_waiting_until_there_is_room(bench: Bench) -> None:
    """The cell begins when somebody makes room; meanwhile a line says how much there is, and the card why."""
    bench.source.memory[1] = TOTAL - 12 * GIB

    def make_room() -> None:
        if len(bench.line.shown) == 3:
            bench.source.memory[1] = TOTAL - 21 * GIB

    bench.line.on_show = make_room
    note = bench.wait("--need 20GiB --wait 10m --gpu 1")
    assert bench.line.shown[0] == (
        "Waiting for 20.0 GiB free on GPU 1 H200 (--gpu): it has 12.0 of 139.7 GiB free. "
        "0 s of at most 10 min 00 s"
    )
    assert note is not None
    assert note.startswith("Waited ")
    assert note.endswith("s for 20.0 GiB free on GPU 1 H200 (--gpu).")
    assert bench.line.closed > 0
    assert len(wait_for_memory.collectors(note)) == 1


def test_in_vain(bench: Bench) -> None:
    """After the time given the cell is refused, with what there was at the last."""
    bench.source.memory[0] = TOTAL - 12 * GIB
    assert bench.refused("--need 20GiB --wait 90s") == (
        "--need: the cell was not run. It waited 1 min 30 s for 20.0 GiB free on GPU 0 H200 "
        "(the first that CUDA sees); it has 12.0 of 139.7 GiB free."
    )


def test_more_than_there_is(bench: Bench) -> None:
    """What no wait can bring is refused at once."""
    assert bench.refused("--need 1TiB --wait 10m").endswith("; GPU 0 has 139.7 GiB in all.")
    assert bench.line.shown == []


def test_what_the_driver_keeps_is_never_free(bench: Bench) -> None:
    """It is no room, and a cell that asks for so much that it would need it is refused at once."""
    keeps = Bench(reserved=GIB)
    keeps.source.memory[0] = TOTAL - 21 * GIB
    assert keeps.wait("--need 20GiB") is None
    assert "; it has 20.0 of 139.7 GiB free." in keeps.refused("--need 20.5GiB")
    assert keeps.refused("--need 139GiB --wait 10m") == (
        "--need: the cell was not run. It asks for 139.0 GiB free on GPU 0 H200 (the first that CUDA sees); "
        "GPU 0 has 139.7 GiB in all, of which the driver keeps 1.0 GiB."
    )
    assert keeps.line.shown == []
    keeps.sampler.stop()


def test_what_the_driver_keeps_is_not_known(bench: Bench) -> None:
    """Then nobody can say what is free, and no wait will change that."""
    unknown = Bench(reserved=None)
    assert unknown.refused("--need 1GiB --wait 10m") == (
        "--need: the cell was not run. It asks for 1.0 GiB free on GPU 0 H200 (the first that CUDA sees); "
        "the free memory of GPU 0 is unknown, because the driver does not report how much of its memory it "
        "reserves."
    )
    assert unknown.line.shown == []
    unknown.sampler.stop()


def test_a_gpu_that_is_lost(bench: Bench) -> None:
    """It has no room, whatever it was last known to use."""
    bench.source.failing[0] = GpuLostError("GPU 0 fell off the bus.")
    assert bench.refused("--need 1GiB --wait 2s").endswith("; it has n/a (the GPU is lost).")


def test_the_cells_own_torch_cache_is_room(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch holds here without a tensor in it serves this cell: nobody waits for it, and the card says
    that it was counted; where it is not enough, the line says what there is of it."""
    cache = DeviceBlocks(0, (), (), (), 40 * GIB, returnable=30 * GIB, waiting=0, private=0)
    monkeypatch.setattr(allocator, "snapshot", lambda: {0: cache})
    bench.source.memory[0] = TOTAL - 12 * GIB
    bench.source.processes[0] = (stranger(30 * GIB),)
    assert "; it has 12.0 of 139.7 GiB free (and 30.0 GiB in this notebook's empty torch cache), held by" in (
        bench.refused("--need 43GiB")
    )
    assert bench.wait("--need 42GiB") == (
        "12.0 GiB of GPU 0 were free; --need also counted 30.0 GiB of this notebook's empty torch cache, "
        "which torch can reuse and other libraries and processes can't before torch.cuda.empty_cache()."
    )
    assert bench.wait("--need 12GiB") is None
    monkeypatch.setattr(allocator, "snapshot", lambda: 1 / 0)
    assert "; it has 12.0 of 139.7 GiB free, held by" in bench.refused("--need 20GiB")


def test_what_goes_wrong_meanwhile_runs_no_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails while a cell's room is looked at, the cell is refused, in one line."""
    monkeypatch.setattr(wait_for_memory, "process_sampler", lambda: 1 / 0)
    with pytest.raises(OptionError) as raised:
        wait_for_memory.wait_for_memory(parse("--need 1GiB"), None)
    assert str(raised.value) == (
        "The cell was not run: gpuwidget could not check whether the GPU has the memory that --need asks for "
        "(ZeroDivisionError: division by zero)."
    )


def test_a_cell_without_need_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --need the driver is not read before the cell."""
    monkeypatch.setattr(wait_for_memory, "process_sampler", lambda: 1 / 0)
    assert wait_for_memory.wait_for_memory(parse(""), None) is None


def test_memory_that_nobody_knows(bench: Bench) -> None:
    """Where the driver does not say what is free the cell does not begin, and the reason is told."""
    bench.source.memory[0] = None
    bench.source.missing = {"memory_used": "not supported by this GPU"}
    text = bench.refused("--need 1GiB --wait 2s")
    assert text.endswith("; it has n/a (not supported by this GPU).")


def test_an_interrupt_ends_it(bench: Bench) -> None:
    """'Stop' skips the cell with a sentence and without a KeyboardInterrupt."""
    bench.source.memory[0] = TOTAL - 12 * GIB
    bench.line.on_show = lambda: signal.raise_signal(signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    text = bench.refused("--need 20GiB --wait 10m")
    assert text.startswith("Interrupted after ")
    assert text.endswith("the cell was not run.")
    assert signal.getsignal(signal.SIGINT) is before


def test_several_gpus(bench: Bench) -> None:
    """Each GPU that --gpu names must have the room; those that have not are named."""
    bench.source.memory[1] = TOTAL - 12 * GIB
    assert "; GPU 1 has 12.0 of 139.7 GiB free. With" in bench.refused("--need 20GiB --gpu 0 1")
    assert bench.wait("--need 12GiB --gpu 0 1") is None


# -- which GPU -------------------------------------------------------------------------------------------


def which(bench: Bench, options: str = "") -> tuple[list[int], str]:
    """Indices of the GPUs a cell means, and how they were chosen."""
    sample = bench.sampler.read_now(1.0)
    found, words = targets(parse(options), sample)
    return [target.gpu.index for target in found], words


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
def test_which_gpu(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    default: str | None,
    current: int | None,
    visible: str | None,
    expected: tuple[list[int], str],
) -> None:
    """What the cell names, else what torch would use, else the first that CUDA will see; and it is said."""
    monkeypatch.setattr(cuda_state, "default_device", lambda: default)
    monkeypatch.setattr(cuda_state, "current_cuda_device", lambda: current)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert which(bench, options) == expected


def test_the_gpu_of_a_choice_that_waits_for_cuda(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `%gpu device cuda:1 --light` and before CUDA is up, the cell means the GPU it is about to use."""
    monkeypatch.setitem(sys.modules, "torch", make_torch())
    switch = DeviceSwitch()
    monkeypatch.setattr(targets_module, "SWITCH", switch)
    switch.attach(threading.get_ident())
    switch.choose("cuda:1", new_tensors=False)
    assert which(bench) == ([0], "the first that CUDA sees")  # it holds from the next cell
    switch.before_cell()
    assert which(bench) == ([1], "chosen as the current CUDA device, cuda:1")
    monkeypatch.setattr(cuda_state, "current_cuda_device", lambda: 0)  # the user's own code has moved it
    assert which(bench) == ([0], "the current CUDA device, cuda:0")
    switch.detach()
    monkeypatch.setattr(cuda_state, "current_cuda_device", lambda: None)
    assert which(bench) == ([0], "the first that CUDA sees")


@pytest.mark.parametrize(
    ("options", "visible", "said"),
    [
        ("--device cpu", None, "--device cpu is no GPU"),
        ("--device cuda:7", None, "Which GPU cuda:7 is can't be told here"),
        ("", "", "CUDA_VISIBLE_DEVICES hides every GPU"),
    ],
)
def test_no_gpu_that_could_be_meant(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, options: str, visible: str | None, said: str
) -> None:
    """Where no GPU can be meant the cell is refused, and told what to do."""
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(OptionError, match=said):
        which(bench, options)


def test_a_machine_without_a_gpu(bench: Bench) -> None:
    """The reason why there is none is told."""
    without = Bench(reason="The driver is not installed.")
    assert (
        without.refused("--need 1GiB --wait 10m") == "The cell asks for a GPU. The driver is not installed."
    )
    without.sampler.stop()
