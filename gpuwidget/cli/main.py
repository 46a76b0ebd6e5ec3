"""The ``gpuwidget`` command: the table of GPUs, and the subcommands."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gpuwidget.cli.gpu_table import is_unreachable, render_table
from gpuwidget.model.errors import GpuWidgetError, OptionError
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.to_json import to_json
from gpuwidget.sampler import INTERVAL_S, MAX_INTERVAL_S, MIN_INTERVAL_S, NO_THREAD, process_sampler
from gpuwidget.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwidget.model.samples import Sample
    from gpuwidget.sampler import Sampler

_OPEN_TIMEOUT_S = 30.0
"""Maximum seconds to wait for the driver to start. Unless another program keeps the driver initialized,
starting it takes seconds per GPU."""
_SILENCE_S = 4.0
"""Seconds after which a line on stderr shows which call the driver has not answered."""
_READ_TIMEOUT_S = 5.0
_FAILED, _USAGE_ERROR, _INTERRUPTED = 1, 2, 130

_NO_ANSWER = (
    f"The driver has not answered for {_OPEN_TIMEOUT_S:.0f} seconds. If nvidia-smi hangs too, the driver "
    "or a GPU is stuck: see the kernel log (dmesg). A restart of the machine usually helps."
)
_TIME_SPAN = re.compile(r"([0-9]{1,6})([mhdw])")
_UNITS_S = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def main(argv: Sequence[str] | None = None, sampler: Sampler | None = None) -> int:
    """Run the command and return its exit status.

    The status is 0, 1 (no GPU, a GPU that is lost or does not answer, a failure, or a check that is broken or
    did not finish), 2 (usage error) or 130 (interrupted). With ``--interval``, an interrupt is the normal
    end, and the status is 0. ``sampler`` is the process's sampler by default.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit:  # argparse has printed the help, the version or an error
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            return _output_failed(error)
        raise
    if options.command == "run":
        return _run_script(options)
    if sys.stdout is None:
        return _report("the standard output is closed.", _FAILED)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # Replace characters that the terminal can't show, instead of raising an error.
            stream.reconfigure(errors="replace")
    try:
        if options.command == "doctor":
            return _doctor(options)
        if options.command == "usage":
            return _usage(options)
        if options.command == "clean":
            return _clean(options)
        chosen = sampler or process_sampler()
        try:
            status = _run(options, chosen)
            sys.stdout.flush()
        finally:
            chosen.stop()
    except OptionError as error:
        return _report(str(error), _USAGE_ERROR)
    except GpuWidgetError as error:
        return _report(str(error), _FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED if options.every is None else 0
    except OSError as error:
        return _output_failed(error)
    return status


def _report(text: str, status: int) -> int:
    """Print an error on one line of stderr, and return ``status``."""
    if sys.stderr is not None:  # None if it is closed; print() would then write to stdout
        print(f"gpuwidget: {printable_lines(text)}", file=sys.stderr)
    return status


def _output_failed(error: OSError) -> int:
    """Report that stdout can't be written, and return the exit status."""
    if error.filename is not None:
        raise error
    # Python flushes stdout again when it exits, and that must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0  # The reader has closed the pipe (`gpuwidget | head`).
    return _report(f"the output can't be written: {error.strerror}.", _FAILED)


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
        type=_seconds,
        help="repeat every S seconds until Ctrl-C",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; with -i, one sample per line")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    record = commands.add_parser(
        "record",
        help="record this machine's GPUs",
        description="Record this machine's GPUs to a file that GPUWIDGET_SOURCE=replay:FILE plays. "
        "Ctrl-C stops.",
    )
    record.add_argument(
        "file", type=Path, metavar="FILE", help="the new file; compressed if its name ends in .gz"
    )
    record.add_argument(
        "--interval",
        dest="tick",
        metavar="S",
        type=_seconds,
        default=INTERVAL_S,
        help="seconds between readings (default: %(default)s)",
    )
    doctor = commands.add_parser(
        "doctor",
        help="check everything from PyTorch down to the GPU",
        description="Check this environment and machine, from PyTorch down to the GPU. The output shows "
        "what was found, what is broken and how to fix it. The exit status is 0, or 1 if "
        "something is broken or a check did not finish.",
    )
    doctor.add_argument("--json", action="store_true", dest="doctor_json", help="print it as JSON")
    doctor.add_argument(
        "--diff",
        type=Path,
        metavar="FILE",
        help="show what changed since an earlier diagnosis, whose JSON is in FILE",
    )
    usage = commands.add_parser(
        "usage",
        help="GPU-hours by user, notebook or kernel",
        description="Show how many GPU-hours users, notebooks or kernels have used, according to "
        "Prometheus. Servers count GPU-hours if c.GpuWidget.gpu_hours is on.",
    )
    usage.add_argument(
        "--since",
        metavar="TIME",
        type=_time_span,
        default="30d",
        help="how far back, such as 12h, 7d or 4w (default: %(default)s)",
    )
    usage.add_argument(
        "--by", choices=("user", "notebook", "kernel"), default="user", help="default: %(default)s"
    )
    usage.add_argument(
        "--prometheus",
        metavar="URL",
        help="address of Prometheus (default: c.GpuWidget.prometheus_url with its settings in "
        "Jupyter's configuration)",
    )
    usage.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="PEM file with the certificates of the authorities that signed Prometheus's certificate",
    )
    usage.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file with the bearer token for Prometheus"
    )
    usage.add_argument("--json", action="store_true", dest="usage_json", help="print it as JSON")
    run = commands.add_parser(
        "run",
        help="run a Python script and report its memory to the watched cell that starts the script",
        description="Run a Python script that a watched cell starts, for example with "
        "torchrun -m gpuwidget run SCRIPT. The card then shows the exact torch peaks and the exit code of "
        "each process.",
    )
    run.add_argument("-m", dest="is_module", action="store_true", help="SCRIPT is the name of a module")
    run.add_argument("script", metavar="SCRIPT", help="path of the script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the script's arguments")
    examples = commands.add_parser(
        "examples",
        help="copy the example notebooks into a folder",
        description="Copy the notebooks that come with gpuwidget into a folder. Nothing is overwritten.",
    )
    examples.add_argument("folder", type=Path, metavar="DIR", help="the folder; created if missing")
    clean = commands.add_parser(
        "clean",
        help="remove gpuwidget's outputs from notebooks",
        description="Remove gpuwidget's outputs from notebook files: reports, cards, the outputs of %gpu, "
        "and the saved state of live charts and dashboards. Everything else stays as it is.",
    )
    clean.add_argument("notebooks", type=Path, nargs="+", metavar="NOTEBOOK", help="path of a notebook file")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"
        )
    return seconds


