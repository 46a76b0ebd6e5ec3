"""The device switch: store the default torch device that the user chooses, and apply it on the cells' thread.

torch has two settings, and both are per thread: ``torch.set_default_device`` (the device of new tensors, with
a cost on every torch call) and ``torch.cuda.set_device`` (the device that ``"cuda"`` without an index refers
to, also for CuPy and Numba). A choice is therefore stored first, and applied later on the thread that runs
cells, before the next cell.

``set_device`` opens a CUDA context, which stays until the process ends. gpuwidget therefore calls it only
after the user's code has initialized CUDA: immediately afterwards, in a callback that torch runs
(``_lazy_call``).

Nothing in this module imports torch. If the user's code has changed a setting after gpuwidget set it,
gpuwidget leaves the setting as it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gpuwidget.model.boundary import stopped
from gpuwidget.model.errors import OptionError
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.kernel_state import DeviceState
from gpuwidget.model.messages import Sentences
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.torch_state import cuda_index
from gpuwidget.model.translation import counted, translatable
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.hooks import OnCudaInit

_LOG = logging.getLogger(__name__)

Subscriber = Callable[[DeviceState], None]


_NO_TORCH = translatable(
    "torch is not imported yet: the choice takes effect in the cell after the cell "
    "that imports torch. gpuwidget never imports torch."
)
_NO_CUDA_YET = translatable(
    "The current CUDA device is set when your code first uses CUDA, because the choice opens no CUDA context."
)
_INSIDE_CONTEXT = translatable(
    "Your code is inside a `with torch.device(...)` block: torch's default device does not change before "
    "the block ends."
)
_DEFAULT_CHANGED = Sentences(
    "Your code has since set torch's default device to {now}. gpuwidget does not change it."
)
_CURRENT_CHANGED = Sentences(
    "Your code has since set the current CUDA device to cuda:{now}. gpuwidget does not change it."
)


def device_context_note() -> str | None:
    """Return a note if this thread is inside a ``with torch.device(...)`` block, else None.

    In such a block, the default device can't be changed.
    """
    torch: Any = cuda_state.loaded_torch()
    if torch is None or cuda_state.active_device_context(torch) is None:
        return None
    return _INSIDE_CONTEXT


class _Choice(NamedTuple):
    device: str | None
    new_tensors: bool


class _ChangedByUser(Exception):
    """The user's code has changed the setting after gpuwidget set it. The text is the note for the user."""


class _InsideContext(Exception):
    """The thread is inside a ``with torch.device(...)`` block. The text is the note for the user."""


# -- torch's settings on one thread ----------------------------------------------------------------------


