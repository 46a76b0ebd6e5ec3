"""A look that may crash, hang or raise, taken in a process of its own: it says what it finds as it goes.

No shell is in between. The child is this environment's interpreter with the paths and the variables given;
Python's own modules come before those paths until its ``main(path)`` puts them as they were given, so that a
json.py of the user's breaks what it breaks, and not the look. What a child says is lines of JSON with a mark
before them: whatever else a library prints is passed over. What it result before it crashed or was given up
counts.

The working directory is never on a child's path: a notebook server often starts in a folder that other
people can write to, and a torch.py there must not run. gpuwidget itself is loaded from its own folder.
"""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

_MARK = b"gpuwidget doctor: "
# os is loaded by then, whatever files there are.
_BOOTSTRAP = """
import os, sys
package, n = sys.argv[1], int(sys.argv[2])
path, own = sys.argv[3:3 + n], os.path.dirname(os.__file__)
del sys.argv[1:3 + n]
sys.path[:] = [own, os.path.join(own, "lib-dynload"), os.path.join(os.path.dirname(own), "DLLs"), *path]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location(
    "gpuwidget", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
)
sys.modules["gpuwidget"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["gpuwidget"])
"""
_PACKAGE = Path(__file__).resolve().parents[1]
_OWN_SESSION = "from gpuwidget.diagnostics.probe_process import exit_with_parent; exit_with_parent()\n"
_KILL_TIMEOUT_S = 1.0
_POLL_S = 0.05
_MAX_STDERR = 65536
_MAX_LINE = 300
_MAX_TEXT = 2000
_FINISHED = "end"

Ending = Literal["ended", "crashed", "hung", "not started"]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a child result, and how it ended."""

    ending: Ending
    how: str
    """The signal or the exit status of a crash, with its last words; the error of one that could not start;
    empty else."""
    values: Mapping[str, Any] = field(default_factory=dict)
    silent_s: float = 0.0
    """Seconds from its last message until it was killed; 0 for a child that ended by itself."""

    @property
    def unfinished(self) -> str | None:
        """The step that it announced last and did not finish; empty before the first; None if all ended."""
        step = str(self.values.get("step", ""))
        return None if step == _FINISHED else step


@dataclass(frozen=True, slots=True)
class ProbeEnvironment:
    """Whose eyes a child looks with."""

    python: str
    path: Sequence[str]
    variables: Mapping[str, str]

    @classmethod
    def current(cls) -> ProbeEnvironment:
        """This process's, as it is now."""
        variables = dict(os.environ)
        # The loader read these when this process began; what was set since has had no effect here.
        at_start = _variables_at_start()
        for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
            if at_start is not None:
                variables.pop(name, None)
                variables |= {name: at_start[name]} if name in at_start else {}
        return cls(sys.executable or "", list(sys.path), variables)


def without_working_directory(path: Sequence[str]) -> list[str]:
    """Return the entries of ``path`` that are not the working directory.

    The folders that belong to the environment stay, even if one of them is the working directory.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was deleted
        return [entry for entry in path if entry]
    own = {os.path.realpath(folder) for folder in _environment_folders()}
    return [entry for entry in path if entry and (os.path.realpath(entry) != here or here in own)]


def _environment_folders() -> list[str]:
    folders = [os.path.dirname(os.__file__), *site.getsitepackages()]
    return [*folders, site.getusersitepackages()] if site.ENABLE_USER_SITE else folders


def send(**values: Any) -> None:
    """In a child: hand over these values at once, before whatever comes next may crash."""
    sys.stdout.write(f"\n{_MARK.decode()}{json.dumps(values)}\n")
    sys.stdout.flush()


def begin_step(step: str) -> None:
    """In a child: name the step that begins now, so that a hang or a crash is known by its step."""
    send(step=step)


def finish() -> None:
    """In a child: state that no step is left."""
    send(step=_FINISHED)


def run_step(step: str, value: Callable[[], Any]) -> None:
    """In a child: begin_step the step, send its value as ``<step>`` or its exception as ``<step>_start_error``."""
    begin_step(step)
    try:
        send(**{step: value()})
    except Exception as error:
        send(**{step: None, f"{step}_error": f"{type(error).__name__}: {error_text(error)}"})


def error_text(error: BaseException) -> str:
    """Return the exception's text, shortened."""
    return str(error)[:_MAX_TEXT]


