"""GPU memory that kernels report. Kernels are queried if the driver's process list does not show how much
memory each kernel holds.

The request is the same as the panel's (:mod:`~gpuwidget.model.kernel_requests`). It uses the control channel,
on which a kernel replies even while a cell runs, and it does not count as activity. A kernel that has not
loaded gpuwidget never replies, and each request adds a line about an unknown request to the server's log.
Such a kernel is therefore queried rarely: only after activity, and at growing intervals. A kernel that has
replied before, but is silent during a long call, is queried at least every half minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.clock import Clock
from gpuwidget.model.kernel_requests import REPLY, REQUEST
from gpuwidget.model.kernel_state import KERNEL_SCHEMA
from gpuwidget.server.kernel_inventory import KernelInventory, last_activity

_LOG = logging.getLogger(__name__)

_REPLY_TIMEOUT_S = 30.0
"""Seconds to wait for a reply; long enough for a kernel that is importing torch. A long timeout is harmless,
because nothing else is delayed until the reply arrives."""
_INTERVAL_S = 5.0
_RETRY_S = 10.0
_MAX_RETRY_S = 320.0
_MAX_RETRY_AFTER_REPLY_S = 30.0
"""The longest interval in seconds between attempts to query a kernel that has replied before."""
_STALE_AFTER_S = 30.0
"""The age in seconds at which reported bytes count as unknown. By then, a kernel without newer reports is
probably in a call that blocks all its threads."""
_EXPIRED_AFTER_S = 300.0
"""A report that is older than this number of seconds is discarded if the kernel's process is unknown to this
server. The process may have been replaced by another one, which has not reported anything."""
_RESTART_STATES = ("starting", "restarting", "autorestarting", "dead")
_MAX_BYTES = 2**53 - 1
"""The largest number of bytes that is accepted. Up to this number, JSON numbers are exact in browsers."""
_MAX_REPLY_BYTES = 1 << 20
"""The maximum size of a reply. Larger replies are not parsed, because that would block the event loop. The
state of a kernel with 16 GPUs takes about 50 kB."""
_MAX_GPUS = 256
"""The maximum number of GPUs in a reply, including MIG slices. Replies with more are ignored."""


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """What a kernel reports about one GPU."""

    context: bool
    """Whether the kernel has a CUDA context on the GPU. A context exists until the kernel's process ends."""
    reserved: int | None
    """Bytes that torch's allocator has reserved on the GPU; None if unknown or outdated."""
    invalid: bool = False
    """Whether the kernel reported something other than a number of bytes. If so, ``reserved`` is None."""


@dataclass(slots=True)
class _QueriedKernel:
    """The state of the queries to one kernel process."""

    pid: int | None
    usage: Mapping[str, KernelUsage] = field(default_factory=dict)
    replied: float | None = None
    due: float = float("-inf")
    retry_s: float = _RETRY_S
    silent: bool = False
    """Whether the last query got no reply."""
    activity: float | None = None
    """The kernel's last-activity time, recorded when the latest query without a reply ended. If the time is
    different now, the kernel has been active since."""
    task: asyncio.Task[None] | None = None


