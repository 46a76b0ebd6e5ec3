"""A view's questions to this kernel, answered on the control channel: also while a cell runs.

:mod:`gpuwidget.model.kernel_requests` says what questions there are, and what the answers look like.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gpuwidget.kernel.commands.doctor_command import CachedDiagnosis
from gpuwidget.kernel.commands.free_cache_command import free_cache
from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.model.errors import GpuWidgetError, OptionError
from gpuwidget.model.kernel_requests import REPLY, REQUEST, DoctorReply, ErrorReply, OkReply
from gpuwidget.model.kernel_state import SCHEMA, KernelState
from gpuwidget.model.to_json import plain
from gpuwidget.pytorch.device_switch import SWITCH

_LOG = logging.getLogger(__name__)


class Cells(Protocol):
    """This kernel's cells."""

    every_cell: bool
    """Whether every cell is watched, and the switch for it."""

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        ...


class Requests:
    """Answers on one kernel's control channel, from :meth:`start` to :meth:`stop`."""

    def __init__(self, shell: Any, cells: Cells) -> None:
        self._kernel: Any = getattr(shell, "kernel", None)
        self._cells = cells
        self._consultation = CachedDiagnosis()
        self._later: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to answer; does nothing outside a Jupyter kernel."""
        if self._kernel is not None:
            self._kernel.control_handlers[REQUEST] = self._handle

    def stop(self) -> None:
        """Answer no longer."""
        if self._kernel is not None and self._kernel.control_handlers.get(REQUEST) == self._handle:
            del self._kernel.control_handlers[REQUEST]

    async def _handle(self, stream: Any, ident: Any, parent: Mapping[str, Any]) -> None:
        # ipykernel awaits it, and would log whatever came out of it into the notebook's server.
        def reply(content: dict[str, Any]) -> None:
            try:
                self._kernel.session.send(stream, REPLY, content, parent, ident)
            except Exception:
                _LOG.debug("a view's question was not answered", exc_info=True)

        content = parent.get("content") or {}
        if content.get("ask") == "free_cache":
            # It waits for the GPU: other questions, and Jupyter's interrupt, would wait behind it.
            self._on_thread(content, reply)
        elif content.get("schema") == SCHEMA and content.get("ask") == "doctor":
            # Awaited here, it would hold up the channel: every other question, and the shutdown.
            task = asyncio.ensure_future(self._examine(reply))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
        else:
            reply(self.answer(content))

    def _on_thread(self, content: Mapping[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        """Answer from this thread, which alone may use the channel, when another has done it."""
        loop = asyncio.get_running_loop()

        def work() -> None:
            answer = self.answer(content)
            try:
                loop.call_soon_threadsafe(reply, answer)
            except RuntimeError:
                _LOG.debug("the kernel ended before a view's question was answered", exc_info=True)

        threading.Thread(target=work, name="gpuwidget-request", daemon=True).start()

    async def _examine(self, reply: Callable[[dict[str, Any]], None]) -> None:
        try:
            answer: DoctorReply | ErrorReply = DoctorReply(
                "examined", await self._consultation.doctor(), self._state()
            )
        except GpuWidgetError as error:
            answer = ErrorReply("error", str(error), self._state())
        except Exception as error:
            answer = ErrorReply("error", _unforeseen(error), self._state())
        reply(_content(answer))

    def answer(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The reply's content to a question's; never raises."""
        done: str | None = None
        reason: str | None = None
        try:
            done = self._do(content)
        except GpuWidgetError as error:
            reason = str(error)
        except Exception as error:
            reason = _unforeseen(error)
        state = self._state()
        if reason is None and state is not None:
            return _content(OkReply("ok", done, state))
        return _content(ErrorReply("error", reason or "gpuwidget could not tell this kernel's state.", state))

    def _state(self) -> KernelState | None:
        try:
            return default_device.kernel_state(watching=self._cells.every_cell)
        except Exception:
            _LOG.debug("the kernel's state could not be told", exc_info=True)
            return None

    def _do(self, content: Mapping[str, Any]) -> str | None:
        """What is asked; a sentence or a statement to show, if there is one. Raises OptionError."""
        if content.get("schema") != SCHEMA:
            raise OptionError(
                "The page and this kernel's gpuwidget are of different versions: reload the page."
            )
        ask, device, on = content.get("ask"), content.get("device"), content.get("on")
        name, value = content.get("name"), content.get("value")
        if ask == "free_cache":
            return free_cache(cell_runs=self._cells.busy)
        if ask == "set_switch" and isinstance(name, str) and isinstance(value, str):
            return SWITCHES.wish(name, value)
        if ask == "watch" and isinstance(on, bool):
            self._cells.every_cell = on
        elif ask == "set_device" and (device is None or isinstance(device, str)):
            new_tensors = content.get("new_tensors", True) is not False
            SWITCH.choose(
                default_device.checked(device, new_tensors=new_tensors, patience_s=0.05),
                new_tensors=new_tensors,
            )
        elif ask != "state":
            raise OptionError("This kernel's gpuwidget does not know that question: reload the page.")
        return None


def _unforeseen(error: Exception) -> str:
    return f"gpuwidget failed in the kernel ({type(error).__name__}: {error})."


def _content(reply: OkReply | ErrorReply | DoctorReply) -> dict[str, Any]:
    content: dict[str, Any] = plain(reply)
    return content
