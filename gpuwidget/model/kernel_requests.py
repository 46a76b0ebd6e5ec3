"""The panel's questions to a notebook's kernel, asked and answered on the control channel.

A busy kernel answers there too. One that does not answer has no gpuwidget loaded that could.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_state import SCHEMA, KernelState

REQUEST = "gpuwidget_request"
"""Message type of a question."""
REPLY = "gpuwidget_reply"
"""Message type of an answer, whose parent is the question."""


@dataclass(frozen=True, slots=True)
class StateRequest:
    """How is it with you?"""

    schema: int
    ask: Literal["state"]


@dataclass(frozen=True, slots=True)
class SetDeviceRequest:
    """Make this the default torch device."""

    schema: int
    ask: Literal["set_device"]
    device: str | None
    """``cuda:1`` or ``cpu``; None restores what was before the first choice."""
    new_tensors: bool
    """Whether new tensors go there too; False moves the current CUDA device only."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """Watch every cell from now on, or no longer."""

    schema: int
    ask: Literal["watch"]
    on: bool


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """Set one of torch's switches: at once, or while a cell runs before the next one."""

    schema: int
    ask: Literal["set_switch"]
    name: str
    """As ``Switch.name``."""
    value: str
    """One of its choices."""


@dataclass(frozen=True, slots=True)
class FreeCacheRequest:
    """Give torch's cache back to the driver, also while a cell runs.

    The answer may take as long as what the GPU is doing; other questions pass it by.
    """

    schema: int
    ask: Literal["free_cache"]


@dataclass(frozen=True, slots=True)
class DoctorRequest:
    """Examine your environment. The answer takes seconds, a minute at most; other questions pass it by."""

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
    # By exact type: a bool is no valid int.
    return type(value) in (get_args(hint) or (hint,)) or value in get_args(hint)


@dataclass(frozen=True, slots=True)
class OkReply:
    """It was done; the state is that after it."""

    status: Literal["ok"]
    done: str | None
    """What was done, in words to show: what ran and what came of it; None where the state says it all."""
    state: KernelState


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """It could not be done."""

    status: Literal["error"]
    reason: str
    """Why not, as a sentence to show."""
    state: KernelState | None
    """The state as it is, None where that can't be told either."""


@dataclass(frozen=True, slots=True)
class DoctorReply:
    """The answer to :class:`DoctorRequest`."""

    status: Literal["examined"]
    doctor: Diagnosis
    state: KernelState | None
    """The state as it is, None where that can't be told."""
