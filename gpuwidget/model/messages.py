"""Messages with an id and parameters: the notes of a report and the reasons for unknown values.

Each package keeps the English texts of its messages in one module per topic. Code compares ids, never texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.translation import Text, translatable


@dataclass(frozen=True, slots=True)
class MessageId:
    """Identifies a message for programs. Unlike the text, the id does not change between versions."""

    id: str
    params: Mapping[str, Any]
    """The values that the message's text contains, by name."""


@dataclass(frozen=True, slots=True)
class Message:
    """A text for the user, with the id and the parameters of the message."""

    id: str
    params: Mapping[str, Any]
    text: str

    @property
    def message_id(self) -> MessageId:
        """The message's id and parameters, without its text."""
        return MessageId(self.id, self.params)


def message(id_: str, template: str, **params: Any) -> Message:
    """Return the message with the id ``id_``, the template of its text and the template's parameters."""
    text = template if isinstance(template, Text) else translatable(template, **params)
    return Message(id_, params, text)


def texts(messages: Mapping[str, Message]) -> dict[str, str]:
    """Return the text of each message, with the same keys."""
    return {name: message.text for name, message in messages.items()}


def message_ids(messages: Mapping[str, Message]) -> dict[str, MessageId]:
    """Return the id and parameters of each message, with the same keys."""
    return {name: message.message_id for name, message in messages.items()}