def _time_span(text: str) -> float:
    match = _TIME_SPAN.fullmatch(text)
    seconds = 0 if match is None else int(match[1]) * _UNITS_S[match[2]]
    if not seconds:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time: give a number and m, h, d or w, such as 30d"
        )
    return float(seconds)


def _run(options: argparse.Namespace, sampler: Sampler) -> int:
    if options.command == "examples":
        if options.json or options.every is not None:
            raise OptionError("examples accepts neither --json nor --interval.")
        from gpuwidget.cli.examples import copy_notebooks

        for copy in copy_notebooks(options.folder):
            _print_line(str(copy))
        return 0
    if options.command == "record":
        if options.json or options.every is not None:
            raise OptionError("record does not accept --json, and --interval must follow record.")
        from gpuwidget.cli.recorder import record

        record(sampler, options.file, options.tick, _print_line, _wait_until_open)
        return 0
    if options.every is None:
        return _print_once(sampler, options.json)
    _print_repeatedly(sampler, options.every, options.json)
    return 0


def _run_script(options: argparse.Namespace) -> int:
    if options.every is not None or options.json:
        return _report("run accepts neither --json nor --interval.", _USAGE_ERROR)
    if not options.is_module and not Path(options.script).is_file():
        text = f"there is no script {options.script!r}. Give the path of a Python file, or -m and a module."
        return _report(text, _USAGE_ERROR)
    from gpuwidget.cli.run_script import MissingModuleError, run_script

    try:
        # The script's exceptions end this process as they would end the script's own.
        run_script(options.script, options.arguments, is_module=options.is_module)
    except MissingModuleError as error:
        return _report(str(error), _FAILED)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    if options.every is not None:
        raise OptionError("doctor does not accept --interval.")
    # Imported here, because printing the GPUs does not need the diagnostics.
    from gpuwidget.cli.doctor import run
    from gpuwidget.diagnostics.target import RUN_TIMEOUT_S

    # The output names a step that hangs, but only after all steps had enough time.
    silence = threading.Timer(
        _SILENCE_S, _report, (f"checking… This takes at most {RUN_TIMEOUT_S + 1:.0f} seconds.", _FAILED)
    )
    silence.daemon = True
    silence.start()
    try:
        text, ok = run(
            __version__,
            as_json=options.json or options.doctor_json,
            earlier=options.diff,
            width=shutil.get_terminal_size((110, 24)).columns,
        )
    finally:
        silence.cancel()
    print(text, flush=True)
    return 0 if ok else _FAILED


