"""Track whether a kernel runs code, by the execute requests that it has started and not finished.

A kernel publishes ``busy`` and ``idle`` for every message that it handles, with that message as the parent.
Jupyter Server stores the newest status as the kernel's ``execution_state`` without checking the parent. The
``idle`` of a message on the control channel or in a subshell therefore makes a kernel appear idle while a
cell still runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

_LOG = logging.getLogger(__name__)

_MAX_SHELLS = 1000
"""The maximum number of shells that are tracked per kernel. A kernel may send any number of subshell ids."""


class ExecutionTracker:
    """Tracks the unfinished execute requests of a server's kernels.

    All methods run on the server's event loop.
    """

    def __init__(self) -> None:
        self._kernels: dict[str, KernelExecutions] = {}

    def observe(self, kernel_manager: Any) -> None:
        """From now on, track the execute requests of all kernels that ``kernel_manager`` starts.

        This opens no connection: the tracker reads the messages that Jupyter Server receives in order to
        record ``last_activity``. A manager that receives no messages, such as a kernel gateway's, is left
        unchanged.
        """
        start = getattr(kernel_manager, "start_watching_activity", None)
        if not callable(start):
            return

        def start_watching_activity(kernel_id: str) -> None:
            start(kernel_id)
            try:
                self._forget_all_but(kernel_manager.list_kernel_ids())
                self._observe(kernel_id, kernel_manager.get_kernel(kernel_id))
            except Exception:
                _LOG.debug("the messages of a kernel are not observed", exc_info=True)

        kernel_manager.start_watching_activity = start_watching_activity

    def running(self, kernel_id: str) -> bool:
        """Return whether a kernel has an unfinished execute request. False if that is unknown."""
        executions = self._kernels.get(kernel_id)
        return executions is not None and executions.running

    def _observe(self, kernel_id: str, manager: Any) -> None:
        stream, session = manager._activity_stream, manager.session
        record = stream._recv_callback
        executions = self._kernels[kernel_id] = KernelExecutions()

        def receive(parts: list[Any]) -> None:
            # This raises an error for a message without a valid signature, so the code below does not run.
            record(parts)
            try:
                _, (_, header, parent, _, content, *_) = session.feed_identities(parts)
                if b"status" in header:  # Most messages are outputs, which need not be parsed.
                    executions.receive(
                        session.unpack(header), session.unpack(parent), session.unpack(content)
                    )
            except Exception:
                _LOG.debug("a message of a kernel was not understood", exc_info=True)

        stream.on_recv(receive)
        # If a kernel dies and Jupyter Server restarts it, the server may miss the new kernel's first
        # messages. They would show that the old requests are obsolete, so clear these here.
        manager.add_restart_callback(executions.clear)

    def _forget_all_but(self, kernel_ids: list[str]) -> None:
        self._kernels = {
            kernel_id: found for kernel_id, found in self._kernels.items() if kernel_id in kernel_ids
        }


class KernelExecutions:
    """The unfinished execute requests of one kernel."""

    def __init__(self) -> None:
        self._session: str | None = None
        self._requests: dict[str | None, str] = {}
        """The id of each shell's unfinished request, by the subshell's id; the key None stands for the main
        shell. A shell handles one request at a time. The start of the next request therefore shows that the
        previous one has finished, even if its ``idle`` message was lost."""

    @property
    def running(self) -> bool:
        """Whether the kernel has unfinished execute requests."""
        return bool(self._requests)

    def clear(self) -> None:
        """Forget all requests, because the process that handled them no longer exists."""
        self._requests.clear()

    def receive(
        self, header: Mapping[str, Any], parent: Mapping[str, Any], content: Mapping[str, Any]
    ) -> None:
        """Process a message on the IOPub channel, given its header, its parent's header and its content."""
        if header["msg_type"] != "status":
            return
        session = header["session"]
        # A restarted kernel has a new session, and never finishes the requests of the previous process. Some
        # kernels (IRkernel) have no session id and send the id of the request's session instead, which does
        # not indicate a restart.
        if session not in (self._session, parent.get("session")):
            self._session = session
            self.clear()
        if content["execution_state"] in ("starting", "restarting"):
            self.clear()
        if parent.get("msg_type") != "execute_request":
            return
        shell, request, state = parent.get("subshell_id"), parent["msg_id"], content["execution_state"]
        if state == "busy":
            if len(self._requests) < _MAX_SHELLS or shell in self._requests:
                self._requests[shell] = request
        elif state == "idle" and self._requests.get(shell) == request:
            del self._requests[shell]
