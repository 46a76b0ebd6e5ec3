"""Two kernels kept in step, one plain and one that watches its cells, and what their cells must agree on."""

from __future__ import annotations

import difflib
import json
import pprint
from collections.abc import Callable
from typing import Any

from helpers_kernel import Kernel, Ran
from helpers_outputs import CARD, Message, where_ours_went

LARGEST_CARD = 20_000


class Pair:
    """Two kernels that have run the same cells, one plain and one with gpuwidget."""

    def __init__(self, plain: Kernel, watched: Kernel) -> None:
        self.plain = plain
        self.watched = watched

    def setup(self, code: str) -> None:
        """Run ``code`` in both, leaving no trace in history and counters."""
        self.plain.setup(code)
        self.watched.setup(code)

    def both(self, code: str, **options: Any) -> tuple[Ran, Ran]:
        """Run the same unwatched cell in both; all that is seen must agree, and no card must come."""
        plain, watched = self.run(code, code, **options)
        assert_same(plain, watched)
        assert watched.cards == []
        return plain, watched

    def run(
        self, plain: str, watched: str, *, during: Callable[[Kernel, str], None] | None = None, **options: Any
    ) -> tuple[Ran, Ran]:
        """Run a cell in each, at the same time; ``during`` is told each kernel and request meanwhile."""
        cells = ((self.plain, plain), (self.watched, watched))
        requests = [(kernel, kernel.send(code, **options)) for kernel, code in cells]
        if during is not None:
            for kernel, request in reversed(requests):
                during(kernel, request)
        ran_plain, ran_watched = (kernel.wait(request) for kernel, request in requests)
        return ran_plain, ran_watched

    def run_until(
        self, plain: str, watched: str, wanted: Callable[[Message], bool], **options: Any
    ) -> tuple[Ran, Ran]:
        """Run cells that pause (see helpers_cases) until the watched one has sent a wanted message."""

        def wait(kernel: Kernel, request: str) -> None:
            if kernel is self.watched:
                kernel.wait_for_message(request, wanted)
            (kernel.folder / "go").touch()

        folders = (self.plain.folder, self.watched.folder)
        for folder in folders:
            (folder / "long").touch()
        try:
            return self.run(plain, watched, during=wait, **options)
        finally:
            for folder in folders:
                (folder / "long").unlink()
                (folder / "go").unlink(missing_ok=True)

    def same(
        self,
        body: str,
        *,
        options: str = "--no-live",
        plain: str | None = None,
        watched: str | None = None,
        cards: int = 1,
        until: Callable[[Message], bool] | None = None,
        **sending: Any,
    ) -> tuple[Ran, Ran]:
        """Run ``body`` plain and watched, and compare all that is seen, and count the cards.

        The plain cell has the magic's line as a comment, so that line numbers agree; a body that begins
        with a cell magic goes without.
        """
        magic = f"%%gpuwatch {options}".rstrip()
        if plain is None:
            plain = body.lstrip() if body.lstrip().startswith("%%") else f"# {magic}\n{body}"
        if watched is None:
            watched = f"{magic}\n{body}"
        if until is not None:
            ran_plain, ran_watched = self.run_until(plain, watched, until, **sending)
        else:
            ran_plain, ran_watched = self.run(plain, watched, **sending)
        assert_same(ran_plain, ran_watched)
        assert ran_plain.cards == []
        assert len(ran_watched.cards) == cards
        assert where_ours_went(ran_watched.messages) <= {"cell"}
        if cards == 1:
            check_card(ran_watched)
        return ran_plain, ran_watched


def assert_same(plain: Ran, watched: Ran) -> None:
    """All that is seen of the two is the same; else the lines that differ are shown."""
    before, after = (pprint.pformat(ran.as_seen(), width=160).splitlines() for ran in (plain, watched))
    difference = "\n".join(difflib.unified_diff(before, after, "plain", "watched", lineterm="", n=1))
    assert not difference, f"watched, the cell differs:\n{difference}"


def check_card(ran: Ran) -> dict[str, Any]:
    """The one card of ``ran``: whole, small, last of its outputs, and true to the reply; its report."""
    (card,) = ran.cards
    assert set(card) == {"text/plain", "text/html", CARD}
    assert len(json.dumps(card)) <= LARGEST_CARD
    cell = card[CARD]["cell"]
    expected = ran.reply["status"]
    if expected == "error" and ran.reply["ename"] in ("KeyboardInterrupt", "CancelledError"):
        expected = "interrupted"
    # ipykernel 7.4 also replies 'error' where only displaying the result failed, after the code had ended.
    if expected != "error" or ran.reply["ename"] != "NoneType":
        assert cell["status"] == expected
    # A front end would show a live view that was not emptied for good.
    shown: dict[str, dict[str, Any]] = {}
    for message in ran.messages:
        if message.is_live and not message.is_card:
            shown[message.content["transient"]["display_id"]] = message.content["data"]
    assert [data for data in shown.values() if data] == []
    report = card[CARD]
    assert isinstance(report, dict)
    return report
