"""``gpuwidget run``: run a Python script as a rank that reports to the notebook that started it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
import types
import zipfile
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path

from gpuwidget.cli.command import FAILED, USAGE_ERROR, Command, fail
from gpuwidget.ranks.rank_reporter import exit_code_of, rank


class _MissingModuleError(Exception):
    pass


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    parser.add_argument("script", metavar="SCRIPT", help="path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's arguments")


def _run(options: argparse.Namespace) -> int:
    if not options.is_module and not Path(options.script).is_file():
        text = f"there is no script {options.script!r}. Give the path of a Python file, or -m and a module."
        return fail(text, USAGE_ERROR)
    try:
        # The script's exceptions end this process as they would end the script's own.
        _run_script(options.script, options.arguments, is_module=options.is_module)
    except _MissingModuleError as error:
        return fail(str(error), FAILED)
    return 0


COMMAND = Command(
    description="Run a Python script that a watched cell starts, for example with "
    "torchrun -m gpuwidget run SCRIPT. The card then shows the exact torch peaks and the exit code of "
    "each process.",
    add_options=_add_options,
    run=_run,
    runs_script=True,
)


def _run_script(script: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """Run a script, or a module, as ``python SCRIPT ARGUMENTS`` or ``python -m MODULE ARGUMENTS`` does.

    The process's memory, steps and exit code are reported to the notebook. Raises what the script raises, and
    _MissingModuleError if the module does not exist.
    """
    sys.argv = [script, *arguments]
    # Python puts the script's folder, or for a module the working directory, first.
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(script))
    reporter = rank()
    try:
        if is_module:
            _check_module(script)
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        elif script.endswith(".pyc") or zipfile.is_zipfile(script):
            runpy.run_path(script, run_name="__main__")
        else:
            _run_source(os.path.abspath(script))
    except BaseException as error:
        reporter.end(exit_code_of(error))
        raise
    reporter.end(0)


def _run_source(path: str) -> None:
    """Run a file of Python code as the module ``__main__``.

    As with ``python SCRIPT``, the path in ``__file__`` and in tracebacks is absolute, and the one in
    ``sys.argv`` is as given. ``runpy.run_path()`` would make them the same.
    """
    loader = SourceFileLoader("__main__", path)
    main = types.ModuleType("__main__")
    vars(main).update(__file__=path, __loader__=loader, __builtins__=__builtins__)
    code = loader.source_to_code(loader.get_data(path), path)
    sys.modules["__main__"] = main
    exec(code, vars(main))


def _check_module(name: str) -> None:
    """Raise _MissingModuleError if there is no such module, or if it is a package that can't be run."""
    try:
        spec = None if name.startswith(".") else importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name = f"{name}.__main__"
            spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # A package that contains the module may itself import a module that is missing.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        spec = None
    except ValueError:
        spec = None
    if spec is None:
        raise _MissingModuleError(f"there is no module {name!r}.")