def _clean(options: argparse.Namespace) -> int:
    if options.json or options.every is not None:
        raise OptionError("clean accepts neither --json nor --interval.")
    from gpuwidget.cli.clean import clean_notebook

    status = 0
    for path in options.notebooks:
        try:
            _print_line(clean_notebook(path))
        except GpuWidgetError as error:
            # The error in one notebook is no reason not to clean the others.
            status = _report(str(error), _FAILED)
    return status


def _usage(options: argparse.Namespace) -> int:
    if options.every is not None:
        raise OptionError("usage does not accept --interval.")
    # Imported here, because printing the GPUs does not need a client of Prometheus.
    from gpuwidget.cli.usage import UsageOptions, run

    wanted = UsageOptions(
        since_s=options.since,
        group=options.by,
        url=options.prometheus,
        ca_file=options.ca_file,
        token_file=options.token_file,
        as_json=options.json or options.usage_json,
    )
    # If stdout is not a terminal, do not truncate lines to 80 characters.
    print(run(wanted, shutil.get_terminal_size((160, 24)).columns), flush=True)
    return 0


def _print_line(line: str) -> None:
    print(printable_lines(line), flush=True)


def _print_once(sampler: Sampler, as_json: bool) -> int:
    with sampler.subscribe():
        _wait_until_open(sampler)
        sample = sampler.read_now(_READ_TIMEOUT_S)
    if sample is None:
        raise GpuWidgetError(_NO_ANSWER)
    print(_text(sample, as_json))
    return _FAILED if not sample.gpus or any(map(is_unreachable, sample.readings)) else 0


def _wait_until_open(sampler: Sampler) -> None:
    """Wait until the driver has started. After a few seconds, report on stderr which call it has not
    answered."""
    if sampler.wait_until_open(_SILENCE_S):
        return
    if sampler.has_no_thread:
        raise GpuWidgetError(NO_THREAD.text)
    call = sampler.current_call() or "the first call"
    _report(f"the driver has not answered {call} for {_SILENCE_S:.0f} seconds. Still waiting…", _FAILED)
    if not sampler.wait_until_open(_OPEN_TIMEOUT_S):
        raise GpuWidgetError(_NO_ANSWER)


def _print_repeatedly(sampler: Sampler, interval_s: float, as_json: bool) -> None:
    inbox: SimpleQueue[Sample] = SimpleQueue()
    in_place = sys.stdout.isatty() and not as_json
    with sampler.subscribe(inbox.put, interval_s=interval_s):
        _wait_until_open(sampler)
        if in_place:
            sys.stdout.write(_HOME + _CLEAR_BELOW)
        while True:
            text = _text(_newest_sample(inbox), as_json)
            if in_place:
                text = _in_place(text)
            sys.stdout.write(text if in_place else f"{text}\n" if as_json else f"{text}\n\n")
            sys.stdout.flush()


def _newest_sample(inbox: SimpleQueue[Sample]) -> Sample:
    sample = inbox.get()
    while True:
        try:
            sample = inbox.get_nowait()
        except Empty:
            return sample


def _text(sample: Sample, as_json: bool) -> str:
    if as_json:
        return json.dumps(to_json(sample), allow_nan=False, separators=(",", ":"))
    color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    # If stdout is not a terminal, do not truncate lines to 80 characters, for example in `gpuwidget | grep
    # train.py`.
    return render_table(sample, width=shutil.get_terminal_size((160, 24)).columns, color=color)


def _in_place(text: str) -> str:
    lines = text.splitlines()
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… and {len(lines) - room + 1} more lines"]
    return _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_BELOW
