"""The outputs that a front end shows for a cell's messages, and which of the messages come from gpuwidget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from helpers_schemas import check_report

CARD = "application/vnd.gpuwidget.report+json"
LIVE_PREFIX = "gpuwidget-live"
WIDGET = "application/vnd.jupyter.widget-view+json"

_REPLACEMENTS = (
    (re.compile(r"0x[0-9a-fA-F]{6,}"), "0xADDRESS"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{24}_\d+_\d+\b"), "REQUEST"),
    (re.compile(r"/\S*ipykernel_\d+/\d+\.py"), "/tmp/ipykernel/cell.py"),
    (re.compile(r"\(\d+\.py, line"), "(cell.py, line"),
    (re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>"), r"<ipython-input-\1>"),
    # The unwatched cell has a comment in place of the line with the magic. Use one text for all forms, so
    # that outputs that quote this line compare equal.
    (re.compile(r"(# )?%%gpuwatch( --[a-z-]+)*"), "# gpuwatch"),
    (re.compile(r"\d+(\.\d+)?(e[+-]\d+)? (ns|µs|us|μs|ms|s|min)\b"), "TIME"),
)
_MODEL_REFERENCE = re.compile(r"IPY_MODEL_([0-9a-f]{32})")
_ID = re.compile(r"[0-9a-f]{32}")
_STREAM = "stream"


@dataclass(frozen=True)
class Message:
    """A message that the kernel sent for a cell."""

    type: str
    content: dict[str, Any]

    @property
    def is_card(self) -> bool:
        """Whether the message displays a card."""
        return self.type in ("display_data", "update_display_data") and CARD in self.content["data"]

    @property
    def opens_chart(self) -> bool:
        """Whether the message creates the live chart's widget, which may not be displayed yet."""
        state = self.content["data"].get("state", {}) if self.type == "comm_open" else {}
        return any(name.startswith(LIVE_PREFIX) for name in state.get("_dom_classes", ()))

    @property
    def shows_chart(self) -> bool:
        """Whether the message displays the live chart in its output."""
        return self.is_live and WIDGET in self.content["data"]

    @property
    def is_live(self) -> bool:
        """Whether the message creates or updates the live chart's output."""
        if self.type not in ("display_data", "update_display_data"):
            return False
        display_id = self.content.get("transient", {}).get("display_id", "")
        return isinstance(display_id, str) and display_id.startswith(LIVE_PREFIX)


