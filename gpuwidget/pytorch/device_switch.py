"""The switch for the default torch device: what was chosen, and its application on the cells' own thread.

Both of torch's settings belong to a thread: ``torch.set_default_device`` (where new tensors go, at a cost on
every call) and ``torch.cuda.set_device`` (what ``"cuda"`` without a number means, to CuPy and Numba too). So
a choice is only stored, and applied on the cells' thread before its next cell.

``set_device`` opens a CUDA context, which stays until the process ends. It waits until the user's own code
has brought CUDA up, and follows then at once: torch calls back when it has initialised CUDA (``_lazy_call``).

Nothing here imports torch. What the user's code has changed since is left as it is.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gpuwidget.model.errors import OptionError
from gpuwidget.model.fork import reset_after_fork
from gpuwidget.model.kernel_state import DeviceState
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.hooks import WhenCudaIsUp

_LOG = logging.getLogger(__name__)

Listener = Callable[[DeviceState], None]

_CUDA_DEVICE = re.compile(r"cuda:(0|[1-9][0-9]{0,2})")

_NO_TORCH = (
    "torch is not imported yet. The choice holds from the cell after the one that imports it; "
    "gpuwidget never imports it for you."
)
_NO_CUDA_YET = "The current CUDA device follows when your code first uses CUDA: choosing opens no context."
_WITHIN = (
    "Your code is inside a `with torch.device(...)` that has not ended: torch's default device is left "
    "alone until it has."
)
_KEPT_DEFAULT = "Your code has set torch's default device to {now} since, and it is left so."
_KEPT_CURRENT = "Your code has set the current CUDA device to cuda:{now} since, and it is left so."


def cuda_index(device: str | None) -> int | None:
    """The N of ``cuda:N``; None for everything else."""
    named = _CUDA_DEVICE.fullmatch(device or "")
    return None if named is None else int(named[1])


class _Wish(NamedTuple):
    device: str | None
    new_tensors: bool


class _Left(Exception):
    """The user's code has set something else since; the text says what."""


class _Within(Exception):
    """The user's code is inside a ``with torch.device(...)``; the text says so."""


class _DefaultDevice:
    """torch.set_default_device on one thread, while the value is ours."""

    def __init__(self) -> None:
        self._ours: Any = None
        self._before: str | None = None

    @property
    def held(self) -> bool:
        """Whether it was set and not given back."""
        return self._ours is not None

    def is_ours(self, torch: Any) -> bool:
        """Whether nobody has set another one since."""
        return self._ours is not None and _context(torch) is self._ours

    def set(self, torch: Any, device: str) -> None:
        """Make it the default."""
        if not self.is_ours(torch):
            now = _context(torch)
            self._before = None if now is None else str(now.device)
        # One that is no device fails here: within set_default_device it would fail with the old one off.
        torch.set_default_device(torch.device(device))
        self._ours = _context(torch)

    def give_back(self, torch: Any) -> None:
        """Put back what was before. Raises _Left where the value is no longer ours."""
        if not self.held:
            return
        ours = self.is_ours(torch)
        self._ours = None
        if not ours:
            raise _Left(_KEPT_DEFAULT.format(now=cuda_state.default_device()))
        torch.set_default_device(self._before)

    def adopt(self, before: Any, after: Any) -> None:
        """What was ours has been taken off and put back by ourselves: it is another object now."""
        if before is not None and self._ours is before:
            self._ours = after


class _CurrentDevice:
    """torch.cuda.set_device on one thread, while the value is ours; only where CUDA is up."""

    def __init__(self) -> None:
        self._ours: int | None = None
        self._before = 0

    @property
    def held(self) -> bool:
        """Whether it was set and not given back."""
        return self._ours is not None

    def is_ours(self, torch: Any) -> bool:
        """Whether nobody has set another one since."""
        return self._ours is not None and int(torch.cuda.current_device()) == self._ours

    def set(self, torch: Any, index: int) -> None:
        """Make ``cuda:index`` the current device, for CuPy and Numba too; opens its context."""
        if not self.is_ours(torch):
            self._before = int(torch.cuda.current_device())
        torch.cuda.set_device(index)
        self._ours = index

    def give_back(self, torch: Any) -> None:
        """Put back what was before. Raises _Left where the value is no longer ours."""
        if not self.held:
            return
        ours = self.is_ours(torch)
        self._ours = None
        if not ours:
            raise _Left(_KEPT_CURRENT.format(now=torch.cuda.current_device()))
        exchange = getattr(torch.cuda, "_maybe_exchange_device", None)
        if callable(exchange) and self._before not in cuda_state.devices_with_context():
            exchange(self._before)  # opens no context there, as set_device would
        else:
            torch.cuda.set_device(self._before)