class _DefaultDevice:
    """The default device of one thread, as set with ``torch.set_default_device``."""

    def __init__(self) -> None:
        self._ours: Any = None
        """The ``DeviceContext`` that gpuwidget set, or None."""
        self._before: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether gpuwidget has set the default device and not yet called :meth:`restore`."""
        return self._ours is not None

    def is_unchanged(self, torch: Any) -> bool:
        """Return whether the device that gpuwidget set is still the default."""
        return self._ours is not None and cuda_state.default_device_context(torch) is self._ours

    def set(self, torch: Any, device: str) -> None:
        """Set the default device."""
        if not self.is_unchanged(torch):
            now = cuda_state.default_device_context(torch)
            self._before = None if now is None else str(now.device)
        # If the device is invalid, torch.device() raises here. Given the string, set_default_device would
        # raise too, but only after it had removed the default device that was set before.
        torch.set_default_device(torch.device(device))
        self._ours = cuda_state.default_device_context(torch)

    def restore(self, torch: Any) -> None:
        """Restore the default device that was set before gpuwidget replaced it.

        Raises _ChangedByUser if the user's code has changed the default device in the meantime.
        """
        if not self.is_set:
            return
        unchanged = self.is_unchanged(torch)
        self._ours = None
        if not unchanged:
            raise _ChangedByUser(_DEFAULT_CHANGED(now=cuda_state.default_device()))
        torch.set_default_device(self._before)

    def replace_context(self, before: Any, after: Any) -> None:
        """If ``before`` is the stored ``DeviceContext``, store ``after`` instead.

        Call this when an inner choice (a cell's ``--device``) ends. torch then creates a new context for the
        device of the outer choice. Without this call, the new context would look like a change by the user.
        """
        if before is not None and self._ours is before:
            self._ours = after


class _CurrentDevice:
    """The setting ``torch.cuda.set_device`` on one thread. Use it only if CUDA is initialized."""

    def __init__(self) -> None:
        self._ours: int | None = None
        self._before = 0

    @property
    def is_set(self) -> bool:
        """Whether gpuwidget has set the current device and not yet called :meth:`restore`."""
        return self._ours is not None

    def is_unchanged(self, torch: Any) -> bool:
        """Return whether the device that gpuwidget set is still the current one."""
        return self._ours is not None and int(torch.cuda.current_device()) == self._ours

    def set(self, torch: Any, index: int) -> None:
        """Set the current device, which opens a context on that device."""
        if not self.is_unchanged(torch):
            self._before = int(torch.cuda.current_device())
        torch.cuda.set_device(index)
        self._ours = index

    def restore(self, torch: Any) -> None:
        """Restore the device that was current before gpuwidget replaced it.

        Raises _ChangedByUser if the user's code has changed the current device in the meantime.
        """
        if not self.is_set:
            return
        unchanged = self.is_unchanged(torch)
        self._ours = None
        if not unchanged:
            raise _ChangedByUser(_CURRENT_CHANGED(now=torch.cuda.current_device()))
        exchange = getattr(torch.cuda, "_maybe_exchange_device", None)
        if callable(exchange) and self._before not in cuda_state.devices_with_context():
            exchange(self._before)  # Unlike set_device, this opens no context on the restored device.
        else:
            torch.cuda.set_device(self._before)


class _AppliedChoice:
    """One choice of device and its settings on one thread: the user's choice or a cell's ``--device``."""

    def __init__(self) -> None:
        self.device: str | None = None
        self.new_tensors = True
        self.default = _DefaultDevice()
        self.current = _CurrentDevice()
        self.waits_for_cuda = False

    def apply(self, torch: Any, device: str | None, new_tensors: bool) -> str | None:
        """Apply a choice. Returns a note about a setting that was left unchanged or could not be set.

        If the thread is inside a ``with torch.device(...)`` block, raises _InsideContext and changes nothing.
        """
        _check_not_inside_context(torch)
        notes: list[str] = []
        if device is not None and new_tensors:
            self.default.set(torch, device)
        else:
            notes += _notes_of(self.default.restore, torch)
        self.device, self.new_tensors = device, new_tensors
        self.waits_for_cuda = cuda_index(device) is not None
        if torch.cuda.is_initialized():
            if self.waits_for_cuda:
                notes += self.set_current_device(torch)
            else:
                notes += _notes_of(self.current.restore, torch)
        return notes[0] if notes else None

    def set_current_device(self, torch: Any) -> list[str]:
        """Set the current CUDA device. CUDA must be initialized. Tries only once; returns notes on
        failure."""
        self.waits_for_cuda = False
        index = cuda_index(self.device)
        assert index is not None
        try:
            self.current.set(torch, index)
        except Exception as error:
            return [
                translatable(
                    "{device} can't be the current CUDA device: {error}",
                    device=self.device,
                    error=_first_line(error),
                )
            ]
        return []

    def restore(self, torch: Any) -> str | None:
        """Restore the settings from before the choice. Returns a note if a setting could not be restored."""
        self.waits_for_cuda = False
        notes: list[str] = []
        try:
            _check_not_inside_context(torch)
            notes += _notes_of(self.default.restore, torch)
        except _InsideContext as inside:
            notes.append(inside.args[0])
        if torch.cuda.is_initialized():
            notes += _notes_of(self.current.restore, torch)
        return notes[0] if notes else None

    def user_change(self, torch: Any) -> str | None:
        """Return a note if the user's code has changed a setting since it was applied, else None."""
        if self.default.is_set and not self.default.is_unchanged(torch):
            return _DEFAULT_CHANGED(now=cuda_state.default_device())
        if self.current.is_set and torch.cuda.is_initialized() and not self.current.is_unchanged(torch):
            return _CURRENT_CHANGED(now=torch.cuda.current_device())
        return None


# -- the switch ------------------------------------------------------------------------------------------


class DeviceSwitch:
    """Stores the device that the user has chosen, applies the choice, and notifies subscribers of changes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._cells_thread: int | None = None
        """Identifier of the thread that runs cells; None in a process without cells."""
        self._thread = threading.local()
        self._applied = _Choice(None, True)
        self._pending: _Choice | None = None
        """The choice that is not applied yet."""
        self._present: str | None = None
        self._choice_note: str | None = None
        """The note about the last choice, such as why it could not be applied; None if there is no
        problem."""
        self._note: str | None = None
        self._sent: DeviceState | None = None
        self._on_cuda_init = OnCudaInit(lambda torch: self._log_errors(partial(self._cuda_started, torch)))

    @property
    def _levels(self) -> list[_AppliedChoice]:
        """The choices applied on this thread: first the user's choice, then ``--device`` of each nested
        cell."""
        levels: list[_AppliedChoice] | None = getattr(self._thread, "levels", None)
        if levels is None:
            levels = self._thread.levels = [_AppliedChoice()]
        return levels

    # -- from any thread -----------------------------------------------------------------------------

    @property
    def state(self) -> DeviceState:
        """The user's choice, and torch's default device when a cell last started or ended."""
        with self._lock:
            pending = self._pending
            device, new_tensors = pending or self._applied
            return DeviceState(device, new_tensors, pending is not None, self._present, self._note)

    @property
    def pending_cuda_device(self) -> str | None:
        """The ``cuda:N`` that will be this thread's current device once CUDA is initialized, or None."""
        level = self._levels[-1]
        return level.device if level.waits_for_cuda else None

    def choose(self, device: str | None, *, new_tensors: bool = True) -> None:
        """Store a choice without validating it: ``cpu``, ``cuda:N`` or None.

        None restores the device from before the first choice. The choice applies from the next cell on. In a
        process without cells, it applies immediately, on the calling thread.
        """
        with self._lock:
            no_torch = cuda_state.loaded_torch() is None
            self._pending = None if device is None and no_torch else _Choice(device, new_tensors)
            self._choice_note = self._note = _NO_TORCH if device is not None and no_torch else None
            at_once = self._cells_thread is None
        if at_once:
            self._apply_pending()
        else:
            self._notify()

    def subscribe(self, subscriber: Subscriber) -> None:
        """From now on, call ``subscriber`` with each new state, on the thread that changes the state."""
        with self._lock:
            self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop calling ``subscriber``. Safe to call twice."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

    # -- on the cells' thread ------------------------------------------------------------------------

    def attach(self, thread: int) -> None:
        """Set the thread that runs cells. From now on, choices are applied on it before the next cell."""
        with self._lock:
            self._cells_thread = thread
        self.after_cell()

    def detach(self) -> None:
        """Drop the choice and restore the settings that this thread had before it, except settings that the
        user's code has changed."""
        torch: Any = cuda_state.loaded_torch()
        if torch is not None:
            for level in reversed(self._levels):
                self._log_errors(partial(level.restore, torch))
            self._levels[:] = [_AppliedChoice()]
        with self._lock:
            self._cells_thread = self._pending = self._present = self._choice_note = self._note = None
            self._applied = _Choice(None, True)
        self._notify()

    def reset_in_child(self) -> None:
        """Drop the subscribers, the cells' thread and the lock, because a forked child has no other
        threads."""
        self._lock = threading.RLock()
        self._subscribers = []
        self._cells_thread = None

    def before_cell(self) -> None:
        """Apply the pending choice if this is the cells' thread. Never raises."""
        if self._cells_thread == threading.get_ident():
            self._log_errors(self._apply_pending)

    def after_cell(self) -> None:
        """After a cell, update the state and notify subscribers if this is the cells' thread. Never
        raises."""
        if self._cells_thread == threading.get_ident():
            self._log_errors(self._update_state)

    def use_device(self, device: str) -> Callable[[], str | None]:
        """Use ``device`` on this thread, for example for one cell, until the returned function is called.

        The returned function restores the settings from before this call. It returns a note if the user's
        code has changed them in the meantime. Raises OptionError if torch is not imported or the device can't
        be set now.
        """
        torch: Any = cuda_state.loaded_torch()
        if torch is None:
            raise OptionError(translatable("torch is not imported yet: import it in a cell before this one."))
        level = _AppliedChoice()
        context_before = cuda_state.default_device_context(torch)
        self._levels.append(level)
        try:
            note = level.apply(torch, device, True)
        except _InsideContext as inside:
            self._levels.remove(level)
            raise OptionError(*inside.args) from None
        except BaseException:
            self._restore_level(torch, level, context_before)
            raise
        if note is not None:
            _LOG.warning("%s", printable_lines(note))
        self._on_cuda_init.register(torch)
        return partial(self._restore_level, torch, level, context_before)

    def _restore_level(self, torch: Any, level: _AppliedChoice, context_before: Any) -> str | None:
        if level not in self._levels:
            return None
        unchanged = level.default.is_unchanged(torch)
        try:
            return level.restore(torch)
        finally:
            self._levels.remove(level)
            # If the cell's code has changed the default device, the current context is the user's and not
            # gpuwidget's.
            if unchanged:
                for outer in self._levels:
                    outer.default.replace_context(context_before, cuda_state.default_device_context(torch))

    def _apply_pending(self) -> None:
        torch: Any = cuda_state.loaded_torch()
        base = self._levels[0]
        with self._lock:
            # Inside a cell with --device, the user's choice stays pending until that cell has ended.
            choice = self._pending if torch is not None and len(self._levels) == 1 else None
        if choice is not None:
            self._apply(torch, base, choice)
        elif len(self._levels) == 1 and base.waits_for_cuda and torch.cuda.is_initialized():
            self._set_current_device(torch, base)
        self._update_state()

    def _apply(self, torch: Any, base: _AppliedChoice, choice: _Choice) -> None:
        impossible = _impossible_reason(torch, choice.device)
        inside_context = False
        try:
            note = base.apply(torch, *(_Choice(None, True) if impossible is not None else choice))
        except _InsideContext as inside:
            note = inside.args[0]
            inside_context = True
        except Exception as error:
            note = translatable(
                "{device} can't be torch's default device: {error}",
                device=choice.device,
                error=_first_line(error),
            )
        with self._lock:
            # Until here the choice is pending, so that another thread never sees the state before it. A
            # choice that another thread has made meanwhile stays pending until the next cell.
            if self._pending is choice and not inside_context:
                self._pending = None
            self._applied = _Choice(base.device, base.new_tensors)
            self._present = cuda_state.default_device()
            self._choice_note = impossible or note

    def _set_current_device(self, torch: Any, level: _AppliedChoice) -> None:
        notes = level.set_current_device(torch)
        with self._lock:
            self._choice_note = notes[0] if notes else None

    def _cuda_started(self, torch: Any) -> None:
        level = self._levels[-1]
        if level.waits_for_cuda:
            self._set_current_device(torch, level)

    def _update_state(self) -> None:
        """Read torch's default device on this thread and notify the subscribers."""
        torch: Any = cuda_state.loaded_torch()
        if torch is not None:
            base = self._levels[0]
            user_change = base.user_change(torch) if len(self._levels) == 1 else None
            with self._lock:
                self._present = cuda_state.default_device()
                waits = _NO_CUDA_YET if base.waits_for_cuda else None
                current_note = user_change or waits or self._choice_note
                self._note = current_note if self._pending is None else self._choice_note
            if base.waits_for_cuda:
                self._on_cuda_init.register(torch)
        self._notify()

    def _notify(self) -> None:
        with self._lock:
            state = self.state
            if state == self._sent:
                return
            self._sent = state
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            self._log_errors(partial(subscriber, state))

    def _log_errors(self, step: Callable[[], object]) -> None:
        try:
            step()
        except BaseException as error:
            stopped(_LOG, "the default torch device could not be updated", error)


def _impossible_reason(torch: Any, device: str | None) -> str | None:
    """Return why the choice of ``device`` can't be applied, or None. A choice that was made before torch was
    imported may turn out to be impossible."""
    index = cuda_index(device)
    if index is None:
        return None
    reason = cuda_state.no_cuda_build_reason()
    if reason is None and torch.cuda.is_initialized() and index >= torch.cuda.device_count():
        reason = counted(
            torch.cuda.device_count(),
            "torch has {number} CUDA device in this process",
            "torch has {number} CUDA devices in this process",
        )
    if reason is None:
        return None
    return translatable(
        "{device} was chosen but is not available, because {reason}.", device=device, reason=reason
    )


def _notes_of(restore: Callable[[Any], None], torch: Any) -> list[str]:
    try:
        restore(torch)
    except _ChangedByUser as changed:
        return [changed.args[0]]
    except Exception as error:  # For example, every CUDA call fails once a CUDA kernel has failed.
        return [
            translatable("The previous torch device can't be restored: {error}", error=_first_line(error))
        ]
    return []


def _check_not_inside_context(torch: Any) -> None:
    # Inside a ``with torch.device(...)`` block, set_default_device would fail, or remove the user's context
    # instead of gpuwidget's.
    if cuda_state.active_device_context(torch) is not None:
        raise _InsideContext(_INSIDE_CONTEXT)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


DEVICE_SWITCH = DeviceSwitch()
"""The only instance in the process."""

reset_after_fork(DEVICE_SWITCH.reset_in_child)
