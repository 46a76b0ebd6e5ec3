"""What kernels say themselves of the GPUs that they use, asked where the driver's list can't tell.

The request is the panel's (:mod:`~gpuwidget.model.kernel_requests`): on the control channel, answered while a
cell runs, counted as nobody's activity. A kernel that has not loaded gpuwidget never answers, and logs a line
in the server that it does not know the request. So requests are rare: again when the kernel has done
something since, and then after growing intervals; a kernel that has answered before, and is silent in a long call, at
least every half minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gpuwidget.model.clock import Clock
from gpuwidget.model.kernel_requests import REPLY, REQUEST
from gpuwidget.model.kernel_state import SCHEMA
from gpuwidget.server.notebooks import Notebooks, last_activity

_LOG = logging.getLogger(__name__)

_ANSWER_S = 30.0
"""So long an answer is listened for. Nobody waits for it, and a kernel that imports torch takes seconds."""
_EVERY_S = 5.0
_SILENT_S = 10.0
_MOST_SILENT_S = 320.0
_SILENT_FOR_NOW_S = 30.0
"""The longest between questions to one that has answered before."""
_OLD_S = 30.0
"""So long an answer holds where no other has come: a kernel may be in a call that lets nothing else run."""
_GONE_S = 300.0
"""So long it is believed that a kernel whose process can't be seen still is the one that answered."""
_ANEW = ("starting", "restarting", "autorestarting", "dead")
_LARGEST_SIZE = 2**53 - 1
"""The largest number of bytes that is accepted: up to it, JSON numbers are exact in a browser too."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a kernel says of itself on one GPU."""

    context: bool
    """Whether it has a context there, which stays until its process ends."""
    reserved: int | None
    """Bytes that torch's allocator holds there; None where it can't say, or has not for long."""
    invalid: bool = False
    """Whether the kernel reported something else than a number of bytes, which is discarded."""


@dataclass(slots=True)
class _Asked:
    """One kernel, as long as its process is the same."""

    pid: int | None
    words: Mapping[str, Word] = field(default_factory=dict)
    answered: float | None = None
    due: float = float("-inf")
    wait_s: float = _SILENT_S
    silent: bool = False
    """Whether it did not answer when it was asked last."""
    activity: float | None = None
    """Its last activity when it was asked and stayed silent."""
    asking: asyncio.Task[None] | None = None


class KernelWords:
    """Asks this server's kernels. All methods belong to the server's event loop, and none waits."""

    def __init__(self, notebooks: Notebooks, clock: Clock) -> None:
        self._notebooks = notebooks
        self._clock = clock
        self._asked: dict[str, _Asked] = {}

    def said(self, kernels: Mapping[str, int | None]) -> dict[str, Mapping[str, Word]]:
        """By kernel and GPU what they last said; ``kernels`` are those that there are, with process ids."""
        for kernel_id in [one for one in self._asked if one not in kernels]:
            self._forget(kernel_id)
        now = self._clock.monotonic()
        said: dict[str, Mapping[str, Word]] = {}
        for kernel_id, pid in kernels.items():
            asked = self._asked.get(kernel_id)
            if asked is None:
                continue
            if asked.pid != pid or self._begins_anew(kernel_id):
                self._forget(kernel_id)
                continue
            if asked.answered is None:
                continue
            age = now - asked.answered
            if asked.pid is None and age > _GONE_S:
                asked.answered, asked.words = None, {}
            else:
                said[kernel_id] = {
                    uuid: replace(word, reserved=None) if age > _OLD_S else word
                    for uuid, word in asked.words.items()
                }
        return said

    def ask(self, kernels: Mapping[str, int | None]) -> None:
        """Ask those that it is time for."""
        now = self._clock.monotonic()
        for kernel_id, pid in kernels.items():
            manager = self._notebooks.manager(kernel_id)
            if manager is None or not _can_answer(manager):
                continue
            asked = self._asked.setdefault(kernel_id, _Asked(pid))
            active = last_activity(manager)
            # It could have loaded gpuwidget only if it has run something since.
            vain = asked.answered is None and asked.wait_s > _SILENT_S and active == asked.activity
            # What kept it silent may be over.
            moved = asked.answered is not None and asked.silent and active != asked.activity
            if moved:
                asked.wait_s = _SILENT_S
            if asked.asking is not None or (now < asked.due and not moved) or vain:
                continue
            asked.asking = asyncio.ensure_future(self._ask(asked, manager))

    def close(self) -> None:
        """Ask no more."""
        for kernel_id in list(self._asked):
            self._forget(kernel_id)

    def _begins_anew(self, kernel_id: str) -> bool:
        return getattr(self._notebooks.manager(kernel_id), "execution_state", None) in _ANEW

    def _forget(self, kernel_id: str) -> None:
        asking = self._asked.pop(kernel_id).asking
        if asking is not None:
            asking.cancel()

    async def _ask(self, asked: _Asked, manager: Any) -> None:
        words = None
        try:
            words = _words(await _answer(manager))
        except Exception:
            _LOG.debug("a kernel did not say what it holds", exc_info=True)
        now = self._clock.monotonic()
        asked.asking = None
        if words is not None:
            asked.words, asked.answered, asked.silent = words, now, False
            asked.due, asked.wait_s = now + _EVERY_S, _SILENT_S
        else:
            asked.due = now + asked.wait_s
            most = _MOST_SILENT_S if asked.answered is None else _SILENT_FOR_NOW_S
            asked.wait_s = min(2 * asked.wait_s, most)
            asked.silent = True
            asked.activity = last_activity(manager)


def _can_answer(manager: Any) -> bool:
    language = getattr(getattr(manager, "kernel_spec", None), "language", "")
    # A gateway's kernel has no provisioner, and none of its channels is connected to from here.
    reachable = getattr(manager, "provisioner", None) is not None
    state = getattr(manager, "execution_state", None)
    return reachable and str(language).lower() == "python" and state in ("idle", "busy")


async def _answer(manager: Any) -> Mapping[str, Any]:
    """The answer's content; raises TimeoutError where none comes in time."""
    stream = manager.connect_control()
    try:
        # Of its own, since each notices messages that come twice.
        session = manager.session.clone()
        answered: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()

        def hear(parts: list[Any]) -> None:
            with suppress(ValueError, KeyError, TypeError):  # not signed by that kernel, or no message at all
                message = session.deserialize(session.feed_identities(parts)[1])
                ours = message["parent_header"].get("msg_id") == asked["header"]["msg_id"]
                if ours and message["header"]["msg_type"] == REPLY and not answered.done():
                    answered.set_result(message["content"])

        stream.on_recv(hear)
        asked = session.send(stream, REQUEST, {"schema": SCHEMA, "ask": "state"})
        return await asyncio.wait_for(answered, _ANSWER_S)
    finally:
        stream.close(linger=0)


def _words(content: Mapping[str, Any]) -> Mapping[str, Word] | None:
    """None where the answer says nothing of GPUs; a kernel's gpuwidget may be older than this one.

    Every user of a :class:`Word` may rely on its values: what a kernel sends is checked here.
    """
    state = content.get("state")
    if content.get("status") != "ok" or not isinstance(state, Mapping):
        return None
    words = {}
    for gpu in state.get("gpus") or ():
        sent = gpu.get("torch_reserved")
        reserved = _size(sent)
        words[str(gpu.get("uuid"))] = Word(
            gpu.get("context") is True, reserved, invalid=sent is not None and reserved is None
        )
    return words


def _size(value: object) -> int | None:
    """Return ``value`` if it is a possible number of bytes, else None."""
    # bool is an int, and JSON's true is no size.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_SIZE:
        return value
    return None
