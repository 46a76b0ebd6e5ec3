"""``%load_ext gpuwidget``: add the magics and hooks to one shell, and remove them completely on unload."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuwidget.kernel.attribution.cell_memory import CELL_MEMORY
from gpuwidget.kernel.cells import skip_cell
from gpuwidget.kernel.cells.died_runs import show_died_runs
from gpuwidget.kernel.cells.options import HELP, find, parse, without_watch_line
from gpuwidget.kernel.cells.run_journal import RUN_JOURNAL
from gpuwidget.kernel.cells.watched_cells import CellWatcher, check
from gpuwidget.kernel.commands.subcommands import Invocation
from gpuwidget.kernel.devices.switch_requests import SWITCHES
from gpuwidget.kernel.error_hints import ErrorHints
from gpuwidget.kernel.oom.handler import OutOfMemoryCards
from gpuwidget.kernel.panel_requests import PanelRequests
from gpuwidget.kernel.shell.front_end import shows_live
from gpuwidget.kernel.shell.interrupts import defer_interrupts, ignore_interrupts
from gpuwidget.kernel.shell.running_cells import RunningCells
from gpuwidget.model.boundary import Boundary, error_line, stopped
from gpuwidget.model.errors import GpuWidgetError, OptionError
from gpuwidget.model.lazy_imports import import_attribute
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import _, error_text, in_view_language, translatable
from gpuwidget.pytorch import DEVICE_SWITCH
from gpuwidget.sampler import Subscription, process_sampler

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_LOG = logging.getLogger(__name__)

_WARM_UP_DELAY_S = 0.3
"""Seconds from ``%load_ext`` to the import of what watched cells need."""


class Extension:
    """The magics and hooks that gpuwidget adds to one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._running = RunningCells(shell)
        self._watcher = CellWatcher(shell, self._running)
        self._requests = PanelRequests(shell, self._watcher)
        out_of_memory = OutOfMemoryCards(shell, self._running, self._watcher.watch_of)
        # IPython shows the traceback of an interrupt that arrives in a hook. Interrupts before the code are
        # therefore deferred until it runs, and interrupts after it are ignored. The watcher's first hook
        # handles interrupts itself, because they end its wait for memory.
        defer, ignore = defer_interrupts(), ignore_interrupts()
        hooks: tuple[tuple[str, Callable[[Any], None]], ...] = (
            ("pre_run_cell", defer(self._running.before)),
            ("pre_run_cell", defer(CELL_MEMORY.before)),
            ("pre_run_cell", self._watcher.before),
            ("pre_run_cell", defer(out_of_memory.before)),
            ("post_run_cell", ignore(self._running.ending)),
            ("post_run_cell", ignore(self._watcher.failed)),
            # shown below the traceback and above the card
            ("post_run_cell", ignore(ErrorHints(shell).show_hint)),
            ("post_run_cell", ignore(out_of_memory.after)),
            ("post_run_cell", ignore(self._watcher.after)),
            # takes milliseconds, which do not count: the run has ended
            ("post_run_cell", ignore(CELL_MEMORY.after)),
            ("post_run_cell", ignore(self._running.after)),
        )
        self._hooks = tuple((event, _contained(hook)) for event, hook in hooks)
        self._loop_handle: asyncio.TimerHandle | None = None
        self._opening: Subscription | None = None
        self._detach_journal: Callable[[], None] = lambda: None

    def load(self) -> None:
        """Register the magics and the hooks, and open the NVIDIA driver on the sampler's thread."""
        self._opening = process_sampler().warm_up()
        self._shell.input_transformers_cleanup.insert(0, self._transform)
        CELL_MEMORY.attach(self._shell, self._running)
        for event, hook in self._hooks:
            self._shell.events.register(event, hook)
        self._shell.register_magic_function(self._gpuwatch, "cell", "gpuwatch")
        self._shell.register_magic_function(self._gpu, "line", "gpu")
        # The device switch applies to the main thread, on which ipykernel runs cells. It does not apply to
        # cells in a subshell, because they run on another thread, which has separate torch defaults.
        DEVICE_SWITCH.attach(threading.main_thread().ident or 0)
        SWITCHES.attach(lambda: self._running.busy)
        self._requests.start()
        self._detach_journal = RUN_JOURNAL.attach(self._shell)
        self._warm_up_soon()

    def unload(self) -> None:
        """Remove the magics and the hooks, and stop gpuwidget's threads."""
        if self._loop_handle is not None:
            self._loop_handle.cancel()
        self._requests.stop()
        self._detach_journal()
        self._running.clear()
        CELL_MEMORY.detach()
        DEVICE_SWITCH.detach()
        SWITCHES.detach()
        _call_if_imported("gpuwidget.kernel.live.dashboard", "close")
        for event, hook in self._hooks:
            if hook in self._shell.events.callbacks[event]:
                self._shell.events.unregister(event, hook)
        if self._transform in self._shell.input_transformers_cleanup:
            self._shell.input_transformers_cleanup.remove(self._transform)
        magics = self._shell.magics_manager.magics
        for kind, name, ours in (("cell", "gpuwatch", self._gpuwatch), ("line", "gpu", self._gpu)):
            if magics[kind].get(name) == ours:
                del magics[kind][name]
        if self._opening is not None:
            self._opening.close()
        _call_if_imported("gpuwidget.ranks.rank_listener", "stop")
        _call_if_imported("gpuwidget.dask.clients", "stop")
        sampler = process_sampler()
        # If a watch in another thread still uses the sampler, let it run. It stops when that watch ends.
        if not sampler.wanted:
            sampler.stop()

    # -- the %%gpuwatch line -------------------------------------------------------------------------

    def _transform(self, lines: list[str]) -> list[str]:
        found = None
        try:
            found = find(lines)
            if found is None:
                return lines
            check(parse(found[1]))
        except OptionError:
            # Replace the whole cell with a call of the magic, which shows the error. The cell's body does not
            # run.
            assert found is not None
            return [f"get_ipython().run_cell_magic('gpuwatch', {found[1]!r}, 'pass')\n"]
        except BaseException as error:
            # The driver or torch failed in a way that says nothing about the options.
            stopped(_LOG, "the options of a cell could not be checked", error)
        return lines if found is None else without_watch_line(lines)

    # In a terminal, IPython asks after every Enter whether the cell is complete. For this question, it skips
    # transformations with this attribute, so it sees the cell magic and waits for the body.
    _transform.__dict__["has_side_effects"] = True

    def _gpuwatch(self, line: str, cell: str) -> Any:
        # ``_transform`` usually removes the %%gpuwatch line. IPython calls this magic only if the options are
        # invalid, if code calls run_cell_magic('gpuwatch', ...), or if another cell magic passes %%gpuwatch
        # on in that way.
        __tracebackhide__ = True
        try:
            options = parse(line)
            check(options)
            code, last = self._compile(cell)
            watch = self._watcher.begin_body(options, cell)
        except OptionError as error:
            raise _usage_error(self._shell, error) from None
        raised: BaseException | None = None
        try:
            exec(code, self._shell.user_ns)
            return eval(last, self._shell.user_ns) if last is not None else None
        except BaseException as error:
            raised = error
            raise
        finally:
            self._watcher.end_body(watch, raised)
            # The traceback refers to this frame. Without this line, ``raised`` would complete a reference
            # cycle that keeps the user's tensors alive.
            raised = None

    _gpuwatch.__doc__ = f"Watch the GPUs while this cell runs.\n\n{HELP}"

    def _compile(self, cell: str) -> tuple[Any, Any]:
        """Compile the body. Return its code and, separately, the code of a final expression, or None.

        The value of the final expression is the result of the cell.
        """
        compiler = self._shell.compile
        text = self._shell.transform_cell(cell)
        name = compiler.cache(text, self._shell.execution_count, raw_code=cell)
        tree = compiler.ast_parse(text, filename=name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = compiler(ast.Expression(tree.body.pop().value), name, "eval")
        code = compiler(tree, name, "exec")
        if any(part is not None and part.co_flags & inspect.CO_COROUTINE for part in (code, last)):
            raise OptionError(
                translatable("%%gpuwatch: a cell with await needs %%gpuwatch as its first line.")
            )
        return code, last

    # -- %gpu ----------------------------------------------------------------------------------------

    def _gpu(self, line: str) -> None:
        """Show the live dashboard, or run a subcommand.

        ``%gpu`` shows a live dashboard of all GPUs. ``%gpu watch on`` shows a one-line card below every cell;
        ``%gpu watch off`` stops showing these cards.

        ``%gpu device`` shows torch's default device and all available devices. ``%gpu device cuda:1`` (or
        ``cpu``, ``none``) sets the default device from the next cell on; with ``--light``, it sets only the
        current CUDA device, which costs nothing.

        ``%gpu memory`` shows who holds the GPU's memory; ``%gpu memory --cells`` shows which cells allocated
        this memory. ``%gpu free`` lists memory that can be freed: results and errors of past cells, and
        torch's cache. ``%gpu free --yes`` frees this memory; ``%gpu free NAME`` deletes one of your
        variables.

        ``%gpu compare 5 9`` compares two runs, by cell number, label or variable.

        ``%gpu switches`` shows torch's switches for speed, precision and repeatability, with the advantages
        and drawbacks of each; ``%gpu switches cudnn.benchmark on`` sets a switch immediately and shows the
        Python statement that was run.

        ``%gpu doctor`` checks everything from PyTorch down to the GPU, and shows why torch does not use the
        GPU.
        """
        try:
            Invocation(self._shell, self._watcher, line).run()
        except GpuWidgetError as error:
            raise _usage_error(self._shell, error) from None

    # -- what is imported after %load_ext ------------------------------------------------------------

    def _warm_up_soon(self) -> None:
        if not shows_live(self._shell):
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._loop_handle = loop.call_later(_WARM_UP_DELAY_S, self._warm_up, loop)

    def _warm_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """Import what watched cells need while the kernel is idle."""
        if self._watcher.busy:
            self._loop_handle = loop.call_later(_WARM_UP_DELAY_S, self._warm_up, loop)
            return
        self.warm_up_now()

    def warm_up_now(self) -> None:
        """Import what watched cells need and the live chart's libraries, and cancel the later import."""
        if self._loop_handle is not None:
            self._loop_handle.cancel()
        try:
            with defer_interrupts():
                import_attribute("gpuwidget.kernel.cells.cell_watch", "CellWatch")
            import_attribute("gpuwidget.kernel.live.chart_libraries", "import_libraries")()
        except BaseException as error:
            stopped(_LOG, "what watched cells need could not be imported", error)


def _call_if_imported(module: str, function: str) -> None:
    if module in sys.modules:
        getattr(sys.modules[module], function)()


def _contained(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a hook that shows an error of ``hook`` in one line. IPython would show a traceback."""

    @functools.wraps(hook)
    def contained(event: Any) -> None:
        with Boundary(_LOG, "a hook of gpuwidget failed", _tell_hook_failed):
            hook(event)

    return contained


@in_view_language
def _tell_hook_failed(error: BaseException) -> None:
    text = _("gpuwidget failed at this cell: {error}", error=error_line(error))
    _LOG.warning("%s", printable_lines(text))


@in_view_language
def _usage_error(shell: Any, error: GpuWidgetError) -> Exception:
    """Return an error that IPython shows as the text of ``error``, without a traceback."""
    return skip_cell.one_line_error(shell, error_text(error))


_loaded: Extension | None = None


def load(shell: InteractiveShell) -> None:
    """Load the extension, unless it is loaded. Raise a one-line UsageError if a setting is invalid."""
    global _loaded
    if _loaded is not None:
        return
    extension = Extension(shell)
    try:
        extension.load()
    except OptionError as error:
        raise _usage_error(shell, error) from None
    _loaded = extension
    with Boundary(_LOG, "runs that died could not be shown"):
        show_died_runs(shell)


def warm_up_now() -> None:
    """Import what watched cells need now, and not when the kernel is idle, if the extension is loaded."""
    if _loaded is not None:
        _loaded.warm_up_now()


def unload(shell: InteractiveShell) -> None:
    global _loaded
    if _loaded is not None:
        _loaded.unload()
        _loaded = None
