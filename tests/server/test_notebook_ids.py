"""The ids that stand for notebooks in metrics are stable, and do not reveal the notebooks' names."""

from __future__ import annotations

import logging
import re
import secrets
from pathlib import Path

import pytest

from gpuwidget.server.notebook_ids import NotebookIds

LOG = logging.getLogger("test")


def ids(folder: Path, root: str = "/home/anna") -> NotebookIds:
    """Return the ids of a server that has just started."""
    return NotebookIds(folder, root, LOG)


def key_file(folder: Path) -> Path:
    """Return the path of the key."""
    return folder / "gpuwidget" / "notebook-ids.key"


def test_an_id_survives_a_restart(tmp_path: Path) -> None:
    """A notebook's id is short, and the same after the server has restarted, also with another root folder.
    Other notebooks have other ids."""
    first = ids(tmp_path)
    before = first.notebook_id("work/train.ipynb")
    assert re.fullmatch("[0-9a-f]{12}", before)
    assert first.notebook_id("work/train.ipynb") == before
    assert ids(tmp_path).notebook_id("work/train.ipynb") == before
    assert ids(tmp_path, "/home/anna/work").notebook_id("train.ipynb") == before
    assert first.notebook_id("work/other.ipynb") != before
    assert first.notebook_id("work/\udcff é.ipynb") != before


def test_an_id_differs_between_users(tmp_path: Path) -> None:
    """Without the user's key nobody can compute the id of a name: another key gives another id.
    Only the user can read the key."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert ids(tmp_path / "a").notebook_id("x.ipynb") != ids(tmp_path / "b").notebook_id("x.ipynb")
    assert key_file(tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in key_file(tmp_path / "a").parent.iterdir()] == ["notebook-ids.key"]


def test_a_readable_key_is_protected(tmp_path: Path) -> None:
    """If other users can read the key, the server corrects the file's mode."""
    before = ids(tmp_path).notebook_id("x.ipynb")
    key_file(tmp_path).chmod(0o644)
    assert ids(tmp_path).notebook_id("x.ipynb") == before
    assert key_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_truncated_key_is_replaced(tmp_path: Path) -> None:
    """If the file contains no whole key, for example after a full disk, it gets a new one."""
    key_file(tmp_path).parent.mkdir()
    key_file(tmp_path).write_bytes(b"short")
    before = ids(tmp_path).notebook_id("x.ipynb")
    assert len(key_file(tmp_path).read_bytes()) == 32
    assert ids(tmp_path).notebook_id("x.ipynb") == before


def test_a_symbolic_link_is_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the key's file is a symbolic link to another file, the server neither reads nor changes that file.
    The log has the reason."""
    other = tmp_path / "other"
    other.write_bytes(b"x" * 32)
    other.chmod(0o644)
    key_file(tmp_path).parent.mkdir()
    key_file(tmp_path).symlink_to(other)
    first = ids(tmp_path).notebook_id("x.ipynb")
    assert ids(tmp_path).notebook_id("x.ipynb") != first
    assert (other.read_bytes(), other.stat().st_mode & 0o777) == (b"x" * 32, 0o644)
    assert "symbolic links" in caplog.text


def test_two_servers_that_start_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another server of the user stores a key while this one creates its own, both use the stored one."""
    other = ids(tmp_path)
    found: list[str] = []

    def meanwhile(size: int) -> str:
        monkeypatch.undo()
        found.append(other.notebook_id("x.ipynb"))
        return "0" * 2 * size

    monkeypatch.setattr(secrets, "token_hex", meanwhile)
    assert [ids(tmp_path).notebook_id("x.ipynb")] == found
    assert ids(tmp_path).notebook_id("x.ipynb") == found[0]


def test_a_key_that_cannot_be_stored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the key can't be stored, the ids are valid until the server restarts, and the log has one line with
    the reason."""
    (tmp_path / "gpuwidget").write_text("a file, where the folder would be")
    server = ids(tmp_path)
    assert server.notebook_id("x.ipynb") == server.notebook_id("x.ipynb")
    assert ids(tmp_path).notebook_id("x.ipynb") != server.notebook_id("x.ipynb")
    (line, _) = caplog.messages
    assert f"can't be stored in {key_file(tmp_path)} (Not a directory)." in line
