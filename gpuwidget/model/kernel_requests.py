"""Requests from the panel to a notebook's kernel and the replies, sent over the control channel.

A busy kernel answers there too. A kernel that does not answer has not loaded gpuwidget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import SCHEMA, KernelState

REQUEST = "gpuwidget_request"
"""Message type of a request."""
REPLY = "gpuwidget_reply"
"""Message type of a reply, whose parent is the request."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """Request the kernel's state."""

    schema: int
    ask: Literal["state"]


@dataclass(frozen=True, slots=True)
class SetDeviceRequest:
    """Set the default torch device."""

    schema: int
    ask: Literal["set_device"]
    device: str | None
    """``cuda:1`` or ``cpu``; None restores the device from before the first choice."""
    new_tensors: bool
    """Whether new tensors go there too; False changes only the current CUDA device."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Turn the watching of every cell on or off."""

    schema: int
    ask: Literal["watch"]
    on: bool


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """Set one of torch's switches: at once, or, while a cell runs, before the next cell."""

    schema: int
    ask: Literal["set_switch"]
    name: str
    """As ``Switch.name``."""
    value: str
    """One of its choices."""


@dataclass(frozen=True, slots=True)
class FreeCacheRequest:
    """Release torch's cached memory to the driver, also while a cell runs.

    The reply may take as long as the GPU's current work; other requests are answered meanwhile.
    """

    schema: int
    ask: Literal["free_cache"]


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """Run the doctor's checks.

    The reply takes seconds, a minute at most; other requests are answered meanwhile.
    """

    schema: int
    ask: Literal["doctor"]


Request = StateRequest | SetDeviceRequest | WatchRequest | SwitchRequest | FreeCacheRequest | DoctorRequest


def parse_request(content: Mapping[str, Any]) -> Request:
    """Return the request in a message's content. Raise OptionError if it is not valid."""
    if content.get("schema") != SCHEMA:
        raise OptionError("The page and this kernel's gpuwidget are of different versions: reload the page.")
    ask = content.get("ask")
    for kind in get_args(Request):
        hints = get_type_hints(kind)
        if ask in get_args(hints["ask"]):
            for name, hint in hints.items():
                if not _has_type(content.get(name, ...), hint):
                    raise OptionError(
                        f"The page sent a {ask!r} request without a valid {name!r}: reload the page."
                    )
            request: Request = kind(**{name: content[name] for name in hints})
            return request
    raise OptionError("This kernel's gpuwidget does not know that question: reload the page.")


def _has_type(value: object, hint: Any) -> bool:
    # By exact type: a bool is not a valid int.
    return type(value) in (get_args(hint) or (hint,)) or value in get_args(hint)


@dataclass(frozen=True, slots=True)
class OkReply:
    """The request succeeded."""

    status: Literal["ok"]
    done: str | None
    """A message for the user: what ran, and its result; None where the state shows it."""
    state: KernelState
    """The state after it."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """The request failed."""

    status: Literal["error"]
    reason: str
    """The reason, as a sentence for the user."""
    state: KernelState | None
    """The current state, None where it can't be read either."""


@dataclass(frozen=True, slots=True)
class DoctorReply:
    """The reply to :class:`DoctorRequest`."""

    status: Literal["examined"]
    doctor: Diagnosis
    state: KernelState | None
    """The current state, None where it can't be read."""
