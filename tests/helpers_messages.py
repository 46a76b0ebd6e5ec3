"""Messages of tests: reasons with any text, and comparison by ids, so that no test depends on texts."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwidget.model.messages import Message, message


def ids(messages: Mapping[str, Message]) -> dict[str, str]:
    """Return the id of each message, with the same keys."""
    return {name: message.id for name, message in messages.items()}


def reasons(texts: Mapping[str, str]) -> dict[str, Message]:
    """Return the texts as messages with the id ``test``. A message is returned unchanged."""
    return {
        name: text if isinstance(text, Message) else message("test", text) for name, text in texts.items()
    }
