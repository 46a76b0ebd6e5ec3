"""GPU-hours: how long and with how much memory and energy each kernel has used a GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from fakes import FakeSource, gpu
from helpers_samples import GIB, process
from helpers_server import Server
from server.test_memory_ownership import connected, pid_of, start_session, usage_where

from gpuwidget.server.gpu_hours import GpuHoursCounter, UseCounters
from gpuwidget.server.gpu_owners import ProcessOwner
from gpuwidget.server.gpu_work import GpuStep
from gpuwidget.server.idle_holders import IdleHolders
from gpuwidget.server.sample_hub import SampleHub
from gpuwidget.server.wire import GpuHours, GpuMemoryOwnership, IdleHolder, MemoryHolder, ServerKernel

GPU = gpu(0)
ANNA, BEN = ProcessOwner("anna", None), ProcessOwner("ben", None)


def kernel(name: str, path: str | None) -> ServerKernel:
    """Return a kernel of the server."""
    return ServerKernel(name, "python3", "idle", None, None, None, path, None, None, None)


KERNELS = (kernel("anna", "a.ipynb"), kernel("ben", None))


def holder(owner: ProcessOwner, memory: int | None) -> MemoryHolder:
    """Return a holder of memory."""
    return MemoryHolder(owner.kernel, owner.terminal, None, None, None, memory, "driver", other_users=False)


class Steps:
    """A counter, to which a test adds steps of ten seconds."""

    def __init__(self, **options: Any) -> None:
        self.counter = GpuHoursCounter(**options)
        self.now = 0.0

    def add(
        self,
        *holders: MemoryHolder,
        sole: ProcessOwner | None = None,
        busy_s: float | None = 0.0,
        energy: float | None = None,
        seconds: float | None = 10.0,
        kernels: Sequence[ServerKernel] = KERNELS,
    ) -> None:
        """Add a step at whose end these are the holders."""
        self.now += seconds or 0.0
        step = GpuStep(GPU, seconds, frozenset(), sole, busy_s)
        ownership = (GpuMemoryOwnership(GPU.uuid, holders, 0, None, ()),)
        self.counter.add([step], {GPU.uuid: energy}, ownership, kernels, self.now)

    def rows(self) -> list[UseCounters]:
        """Return the exported counters, without the time of their last change."""
        rows = self.counter.exported(self.now)
        for row in rows:
            row.changed = 0.0
        return rows


def test_one_kernel_on_a_gpu() -> None:
    """Memory at the start of a step counts for the whole step. Busy time is the GPU's."""
    steps = Steps()
    steps.add(holder(ANNA, 2 * GIB), sole=ANNA, busy_s=4.0)
    steps.add(holder(ANNA, 3 * GIB), sole=ANNA, busy_s=5.0)
    steps.add(sole=ANNA, busy_s=2.5)
    steps.add(busy_s=0.0)
    assert steps.rows() == [UseCounters(GPU, "anna", "a.ipynb", 20.0, 20.0, 7.5, 50 * GIB)]


def test_a_shared_gpu() -> None:
    """Each holder of a shared GPU holds it in full. The GPU's work is not divided between them."""
    steps = Steps()
    steps.add(holder(ANNA, GIB), holder(BEN, None), busy_s=9.0)
    steps.add(holder(ANNA, GIB), holder(BEN, None), busy_s=9.0)
    assert steps.rows() == [
        UseCounters(GPU, "anna", "a.ipynb", 10.0, 0.0, None, 10 * GIB),
        UseCounters(GPU, "ben", None, 10.0, 0.0, None, None),
    ]


def test_terminals_count_as_one() -> None:
    """All terminals of the server have one counter."""
    steps = Steps()
    for _ in range(2):
        one, two = ProcessOwner(None, "1"), ProcessOwner(None, "2")
        steps.add(holder(one, GIB), holder(two, 2 * GIB), sole=None)
    steps.add(sole=one, busy_s=3.0)
    assert steps.rows() == [UseCounters(GPU, None, None, 20.0, 10.0, 3.0, 60 * GIB)]


def test_a_gap_is_not_counted() -> None:
    """Time in which nothing was sampled adds nothing."""
    steps = Steps()
    steps.add(holder(ANNA, GIB), sole=ANNA)
    steps.add(holder(ANNA, GIB), sole=ANNA, busy_s=99.0, seconds=None)
    steps.add(holder(ANNA, GIB), sole=ANNA, busy_s=1.0)
    assert steps.rows() == [UseCounters(GPU, "anna", "a.ipynb", 10.0, 10.0, 1.0, 10 * GIB)]


def test_energy_of_whole_minutes_alone() -> None:
    """Energy is the difference of two readings of the GPU's counter, if only one kernel used the GPU in
    between and in the step before."""
    steps = Steps()
    steps.add(energy=1000.0)
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=1000.0)
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=1500.0)  # It began in between.
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=1500.0)
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=2700.0)
    steps.add(holder(ANNA, GIB), holder(BEN, GIB), energy=2700.0)
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=9000.0)
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=100.0)  # The driver was reloaded.
    steps.add(holder(ANNA, GIB), sole=ANNA, energy=350.0)
    (anna, ben) = steps.rows()
    assert (anna.energy_j, ben.energy_j) == (1200.0 + 250.0, None)


