"""Instruments the measured kernel and server: shortens gpuwidget's intervals, and records its log.

Each of the two processes imports this module and calls :func:`install`.

A seed takes about a second. With the shorter intervals, this is long enough for a call to count as hung, for
a lost GPU to return and for the driver to be opened again.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import traceback
from collections import deque

ERRORS = "FAULTS_ERRORS"
"""The environment variable with the path of the file that receives gpuwidget's warnings and unexpected
exceptions."""
_EXPECTED = (OSError, ConnectionError, TimeoutError)
"""Exceptions that faults may cause and that gpuwidget handles and logs. Its own exceptions and NVML's are
expected, too."""


class _Record(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a warning, or the exception of a record, as one line of JSON."""
        error = record.exc_info[1] if record.exc_info else None
        own = error is not None and type(error).__module__.split(".")[0] in ("gpuwidget", "pynvml")
        if record.levelno < logging.WARNING and (error is None or own or isinstance(error, _EXPECTED)):
            return
        found = {"text": record.getMessage(), "error": None}
        if error is not None:
            found["error"] = "".join(traceback.format_exception(error))
        with open(os.environ[ERRORS], "a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def install() -> None:
    """Shorten the intervals, and record the log."""
    # The original descriptor, because ipykernel replaces sys.stderr.
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2)
    from gpuwidget.kernel.cells import watch_api
    from gpuwidget.sampler import guarded_source, poll_loops, poll_threads, sampler
    from gpuwidget.sources import nvml

    poll_threads.HUNG_AFTER_S = 0.4
    poll_threads._OPEN_HUNG_AFTER_S = 1.0
    guarded_source._REOPEN_AFTER_S = 0.1
    guarded_source._REOPEN_LOST_INTERVAL_S = 0.3
    guarded_source._REOPEN_DRIVER_INTERVAL_S = 0.5
    poll_loops._SLOW_INTERVAL_S = 1.0
    poll_loops._NO_GPU_INTERVAL_S = 0.2
    nvml._CALL_WAIT_S = 0.2
    sampler._LINGER_S = 1.0
    # A kernel keeps the reports of the last 200 watched cells. With fewer, its memory stops growing sooner.
    watch_api._reports = deque(maxlen=10)
    log = logging.getLogger("gpuwidget")
    log.setLevel(logging.DEBUG)
    log.addHandler(_Record(logging.DEBUG))
    log.propagate = False
