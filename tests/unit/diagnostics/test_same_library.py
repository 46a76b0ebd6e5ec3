"""Tests of recognizing two files as the same build of a shared library."""

from __future__ import annotations

import shutil
from pathlib import Path

from helpers_faults import CUDNN, OPS, Stubs
from helpers_programs import compile_library

from gpuwidget.diagnostics.same_library import build_id, same_library


def test_copies_of_one_build(tmp_path: Path, stubs: Stubs) -> None:
    """A copy of a library and a link to it are the same library. Another version is not, even if its file has
    the same size."""
    own, other = stubs.library(OPS), stubs.library(OPS, other=True)
    copy, link = tmp_path / "copy.so", tmp_path / "link.so"
    shutil.copy(own, copy)
    link.symlink_to(own)
    assert same_library(str(own), str(copy))
    assert same_library(str(own), str(link))
    assert own.stat().st_size == other.stat().st_size
    assert not same_library(str(own), str(other))


def test_the_build_id(stubs: Stubs) -> None:
    """The build id has 40 hexadecimal digits, and differs between two versions of a library."""
    ids = [build_id(str(stubs.library(CUDNN, other=other))) for other in (False, True)]
    assert [len(one or "") for one in ids] == [40, 40]
    assert ids[0] != ids[1]


def test_libraries_without_a_build_id(tmp_path: Path) -> None:
    """Libraries without a build id are compared by content."""
    files = []
    for name, value in (("one", 1), ("same", 1), ("other", 2)):
        source = tmp_path / name / "library.c"
        source.parent.mkdir()
        source.write_text(f"int value(void) {{ return {value}; }}\n")
        compile_library(source, source.with_suffix(".so"), "-Wl,--build-id=none")
        files.append(str(source.with_suffix(".so")))
    assert [build_id(file) for file in files] == [None, None, None]
    assert same_library(files[0], files[1])
    assert not same_library(files[0], files[2])


def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    """Missing, empty and damaged files have no build id, and no error is raised."""
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "half").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 70)
    for name in ("missing", "empty", "half"):
        assert build_id(str(tmp_path / name)) is None
    assert not same_library(str(tmp_path / "missing"), str(tmp_path / "empty"))
