"""Report a process's torch memory and steps to the notebook that started it: ``gpuwidget.rank()``."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import multiprocessing.util
import os
import signal
import socket
import sys
import threading
import time

from gpuwidget.measure.torch_memory import torch_updates
from gpuwidget.model.boundary import Boundary, foreign_attribute, stopped
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.worker_update import MAX_GPUS, WORKER_SCHEMA, UpdateStatus, WorkerGpuUpdate, WorkerUpdate
from gpuwidget.pytorch import PEAK_TRACKER
from gpuwidget.ranks import rank_socket
from gpuwidget.system import processes
from gpuwidget.system.processes import Rank

_LOG = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""Seconds between two reports."""
_SEND_TIMEOUT_S = 2.0
_END_TIMEOUT_S = 0.5
"""Maximum seconds for which the process's end waits for its last report."""


class RankReporter:
    """Reports this process to the notebook, about once per second and at the process's end.

    Without a notebook that watches a cell, it does nothing. No method raises.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._began = SYSTEM_CLOCK.monotonic()
        self._cpu_began = time.process_time()
        self._steps = 0
        self._first_step = self._last_step = 0.0
        self._ended = False
        self._earlier_error = getattr(sys, "last_value", None)
        self._lock = threading.Lock()
        """Held while a report is made and sent."""
        self._wake = threading.Event()
        self._connection: socket.socket | None = None
        # The kernel may have ended.
        with Boundary(_LOG, "the notebook's kernel could not be reached", foreign=True):
            self._connection = rank_socket.connect(_SEND_TIMEOUT_S)
        if self._connection is None:
            return
        self._scope = PEAK_TRACKER.open()
        atexit.register(self.end)
        # Processes that multiprocessing has started end without calling the functions of atexit.
        multiprocessing.util.Finalize(None, self.end, exitpriority=100)
        threading.Thread(target=self._report_often, name="gpuwidget-rank", daemon=True).start()

    def step(self) -> None:
        """Count one step of training. The card shows the number of steps and their mean duration."""
        now = SYSTEM_CLOCK.monotonic()
        if self._steps == 0:
            self._first_step = now
        self._last_step = now
        self._steps += 1

    def end(self, exit_code: int | None = None) -> None:
        """Send the last report. Later calls do nothing.

        Without ``exit_code``, the exit code is derived from the exception that ends the process, if there is
        one. Otherwise it is unknown: ``sys.exit(3)`` can't be observed here.
        """
        if self._ended or os.getpid() != self._pid:
            return
        self._ended = True
        self._wake.set()
        if exit_code is None:
            exit_code = self._exit_code()
        if self._lock.acquire(timeout=_END_TIMEOUT_S):
            try:
                self._send("ended" if exit_code in (None, 0) else "failed", exit_code, _END_TIMEOUT_S)
            finally:
                self._close()
                self._lock.release()

    def reset_in_child(self) -> None:
        """Stop reporting in a forked child, which is another process."""
        self._ended = True
        self._lock = threading.Lock()
        self._close()

    # -- reports -------------------------------------------------------------------------------------

    def _report_often(self) -> None:
        while not self._ended:
            with self._lock:
                if not self._ended:
                    self._send("running", None, _SEND_TIMEOUT_S)
            if self._connection is None:
                return
            self._wake.wait(INTERVAL_S)

    def _send(self, status: UpdateStatus, exit_code: int | None, timeout_s: float) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            connection.settimeout(timeout_s)
            connection.sendall(self._update(status, exit_code).to_json().encode() + b"\n")
        except BaseException as error:
            # The kernel has ended or does not read. The process continues without reports.
            stopped(_LOG, "a report could not be sent", error, foreign=True)
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exit_code(self) -> int | None:
        """Return the exit code that follows from the exception that ends this process; None without one."""
        # multiprocessing ends a process while the exception is being handled. The interpreter stores an
        # exception that ended the main script in sys.last_value, which a forked child of a notebook inherits.
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
        return None if error is None or error is self._earlier_error else exit_code_of(error)

    def _update(self, status: UpdateStatus, exit_code: int | None) -> WorkerUpdate:
        rank = _rank()
        steps, first, last = self._steps, self._first_step, self._last_step
        now = SYSTEM_CLOCK.monotonic()
        return WorkerUpdate(
            schema=WORKER_SCHEMA,
            kind="rank",
            host=socket.gethostname(),
            pid=self._pid,
            name=None,
            rank=None if rank is None else rank.rank,
            local_rank=None if rank is None else rank.local_rank,
            world_size=None if rank is None else rank.world_size,
            steps=steps or None,
            step_s=(last - first) / (steps - 1) if steps > 1 else None,
            since_step_s=now - last if steps else None,
            cpu_s=time.process_time() - self._cpu_began,
            elapsed_s=now - self._began,
            started_in_run=None,
            status=status,
            exit_code=exit_code,
            gpus=self._gpus(),
            reason=None,
        )

    def _gpus(self) -> tuple[WorkerGpuUpdate, ...]:
        PEAK_TRACKER.watch_resets()
        # The kernel reads the driver's values itself.
        return tuple(torch_updates(PEAK_TRACKER.peaks(self._scope))[:MAX_GPUS])


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of a Python process that ends with ``error``.

    It is negative if the process ends by a signal, as in :mod:`subprocess`.
    """
    if isinstance(error, KeyboardInterrupt) and multiprocessing.parent_process() is None:
        return -signal.SIGINT
    if not isinstance(error, SystemExit):
        return 1
    code = error.code
    return 0 if code is None else code if isinstance(code, int) else 1


def _rank() -> Rank | None:
    """Return the rank in torch's process group, or else the one in the environment; None if there is none.

    The latter may be the notebook's own rank, which the notebook's kernel removes from the report.
    """
    launched = processes.rank_in(os.environ)
    distributed = foreign_attribute("torch", "distributed")
    with Boundary(_LOG, "torch's process group could not be read", foreign=True):
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
            if launched is None or launched.rank != rank or launched.world_size not in (None, world_size):
                # The variables are missing or belong to another job, such as the notebook's own.
                return Rank(rank, None, world_size)
            return Rank(rank, launched.local_rank, world_size)
    return launched


_reporter: RankReporter | None = None


def rank() -> RankReporter:
    """Report this process to the notebook that started it, and return the reporter.

    Further calls return the same reporter, except in a forked child, which gets a reporter of its own.
    """
    global _reporter
    if _reporter is None:
        _reporter = RankReporter()
    return _reporter


def _reset_in_child() -> None:
    global _reporter
    if _reporter is not None:
        _reporter.reset_in_child()
    _reporter = None


reset_after_fork(_reset_in_child)
