"""The owners of GPU memory are sent with the memory in use of the same reading. If the search for them takes
long or hangs, the monitor never sends old results as new ones. It sends correct results again once the search
works again."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from fakes import FakeClock
from helpers_samples import GIB, h200, process, reading, sample

from gpuwidget.model.gpu_process import Process
from gpuwidget.server import memory_ownership
from gpuwidget.server.history import HistoryStore
from gpuwidget.server.kernel_inventory import InventorySnapshot, KernelInventory
from gpuwidget.server.memory_ownership import OwnershipMonitor
from gpuwidget.server.ownership_resolver import OwnershipResolver
from gpuwidget.server.wire import ServerKernel

SILENT = "For 10 seconds, this machine has not reported who owns the processes on the GPUs."
STEP_S = 0.2


class ProcessContext(KernelInventory):
    """A fake inventory of this server's kernels; a test sets the kernels."""

    def __init__(self) -> None:
        self.kernels: tuple[ServerKernel, ...] = ()

    def snapshot(self) -> InventorySnapshot:
        return InventorySnapshot(self.kernels, {}, {}, 0)

    def manager(self, kernel_id: str) -> Any:
        return None

    def close(self) -> None:
        pass


class Machine:
    """A machine on which every search for the owners of GPU memory hangs if ``stuck`` is true.
    ``messages`` contains the messages that the monitor sent, newest last."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.context = ProcessContext()
        self.messages: list[Any] = []
        self.watch = OwnershipMonitor(self.context, self.clock, HistoryStore(600.0, STEP_S), self._receive)
        self.used = 60 * GIB
        self.processes: tuple[Process, ...] | None = (process(3_999_999, 2 * GIB),)
        self.gates: list[threading.Event] = []
        self.stuck = True
        self._go_on = threading.Event()

    def _receive(self, message: bytes) -> None:
        self.messages.append(json.loads(message))

    def hang(self) -> None:
        """If ``stuck`` is true, block the calling thread until the test lets it continue."""
        gate = threading.Event()
        self.gates.append(gate)
        if self.stuck:
            gate.wait(60.0)

    async def run(self, seconds: float) -> None:
        """Add samples to the monitor for this many seconds of the fake clock."""
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            self.add_sample()
            await asyncio.sleep(0)

    def add_sample(self) -> None:
        """Add one sample to the monitor."""
        gpu = h200(0)
        newest = reading(gpu, memory_used=self.used, processes=self.processes)
        self.watch.add_sample(sample((gpu, newest), time=self.clock.time()))

    async def hang_after_first_message(self) -> None:
        """Let the first search succeed. All later ones hang."""
        self.stuck = False
        self.watch.enable(True)
        self.add_sample()
        await self.message(1)
        self.stuck = True

    async def change(self, used: int) -> None:
        """Set the memory in use, and add samples for 0.6 s, after which the monitor has started a search."""
        self.used = used
        await self.run(0.6)

    def has_searched(self, times: int) -> bool:
        """Return whether this number of searches have begun."""
        return len(self.gates) == times

    async def grow(self) -> float:
        """Add a sample with one GiB more in use, and return the memory in use in GiB."""
        self.used += GIB
        await self.run(STEP_S)
        return self.used / GIB

    async def message(self, number: int) -> Any:
        """Wait until the monitor has sent this number of messages and is idle, and return the newest."""
        for _ in range(2000):
            if len(self.messages) >= number and not self.watch._running:
                assert len(self.messages) == number
                return self.messages[-1]
            await asyncio.sleep(0.005)
        raise AssertionError("no message came")

    async def wait_for_reason(self, reason: str | None) -> Any:
        """Add samples until the monitor sends a message with this reason, and return that message."""
        for _ in range(2000):
            await self.run(STEP_S)
            if self.messages and self.messages[-1]["gpus"][0]["reason"] == reason:
                return self.messages[-1]
            await asyncio.sleep(0.005)
        raise AssertionError("no message has this reason")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a machine on which every search for the owners of GPU memory hangs."""
    machines: list[Machine] = []

    class Hanging(OwnershipResolver):
        """A resolver whose searches for the owners hang.
        Each test defines this class again, so that threads of earlier tests keep using their own machine."""

        def resolve(self, request: Any) -> Any:
            machines[0].hang()
            return super().resolve(request)

    monkeypatch.setattr(memory_ownership, "OwnershipResolver", Hanging)
    machines.append(made := Machine())
    yield made
    made.stuck = False
    for gate in made.gates:
        gate.set()
    made.watch.enable(False)


