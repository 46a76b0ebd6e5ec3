"""The test bench: one server, one kernel and several clients, on which schedules run one after the other.

:meth:`Bench.run` runs one schedule and checks the results with ``checks.py``. :meth:`Bench.settle` checks
from time to time that nothing is left of the faults.
"""

from __future__ import annotations

import ast
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.faults import checks
from benchmarks.faults.cells import CELLS
from benchmarks.faults.driver import Driver
from benchmarks.faults.schedules import GPUS, Schedule
from benchmarks.faults.services import PATIENCE_S, SHM_BYTES, Ran, Services, private_shm_possible
from benchmarks.faults.streams import StreamClients
from benchmarks.kernels import CARD_MIME

_CHANGE_INTERVAL_S = 0.25
"""Seconds between two changes of all readings while a cell runs."""
_MAX_EXTRA_FILES = 12
"""The kernel and the server may have this many more open files than at the first check."""
_LOST_REPLY_S = 10.0
"""After this time, the reply to an interrupted cell counts as lost."""
_MAX_DELAY_S = 10.0
"""A watched cell may take this many seconds longer than its code. Other programs may use the CPU."""
_THREADS = "sorted(t.name for t in __import__('threading').enumerate() if t.name.startswith('gpuwidget'))"
"""An expression for the names of gpuwidget's threads in the kernel."""
_UNLOAD = "%unload_ext gpuwidget"
_CLOSE_DASHBOARD = "from gpuwidget.kernel.live import dashboard\ndashboard.close()"


@dataclass(frozen=True)
class Outcome:
    """The result of one schedule."""

    problems: tuple[str, ...]
    delay_s: float | None
    """How much longer the cell took than its code; None if the cell did not run to its end."""
    lost_reply: bool = False
    """Whether ipykernel sent no reply, because an interrupt arrived in its code."""


@dataclass(frozen=True)
class Resources:
    """What the kernel and the server use while nothing happens."""

    kernel_bytes: int
    server_bytes: int
    kernel_files: int
    server_files: int


