"""``gpuwidget`` without a subcommand: print the table of GPUs or the sample's JSON, once or repeatedly."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from queue import Empty, SimpleQueue

from gpuwidget.cli.command import FAILED
from gpuwidget.cli.gpu_table import is_unreachable, render_table
from gpuwidget.cli.open_sampler import no_answer, stopped_at_end, wait_until_open
from gpuwidget.model.samples import Sample
from gpuwidget.model.to_json import to_json
from gpuwidget.sampler import Sampler

_READ_TIMEOUT_S = 5.0
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def show_gpus(options: argparse.Namespace) -> int:
    """Print the GPUs, and return the exit status. With ``-i``, repeat until an interrupt."""
    with stopped_at_end(options.sampler) as sampler:
        if options.every is None:
            return _print_once(sampler, options.json)
        _print_repeatedly(sampler, options.every, options.json)
    return 0


def _print_once(sampler: Sampler, as_json: bool) -> int:
    with sampler.subscribe():
        wait_until_open(sampler)
        sample = sampler.read_now(_READ_TIMEOUT_S)
    if sample is None:
        raise no_answer(_READ_TIMEOUT_S)
    print(_text(sample, as_json))
    return FAILED if not sample.gpus or any(map(is_unreachable, sample.readings)) else 0


def _print_repeatedly(sampler: Sampler, interval_s: float, as_json: bool) -> None:
    inbox: SimpleQueue[Sample] = SimpleQueue()
    in_place = sys.stdout.isatty() and not as_json
    end = "" if in_place else "\n" if as_json else "\n\n"
    with sampler.subscribe(inbox.put, interval_s=interval_s):
        wait_until_open(sampler)
        if in_place:
            sys.stdout.write(_HOME + _CLEAR_BELOW)
        while True:
            text = _text(_newest_sample(inbox), as_json)
            print(_in_place(text) if in_place else text, end=end, flush=True)


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
