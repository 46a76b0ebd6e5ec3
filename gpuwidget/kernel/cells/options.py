"""The options of ``%%gpuwatch``, and the position of its line in a cell."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model.errors import OptionError
from gpuwidget.model.translation import translatable
from gpuwidget.sampler import INTERVAL_S, MAX_INTERVAL_S, MIN_INTERVAL_S

# Does not match `%%gpuwatch?`, which is IPython's request for help.
_WATCH_LINE = re.compile(r"[ \t]*%%gpuwatch(?:[ \t]+(?P<options>.*))?$")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(TiB|GiB|MiB|TB|GB|MB)", re.IGNORECASE)
_SIZES = {"tib": 1024**4, "gib": 1024**3, "mib": 1024**2, "tb": 10**12, "gb": 10**9, "mb": 10**6}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|min|h)")
_TIMES = {"s": 1, "m": 60, "min": 60, "h": 3600}
_OWN_MAGIC = re.compile(r"%gpu(\s.*)?|%(re|un)?load_ext\s+gpuwidget")
_TRANSPARENT = re.compile(r"[ \t]*%%(time|timeit|prun)\b")
"""Cell magics that transform and run their body themselves instead of running it as a nested cell."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of one ``%%gpuwatch`` line."""

    run: RunOptions
    live: bool
    quiet: bool
    label: str | None
    device: str | None
    """The torch device for this cell, as the user wrote it."""
    lines: bool = False
    """Whether to report which lines allocated torch's memory."""
    need: int | None = None
    """Bytes that must be free on each of the cell's GPUs before the cell runs."""
    wait_s: float | None = None
    """Seconds to wait for the memory in ``need``; None to check only once."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OptionError(
            translatable("%%gpuwatch: {message}. %%gpuwatch? shows the options.", message=message)
        )


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not MIN_INTERVAL_S <= seconds <= MAX_INTERVAL_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g}"
        )
    return seconds


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 20GiB, 500MiB or 8GB")
    return round(float(match[1]) * _SIZES[match[2].lower()])


def _seconds(text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 10m or 2h")
    return float(match[1]) * _TIMES[match[2]]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="%%gpuwatch",
        add_help=False,
        allow_abbrev=False,
        description="Watch the GPUs while this cell runs, and show a card with the results.",
    )
    parser.add_argument(
        "--gpu",
        nargs="+",
        action="extend",
        default=[],
        metavar="GPU",
        help="watch only these GPUs: nvidia-smi's index, a UUID or its beginning, or cuda:N",
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=INTERVAL_S,
        metavar="S",
        help=f"seconds between samples, {MIN_INTERVAL_S:g} to {MAX_INTERVAL_S:g} (default: {INTERVAL_S:g})",
    )
    parser.add_argument("--no-live", action="store_true", help="no live chart while the cell runs")
    parser.add_argument(
        "--no-sync",
        action="store_true",
        help="don't wait for the GPU to finish when the Python code has ended",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="show neither chart nor card; the report is in gpuwidget.reports()",
    )
    parser.add_argument("--name", metavar="LABEL", help="a name for the run, shown on its card")
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="torch's default device for this cell: cpu or cuda:N; restored after the cell",
    )
    parser.add_argument(
        "--lines",
        action="store_true",
        help="show which lines allocated torch's memory, from its allocation history. Costs about 2 "
        "µs per allocation: negligible if the GPU works long on each one, about 14 %% in a "
        "loop of tiny operations",
    )
    parser.add_argument(
        "--need",
        type=_size,
        metavar="SIZE",
        help="run the cell only if its GPU has this much free memory, such as 20GiB",
    )
    parser.add_argument(
        "--wait",
        type=_seconds,
        metavar="TIME",
        help="with --need: how long to wait for the memory, such as 90s, 10m or 2h; without --wait, "
        "--need checks once",
    )
    return parser


_PARSER = _parser()
HELP = _PARSER.format_help()
"""The help text of the options."""


@functools.lru_cache(maxsize=64)  # cached because it is called several times per cell
def parse(line: str) -> WatchOptions:
    """Return the options in ``line``. Raise OptionError, with a one-line message, if they are invalid."""
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise OptionError(
            translatable(
                "%%gpuwatch: {error} in {line!r}. %%gpuwatch? shows the options.", error=error, line=line
            )
        ) from None
    given, unknown = _PARSER.parse_known_args(arguments)
    if unknown:
        raise _unknown_option(unknown)
    if given.wait is not None and given.need is None:
        raise OptionError(translatable("%%gpuwatch: --wait requires --need. %%gpuwatch? shows the options."))
    gpus = tuple(name for word in given.gpu for name in word.split(",") if name)
    return WatchOptions(
        run=RunOptions(gpus=gpus, interval_s=given.interval, sync=not given.no_sync),
        live=not given.no_live and not given.quiet,
        quiet=given.quiet,
        label=given.name,
        device=given.device,
        lines=given.lines,
        need=given.need,
        wait_s=given.wait,
    )


def _unknown_option(unknown: Sequence[str]) -> OptionError:
    """Return the error for unknown arguments. It suggests an option that is similar to the first one."""
    given = " ".join(unknown)
    options = [name.lstrip("-") for action in _PARSER._actions for name in action.option_strings]
    for meant in get_close_matches(unknown[0].lstrip("-").partition("=")[0], options, n=1):
        return OptionError(
            translatable(
                "%%gpuwatch: unrecognized arguments: {given}. Did you mean {meant}? "
                "%%gpuwatch? shows the options.",
                given=given,
                meant=f"--{meant}",
            )
        )
    return OptionError(
        translatable(
            "%%gpuwatch: unrecognized arguments: {given}. %%gpuwatch? shows the options.", given=given
        )
    )


def find(lines: Sequence[str]) -> tuple[int, str] | None:
    """Return the index and the options of the first non-blank line if it is ``%%gpuwatch``, else None."""
    for number, line in enumerate(lines):
        if line.strip():
            match = _WATCH_LINE.match(line.rstrip("\r\n"))
            return (number, (match["options"] or "").strip()) if match else None
    return None


def find_in_cell(raw_cell: str) -> str | None:
    """Return the options of the cell's ``%%gpuwatch`` line; None if the cell has none.

    The cell magics ``%%time``, ``%%timeit`` and ``%%prun`` may be above the line. Other cell magics run their
    body as a nested cell, for which this function is called again.
    """
    lines = raw_cell.splitlines()
    while lines:
        found = find(lines)
        if found is not None:
            return found[1]
        first = next((n for n, line in enumerate(lines) if line.strip()), None)
        if first is None or not _TRANSPARENT.match(lines[first]):
            return None
        lines = lines[first + 1 :]
    return None


def is_own_magic(raw_cell: str) -> bool:
    """Return whether the cell consists of nothing but gpuwidget's line magics, such as ``%gpu memory``."""
    lines = [line for line in map(str.strip, raw_cell.splitlines()) if line and not line.startswith("#")]
    return bool(lines) and all(map(_OWN_MAGIC.fullmatch, lines))


def without_watch_line(lines: list[str]) -> list[str]:
    """Return the cell's lines as they would run without ``%%gpuwatch``.

    The ``%%gpuwatch`` line becomes a comment, so that line numbers stay the same (IPython strips a blank
    first line). The comment has the same indentation as the body; otherwise an indented body would not
    compile. If the body begins with a cell magic, everything above that magic is removed, because a cell
    magic must be in the first line.
    """
    found = find(lines)
    while found is not None:
        number = found[0]
        body = next((n for n in range(number + 1, len(lines)) if lines[n].strip()), None)
        first = lines[body] if body is not None else ""
        if body is None or not first.lstrip().startswith("%%"):
            indent = first[: len(first) - len(first.lstrip())]
            comment = f"{indent}# {lines[number].strip()}\n"
            return [*lines[:number], comment, *lines[number + 1 :]]
        lines = lines[body:]
        found = find(lines)
    return lines
