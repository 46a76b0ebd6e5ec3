"""The ``gpuwidget`` command: parses the command line, and runs a subcommand or shows the GPUs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuwidget.cli.command import FAILED, INTERRUPTED, USAGE_ERROR, Command, fail, seconds
from gpuwidget.model.errors import GpuWidgetError, OptionError
from gpuwidget.model.lazy_imports import import_attribute
from gpuwidget.version import __version__

if TYPE_CHECKING:
    from gpuwidget.sampler import Sampler

COMMANDS = {
    "record": "record this machine's GPUs",
    "doctor": "check everything from PyTorch down to the GPU",
    "runs": "long watched runs, also of kernels that died",
    "usage": "GPU-hours by user, notebook or kernel",
    "run": "run a Python script and report its memory to the watched cell that starts the script",
    "examples": "copy the example notebooks into a folder",
    "clean": "remove gpuwidget's outputs from notebooks",
}
"""Names and help of the subcommands. Each is the ``COMMAND`` of the module of ``commands/`` with its name."""


def main(argv: Sequence[str] | None = None, sampler: Sampler | None = None) -> int:
    """Run the command and return its exit status.

    The status is 0, 1 (no GPU, a GPU that is lost or does not answer, a failure, or a check that is broken or
    did not finish), 2 (usage error) or 130 (interrupted). With ``--interval``, an interrupt is the normal
    end, and the status is 0. ``sampler`` is the process's sampler by default.
    """
    try:
        options = _parser().parse_args(argv, argparse.Namespace(sampler=sampler))
    except SystemExit:  # argparse has printed the help, the version or an error
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            return _output_failed(error)
        raise
    if sys.stdout is None and not options.runs_script:
        return fail("the standard output is closed.", FAILED)
    misplaced = _misplaced_options(options)
    if misplaced is not None:
        return fail(misplaced, USAGE_ERROR)
    if options.runs_script:
        # The script's output and exceptions are the same as without gpuwidget.
        return int(options.run(options))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Replace characters that the terminal can't show, instead of raising an error.
            stream.reconfigure(errors="replace")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except OptionError as error:
        return fail(str(error), USAGE_ERROR)
    except GpuWidgetError as error:
        return fail(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED if options.every is None else 0
    except OSError as error:
        return _output_failed(error)
    return status


def _output_failed(error: OSError) -> int:
    """Report that stdout can't be written, and return the exit status."""
    if error.filename is not None:
        raise error
    # Python flushes stdout again when it exits, and that must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0  # The reader has closed the pipe (`gpuwidget | head`).
    return fail(f"the output can't be written: {error.strerror}.", FAILED)


def _misplaced_options(options: argparse.Namespace) -> str | None:
    """Return the error if an option of the table precedes a subcommand that does not accept it there."""
    if options.name is None or (options.every is None and (options.accepts_json or not options.json)):
        return None
    if options.accepts_json:
        return f"{options.name} does not accept --interval."
    if "interval" in options:
        return f"{options.name} does not accept --json, and --interval must follow {options.name}."
    return f"{options.name} accepts neither --json nor --interval."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpuwidget",
        description="Show this machine's GPUs and the processes that use them.",
        epilog="GPUWIDGET_SOURCE=replay plays a recording of four H200s; replay:FILE plays your own.",
    )
    parser.add_argument("--version", action="version", version=f"gpuwidget {__version__}")
    parser.add_argument(
        "-i",
        "--interval",
        dest="every",
        metavar="S",
        type=seconds,
        help="repeat every S seconds until Ctrl-C",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; with -i, one sample per line")
    parser.set_defaults(name=None, run=_show_gpus, runs_script=False, accepts_json=False)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_CommandParser)
    for name, help_text in COMMANDS.items():
        commands.add_parser(name, help=help_text, command_name=name)
    return parser


class _CommandParser(argparse.ArgumentParser):
    """The parser of a subcommand.

    It imports the subcommand's module when it parses its options, so that no other command takes the time.
    """

    def __init__(self, *, command_name: str, **more: Any) -> None:
        super().__init__(**more)
        self._command_name = command_name

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        name = self._command_name
        command: Command = import_attribute(f"gpuwidget.cli.commands.{name}", "COMMAND")
        self.description = command.description
        command.add_options(self)
        self.set_defaults(name=name, run=command.run, runs_script=command.runs_script)
        return super().parse_known_args(args, namespace)


def _show_gpus(options: argparse.Namespace) -> int:
    # Imported here, because the subcommands do not need the table.
    from gpuwidget.cli.show_gpus import show_gpus

    return show_gpus(options)