class _Level:
    """What one wish has put in place: the user's choice, or on top of it a cell's own."""

    def __init__(self) -> None:
        self.device: str | None = None
        self.new_tensors = True
        self.default = _DefaultDevice()
        self.current = _CurrentDevice()
        self.waits_for_cuda = False

    def put_in_place(self, torch: Any, device: str | None, new_tensors: bool) -> str | None:
        """Apply a wish; a sentence where something was left as it is, or could not be had.

        Raises _Within, having changed nothing.
        """
        _refuse_within(torch)
        said: list[str] = []
        if device is not None and new_tensors:
            self.default.set(torch, device)
        else:
            said += _said_by(self.default.give_back, torch)
        self.device, self.new_tensors = device, new_tensors
        self.waits_for_cuda = cuda_index(device) is not None
        if torch.cuda.is_initialized():
            if self.waits_for_cuda:
                said += self.follow(torch)
            else:
                said += _said_by(self.current.give_back, torch)
        return said[0] if said else None

    def follow(self, torch: Any) -> list[str]:
        """Set the current CUDA device, now that CUDA is up; once, whether or not that goes well."""
        self.waits_for_cuda = False
        index = cuda_index(self.device)
        assert index is not None
        try:
            self.current.set(torch, index)
        except Exception as error:
            return [f"{self.device} can't be the current CUDA device: {_first_line(error)}"]
        return []

    def take_away(self, torch: Any) -> str | None:
        """Put back what was before; a sentence for what was left as the user's code has set it."""
        self.waits_for_cuda = False
        said: list[str] = []
        try:
            _refuse_within(torch)
            said += _said_by(self.default.give_back, torch)
        except _Within as within:
            said.append(str(within))
        if torch.cuda.is_initialized():
            said += _said_by(self.current.give_back, torch)
        return said[0] if said else None

    def changed_since(self, torch: Any) -> str | None:
        """What the user's code has set in place of ours."""
        if self.default.held and not self.default.is_ours(torch):
            return _KEPT_DEFAULT.format(now=cuda_state.default_device())
        if self.current.held and torch.cuda.is_initialized() and not self.current.is_ours(torch):
            return _KEPT_CURRENT.format(now=torch.cuda.current_device())
        return None


