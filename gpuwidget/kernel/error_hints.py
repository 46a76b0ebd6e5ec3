"""Hints below the tracebacks of known errors: what happened, where, and the fix.

A hint is a separate output after the traceback. The traceback, the kernel's reply and ``sys.last_*`` stay
unchanged.
"""

from __future__ import annotations

import html
import linecache
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from gpuwidget import pytorch
from gpuwidget.model import units
from gpuwidget.model.boundary import stopped
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.torch_state import cuda_index
from gpuwidget.model.translation import _, in_view_language, joined, listed, translatable
from gpuwidget.views.saved_outputs import output_metadata

_LOG = logging.getLogger(__name__)

_MAX_MESSAGE = 20_000
"""Only this many characters of an error's message are searched."""
_MAX_NAMES = 12
_MAX_FRAMES = 200
_NAME = re.compile(r"[A-Za-z_]\w*")

_SHUFFLE = re.compile(r"Expected a '(\w+)' device type for generator but found '(\w+)'")
_SEVERAL_DEVICES = re.compile(
    r"Expected all tensors to be on the same device"
    r"|Tensor on device \S+ is not on the expected device"
)
_TWO_TYPES = re.compile(r"[Ii]nput type \((\S+)\) and (?:weight|bias) type \((\S+)\) should be the same")
_SHARED_MEMORY = re.compile(
    r"DataLoader worker \(pid.*\) is killed by signal: Bus error"
    r"|[Uu]nexpected bus error encountered in worker"
    r"|unable to (?:write to file|allocate shared memory).*/(?:torch_|dev/shm)",
    re.DOTALL,
)
_FORKED = re.compile(r"Cannot re-initialize CUDA in forked subprocess")


class Hint(NamedTuple):
    """An explanation of an error."""

    what: str
    """What happened, and where."""
    fix: str
    """What the user should write instead."""

    @property
    def text(self) -> str:
        """The hint as two lines of text."""
        return f"{self.what}\n{_('Fix:')} {self.fix}"


