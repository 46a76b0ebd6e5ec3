"""``gpuwidget run``: run a Python script as a rank that reports to the notebook that started it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from gpuwidget.ranks.rank_reporter import exit_code_of, rank


def run_script(script: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """Run a script, or a module, as ``python SCRIPT ARGUMENTS`` or ``python -m MODULE ARGUMENTS`` does.

    The process's memory, steps and exit code are reported to the notebook. Raises what the script raises.
    """
    sys.argv = [script, *arguments]
    # Python puts the script's folder, or for a module the working directory, first.
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(script))
    reporter = rank()
    try:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")
    except BaseException as error:
        reporter.end(exit_code_of(error))
        raise
    reporter.end(0)
