"""Answer the panel's requests to this kernel on the control channel, which works even while a cell runs.

:mod:`gpuwidget.model.kernel_requests` defines the requests and replies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gpuwidget.kernel.devices import default_device
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.model.boundary import stopped
from gpuwidget.model.errors import GpuWidgetError
from gpuwidget.model.kernel_requests import (
    REPLY,
    REQUEST,
    DoctorReply,
    DoctorRequest,
    ErrorReply,
    FreeCacheRequest,
    OkReply,
    Reply,
    Request,
    SetDeviceRequest,
    SwitchRequest,
    WatchRequest,
    parse_kernel_request,
    parse_locale,
)
from gpuwidget.model.kernel_state import KernelState
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import (
    _,
    error_text,
    in_view_language,
    set_view_language,
    translations,
    use_language,
    view_language,
)
from gpuwidget.pytorch import DEVICE_SWITCH
from gpuwidget.system.daemon_thread import run_in_daemon_thread

if TYPE_CHECKING:
    from gpuwidget.kernel.commands.doctor_command import SharedDiagnosis

_LOG = logging.getLogger(__name__)

_DEVICE_TIMEOUT_S = 0.05
"""Seconds to wait for a reading from the driver when the panel sets the device."""


class WatchSetting(Protocol):
    """The part of the cell watcher that the panel reads and sets."""

    every_cell: bool
    """Whether cells without ``%%gpuwatch`` are watched, too."""

    @property
    def busy(self) -> bool:
        """Whether a cell is running."""
        ...


class PanelRequests:
    """Answers requests on one kernel's control channel, from :meth:`start` to :meth:`stop`."""

    def __init__(self, shell: Any, cells: WatchSetting) -> None:
        self._kernel: Any = getattr(shell, "kernel", None)
        self._cells = cells
        self._diagnosis: SharedDiagnosis | None = None
        """Created for the first request for a diagnosis, because its modules take long to import."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start answering requests; does nothing outside a Jupyter kernel."""
        if self._kernel is not None:
            self._kernel.control_handlers[REQUEST] = self._handle

    def stop(self) -> None:
        if self._kernel is not None and self._kernel.control_handlers.get(REQUEST) == self._handle:
            del self._kernel.control_handlers[REQUEST]

    async def _handle(self, stream: Any, ident: Any, parent: Mapping[str, Any]) -> None:
        # ipykernel awaits this method and writes its exceptions to the Jupyter server's log. So catch errors
        # here.
        def send(reply: Reply) -> None:
            try:
                self._kernel.session.send(stream, REPLY, to_json(reply), parent, ident)
            except BaseException as error:
                stopped(_LOG, "a request was not answered", error)

        content = parent.get("content")
        if not isinstance(content, Mapping):
            content = {}
        locale = parse_locale(content)
        if locale is not None:
            set_view_language(locale)
        try:
            request = parse_kernel_request(content)
        except GpuWidgetError as error:
            send(self._error(error))
            return
        if isinstance(request, FreeCacheRequest):
            # Freeing the cache waits for the GPU.
            answer = partial(self._answer, request)
            self._send_later(send, run_in_daemon_thread(answer, "gpuwidget-request"))
        elif isinstance(request, DoctorRequest):
            self._send_later(send, self._run_checks())
        else:
            send(self._answer(request))

    def _send_later(self, send: Callable[[Reply], None], answer: Awaitable[Reply]) -> None:
        """Send an answer once it is known. Awaiting it would block every other request on the channel,
        Jupyter's interrupt and the kernel's shutdown."""

        async def wait() -> None:
            send(await answer)

        task = asyncio.ensure_future(wait())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_checks(self) -> Reply:
        try:
            if self._diagnosis is None:
                from gpuwidget.kernel.commands.doctor_command import SharedDiagnosis

                self._diagnosis = SharedDiagnosis()
            diagnosis = await self._diagnosis.diagnosis()
            return DoctorReply("examined", diagnosis, translations(diagnosis, view_language()), self._state())
        except Exception as error:
            return self._error(error)

    def _answer(self, request: Request) -> Reply:
        """Return the reply to a request; never raises."""
        try:
            done = self._do(request)
        except GpuWidgetError as error:
            return self._error(error)
        except BaseException as error:
            stopped(_LOG, "a request failed", error)
            return self._error(error)
        state = self._state()
        if state is None:
            with use_language(view_language()):
                return ErrorReply("error", _("gpuwidget could not read this kernel's state."), None)
        return OkReply("ok", done, state)

    def _error(self, error: BaseException) -> ErrorReply:
        with use_language(view_language()):
            reason = error_text(error)
            if not isinstance(error, GpuWidgetError):
                reason = _(
                    "gpuwidget failed in the kernel ({error}).", error=f"{type(error).__name__}: {error}"
                )
        return ErrorReply("error", reason, self._state())

    def _state(self) -> KernelState | None:
        try:
            return default_device.kernel_state(watching=self._cells.every_cell)
        except BaseException as error:
            stopped(_LOG, "the kernel's state could not be read", error)
            return None

    @in_view_language
    def _do(self, request: Request) -> str | None:
        """Carry out a request and return the text to show, if any. Raise GpuWidgetError if it fails."""
        if isinstance(request, FreeCacheRequest):
            from gpuwidget.kernel.commands.free_cache_command import free_cache

            return _(free_cache(cell_runs=self._cells.busy))
        if isinstance(request, SwitchRequest):
            return _(SWITCHES.request(request.name, request.value))
        if isinstance(request, WatchRequest):
            self._cells.every_cell = request.on
        elif isinstance(request, SetDeviceRequest):
            device = default_device.validate_device(
                request.device, new_tensors=request.new_tensors, timeout_s=_DEVICE_TIMEOUT_S
            )
            DEVICE_SWITCH.choose(device, new_tensors=request.new_tensors)
        return None