def test_the_total_of_a_notebook() -> None:
    """A notebook's total includes its earlier kernels. Without a notebook, it is the kernel's. The price is
    that of the hours in which GPUs were held."""
    steps = Steps(price=3.0, currency="EUR")
    steps.add(holder(ANNA, GIB), sole=ANNA)
    steps.add(holder(ANNA, GIB), sole=ANNA, busy_s=1.0)
    later = kernel("anna-2", "a.ipynb")
    owner = ProcessOwner("anna-2", None)
    for _ in range(2):
        steps.add(holder(owner, GIB), holder(BEN, GIB), kernels=(later, KERNELS[1]))
    total = steps.counter.total(later)
    assert total == GpuHours(30.0, 1.0, 30.0 * GIB, None, True, 3.0 * 30.0 / 3600, "EUR")
    assert steps.counter.total(KERNELS[1]) == GpuHours(
        10.0, None, 10.0 * GIB, None, True, 3.0 * 10.0 / 3600, "EUR"
    )
    assert steps.counter.total(kernel("new", None)) is None


def test_counters_of_an_ended_kernel() -> None:
    """The counters of an ended kernel are exported for a quarter of an hour, and stay in the total."""
    steps = Steps()
    steps.add(holder(ANNA, GIB), sole=ANNA)
    steps.add()
    steps.now += 900.0
    assert len(steps.rows()) == 1
    steps.now += 901.0
    assert steps.rows() == []
    assert steps.counter.total(kernel("next", "a.ipynb")) is not None


def test_unknown_memory_of_an_idle_holder_makes_its_memory_a_lower_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Memory of unknown size on one GPU doesn't count as 0: an idle holder's memory is then marked as a
    lower bound, in the message for pages and in the log."""
    idle = IdleHolders(10 * GIB, 60.0, logging.getLogger("test_gpu_hours"))
    ownership = [
        GpuMemoryOwnership("GPU-0", (holder(ANNA, 60 * GIB), holder(BEN, 20 * GIB)), 0, None, ()),
        GpuMemoryOwnership("GPU-1", (holder(ANNA, None),), None, None, ()),
    ]
    for time in (0.0, 60.0):
        idle.update(KERNELS, ownership, (), time, time, has_pages=False)
    assert idle.found == {
        "anna": IdleHolder(0.0, 60 * GIB, complete=False),
        "ben": IdleHolder(0.0, 20 * GIB, complete=True),
    }
    assert [record.getMessage() for record in caplog.records] == [
        "The kernel of no notebook has been idle for 1 min and holds at least 60.0 GiB of GPU memory "
        "(kernel anna).",
        "The kernel of no notebook has been idle for 1 min and holds 20.0 GiB of GPU memory (kernel ben).",
    ]


@pytest.fixture
def configuration() -> dict[str, object]:
    """Count GPU-hours, and report idle holders of more than 10 GiB after a minute."""
    return {"gpu_hours": True, "idle_holder_memory": 10, "idle_holder_minutes": 1, "gpu_hour_price": 2}


@pytest.fixture
def logged_later(hubs: list[SampleHub], jp_serverapp: Any) -> Iterator[list[str]]:
    """Return a list to which the server's warnings about kernels are added."""
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    handler.addFilter(lambda record: "GPU memory" in record.getMessage())
    jp_serverapp.log.addHandler(handler)
    yield texts
    jp_serverapp.log.removeHandler(handler)


async def test_an_idle_notebook_on_the_stream_and_in_the_metrics(
    server: Server, source: FakeSource, logged_later: list[str]
) -> None:
    """Without a page, an idle holder is logged once. Clients get the notebook's GPU-hours and that it is an
    idle holder, and Prometheus gets both. Work on the GPU ends it."""
    session = await start_session(server, "train.ipynb")
    kernel_id = session["kernel"]["id"]
    (await connected(server, kernel_id)).close()
    source.utilization = {0: 0.0, 1: 0.0}
    source.processes[0] = (process(pid_of(server, kernel_id), 60 * GIB),)
    await server.until(lambda: bool(logged_later))
    assert logged_later == [
        "The kernel of train.ipynb has been idle for 1 min and holds 60.0 GiB of GPU memory "
        f"(kernel {kernel_id})."
    ]
    stream = await server.stream()
    usage = await usage_where(stream, lambda one: one["kernels"][0]["idle_holder"] is not None)
    (found,) = usage["kernels"]
    assert found["idle_holder"]["memory"] == 60 * GIB
    assert found["gpu_hours"]["held_s"] > 0
    assert found["gpu_hours"]["price"] == pytest.approx(2 * found["gpu_hours"]["held_s"] / 3600)
    text = (await server.fetch("gpuwidget", "metrics")).body.decode()
    assert f'gpuwidget_kernel_idle_holder{{kernel="{kernel_id}"}} 1.0' in text
    assert f'gpuwidget_kernel_gpu_held_seconds_total{{UUID="{GPU.uuid}",gpu="0",kernel="{kernel_id}"' in text
    source.utilization[0] = 40.0
    await usage_where(stream, lambda one: one["kernels"][0]["idle_holder"] is None)
    stream.close()
    assert len(logged_later) == 1