def lower_priority() -> None:
    """In a child: give way to what is measured, be the first to end where memory runs out, leave no core."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(AttributeError, OSError):
        os.nice(10)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def exit_with_parent() -> None:
    """In a child that own_session: end with all of its own once who started it is no more."""

    def wait() -> None:
        with suppress(OSError):
            os.read(0, 1)  # nobody writes: it returns when the other end is closed
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="gpuwidget-doctor-parent", daemon=True).start()


class ProbeProcess:
    """One look under way, from its start to :meth:`said`."""

    def __init__(
        self,
        module: str,
        environment: ProbeEnvironment,
        arguments: Sequence[str] = (),
        *,
        own_session: bool = False,
    ) -> None:
        """Run ``module``'s ``main`` with the path as it was given, without the working directory.

        With ``own_session`` its own children end with it when it is given up, and all of them with this process.
        """
        self._own_session = own_session
        self._messages: list[bytes] = []
        self._line = b""
        """The last line heard, as far as it has come."""
        self._stderr = b""
        self._start_error = ""
        self._received_at = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        paths = without_working_directory([str(path) for path in environment.path])
        own_session = own_session and hasattr(os, "killpg")
        code = f"{_BOOTSTRAP}{_OWN_SESSION if own_session else ''}from {module} import main; main(path)"
        try:
            self._process = subprocess.Popen(
                [environment.python, "-c", code, str(_PACKAGE), str(len(paths)), *paths, *arguments],
                env=_child_variables(environment.variables),
                stdin=subprocess.PIPE if own_session else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Interrupting a cell interrupts the kernel's group: not this.
                start_new_session=own_session,
            )
        except (OSError, ValueError) as error:
            self._start_error = str(error)
            return
        # Threads, since what the child starts may keep the pipes open for longer than it lives.
        pipes = ((self._process.stdout, self._receive), (self._process.stderr, self._receive_stderr))
        self._readers = [
            (
                pipe,
                threading.Thread(
                    target=_read_pipe, args=(pipe, receive), name="gpuwidget-doctor", daemon=True
                ),
            )
            for pipe, receive in pipes
            if pipe is not None
        ]
        for _, reader in self._readers:
            reader.start()

    def _receive(self, part: bytes) -> None:
        *lines, last = (self._line + part).split(b"\n")
        messages = [line for line in lines if line.startswith(_MARK)]
        self._messages += messages
        if messages:
            self._received_at = time.monotonic()
        # Of a line that is no word of the child's, the beginning tells so as well as all of it.
        self._line = last if last.startswith(_MARK) else last[: len(_MARK)]

    def _receive_stderr(self, part: bytes) -> None:
        self._stderr = (self._stderr + part)[-_MAX_STDERR:]

    def wait(self, deadline: float) -> ProbeResult:
        """What it says until it ends, or until ``deadline`` (time.monotonic()): then it is given up.

        A child that can't be killed, since it hangs in the driver, is waited for ``_KILL_TIMEOUT_S`` after the
        deadline: several children with one deadline cost that time once.
        """
        if self._process is None:
            return ProbeResult("not started", self._start_error)
        status = None
        try:
            status = self._wait(deadline)
        finally:
            if status is None:
                self.kill(deadline + _KILL_TIMEOUT_S)
        until = deadline + _KILL_TIMEOUT_S if status is None else time.monotonic() + _KILL_TIMEOUT_S
        for pipe, reader in self._readers:
            reader.join(max(0.0, until - time.monotonic()))
            if not reader.is_alive():
                pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        values = self._parse_values()
        if status is None:
            return ProbeResult("hung", "", values, max(0.0, deadline - self._received_at))
        if status == 0:
            return ProbeResult("ended", "", values)
        how = _signal_name(-status) if status < 0 else f"exit status {status}"
        # Other signals come without a word: what stands there last is about something else.
        words = self._last_stderr_line() if status > 0 or status == -signal.SIGABRT else ""
        return ProbeResult("crashed", f"{how}: {words}" if words else how, values)

    def kill(self, until: float | None = None) -> None:
        """Kill it where it still runs, and wait for its end until ``until`` (time.monotonic())."""
        if self._process is not None and self._process.poll() is None:
            self._kill(time.monotonic() + _KILL_TIMEOUT_S if until is None else until)

    def _wait(self, deadline: float) -> int | None:
        assert self._process is not None
        while (left := deadline - time.monotonic()) > 0:
            # In small steps: on some systems a wait with a time-out is not interrupted by Ctrl-C.
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(min(left, _POLL_S))
        return self._process.poll()

    def _kill(self, until: float) -> None:
        assert self._process is not None
        with suppress(OSError):
            if self._own_session:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        # One that hangs in the driver does not die of it, and is waited for no longer.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()))

    def _last_stderr_line(self) -> str:
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:_MAX_LINE] for line in reversed(lines) if line.strip()), "")

    def _parse_values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for line in (*self._messages, self._line):
            if line.startswith(_MARK):
                with suppress(ValueError):
                    values |= json.loads(line.removeprefix(_MARK))
        return values


def _read_pipe(pipe: IO[bytes], receive: Callable[[bytes], object]) -> None:
    with suppress(OSError, ValueError):
        while part := os.read(pipe.fileno(), 65536):
            receive(part)


def _child_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with a PYTHONPATH that does not lead to the working directory.

    The child gets its path as arguments, but Python imports sitecustomize before it reads those.
    """
    cleaned = dict(variables)
    folders = without_working_directory(cleaned.pop("PYTHONPATH", "").split(os.pathsep))
    return {**cleaned, "PYTHONPATH": os.pathsep.join(folders)} if folders else cleaned


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _variables_at_start() -> dict[str, str] | None:
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return None
    return {
        os.fsdecode(name): os.fsdecode(value) for name, _, value in (pair.partition(b"=") for pair in pairs)
    }
