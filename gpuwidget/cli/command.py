"""What a subcommand of ``gpuwidget`` is, and what several of them need."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gpuwidget.model.terminal_text import printable_lines

FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130
"""The exit statuses other than 0."""
SILENCE_S = 4.0
"""Seconds after which a line on stderr shows what the command is waiting for."""


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand of ``gpuwidget``."""

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Runs the command and returns its exit status. Raises GpuWidgetError if the command fails."""
    runs_script: bool = False
    """Whether the command runs a program of the user, whose output and exceptions stay as they are."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``, which may then precede the command's name, too."""
    # Without a default, the command's parser does not overwrite a --json that precedes the name.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print it as JSON")
    parser.set_defaults(accepts_json=True)


def seconds(text: str) -> float:
    """Parse the seconds between two readings, the argument of ``--interval``."""
    from gpuwidget.sampler import MAX_INTERVAL_S, MIN_INTERVAL_S

    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not MIN_INTERVAL_S <= value <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"
        )
    return value


def print_line(line: str) -> None:
    """Print a line at once."""
    print(printable_lines(line), flush=True)


def report(text: str) -> None:
    """Print an error or a warning on one line of stderr."""
    if sys.stderr is not None:  # None if it is closed; print() would then write to stdout
        print(f"gpuwidget: {printable_lines(text)}", file=sys.stderr)


def fail(text: str, status: int) -> int:
    """Print an error on one line of stderr, and return ``status``."""
    report(text)
    return status
