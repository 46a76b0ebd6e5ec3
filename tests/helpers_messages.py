"""Comparison of messages by their ids, so that a test does not depend on their texts."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwidget.model.messages import Message


def ids(messages: Mapping[str, Message]) -> dict[str, str]:
    """Return the id of each message, with the same keys."""
    return {name: message.id for name, message in messages.items()}
