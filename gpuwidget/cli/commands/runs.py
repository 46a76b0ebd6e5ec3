"""``gpuwidget runs``: the runs in the journal, and the card of one of them."""

from __future__ import annotations

import argparse
import json
import shutil
from typing import Any

from gpuwidget.cli.command import Command, add_json_option
from gpuwidget.journal.conclude import conclude, newest_runs
from gpuwidget.journal.store import JournalRow, JournalStore, death_of
from gpuwidget.model.errors import OptionError
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import in_view_language
from gpuwidget.views import journal_view

_SHOWN = 20
"""Number of runs in the list by default."""


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_id",
        nargs="?",
        metavar="RUN",
        help="show the card of the newest run whose id begins or ends with RUN",
    )
    parser.add_argument(
        "-n", dest="count", type=int, metavar="N", default=_SHOWN, help="list N runs (default: %(default)s)"
    )
    add_json_option(parser)


def _run(options: argparse.Namespace) -> int:
    store = JournalStore()
    rows = newest_runs(store, conclude(store), None if options.run_id else max(0, options.count) + 1)
    text = (
        _list(rows, options.count, options.json)
        if options.run_id is None
        else _card(store, rows, options.run_id, options.json)
    )
    print(text, flush=True)
    return 0


COMMAND = Command(
    description="List the watched runs in the journal, the newest first, with why a run died. By "
    "default, kernels write watched runs of more than 30 seconds to the journal.",
    add_options=_add_options,
    run=_run,
)


@in_view_language
def _list(rows: list[JournalRow], count: int, json_wanted: bool) -> str:
    shown = rows[: max(0, count)]
    if json_wanted:
        return json.dumps([_json(row) for row in shown], indent=2)
    if not rows:
        return "The journal is empty. Kernels write watched runs of more than 30 seconds to it."
    lines = journal_view.table(shown, shutil.get_terminal_size((160, 24)).columns)
    older = [f"Older runs: gpuwidget runs -n {10 * max(1, count)}"] if len(rows) > len(shown) else []
    return "\n".join([*lines, *older])


def _json(row: JournalRow) -> dict[str, Any]:
    why = death_of(row)
    return {**to_json(row._asdict()), "death": None if why is None else to_json(why)}


def _card(store: JournalStore, rows: list[JournalRow], prefix: str, json_wanted: bool) -> str:
    """Return the card of a run as text, or its report as JSON. Raises OptionError if there is none."""
    row = next((row for row in rows if row.id.startswith(prefix) or row.id.endswith(prefix)), None)
    found = None if row is None else store.find(row.id)
    if row is None or found is None:
        raise OptionError(f"The journal has no run {prefix!r}. gpuwidget runs lists the ids.")
    if json_wanted:
        return journal_view.report_of(row, found[1]).to_json(indent=2)
    return str(journal_view.bundle(row, found[1])["text/plain"])
