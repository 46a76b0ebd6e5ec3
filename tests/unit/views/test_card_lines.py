"""What a card says of the lines that allocated memory, and that it stays small with many of them."""

from __future__ import annotations

import json
from dataclasses import replace

import helpers_reports as reports
from helpers_reports import HOSTILE, gib

from gpuwidget.model.report import MIME_TYPE, LineMemory
from gpuwidget.views import card

STEP = LineMemory(
    file="src/model.py",
    line=41,
    function="forward",
    source="hidden = self.attention(x)",
    called_from="In[5] line 7",
    device="cuda:1",
    allocated=gib(96.2),
    held=0,
    at_peak=gib(9.4),
)
OWN = LineMemory("In[5]", 3, None, "x = torch.empty(n)", None, "cuda:1", gib(2.0), gib(2.0), None)
OTHERS = LineMemory(None, None, None, "allocated by libraries", None, "cuda:1", 512, 512, 512)


def test_the_details() -> None:
    """Each line with its figures and its source; what is not known reads n/a."""
    html = card.bundle(replace(reports.starved(), lines=(STEP, OWN, OTHERS)))["text/html"]
    assert (
        "<b>Where the memory went:</b> src/model.py line 41 in forward `hidden = self.attention(x)`: "
        "9.4 GiB at the peak, 0 MiB at the end, 96.2 GiB in all, called from In [5] line 7<"
    ) in html
    assert (
        "&emsp;In [5] line 3 `x = torch.empty(n)`: n/a at the peak, 2.0 GiB at the end, 2.0 GiB in all<"
        in html
    )
    assert "&emsp;torch, allocated by libraries: 512 B at the peak, 512 B at the end, 512 B in all<" in html


def test_the_text() -> None:
    """A table of the lines, the largest first, under the GPUs' own."""
    text = card.bundle(replace(reports.starved(), lines=(STEP, OWN)))["text/plain"]
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert rows[rows.index("torch's memory by line:") + 1 :][:3] == [
        "at the peak at the end in all",
        "src/model.py line 41 in forward: hidden = self.attention(x) 9.4 GiB 0 MiB 96.2 GiB",
        "In [5] line 3: x = torch.empty(n) n/a 2.0 GiB 2.0 GiB",
    ]


def test_several_devices_are_told_apart() -> None:
    """Where lines allocated on more than one device, each says on which."""
    other = replace(OWN, device="cuda:0")
    html = card.bundle(replace(reports.starved(), lines=(OWN, other)))["text/html"]
    assert "In [5] line 3, cuda:1" in html
    assert "In [5] line 3, cuda:0" in html


def test_many_long_lines_stay_small() -> None:
    """Hundreds of hostile lines beside 16 GPUs: under 20 kB, never markup, and what was left out is said."""
    hostile = replace(STEP, file=HOSTILE * 20, function=HOSTILE * 5, source=HOSTILE * 5)
    for base in (reports.sixteen(), reports.starved()):
        data = card.bundle(replace(base, lines=(hostile,) * 300))
        assert len(json.dumps(data)) <= 20_000
        assert "<img" not in data["text/html"]
        (note,) = [note for note in data[MIME_TYPE]["notes"] if note.startswith("To keep the notebook small")]
        assert "of 300 lines of code" in note