class ErrorHints:
    """Shows hints for the failed cells of a shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    @in_view_language
    def show_hint(self, result: Any) -> None:
        """Handle ``post_run_cell``: show a hint if the cell failed with a known error."""
        error = getattr(result, "error_in_exec", None)
        if error is None:
            return
        try:
            found = hint(error, self._shell.user_ns)
            if found is not None:
                self._shell.display_pub.publish(data=_bundle(found), metadata=output_metadata())
        except BaseException as error:
            stopped(_LOG, "Could not make a hint for a failed cell", error)


def hint(error: BaseException, user_ns: Mapping[str, object]) -> Hint | None:
    """Return an explanation of a known error and its fix; None for all other errors."""
    # torch itself raises only error types of these modules. For any other error, str() may run user code.
    if not pytorch.is_loaded() or type(error).__module__.partition(".")[0] not in (
        "builtins",
        "torch",
    ):
        return None
    if not isinstance(error, (RuntimeError, OSError)):
        return None
    message = str(error)[:_MAX_MESSAGE]
    known: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Hint | None]], ...] = (
        (_FORKED, lambda match: _forked()),
        (_SHARED_MEMORY, lambda match: _shared_memory()),
        (_SHUFFLE, _shuffle),
        (_SEVERAL_DEVICES, lambda match: _several_devices(error.__traceback__, user_ns)),
        (_TWO_TYPES, lambda match: _two_types(match, error.__traceback__, user_ns)),
    )
    for pattern, explain in known:
        match = pattern.search(message)
        if match is not None:
            return explain(match)
    return None


def _shuffle(match: re.Match[str]) -> Hint:
    expected, found = match.groups()
    default = pytorch.default_device() or "cpu"
    drawn = _(
        "Random numbers were requested on {expected}, but the generator is on {found}.",
        expected=expected,
        found=found,
    )
    if expected == "cpu" or default.partition(":")[0] != expected:
        return Hint(
            drawn,
            _(
                'pass a generator on that device: generator=torch.Generator(device="{expected}")',
                expected=expected,
            ),
        )
    return Hint(
        _(
            "{drawn} The default torch device is {default}: random numbers are drawn there unless a device "
            "is given. But DataLoader(shuffle=True) and random_split use a generator on the CPU by default.",
            drawn=drawn,
            default=default,
        ),
        f'DataLoader(..., generator=torch.Generator(device="{default}"))',
    )


def _two_types(
    match: re.Match[str], trace: TracebackType | None, user_ns: Mapping[str, object]
) -> Hint | None:
    # torch writes types as "torch.cuda.FloatTensor" or "CUDAFloatType". If both types are on the same device,
    # only their dtypes differ, which is a different error.
    first, second = ("cuda" in device.lower() for device in match.groups())
    return None if first == second else _several_devices(trace, user_ns)


def _several_devices(trace: TracebackType | None, user_ns: Mapping[str, object]) -> Hint:
    where, in_line = _device_by_name(trace, user_ns)
    devices = sorted({device for name in where for device in where[name]})
    fix = _("move one to the other's device: x.to(y.device), model.to(x.device)")
    if not where:
        return Hint(_("One operation received tensors on different devices."), fix)
    named = [translatable("{name} on {on}", name=name, on=listed(on)) for name, on in where.items()]
    names = _(listed(named, _MAX_NAMES) if len(named) > _MAX_NAMES else joined(named))
    if not in_line:
        return Hint(
            _(
                "One operation received tensors on different devices. Variables in this code: {names}.",
                names=names,
            ),
            fix,
        )
    if len(devices) > 1:
        default = pytorch.default_device()
        gpu = next((device for device in devices if cuda_index(device) is not None), devices[-1])
        target = default if default in devices and default != "cpu" else gpu
        other = next((name for name, on in where.items() if on != (target,)), None)
        if other is not None:
            fix = f'{other} = {other}.to("{target}")'
    return Hint(_("One operation received tensors on different devices: {names}.", names=names), fix)


def _device_by_name(
    trace: TracebackType | None, user_ns: Mapping[str, object]
) -> tuple[dict[str, tuple[str, ...]], bool]:
    """Return the devices of the variables in the innermost line that uses several devices, and True.

    If there is no such line, return False, and the devices of the local variables of the innermost frame that
    has tensors. If no frame has tensors, return the devices of the notebook's variables instead.
    """
    local: dict[str, tuple[str, ...]] = {}
    for frame, line in _user_frames(trace):
        names = dict.fromkeys(_NAME.findall(line))
        values = {**frame.f_globals, **frame.f_locals}
        named = pytorch.devices_of_tensors((name, values[name]) for name in names if name in values)
        if len(set(named.values())) > 1:
            return named, True
        local = local or pytorch.devices_of_tensors(frame.f_locals.items())
    global_values = ((name, value) for name, value in user_ns.items() if not name.startswith("_"))
    return local or pytorch.devices_of_tensors(global_values), False


def _user_frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, str]]:
    """Yield each frame outside torch and IPython with the line that it was executing, the innermost first."""
    frames: list[tuple[FrameType, str]] = []
    while trace is not None and len(frames) < _MAX_FRAMES:
        module = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in ("torch", "IPython", "ipykernel"):
            line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            frames.append((trace.tb_frame, line))
        trace = trace.tb_next
    yield from reversed(frames)


def _shared_memory() -> Hint:
    try:
        stat = os.statvfs("/dev/shm")
        total, free = stat.f_frsize * stat.f_blocks, stat.f_frsize * stat.f_bavail
        folder = _("/dev/shm ({total}, {free} free)", total=units.memory(total), free=units.memory(free))
    except OSError:
        folder = "/dev/shm"
    return Hint(
        _(
            "A DataLoader worker died because {folder}, the shared memory through which it "
            "passes batches, is too small. Containers have 64 MiB by default.",
            folder=folder,
        ),
        _("DataLoader(..., num_workers=0), or start the container with --shm-size=8g"),
    )


def _forked() -> Hint:
    what = _(
        "A forked child process, such as a DataLoader worker, used CUDA. This fails if its parent started "
        "CUDA before the fork."
    )
    default = pytorch.default_device()
    if cuda_index(default) is not None:
        inherited = _(
            "It inherits the default device {default_device}, so its new tensors go there. %gpu device none "
            "or the light mode prevents this.",
            default_device=default,
        )
        what = f"{what} {inherited}"
    return Hint(
        what,
        _('DataLoader(..., multiprocessing_context="spawn"), or create only CPU tensors in the worker'),
    )


def _bundle(found: Hint) -> dict[str, str]:
    code = f"<br><b>{_('Fix:')}</b> <code>{html.escape(found.fix)}</code>"
    style = "border-left:3px solid #b53d00;padding:2px 10px"
    return {
        "text/plain": printable_lines(found.text),
        "text/html": f'<div style="{style}">{html.escape(found.what)}{code}</div>',
    }
