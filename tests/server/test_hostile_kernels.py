"""Kernels that reply with anything: no reply breaks the stream, the metrics or the data of other kernels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeClock
from helpers_hostile import mutated, nested, value
from helpers_samples import GIB, h200, process, reading, sample
from jupyter_client.session import Session
from prometheus_client.parser import text_string_to_metric_families

from gpuwidget.model.kernel_requests import REPLY
from gpuwidget.server import kernel_reports
from gpuwidget.server.kernel_executions import KernelExecutions
from gpuwidget.server.kernel_inventory import InventorySnapshot
from gpuwidget.server.kernel_reports import KernelReports, KernelUsage
from gpuwidget.server.ownership_resolver import OwnershipRequest, OwnershipResolver
from gpuwidget.server.prometheus import KernelLabels, metrics_text
from gpuwidget.server.wire import ServerKernel
from gpuwidget.system import processes

SEEDS = 400
GPUS = [h200(0), h200(1)]
UUIDS = [gpu.uuid for gpu in GPUS]
KERNELS = {"good": 10, "hostile": 11}
VALID = {
    "status": "ok",
    "done": None,
    "state": {
        "schema": 1,
        "gpus": [
            {
                "uuid": uuid,
                "torch_device": "cuda:0",
                "process_memory": GIB,
                "torch_reserved": GIB,
                "context": True,
            }
            for uuid in UUIDS
        ],
    },
}
GOOD = {uuid: KernelUsage(True, GIB) for uuid in UUIDS}


class Kernels:
    """Two kernels that reply at once. A test sets the replies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
        self.replies: dict[str, Any] = {"good": VALID, "hostile": VALID}
        self.clock = clock
        self.reports = KernelReports(self, clock)  # type: ignore[arg-type]
        monkeypatch.setattr(kernel_reports, "_request_state", self._reply)

    def manager(self, kernel_id: str) -> Any:
        """Return a stand-in for Jupyter's manager of a kernel."""
        return SimpleNamespace(
            id=kernel_id,
            kernel_spec=SimpleNamespace(language="python"),
            provisioner=object(),
            execution_state="idle",
        )

    async def _reply(self, manager: Any) -> Any:
        return self.replies[manager.id]

    async def newest(self) -> dict[str, Any]:
        """Query both kernels, and return the newest reports."""
        self.clock.advance(400.0)
        self.reports.query(KERNELS)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return dict(self.reports.newest(KERNELS))


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a container, in which the server uses the kernels' reports."""
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: False)
    monkeypatch.setattr(processes, "uses_cuda", lambda pid: True)
    monkeypatch.setattr(processes, "process_exists", lambda pid: False)