def kernel(name: str) -> ServerKernel:
    """Return a notebook's kernel as the server lists it."""
    return ServerKernel(name, "python3", "idle", 1.0, None, None, None, f"{name}.ipynb", None, None)


def shown(message: Any) -> tuple[object, ...]:
    """Return the used, the unattributed and the holder's memory in GiB, and whether the holder is older."""
    (gpu,) = message["gpus"]
    (holder,) = gpu["holdings"]
    sizes = (gpu["memory_used"], gpu["unattributed"], holder["memory"])
    return *(None if size is None else size / GIB for size in sizes), gpu["older"]


async def test_owners_are_sent_with_their_reading(machine: Machine) -> None:
    """If the memory in use has clearly changed, the owners are sent with this memory, at most twice per
    second. After a small change, they are sent two seconds later."""
    machine.stuck = False
    machine.watch.enable(True)
    machine.add_sample()
    assert shown(await machine.message(1)) == (60, 58, 2, False)
    await machine.change(70 * GIB)
    newest = await machine.message(2)
    assert (shown(newest), newest["time"]) == ((70, 68, 2, False), machine.clock.time())
    machine.used = 80 * GIB
    await machine.run(0.4)
    assert len(machine.gates) == 2
    await machine.run(STEP_S)
    assert shown(await machine.message(3)) == (80, 78, 2, False)
    machine.used += GIB // 32
    await machine.run(1.8)
    assert len(machine.gates) == 3
    await machine.run(0.6)
    assert shown(await machine.message(4)) == (80 + 1 / 32, 78 + 1 / 32, 2, False)


async def test_owners_of_an_older_reading_are_marked(machine: Machine) -> None:
    """If the memory in use changes and no search for its owners succeeds for two seconds, the previous owners
    are sent with the newest memory, and marked as older. When a search succeeds, owners whose memory has
    changed since then stay marked until the next search."""
    await machine.hang_after_first_message()
    await machine.change(70 * GIB)
    await machine.run(1.8)
    assert len(machine.messages) == 1
    await machine.run(0.6)
    assert shown(machine.messages[1]) == (70, None, 2, True)
    await machine.change(90 * GIB)
    assert shown(machine.messages[2]) == (90, None, 2, True)
    machine.stuck = False
    machine.gates[-1].set()
    await machine.message(3)
    await machine.run(0.6)
    assert shown(await machine.message(4)) == (90, 88, 2, False)


async def test_a_mark_ends_with_the_search(machine: Machine) -> None:
    """When the search for the owners succeeds and their memory is that of the newest reading again, they are
    no longer marked as older. While the mark is shown, the owners are searched twice per second."""
    await machine.hang_after_first_message()
    await machine.change(70 * GIB)
    await machine.change(90 * GIB)
    await machine.run(1.8)
    assert shown(machine.messages[-1]) == (90, None, 2, True)
    await machine.change(70 * GIB)
    number = len(machine.messages)
    assert shown(machine.messages[-1]) == (70, None, 2, True)
    machine.stuck = False
    machine.gates[-1].set()
    assert shown(await machine.message(number + 1)) == (70, 68, 2, False)


async def test_the_memory_of_a_slow_search_is_sent(machine: Machine) -> None:
    """If each search takes one second while the memory grows all the time, the owners that it finds are sent
    with their memory, not marked as older."""
    await machine.hang_after_first_message()
    for number in range(2, 6):
        machine.stuck = True
        used = await machine.grow()
        while not machine.watch._running:
            used = await machine.grow()
        for _ in range(4):
            await machine.grow()
        machine.clock.until(partial(machine.has_searched, number))
        machine.stuck = False
        machine.gates[-1].set()
        assert shown(await machine.message(number)) == (used, used - 2, 2, False)


