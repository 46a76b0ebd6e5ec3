"""Requests from the panel to a notebook's kernel, and the kernel's replies.

They are sent on the control channel, on which a kernel replies even while a cell runs. A kernel that does not
reply has not loaded gpuwidget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import KERNEL_SCHEMA, KernelState
from gpuwidget.model.translation import translatable

REQUEST = "gpuwidget_request"
"""Message type of a request."""
REPLY = "gpuwidget_reply"
"""Message type of a reply. The reply's parent message is the request."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Requests the kernel's state."""

    schema: int
    ask: Literal["state"]


@dataclass(frozen=True, slots=True)
class SetDeviceRequest:
    """Sets the default torch device."""

    schema: int
    ask: Literal["set_device"]
    device: str | None
    """The device, such as ``cuda:1`` or ``cpu``. None restores the device that was the default before the
    user's first choice."""
    new_tensors: bool
    """Whether new tensors are also created on the device. If False, only the current CUDA device changes."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Turns the one-line card after every cell (``%gpu watch on``) on or off."""

    schema: int
    ask: Literal["watch"]
    on: bool


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """Sets one of torch's switches immediately or, if a cell is running, before the next cell."""

    schema: int
    ask: Literal["set_switch"]
    name: str
    """Name of the switch, as in ``Switch.name``."""
    value: str
    """The new value: one of the switch's choices."""


@dataclass(frozen=True, slots=True)
class FreeCacheRequest:
    """Releases torch's cached memory to the driver, even while a cell runs.

    The reply is sent when the GPU has finished its current work, which may take long. Meanwhile the kernel
    replies to other requests.
    """

    schema: int
    ask: Literal["free_cache"]


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """Runs the doctor's checks.

    The reply takes a few seconds, at most a minute. Meanwhile the kernel replies to other requests.
    """

    schema: int
    ask: Literal["doctor"]


LOCALE = "locale"
"""Name of the field with which every request may tell the page's locale, such as ``zh-CN``."""
Request = StateRequest | SetDeviceRequest | WatchRequest | SwitchRequest | FreeCacheRequest | DoctorRequest


def parse_kernel_request(content: Mapping[str, Any]) -> Request:
    """Return the request that a message's content describes. Raise OptionError if the content is invalid."""
    if content.get("schema") != KERNEL_SCHEMA:
        raise OptionError(
            translatable("The page and this kernel have different versions of gpuwidget: reload the page.")
        )
    ask = content.get("ask")
    for kind in get_args(Request):
        hints = get_type_hints(kind)
        if ask in get_args(hints["ask"]):
            for name, hint in hints.items():
                if not _has_type(content.get(name, ...), hint):
                    raise OptionError(
                        translatable(
                            "The page sent a {ask!r} request without a valid {name!r}: reload the page.",
                            ask=ask,
                            name=name,
                        )
                    )
            request: Request = kind(**{name: content[name] for name in hints})
            return request
    raise OptionError(translatable("This kernel's gpuwidget does not support this request: reload the page."))


def parse_locale(content: Mapping[str, Any]) -> str | None:
    """Return the locale of the page that sent a request, or None if the request has none."""
    locale = content.get(LOCALE)
    return locale if isinstance(locale, str) else None


def _has_type(value: object, hint: Any) -> bool:
    # Compare exact types, because a bool is an instance of int but not a valid int.
    return type(value) in (get_args(hint) or (hint,)) or value in get_args(hint)


@dataclass(frozen=True, slots=True)
class OkReply:
    """The request succeeded."""

    status: Literal["ok"]
    done: str | None
    """A message for the user about what ran and with what result. None if the state shows the result."""
    state: KernelState
    """The kernel's state after the request."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """The request failed."""

    status: Literal["error"]
    reason: str
    """The reason for the failure, as a sentence for the user."""
    state: KernelState | None
    """The kernel's current state, or None if it can't be read either."""


@dataclass(frozen=True, slots=True)
class DoctorReply:
    """The reply to :class:`DoctorRequest`."""

    status: Literal["examined"]
    doctor: Diagnosis
    texts: Mapping[str, str]
    """The diagnosis's texts in the page's language, by the English text; empty in English."""
    state: KernelState | None
    """The kernel's current state, or None if it can't be read."""


Reply = OkReply | ErrorReply | DoctorReply