def resolve(reports: Any, clock: FakeClock) -> tuple[Any, dict[str, list[tuple[dict[str, str], float]]]]:
    """Return the stream's message and the metrics with these reports, both decoded."""
    listed = (process(3_999_999, 30 * GIB),)
    both = sample(*((gpu, reading(gpu, processes=listed, memory_used=40 * GIB)) for gpu in GPUS))
    kernels = tuple(
        ServerKernel(kernel, "python3", "idle", None, None, None, None, None, None, None)
        for kernel in KERNELS
    )
    inventory = InventorySnapshot(kernels, {pid: kernel for kernel, pid in KERNELS.items()}, {}, 0)
    result = OwnershipResolver(clock).resolve(
        OwnershipRequest(both, inventory, KERNELS, reports, dict.fromkeys(UUIDS, ()), None)
    )
    assert result.message is not None
    ownership, message = result.message
    text = metrics_text(both, ownership, KernelLabels(str, "anna", names=True)).decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return json.loads(message), found


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_reply_breaks_the_stream_or_the_metrics(
    container: None, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever a kernel replies, the stream's message and the metrics are valid, another kernel's memory is
    unchanged, and a kernel's memory is a possible number of bytes or unknown."""
    random = Random(seed)
    kernels = Kernels(monkeypatch, clock)
    kernels.replies["hostile"] = value(random) if seed % 5 == 0 else mutated(random, VALID, 1 + seed % 4)
    reports = await kernels.newest()
    assert reports["good"] == GOOD
    message, metrics = resolve(reports, clock)
    for gpu in message["gpus"]:
        held = {one["kernel"]: one["memory"] for one in gpu["holdings"]}
        assert held["good"] == GIB
        assert held.keys() <= KERNELS.keys()
        assert all(size is None or 0 <= size <= GPUS[0].memory_total for size in held.values())
        assert gpu["unattributed"] is None or 0 <= gpu["unattributed"] <= 40 * GIB
    exported = [
        size for labels, size in metrics["gpuwidget_kernel_memory_bytes"] if labels["kernel"] == "good"
    ]
    assert exported == [GIB, GIB]
    # The kernel is queried again, and a valid reply then counts.
    kernels.replies["hostile"] = VALID
    kernels.reports._kernels["hostile"].replied = kernels.reports._kernels["hostile"].replied or 0.0
    assert (await kernels.newest())["hostile"] == GOOD


@pytest.mark.parametrize("sent", [GPUS[0].memory_total + 1, 2**53 - 1])  # type: ignore[operator]
async def test_more_memory_than_the_gpu_has(
    container: None, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    """If a kernel reports more bytes than the GPU has, its memory is unknown, and the reason is given."""
    kernels = Kernels(monkeypatch, clock)
    gpus = [{"uuid": UUIDS[0], "context": True, "torch_reserved": sent}]
    kernels.replies["hostile"] = {"status": "ok", "state": {"gpus": gpus}}
    message, _ = resolve(await kernels.newest(), clock)
    held = {one["kernel"]: one["memory"] for one in message["gpus"][0]["holdings"]}
    assert held == {"good": GIB, "hostile": None}
    assert "reported an impossible amount" in message["gpus"][0]["reason"]


async def test_two_entries_for_one_gpu(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a kernel's reply has two different entries for a GPU, the kernel's memory there is unknown."""
    kernels = Kernels(monkeypatch, clock)
    gpus = [{"uuid": UUIDS[0], "context": context, "torch_reserved": 5} for context in (True, False)]
    kernels.replies["hostile"] = {"status": "ok", "state": {"gpus": gpus}}
    assert (await kernels.newest())["hostile"] == {UUIDS[0]: KernelUsage(True, None, invalid=True)}


async def test_a_reply_with_very_many_gpus(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply with more GPUs than any machine has is ignored, so that it does not stay in memory."""
    kernels = Kernels(monkeypatch, clock)
    gpus = [{"uuid": f"GPU-{number}", "context": True, "torch_reserved": 5} for number in range(257)]
    kernels.replies["hostile"] = {"status": "ok", "state": {"gpus": gpus}}
    assert (await kernels.newest()).keys() == {"good"}


# -- the messages themselves -----------------------------------------------------------------------------


class ControlChannel:
    """A stand-in for a connection to a kernel's control channel. A test sends what the kernel sends."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.receive: Callable[[list[bytes]], None] = lambda parts: None

    def on_recv(self, callback: Callable[[list[bytes]], None]) -> None:
        """Call ``callback`` with each message."""
        self.receive = callback

    def send_multipart(self, parts: list[bytes], **_: Any) -> None:
        """Record what the server sends."""
        self.requests.append(parts)

    def close(self, linger: int) -> None:
        """Do nothing."""


def signed(session: Session, *parts: Any) -> list[bytes]:
    """Return a message with these parts and a valid signature, as a kernel can send it."""
    packed = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts]
    return [b"<IDS|MSG>", session.sign(packed), *packed]


async def test_no_message_breaks_a_query() -> None:
    """Whatever a kernel sends on the control channel, the server neither raises an error nor stops waiting
    for the valid reply. Messages that are too large are not parsed."""
    channel, session = ControlChannel(), Session(key=b"key")
    manager = SimpleNamespace(connect_control=lambda: channel, session=session)
    query = asyncio.ensure_future(kernel_reports._request_state(manager))
    await asyncio.sleep(0)
    _separator, _signature, sent, *_ = channel.requests[0]
    parent = json.loads(sent)
    header = {**parent, "msg_type": REPLY, "msg_id": "1"}
    for seed in range(SEEDS):
        random = Random(seed)
        parts = mutated(random, [header, {"msg_id": "other"}, {}, VALID], 1 + seed % 4)
        try:
            message = signed(session, *(parts if isinstance(parts, list) else [parts]))
        except (RecursionError, ValueError):
            continue  # This Python can't encode it.
        channel.receive(message)
        channel.receive(message[: random.randrange(len(message) + 1)])
    deep = b"[" * 100_000 + b"]" * 100_000
    channel.receive(signed(session, header, parent, deep, deep))
    channel.receive(signed(session, header, [1], {}, VALID))
    channel.receive(signed(session, header, parent, {}, {**VALID, "padding": "x" * (1 << 20)}))
    assert not query.done()
    channel.receive(signed(session, header, parent, {}, VALID))
    assert await query == VALID


def test_a_kernel_with_endless_subshells() -> None:
    """A kernel that reports a new subshell with each message does not fill the server's memory."""
    executions = KernelExecutions()
    for number in range(5000):
        parent = {"msg_type": "execute_request", "session": "s", "msg_id": "1", "subshell_id": str(number)}
        executions.receive({"msg_type": "status", "session": "s"}, parent, {"execution_state": "busy"})
    assert len(executions._requests) == 1000


def test_nested_values_are_deeper_than_the_parser() -> None:
    """The test's deepest value is deeper than Python's JSON parser accepts."""
    with pytest.raises(RecursionError):
        json.dumps(nested(5000))