async def test_unattributed_memory_is_never_older(machine: Machine) -> None:
    """If the driver lists no processes, all memory is unattributed, also while the search hangs."""
    machine.processes = None
    await machine.hang_after_first_message()
    await machine.change(70 * GIB)
    await machine.run(2.4)
    (gpu,) = machine.messages[-1]["gpus"]
    assert (gpu["memory_used"], gpu["unattributed"], gpu["older"]) == (70 * GIB, 70 * GIB, False)


async def test_owners_whose_memory_has_not_changed_are_not_older(machine: Machine) -> None:
    """While the search for the owners hangs, the owners of memory that has not clearly changed are neither
    marked nor sent again."""
    await machine.hang_after_first_message()
    machine.used += GIB // 32
    await machine.run(9.0)
    machine.clock.until(lambda: len(machine.gates) == 2)
    assert len(machine.messages) == 1


async def test_current_memory_is_sent_while_ownership_hangs(machine: Machine) -> None:
    """If the search for the owners has hung for ten seconds, the monitor sends a message without owners:
    it contains the reason, the current memory and the current kernels."""
    machine.context.kernels = (kernel("old"),)
    machine.watch.enable(True)
    machine.add_sample()
    await machine.run(9.0)
    assert machine.messages == []
    await machine.run(2.0)
    assert machine.messages[-1]["gpus"][0]["unattributed"] == 60 * GIB
    assert machine.messages[-1]["gpus"][0]["reason"] == SILENT
    machine.context.kernels, machine.used = (kernel("new"),), 5 * GIB
    await machine.run(3.0)
    newest = machine.messages[-1]
    assert (newest["gpus"][0]["unattributed"], newest["gpus"][0]["reason"]) == (5 * GIB, SILENT)
    assert [one["id"] for one in newest["kernels"]] == ["new"]
    assert machine.clock.time() - newest["time"] <= 3.0


async def test_hung_resolutions_use_few_threads(machine: Machine) -> None:
    """If the search for the owners hangs, the monitor starts further searches, at most three at a time.
    As soon as a search succeeds again, the monitor sends the owners and their memory."""
    before = threading.active_count()
    machine.watch.enable(True)
    machine.add_sample()
    await machine.run(200.0)
    machine.clock.until(lambda: len(machine.gates) == 3)
    await machine.run(60.0)
    assert len(machine.gates) == 3
    assert threading.active_count() - before <= 3
    machine.stuck = False
    machine.gates[0].set()
    message = await machine.wait_for_reason(None)
    assert [one["memory"] for one in message["gpus"][0]["holdings"]] == [2 * GIB]
    assert len(machine.gates) >= 4


async def test_a_new_client_gets_no_old_data(machine: Machine) -> None:
    """If a search for the owners has hung for hours, a new client does not receive that search's result.
    The monitor starts a new search, and sends the reason if the new search hangs too."""
    machine.context.kernels = (kernel("old"),)
    machine.watch.enable(True)
    machine.add_sample()
    await machine.run(1.0)
    machine.clock.until(lambda: len(machine.gates) == 1)
    machine.watch.enable(False)
    machine.context.kernels, machine.used = (), 5 * GIB
    machine.clock.advance(8 * 3600.0)
    machine.watch.enable(True)
    machine.add_sample()
    await machine.run(9.0)
    machine.clock.until(lambda: len(machine.gates) == 2)
    assert machine.messages == []
    await machine.run(2.0)
    (message,) = machine.messages
    assert (message["kernels"], message["gpus"][0]["unattributed"], message["gpus"][0]["reason"]) == (
        [],
        5 * GIB,
        SILENT,
    )
    assert machine.clock.time() - message["time"] <= 2.0
    # Let the first search return. Its result is hours old and must be discarded.
    machine.gates[0].set()
    await machine.run(3.0)
    assert {one["gpus"][0]["reason"] for one in machine.messages} == {SILENT}