class DeviceSwitch:
    """The choice of one process, its application to one thread, and who wants to hear of both."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._cells: int | None = None
        """Identity of the thread whose cells choices wait for; None in a process without cells."""
        self._here = threading.local()
        self._applied = _Wish(None, True)
        self._wish: _Wish | None = None
        """The choice that is not applied yet."""
        self._present: str | None = None
        self._said: str | None = None
        """What there was to say of the last choice."""
        self._note: str | None = None
        self._told: DeviceState | None = None
        self._when_cuda_is_up = WhenCudaIsUp(lambda torch: self._guarded(partial(self._follow_now, torch)))

    @property
    def _levels(self) -> list[_Level]:
        """What is in place on the calling thread, the choice first: torch keeps its settings by thread."""
        levels: list[_Level] | None = getattr(self._here, "levels", None)
        if levels is None:
            levels = self._here.levels = [_Level()]
        return levels

    # -- from any thread -----------------------------------------------------------------------------

    @property
    def state(self) -> DeviceState:
        """What was chosen, and what torch said of it when a cell last began or ended."""
        with self._lock:
            wish = self._wish
            device, new_tensors = wish or self._applied
            return DeviceState(device, new_tensors, wish is not None, self._present, self._note)

    @property
    def awaited(self) -> str | None:
        """The ``cuda:N`` that becomes this thread's current CUDA device as soon as the user's code has CUDA
        up; None where nothing waits for that."""
        level = self._levels[-1]
        return level.device if level.waits_for_cuda else None

    def choose(self, device: str | None, *, new_tensors: bool = True) -> None:
        """Store a choice that was found to be possible: ``cpu``, ``cuda:N``, or None for what was before.

        It holds from the next cell; in a process without cells at once, on the calling thread.
        """
        with self._lock:
            absent = cuda_state.loaded() is None
            self._wish = None if device is None and absent else _Wish(device, new_tensors)
            self._said = self._note = _NO_TORCH if device is not None and absent else None
            at_once = self._cells is None
        if at_once:
            self._apply()
        else:
            self._tell()

    def listen(self, listener: Listener) -> None:
        """Have ``listener`` called with each new state, on whatever thread brings it about."""
        with self._lock:
            self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        """Call it no longer. Safe to call twice."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    # -- on the cells' thread ------------------------------------------------------------------------

    def attach(self, thread: int) -> None:
        """From now on choices wait for that thread's next cell."""
        with self._lock:
            self._cells = thread
        self.after_cell()

    def detach(self) -> None:
        """Put torch's defaults back, where that is this thread's to do, and forget what was chosen."""
        torch: Any = cuda_state.loaded()
        if torch is not None:
            for level in reversed(self._levels):
                self._guarded(partial(level.take_away, torch))
            self._levels[:] = [_Level()]
        with self._lock:
            self._cells = self._wish = self._present = self._said = self._note = None
            self._applied = _Wish(None, True)
        self._tell()

    def reset_in_child(self) -> None:
        """After a fork no view listens, no cell follows, and a lock that another thread held is free."""
        self._lock = threading.RLock()
        self._listeners = []
        self._cells = None

    def before_cell(self) -> None:
        """Apply what was chosen, where this is the cells' thread; never raises."""
        if self._cells == threading.get_ident():
            self._guarded(self._apply)

    def after_cell(self) -> None:
        """Note what the cell has left behind, where this is the cells' thread; never raises."""
        if self._cells == threading.get_ident():
            self._guarded(self._look)

    def enter(self, device: str) -> Callable[[], str | None]:
        """Use ``device`` on this thread until the function that is returned is called, as for one cell.

        That function puts back what was before, and returns a sentence where it left what the user's code
        has set meanwhile. Raises OptionError where torch is not there to use it.
        """
        torch: Any = cuda_state.loaded()
        if torch is None:
            raise OptionError("torch is not imported yet: import it in a cell before this one.")
        level = _Level()
        before = _context(torch)
        self._levels.append(level)
        try:
            said = level.put_in_place(torch, device, True)
        except _Within as within:
            self._levels.remove(level)
            raise OptionError(str(within)) from None
        except BaseException:
            self._leave_level(torch, level, before)
            raise
        if said is not None:
            _LOG.warning("%s", printable_lines(said))
        self._when_cuda_is_up.ask(torch)
        return partial(self._leave_level, torch, level, before)

    def _leave_level(self, torch: Any, level: _Level, before: Any) -> str | None:
        if level not in self._levels:
            return None
        ours = level.default.is_ours(torch)
        try:
            return level.take_away(torch)
        finally:
            self._levels.remove(level)
            if ours:  # else what is there now is the cell's own setting
                for outer in self._levels:
                    outer.default.adopt(before, _context(torch))

    def _apply(self) -> None:
        torch: Any = cuda_state.loaded()
        base = self._levels[0]
        with self._lock:
            # A cell's own device is put on top, and taken off first.
            wish = self._wish if torch is not None and len(self._levels) == 1 else None
            if wish is not None:
                self._wish = None  # taken: one that comes meanwhile waits for the next cell
        if wish is not None:
            self._put_in_place(torch, base, wish)
        elif len(self._levels) == 1 and base.waits_for_cuda and torch.cuda.is_initialized():
            self._follow(torch, base)
        self._look()

    def _follow(self, torch: Any, level: _Level) -> None:
        said = level.follow(torch)
        with self._lock:
            self._said = said[0] if said else None

    def _put_in_place(self, torch: Any, base: _Level, wish: _Wish) -> None:
        missing = _missing(torch, wish.device)
        try:
            note = base.put_in_place(torch, *(_Wish(None, True) if missing is not None else wish))
        except _Within as within:
            note = str(within)
            with self._lock:
                self._wish = self._wish or wish
        except Exception as error:
            note = f"{wish.device} can't be torch's default device: {_first_line(error)}"
        with self._lock:
            self._applied = _Wish(base.device, base.new_tensors)
            self._said = missing or note

    def _look(self) -> None:
        """Take down what torch's defaults are on this thread now."""
        torch: Any = cuda_state.loaded()
        if torch is not None:
            base = self._levels[0]
            changed = base.changed_since(torch) if len(self._levels) == 1 else None
            with self._lock:
                self._present = cuda_state.default_device()
                waits = _NO_CUDA_YET if base.waits_for_cuda else None
                self._note = (changed or waits or self._said) if self._wish is None else self._said
            if base.waits_for_cuda:
                self._when_cuda_is_up.ask(torch)
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            state = self.state
            if state == self._told:
                return
            self._told = state
            listeners = tuple(self._listeners)
        for listener in listeners:
            self._guarded(partial(listener, state))

    def _guarded(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception:
            _LOG.debug("the default torch device was not dealt with", exc_info=True)

    def _follow_now(self, torch: Any) -> None:
        level = self._levels[-1]
        if level.waits_for_cuda:
            self._follow(torch, level)


def _missing(torch: Any, device: str | None) -> str | None:
    """Why a choice that was made before torch was there can't be applied after all."""
    index = cuda_index(device)
    if index is None:
        return None
    reason = cuda_state.without_cuda()
    if reason is None and torch.cuda.is_initialized() and index >= torch.cuda.device_count():
        reason = f"torch sees {torch.cuda.device_count()} CUDA devices here"
    return None if reason is None else f"{device} was chosen and can't be had: {reason}."


def _said_by(give_back: Callable[[Any], None], torch: Any) -> list[str]:
    try:
        give_back(torch)
    except _Left as left:
        return [str(left)]
    except Exception as error:  # as after a failed kernel, when CUDA answers nothing else any more
        return [f"The torch device of before can't be put back: {_first_line(error)}"]
    return []


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _context(torch: Any) -> Any:
    """What set_default_device has put in place on this thread; None where it has not."""
    return cuda_state.default_context(torch)


def _refuse_within(torch: Any) -> None:
    # set_default_device would take the user's device off in place of ours, or raise.
    if cuda_state.device_scope(torch) is not None:
        raise _Within(_WITHIN)


def within() -> str | None:
    """A sentence where this thread is inside a ``with torch.device(...)``, so that nothing can be changed."""
    torch: Any = cuda_state.loaded()
    return None if torch is None or cuda_state.device_scope(torch) is None else _WITHIN


SWITCH = DeviceSwitch()
"""The process's one."""

reset_after_fork(SWITCH.reset_in_child)