class KernelReports:
    """Queries this server's kernels. All methods are called on the server's event loop, and none of them
    waits."""

    def __init__(self, inventory: KernelInventory, clock: Clock) -> None:
        self._inventory = inventory
        self._clock = clock
        self._kernels: dict[str, _QueriedKernel] = {}

    def newest(self, kernels: Mapping[str, int | None]) -> dict[str, Mapping[str, KernelUsage]]:
        """Return the newest reports by kernel and GPU. ``kernels`` has the process ids of all kernels."""
        for kernel_id in [known_id for known_id in self._kernels if known_id not in kernels]:
            self._forget(kernel_id)
        now = self._clock.monotonic()
        reports: dict[str, Mapping[str, KernelUsage]] = {}
        for kernel_id, pid in kernels.items():
            kernel = self._kernels.get(kernel_id)
            if kernel is None:
                continue
            if kernel.pid != pid or self._restarts(kernel_id):
                self._forget(kernel_id)
                continue
            if kernel.replied is None:
                continue
            age = now - kernel.replied
            if kernel.pid is None and age > _EXPIRED_AFTER_S:
                kernel.replied, kernel.usage = None, {}
            else:
                reports[kernel_id] = {
                    uuid: replace(usage, reserved=None) if age > _STALE_AFTER_S else usage
                    for uuid, usage in kernel.usage.items()
                }
        return reports

    def query(self, kernels: Mapping[str, int | None]) -> None:
        """Query those of ``kernels`` whose next query is due."""
        now = self._clock.monotonic()
        for kernel_id, pid in kernels.items():
            manager = self._inventory.manager(kernel_id)
            if manager is None or not _can_reply(manager):
                continue
            kernel = self._kernels.setdefault(kernel_id, _QueriedKernel(pid))
            is_active = last_activity(manager) != kernel.activity
            # A kernel that has never replied and has had no activity since the last query can't have loaded
            # gpuwidget since then, so do not query it.
            is_hopeless = kernel.replied is None and kernel.retry_s > _RETRY_S and not is_active
            # A kernel that did not reply to the last query was probably in a long call. Activity since then
            # may mean that the call is over, so query the kernel now.
            is_back = kernel.replied is not None and kernel.silent and is_active
            if is_back:
                kernel.retry_s = _RETRY_S
            if kernel.task is None and (now >= kernel.due or is_back) and not is_hopeless:
                kernel.task = asyncio.ensure_future(self._query(kernel, manager))

    def close(self) -> None:
        """Cancel all queries and forget all reports."""
        for kernel_id in list(self._kernels):
            self._forget(kernel_id)

    def _restarts(self, kernel_id: str) -> bool:
        return getattr(self._inventory.manager(kernel_id), "execution_state", None) in _RESTART_STATES

    def _forget(self, kernel_id: str) -> None:
        task = self._kernels.pop(kernel_id).task
        if task is not None:
            task.cancel()

    async def _query(self, kernel: _QueriedKernel, manager: Any) -> None:
        usage = None
        try:
            usage = _parse_reply(await _request_state(manager))
        except Exception:
            _LOG.debug("a kernel did not report its GPU memory", exc_info=True)
        now = self._clock.monotonic()
        kernel.task = None
        if usage is not None:
            kernel.usage, kernel.replied, kernel.silent = usage, now, False
            kernel.due, kernel.retry_s = now + _INTERVAL_S, _RETRY_S
        else:
            kernel.due = now + kernel.retry_s
            maximum = _MAX_RETRY_S if kernel.replied is None else _MAX_RETRY_AFTER_REPLY_S
            kernel.retry_s = min(2 * kernel.retry_s, maximum)
            kernel.silent = True
            kernel.activity = last_activity(manager)


def _can_reply(manager: Any) -> bool:
    language = getattr(getattr(manager, "kernel_spec", None), "language", "")
    # This server can't connect to the channels of a gateway's kernel, which has no provisioner.
    is_reachable = getattr(manager, "provisioner", None) is not None
    state = getattr(manager, "execution_state", None)
    return is_reachable and str(language).lower() == "python" and state in ("idle", "busy")


async def _request_state(manager: Any) -> Mapping[str, Any]:
    """Request a kernel's state, and return the content of its reply. Raises TimeoutError if no reply arrives
    in time."""
    stream = manager.connect_control()
    try:
        # Use a clone of the session, because a session rejects messages that it has received before.
        session = manager.session.clone()
        reply: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()

        def receive(parts: list[Any]) -> None:
            # Ignore data that the kernel has not signed or that is not a message. A kernel may send anything,
            # so parsing may raise any exception, such as a RecursionError.
            with Boundary(_LOG, "a kernel's reply is no message", foreign=True):
                if sum(map(len, parts)) > _MAX_REPLY_BYTES:
                    return
                message = session.deserialize(session.feed_identities(parts)[1])
                is_ours = message["parent_header"].get("msg_id") == request["header"]["msg_id"]
                if is_ours and message["header"]["msg_type"] == REPLY and not reply.done():
                    reply.set_result(message["content"])

        stream.on_recv(receive)
        request = session.send(stream, REQUEST, {"schema": KERNEL_SCHEMA, "ask": "state"})
        return await asyncio.wait_for(reply, _REPLY_TIMEOUT_S)
    finally:
        stream.close(linger=0)


def _parse_reply(content: object) -> Mapping[str, KernelUsage] | None:
    """Return the usage by GPU UUID, or None if the reply has no GPU state.

    All values are checked, because a kernel may send anything, and may have an older version of gpuwidget.
    """
    if not isinstance(content, Mapping) or content.get("status") != "ok":
        return None
    state = content.get("state")
    gpus = (state.get("gpus") or []) if isinstance(state, Mapping) else None
    if not isinstance(gpus, list) or len(gpus) > _MAX_GPUS:
        return None
    usage: dict[str, KernelUsage] = {}
    for gpu in gpus:
        if not isinstance(gpu, Mapping) or not isinstance(gpu.get("uuid"), str):
            return None
        uuid, sent = gpu["uuid"], gpu.get("torch_reserved")
        reserved = _parse_bytes(sent)
        found = KernelUsage(
            gpu.get("context") is True, reserved, invalid=sent is not None and reserved is None
        )
        if usage.setdefault(uuid, found) != found:
            # Two entries for one GPU contradict each other.
            usage[uuid] = KernelUsage(found.context or usage[uuid].context, None, invalid=True)
    return usage


def _parse_bytes(value: object) -> int | None:
    """Return ``value`` if it can be a number of bytes, else None."""
    # bool is a subclass of int, but JSON's true is not a number of bytes.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_BYTES:
        return value
    return None
