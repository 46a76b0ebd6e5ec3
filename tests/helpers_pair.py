"""Two kernels, one without and one with gpuwidget, and assertions that their cells behave the same."""

from __future__ import annotations

import difflib
import json
import pprint
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from helpers_cases import Case
from helpers_kernel import Kernel, Ran
from helpers_outputs import CARD, Message, areas_of_own_outputs, own_outputs

MAX_CARD_BYTES = 20_000


class Pair:
    """Two kernels that have run the same cells, one without and one with gpuwidget."""

    def __init__(self, plain: Kernel, watched: Kernel) -> None:
        self.plain = plain
        self.watched = watched

    def setup(self, code: str) -> None:
        """Run ``code`` in both kernels without changing their history and counters."""
        self.plain.setup(code)
        self.watched.setup(code)

    def both(self, code: str, **options: Any) -> tuple[Ran, Ran]:
        """Run the same unwatched cell in both kernels.
        Assert that all visible output is the same and that there is no card."""
        plain, watched = self.run(code, code, **options)
        assert_same(plain, watched)
        assert watched.cards == []
        return plain, watched

    def run(
        self, plain: str, watched: str, *, during: Callable[[Kernel, str], None] | None = None, **options: Any
    ) -> tuple[Ran, Ran]:
        """Run a cell in each kernel at the same time.
        While the cells run, ``during`` is called for each kernel, with the kernel and the request."""
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
        """Run two cells that pause (see helpers_cases),
        and continue them when the watched cell sends a ``wanted`` message."""

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
        """Run ``body`` unwatched and watched, compare all visible output, and assert the number of cards.

        In the unwatched cell, the line with the magic is a comment, so that line numbers are the same in both
        cells. The comment is left out if the cell begins with another cell magic.
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
        assert areas_of_own_outputs(ran_watched.messages) <= {"cell"}
        if cards == 1:
            check_card(ran_watched)
        return ran_plain, ran_watched


def assert_same(plain: Ran, watched: Ran) -> None:
    """Assert that everything visible is the same.
    If it is not, the error message contains the lines that differ."""
    before, after = (pprint.pformat(ran.as_seen(), width=160).splitlines() for ran in (plain, watched))
    difference = "\n".join(difflib.unified_diff(before, after, "plain", "watched", lineterm="", n=1))
    assert not difference, f"watched, the cell differs:\n{difference}"


def check_card(ran: Ran) -> dict[str, Any]:
    """Assert that the cell has a single card, which is gpuwidget's only output, complete, small and has the
    reply's status.
    Return the card's report."""
    (card,) = ran.cards
    assert set(card) == {"text/plain", "text/html", CARD}
    assert len(json.dumps(card, ensure_ascii=False).encode()) <= MAX_CARD_BYTES
    cell = card[CARD]["cell"]
    expected = ran.reply["status"]
    if expected == "error" and ran.reply["ename"] in ("KeyboardInterrupt", "CancelledError"):
        expected = "interrupted"
    # If the code succeeds and only displaying its result fails, ipykernel 7.4 replies with 'error' too.
    # In this case, the reply's status is not compared with the card's.
    if expected != "error" or ran.reply["ename"] != "NoneType":
        assert cell["status"] == expected
    # A front end keeps showing a live chart unless something else replaces it.
    assert [sorted(data) for data in own_outputs(ran.messages)] == [sorted(card)]
    report = card[CARD]
    assert isinstance(report, dict)
    return report


def _shows_chart(case: Case) -> Callable[[Message], bool]:
    return attrgetter("opens_chart" if case.hidden else "shows_chart")


def run_case(pair: Pair, case: Case, options: str, long: bool = False) -> None:
    """Run a case and the cell that follows it, unwatched and watched, and compare what they show."""
    magic = f"%%gpuwatch {options}".rstrip()
    plain, watched = pair.same(
        case.body,
        options=options,
        plain=case.plain,
        watched=case.watched.replace("MAGIC", magic) if case.watched else None,
        cards=case.cards,
        until=_shows_chart(case) if long else None,
        **(case.sending or {}),
    )
    seen = [message.content for message in plain.messages if message.type != "execute_input"]
    assert case.shows in f"{plain.text!r} {seen} {plain.reply}"
    assert watched.late == []
    if long and not case.hidden:
        assert any(message.shows_chart for message in watched.messages)
    if case.then:
        pair.both(case.then)
