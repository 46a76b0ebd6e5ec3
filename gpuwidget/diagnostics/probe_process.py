"""Run a probe, which may crash, hang or raise an error, in a process that sends its results step by step.

The process runs the environment's interpreter with the environment's variables, without a shell. At first,
the standard library is at the front of ``sys.path``, so that a user's json.py can't break the probe itself.
The probe's ``main(path)`` may then set ``sys.path`` to the environment's, so that a user's json.py breaks the
same imports as in the notebook. Messages are lines of JSON after a marker; other output is ignored. Messages
that were sent before a crash or a timeout are valid.

The working directory is never in the probe's ``sys.path``: a notebook server often starts in a folder that
other people can write to, and a torch.py in that folder must not run. The probe loads gpuwidget from the
folder of the running gpuwidget.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import site
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from gpuwidget.model.clock import SYSTEM_CLOCK

_MARK = b"gpuwidget doctor: "
# os is already imported, so a user's file named os.py can't replace it.
_BOOTSTRAP = """
import os, sys
package, n = sys.argv[1], int(sys.argv[2])
path, own = sys.argv[3:3 + n], os.path.dirname(os.__file__)
del sys.argv[1:3 + n]
sys.path[:] = [own, os.path.join(own, "lib-dynload"), *path]
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
    """The values that a probe sent, and how the probe ended."""

    ending: Ending
    detail: str
    """If the probe crashed: signal or exit status, and the last line of stderr. If it did not start: the
    reason. Otherwise empty."""
    values: Mapping[str, Any] = field(default_factory=dict)
    silent_s: float = 0.0
    """Seconds from the probe's last message until it was killed; 0 if it ended by itself."""

    @property
    def unfinished(self) -> str | None:
        """The step that the probe did not finish; empty if it began no step; None if it finished all
        steps."""
        step = str(self.values.get("step", ""))
        return None if step == _FINISHED else step


@dataclass(frozen=True, slots=True)
class ProbeEnvironment:
    """Interpreter, ``sys.path`` and environment that a probe process uses."""

    python: str
    path: Sequence[str]
    variables: Mapping[str, str]

    @classmethod
    def current(cls) -> ProbeEnvironment:
        """Return the interpreter, ``sys.path`` and environment variables of this process."""
        variables = dict(os.environ)
        # The dynamic loader read these two variables when this process started, and ignores later changes.
        # Return their original values, so that a probe process loads the same libraries.
        at_start = _variables_at_start()
        for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
            if at_start is not None:
                variables.pop(name, None)
                variables |= {name: at_start[name]} if name in at_start else {}
        return cls(sys.executable or "", list(sys.path), variables)


def without_working_directory(path: Sequence[str]) -> list[str]:
    """Return the entries of ``path`` that are not the working directory.

    The folders of the standard library and of site-packages are kept, even if one of them is the working
    directory.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the working directory was deleted
        return [entry for entry in path if entry]
    own = {os.path.realpath(folder) for folder in _environment_folders()}
    return [entry for entry in path if entry and (os.path.realpath(entry) != here or here in own)]


def _environment_folders() -> list[str]:
    folders = [os.path.dirname(os.__file__), *site.getsitepackages()]
    return [*folders, site.getusersitepackages()] if site.ENABLE_USER_SITE else folders


def send(**values: Any) -> None:
    """In a probe process: send values immediately, since the next step may crash."""
    sys.stdout.write(f"\n{_MARK.decode()}{json.dumps(values)}\n")
    sys.stdout.flush()


def begin_step(step: str) -> None:
    """In a probe process: send the name of the step that begins, to which a hang or crash is attributed."""
    send(step=step)


def finish() -> None:
    """In a probe process: send that all steps are finished."""
    send(step=_FINISHED)


def run_step(step: str, value: Callable[[], Any]) -> None:
    """In a probe process: run a step; send its value as ``<step>``, or its exception as ``<step>_error``."""
    begin_step(step)
    try:
        send(**{step: value()})
    except Exception as error:
        send(**{step: None, f"{step}_error": f"{type(error).__name__}: {error_text(error)}"})


def error_text(error: BaseException) -> str:
    """Return the exception's text, truncated."""
    return str(error)[:_MAX_TEXT]


