"""Tests of the files that tools/xids.py generates from the table of XIDs."""

from __future__ import annotations

import pytest

from gpuwidget.sources.xids import XIDS
from tools import xids


def test_generated_files_match_the_table() -> None:
    """The panel's alerts and the page of the docs have the meanings and actions of the table of XIDs."""
    different = [path.name for path, text in xids.generated() if path.read_text(encoding="utf-8") != text]
    assert different == []


def test_the_docs_list_each_xid() -> None:
    """The docs have a row for each XID; neighbors with the same meaning and action share one."""
    rows = xids.table().splitlines()
    assert rows[2] == "| 8 | the GPU stopped processing | restart the program |  |"
    assert "| 39 to 41 | a copy engine failed | restart the program |  |" in rows
    assert "| 83, 84 | the video engine failed | restart the program |  |" in rows
    assert "| 109 | a program did not release the GPU in time | reset the GPU | yes |" in rows


def test_a_difference_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a generated file does not match the table, the tool's ``--check`` fails and names the command that
    generates the file."""
    monkeypatch.setattr(xids, "XIDS", {79: XIDS[79]})
    assert xids.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "xids.ts does not match the table of XIDs: run python -m tools.xids.\n"
        "xids.md does not match the table of XIDs: run python -m tools.xids.\n"
    )