def cards(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the MIME bundles of the cards among ``messages``, whose reports match the JSON Schema."""
    found = [message.content["data"] for message in messages if message.is_card]
    for bundle in found:
        check_report(bundle[CARD])
    return found


def sequence(messages: Sequence[Message], our_models: set[str]) -> list[tuple[str, Any]]:
    """Return the messages in order, without those of gpuwidget and without ``execute_input``.

    stdout and stderr are buffered separately and sent by a timer. Between two other messages, only the
    complete text of each stream is deterministic. Input requests arrive on another channel, so only the order
    among input requests is deterministic.
    """
    found: list[tuple[str, Any]] = [(m.type, m.content) for m in messages if m.type == "input_request"]
    streams: dict[str, str] = {}

    def end_streams() -> None:
        found.extend((name, text) for name, text in sorted(streams.items()))
        streams.clear()

    for message in messages:
        if _is_own(message, our_models) or message.type in ("execute_input", "input_request"):
            continue
        if message.type == _STREAM:
            name = message.content["name"]
            streams[name] = streams.get(name, "") + message.content["text"]
            continue
        end_streams()
        found.append((message.type, message.content))
    end_streams()
    return found


def final_outputs(messages: Iterable[Message], our_models: set[str]) -> dict[str, list[tuple[str, Any]]]:
    """Return the final outputs of each area. An area is the cell (``cell``) or an Output widget (its id).

    gpuwidget's outputs are left out, but only after all messages were applied, because they affect the other
    outputs: after an output of gpuwidget, a progress bar can't rewrite its previous line, and a pending
    ``clear_output(wait=True)`` takes effect.
    """
    return {
        area: _joined([output for output in outputs if not _is_own(output["message"], our_models)])
        for area, outputs in _applied(messages).items()
    }


def shown(messages: Iterable[Message]) -> list[str]:
    """Return the visible text of each final output of the cell, from top to bottom.
    A card is returned as ``card``."""
    found = []
    for output in _applied(messages)["cell"]:
        if "stream" in output:
            found.append(_visible_text(output["text"]))
        elif CARD in output["content"]["data"]:
            found.append("card")
        elif "text/plain" in output["content"]["data"]:
            found.append(output["content"]["data"]["text/plain"])
    return found


def own_outputs(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the data of each final output of the cell that is gpuwidget's."""
    outputs = _applied(messages)["cell"]
    return [one["content"]["data"] for one in outputs if _is_own(one["message"], set())]


def _applied(messages: Iterable[Message]) -> dict[str, list[dict[str, Any]]]:
    """Apply all messages as a front end does, and return the outputs of each area."""
    areas: dict[str, list[dict[str, Any]]] = {"cell": []}
    waiting: set[str] = set()
    capturing: list[str] = []
    for message in messages:
        kind, content = message.type, message.content
        if kind == "comm_msg":
            _note_capture(content, capturing)
        area = capturing[-1] if capturing else "cell"
        outputs = areas.setdefault(area, [])
        if kind == "clear_output":
            if content["wait"]:
                waiting.add(area)
            else:
                outputs.clear()
        elif kind == "update_display_data":
            _update(areas, message)
        elif kind in (_STREAM, "display_data", "execute_result", "error"):
            if area in waiting:
                outputs.clear()
                waiting.discard(area)
            _append(outputs, message)
    return areas


def areas_of_own_outputs(messages: Iterable[Message]) -> set[str]:
    """Return the areas that contain gpuwidget's outputs:
    ``cell``, and the id of each Output widget that captured one of them."""
    capturing: list[str] = []
    found = set()
    for message in messages:
        if message.type == "comm_msg":
            _note_capture(message.content, capturing)
        if message.is_card or message.is_live:
            found.add(capturing[-1] if capturing else "cell")
    return found


def _note_capture(content: dict[str, Any], capturing: list[str]) -> None:
    state = content["data"].get("state", {})
    if "msg_id" in state:
        if state["msg_id"]:
            capturing.append(content["comm_id"])
        elif content["comm_id"] in capturing:
            capturing.remove(content["comm_id"])


def _append(outputs: list[dict[str, Any]], message: Message) -> None:
    if message.type == _STREAM:
        name, text = message.content["name"], message.content["text"]
        if outputs and outputs[-1].get("stream") == name:
            outputs[-1]["text"] += text
        else:
            outputs.append({"stream": name, "text": text, "message": message})
    else:
        outputs.append({"content": dict(message.content), "message": message})


def _update(areas: dict[str, list[dict[str, Any]]], message: Message) -> None:
    wanted = message.content["transient"]["display_id"]
    for outputs in areas.values():
        for output in outputs:
            if output["message"].content.get("transient", {}).get("display_id") == wanted:
                output["content"]["data"] = message.content["data"]
                output["content"]["metadata"] = message.content["metadata"]


def _joined(outputs: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return the visible outputs.
    The stream outputs between two other outputs are joined, separately for each stream."""
    found: list[tuple[str, Any]] = []
    streams: dict[str, str] = {}
    for output in outputs:
        if "stream" in output:
            name = output["stream"]
            streams[name] = streams.get(name, "") + _visible_text(output["text"])
            continue
        found.extend(sorted(streams.items()))
        streams.clear()
        found.append((output["message"].type, output["content"]))
    return found + sorted(streams.items())


def _visible_text(text: str) -> str:
    """Return the text with carriage returns applied, as front ends do within a single output."""
    lines = []
    for line in text.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown)
    return "\n".join(lines)


def _is_own(message: Message, our_models: set[str]) -> bool:
    if message.is_card or message.is_live:
        return True
    return message.type.startswith("comm_") and message.content.get("comm_id") in our_models


class ExpectedIds:
    """Replaces the parts of outputs that differ between two kernels that run the same cells,
    such as ids and times, with fixed text."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._numbers: dict[str, str] = {}
        self._referenced: dict[str, set[str]] = {}

    def note_models(self, messages: Iterable[Message], our_models: set[str]) -> None:
        """Add the ids of the live charts' widget models to ``our_models``,
        including models that these models refer to."""
        new = []
        for message in messages:
            if message.type == "comm_open":
                text = repr(message.content["data"])
                self._referenced[message.content["comm_id"]] = set(_MODEL_REFERENCE.findall(text))
                if message.opens_chart:
                    new.append(message.content["comm_id"])
            elif message.type == "comm_msg" and message.content["comm_id"] in self._referenced:
                text = repr(message.content["data"])
                self._referenced[message.content["comm_id"]].update(_MODEL_REFERENCE.findall(text))
        new.extend(our_models)
        while new:
            model = new.pop()
            our_models.add(model)
            new.extend(self._referenced.get(model, set()) - our_models)

    def clean(self, value: Any) -> Any:
        """Return ``value`` with addresses, times, file names and random ids replaced.
        Ids are numbered in the order in which they occur."""
        if isinstance(value, str):
            return self._clean_text(value)
        if isinstance(value, dict):
            return {self._clean_text(str(name)): self.clean(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(item) for item in value]
        return value

    def _clean_text(self, text: str) -> str:
        text = text.replace(self._root, "ROOT")
        text = _ID.sub(lambda found: self._numbers.setdefault(found[0], f"id-{len(self._numbers)}"), text)
        for pattern, replacement in _REPLACEMENTS:
            text = pattern.sub(replacement, text)
        return text
