"""Find out whether a user watches the running cell, or a program executes the notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def has_front_end(shell: Any) -> bool:
    """Return whether the running cell was sent by a front end in which a user sees its outputs.

    A program that executes a notebook, such as nbconvert, papermill or nbclient, allows no input to its
    cells, because nobody could enter it.
    """
    return getattr(shell, "kernel", None) is not None and not is_executed_by_program(shell)


def is_executed_by_program(shell: Any) -> bool:
    """Return whether the running cell's request allows no input, as only a program's request does."""
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    content = parent.get("content") if isinstance(parent, Mapping) else None
    return isinstance(content, Mapping) and content.get("allow_stdin") is False


def shows_live(shell: Any) -> bool:
    """Return whether cells have a live chart while they run. ``GPUWIDGET_LIVE=0`` turns it off."""
    return os.environ.get("GPUWIDGET_LIVE") != "0" and has_front_end(shell)


def prefers_html() -> bool:
    """Return whether the live chart is plain HTML, for a front end that can't load widgets.

    Only the user knows this. A front end does not tell the kernel that it has shown a widget, and what it
    sends on the shell channel arrives after the cell. An output with both a widget and HTML is no solution:
    JupyterLab recreates the widget's view at each update of the HTML.
    """
    return os.environ.get("GPUWIDGET_LIVE") == "html"