class Bench:
    """The processes and the driver. Use it as a context manager, and from one thread only."""

    def __init__(self, folder: Path) -> None:
        self._driver = Driver(folder)
        self.private_shm = private_shm_possible()
        """Whether /dev/shm of the kernel can be filled."""
        self._services = Services(folder, self._driver.variables, private_shm=self.private_shm)
        self._started_clients: StreamClients | None = None
        self._log_read = self._errors_read = 0
        """How much of the two logs has been checked: bytes and lines."""
        self._first_files: tuple[int, int] | None = None
        """The numbers of open files of the kernel and the server at their first check."""
        self._since = 0.0
        """When the newest process was ready. The values from before are not checked."""
        self._requests = 0
        self._dashboard = False
        """Whether the live dashboard is open."""
        self.restarts = 0
        """How often the kernel was started."""

    def __enter__(self) -> Bench:
        """Start everything."""
        try:
            self._services.start()
        except BaseException:
            self._services.stop()
            raise
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        if self._started_clients is not None:
            self._started_clients.close()
        self._driver.heal()
        with suppress(Exception):
            self._services.stop()

    def _begin(self) -> None:
        """Continue after a new server or a new kernel has started."""
        if self._started_clients is None:
            self._started_clients = StreamClients(self._services.address, self._services.token)
        self.restarts += 1
        self._first_files = None
        self._dashboard = False
        self._since = time.monotonic()

    # -- one schedule ------------------------------------------------------------------------------------

    def run(self, schedule: Schedule) -> Outcome:
        """Run a schedule, heal the driver, and check everything."""
        problems: list[str] = []
        steps = list(schedule.steps)
        watching = time.monotonic()
        before = [step for step in steps if step.at < 0]
        for step in before:
            problems += self._act(step.action)
            self._pause(min(0.3, -step.at) / len(before))
        steps = steps[len(before) :]
        restarts = self.restarts
        cell = CELLS[schedule.cell]
        code = f"%%gpuwatch {schedule.options}\n{cell.body(schedule.seconds)}"
        sent = time.monotonic()
        request = self._services.send(code)
        self._requests += 1
        self._clients.request(self._requests)
        ran = Ran()
        interrupts: list[float] = []
        changed = sent
        lost_reply = False
        while not ran.complete and self.restarts == restarts:
            now = time.monotonic()
            if interrupts and not steps and now > sent + schedule.seconds + _LOST_REPLY_S:
                # ipykernel sends no reply if an interrupt arrives in its own code while it handles the
                # request. The kernel then runs the next request.
                self._services.wait_until_ready()
                ran = self._services.take(request, 0.0)
                lost_reply = not ran.complete
                break
            if now > sent + schedule.seconds + PATIENCE_S:
                problems.append(f"the cell does not end: {self._stacks()}")
                problems += self._restart_kernel(kill=True)
                break
            # Before the kernel has begun, the time is not known; a fault may also happen between cells.
            due = None if not steps or ran.began is None else ran.began + steps[0].at
            if due is not None and now >= due:
                step = steps.pop(0)
                if step.action == "interrupt":
                    interrupts.append(now)
                problems += self._act(step.action)
                continue
            if now - changed >= _CHANGE_INTERVAL_S:
                self._driver.change()
                changed = now
            ran = self._services.take(request, 0.05 if due is None else min(0.05, due - now))
        self._driver.heal()
        self._empty_shm()
        delay = None
        self._driver.collect()
        if ran.complete:
            self._services.forget(request)
            if ran.reply is not None and ran.reply["status"] == "error":
                self._services.wait_until_ready()
            problems += checks.check_cell(ran, cell, schedule.seconds, sent, interrupts)
            problems += self._check_report(ran, schedule, sent, interrupted=bool(interrupts))
            if not interrupts:
                assert ran.ended is not None
                delay = ran.ended - sent - schedule.seconds
                if delay > _MAX_DELAY_S:
                    problems.append(f"the cell took {delay:.1f} s longer than its code")
        problems += self._check_outputs(max(watching - 1.0, self._since))
        return Outcome(tuple(problems), delay, lost_reply)

    def _stacks(self) -> str:
        """Return the stacks of the kernel's threads."""
        before = len(self._services.log.read_bytes())
        self._services.dump_stacks()
        time.sleep(1.0)
        self._log_read = len(self._services.log.read_bytes())
        return self._services.log.read_bytes()[before:].decode(errors="replace")

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        self._driver.change()

    def _act(self, action: str) -> list[str]:
        """Execute the action of a step, and return the problems.

        ``set LINE`` and ``unset KEY`` change the stand-in's scenario, ``restart driver`` restarts the driver,
        ``clock SECONDS`` moves the time of day, ``interrupt`` interrupts the kernel, ``shm fill`` fills
        /dev/shm, ``client drop`` and ``client slow`` add a client, ``dashboard`` opens or closes the live
        dashboard before the next cell, and the others restart or kill the kernel or the server.
        """
        verb, _, rest = action.partition(" ")
        if verb == "set":
            self._driver.set(rest)
        elif verb == "unset":
            self._driver.unset(rest)
        elif action == "restart driver":
            self._driver.restart()
        elif verb == "clock":
            self._driver.jump(float(rest))
        elif action == "interrupt":
            self._services.interrupt()
        elif action == "client drop":
            self._clients.drop()
        elif action == "client slow":
            self._clients.slow()
        elif action == "dashboard":
            self._dashboard = not self._dashboard
            self._services.run("%gpu" if self._dashboard else _CLOSE_DASHBOARD)
        elif action == "shm fill":
            self._fill_shm()
        elif verb == "kernel":
            return self._restart_kernel(kill=rest == "kill")
        elif verb == "server":
            return self._restart_server(signal.SIGKILL if rest == "kill" else signal.SIGTERM)
        else:
            raise ValueError(action)
        return []

    @property
    def _clients(self) -> StreamClients:
        assert self._started_clients is not None
        return self._started_clients

    def _restart_kernel(self, *, kill: bool) -> list[str]:
        self._driver.heal()
        problems = self._services.restart_kernel(kill=kill)
        self._begin()
        return problems

    def _restart_server(self, number: int) -> list[str]:
        problems = self._close_clients()
        problems += self._services.stop(number)
        self._driver.heal()
        self._services.start()
        self._begin()
        return problems

    def _close_clients(self) -> list[str]:
        self._clients.expect_close()
        _, problems = self._clients.take()
        self._clients.close()
        self._started_clients = None
        return problems

    def _fill_shm(self) -> None:
        if not self.private_shm:
            return
        with suppress(OSError), (self._services.shm / "full").open("wb", buffering=0) as file:
            for _ in range(2 * SHM_BYTES // 4096):
                file.write(bytes(4096))

    def _empty_shm(self) -> None:
        if self.private_shm:
            with suppress(OSError):
                (self._services.shm / "full").unlink()

    # -- checks ------------------------------------------------------------------------------------------

    def _check_report(self, ran: Ran, schedule: Schedule, sent: float, *, interrupted: bool) -> list[str]:
        assert ran.reply is not None
        cards = [
            content["data"][CARD_MIME]
            for kind, content in ran.messages
            if kind in ("display_data", "update_display_data") and CARD_MIME in content["data"]
        ]
        refused = ran.reply.get("ename") == "UsageError"
        # A cell that is interrupted before its code begins has no card.
        if len(cards) != (0 if refused or "--quiet" in schedule.options else 1) and not interrupted:
            return [f"there are {len(cards)} cards"]
        values = partial(self._driver.values, self._services.kernel_pid)
        full = ran.reply["status"] == "ok" or ran.reply.get("ename") == "ValueError"
        return [
            problem
            for report in cards[-1:]
            for problem in checks.check_report(report, values, sent, ran, schedule.seconds, full=full)
        ]

    def _check_outputs(self, since: float) -> list[str]:
        self._driver.collect()
        received, problems = self._clients.take() if self._started_clients is not None else ([], [])
        values = partial(self._driver.values, self._services.server_pid)
        problems += dict.fromkeys(checks.check_stream(received, values, since))
        log = self._services.log.read_bytes()
        problems += checks.check_log(log[self._log_read :].decode(errors="replace"))
        self._log_read = len(log)
        lines = self._services.errors.read_text().splitlines()
        problems += checks.check_recorded(lines[self._errors_read :])
        self._errors_read = len(lines)
        return problems

    def settle(self) -> tuple[list[str], Resources]:
        """Wait until a new card and the stream show the healthy GPUs again. Check that nothing is left of the
        faults."""
        self._driver.heal()
        since = max(time.monotonic() - 1.0, self._since)
        problems = self._wait_until_healthy() + self._wait_for_stream()
        found = self._resources()
        if self._first_files is None:
            self._first_files = (found.kernel_files, found.server_files)
        for name, first, now in zip(
            ("kernel", "server"), self._first_files, (found.kernel_files, found.server_files), strict=True
        ):
            if now > first + _MAX_EXTRA_FILES:
                problems.append(f"the {name} has {now} open files; there were {first}")
        children = psutil.Process(self._services.kernel_pid).children()
        problems += [f"the kernel has the child process {child.pid}" for child in children]
        return problems + self._check_outputs(since), found

    def _wait_until_healthy(self) -> list[str]:
        deadline = time.monotonic() + PATIENCE_S
        problems = []
        while True:
            sent = time.monotonic()
            ran = self._services.run("%%gpuwatch --no-live\npass")
            cards = [c["data"][CARD_MIME] for kind, c in ran.messages if kind == "display_data"]
            gpus = cards[-1]["gpus"] if cards else []
            known = [
                gpu
                for gpu in gpus
                if gpu["mig_index"] is None
                and gpu["device_memory"]["end"] is not None
                and gpu["index"] < GPUS
            ]
            names = self._services.value(_THREADS)
            if len(known) == GPUS and self._idle(names):
                break
            self._driver.change()
            if time.monotonic() > deadline:
                problems.append(f"still unhealthy: {[(g['index'], g['missing']) for g in gpus]}, {names}")
                break
            time.sleep(0.1)
        self._driver.collect()
        values = partial(self._driver.values, self._services.kernel_pid)
        for card in cards[-1:]:
            problems += checks.check_report(card, values, sent, ran, 0.0, full=True)
        return problems

    def _wait_for_stream(self) -> list[str]:
        began = time.monotonic()
        while True:
            newest = self._clients.newest
            if newest is not None and newest.at > began:
                # The stream also has the GPUs and MIG slices that a fault added, as lost GPUs.
                values = [
                    reading[field]
                    for gpu, reading in zip(newest.gpus, newest.readings, strict=True)
                    if gpu["mig_index"] is None and gpu["index"] < GPUS
                    for field in ("memory_used", "utilization", "power_w")
                ]
                if len(values) == 3 * GPUS and None not in values:
                    return []
            if time.monotonic() > began + PATIENCE_S:
                shown = newest and [(gpu["index"], gpu["mig_index"]) for gpu in newest.gpus]
                return [f"the stream does not show the healthy GPUs: {shown}"]
            self._driver.change()
            time.sleep(0.1)

    def _idle(self, names: str) -> bool:
        """Return whether only the threads run that gpuwidget needs all the time."""
        allowed = ["gpuwidget-fast", "gpuwidget-slow", "gpuwidget-watchdog", "gpuwidget-ranks"]
        if self._dashboard:
            allowed.append("gpuwidget-dashboard")
        running: list[str] = ast.literal_eval(names)
        return len(running) == len(set(running)) and set(running) <= set(allowed)

    def _resources(self) -> Resources:
        kernel, server = (
            psutil.Process(pid) for pid in (self._services.kernel_pid, self._services.server_pid)
        )
        return Resources(
            kernel_bytes=kernel.memory_info().rss,
            server_bytes=server.memory_info().rss,
            kernel_files=kernel.num_fds(),
            server_files=server.num_fds(),
        )

    def end(self) -> list[str]:
        """Unload gpuwidget, end the server with its kernel, and check that nothing is still running."""
        self._services.run(_UNLOAD)
        deadline = time.monotonic() + PATIENCE_S
        names = self._services.value(_THREADS)
        while names != "[]" and time.monotonic() < deadline:
            time.sleep(0.05)
            names = self._services.value(_THREADS)
        problems = [] if names == "[]" else [f"threads after %unload_ext: {names}"]
        return problems + self._close_clients() + self._services.stop() + self._end_checks()

    def _end_checks(self) -> list[str]:
        log = self._services.log.read_bytes()
        return list(checks.check_log(log[self._log_read :].decode(errors="replace")))
