"""How a watched cell ended: the status of its run, and the line that tells that it has no card."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from gpuwidget.model.boundary import error_line
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import _, in_view_language

if TYPE_CHECKING:
    from gpuwidget.model.report import Status

_LOG = logging.getLogger(__name__)


def status_of(error: BaseException | None) -> Status:
    """Return the status of a run that ended with ``error``."""
    if error is None:
        return "ok"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "error"


def status_of_result(result: Any) -> Status:
    """Return the status of the cell with IPython's ExecutionResult ``result``."""
    if result is None:
        # The cell's task was cancelled, which is how an interrupt ends an `await`.
        return "interrupted"
    error = result.error_before_exec or result.error_in_exec
    if type(error).__name__ == "CancelledError":
        return "interrupted"
    if isinstance(error, GeneratorExit):
        return "error"  # GeneratorExit closes a generator normally, but is an error in a cell
    return status_of(error)


@in_view_language
def tell_no_card(error: BaseException) -> None:
    """Tell in one line that the cell has no card."""
    text = _("gpuwidget could not show this cell's card: {error}", error=error_line(error))
    _LOG.warning("%s", printable_lines(text))
