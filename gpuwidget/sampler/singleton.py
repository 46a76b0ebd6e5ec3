"""The one sampler of a process, and what a forked child does without its parent's."""

from __future__ import annotations

import os
import threading

from gpuwidget.sampler.sampler import Sampler
from gpuwidget.sources import open_source

_LINGER_S = 30.0

_lock = threading.Lock()
_sampler: Sampler | None = None


def process_sampler() -> Sampler:
    """This process's one sampler, of the source that GPUWIDGET_SOURCE chooses.

    Raises OptionError where that names no source. A forked child gets one of its own.
    """
    global _sampler
    with _lock:
        if _sampler is None:
            _sampler = Sampler(open_source(), linger_s=_LINGER_S)
        return _sampler


def _begin_anew_in_child() -> None:
    # A lock that a thread of the parent held stays locked for ever in the child.
    global _lock, _sampler
    _lock = threading.Lock()
    _sampler = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_in_child)