def lower_priority() -> None:
    """In a probe process: lower its priority, make it the OOM killer's first choice, disable core dumps."""
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        os.nice(10)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def exit_with_parent() -> None:
    """Kill the probe's process group when its parent exits."""

    def wait() -> None:
        with suppress(OSError):
            # The parent writes nothing; the read returns when the parent's end of the pipe is closed.
            os.read(0, 1)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, name="gpuwidget-doctor-parent", daemon=True).start()


class ProbeProcess:
    """A running probe, from its start to :meth:`wait`."""

    def __init__(
        self,
        module: str,
        environment: ProbeEnvironment,
        arguments: Sequence[str] = (),
        *,
        own_session: bool = False,
    ) -> None:
        """Start a process that calls ``main(path)`` of ``module``.

        ``path`` is the environment's ``sys.path`` without the working directory. With ``own_session``,
        killing the process also kills its children, and all of them are killed when this process exits.
        """
        self._own_session = own_session
        self._messages: list[bytes] = []
        self._line = b""
        """The last line received, which may be incomplete."""
        self._stderr = b""
        self._start_error = ""
        self._received_at = SYSTEM_CLOCK.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        paths = without_working_directory([str(path) for path in environment.path])
        code = f"{_BOOTSTRAP}{_OWN_SESSION if own_session else ''}from {module} import main; main(path)"
        try:
            self._process = subprocess.Popen(
                [environment.python, "-c", code, str(_PACKAGE), str(len(paths)), *paths, *arguments],
                env=_child_variables(environment.variables),
                stdin=subprocess.PIPE if own_session else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Interrupting a cell interrupts the kernel's process group, so the probe must not be in this
                # group.
                start_new_session=own_session,
            )
        except (OSError, ValueError) as error:
            self._start_error = str(error)
            return
        # The pipes are read in threads, since the probe's children may keep them open after the probe has
        # ended.
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
            self._received_at = SYSTEM_CLOCK.monotonic()
        # Output that is not a message may be huge, so keep only its first bytes.
        self._line = last if last.startswith(_MARK) else last[: len(_MARK)]

    def _receive_stderr(self, part: bytes) -> None:
        self._stderr = (self._stderr + part)[-_MAX_STDERR:]

    def wait(self, deadline: float) -> ProbeResult:
        """Wait until the probe ends, and return what it sent; kill it at ``deadline`` (monotonic seconds).

        A process that hangs in the driver can't be killed, so the wait ends ``_KILL_TIMEOUT_S`` after the
        deadline. If several processes have the same deadline, this extra time is spent only once.
        """
        if self._process is None:
            return ProbeResult("not started", self._start_error)
        status = None
        try:
            status = self._wait(deadline)
        finally:
            if status is None:
                self.kill(deadline + _KILL_TIMEOUT_S)
        until = deadline + _KILL_TIMEOUT_S if status is None else SYSTEM_CLOCK.monotonic() + _KILL_TIMEOUT_S
        for pipe, reader in self._readers:
            reader.join(max(0.0, until - SYSTEM_CLOCK.monotonic()))
            if not reader.is_alive():
                pipe.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        values = self._parse_values()
        if status is None:
            return ProbeResult("hung", "", values, max(0.0, deadline - self._received_at))
        if status == 0:
            return ProbeResult("ended", "", values)
        detail = _signal_name(-status) if status < 0 else f"exit status {status}"
        # For other signals, the last line on stderr is unrelated to the crash.
        words = self._last_stderr_line() if status > 0 or status == -signal.SIGABRT else ""
        return ProbeResult("crashed", f"{detail}: {words}" if words else detail, values)

    def kill(self, until: float | None = None) -> None:
        """Kill the probe if it still runs, and wait until ``until`` (monotonic seconds) for it to end."""
        if self._process is not None and self._process.poll() is None:
            self._kill(SYSTEM_CLOCK.monotonic() + _KILL_TIMEOUT_S if until is None else until)

    def _wait(self, deadline: float) -> int | None:
        assert self._process is not None
        while (left := deadline - SYSTEM_CLOCK.monotonic()) > 0:
            # Wait in small steps, since on some systems Ctrl-C does not interrupt a single wait with a long
            # timeout.
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
        # A process that hangs in the driver survives SIGKILL, so the wait has a timeout.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - SYSTEM_CLOCK.monotonic()))

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
    """Return the variables without the working directory in PYTHONPATH.

    The probe receives its ``sys.path`` as arguments. Before it reads them, Python imports sitecustomize,
    which it finds with PYTHONPATH.
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
