"""In a probe process: compare the files of torch and its requirements with the RECORD of their wheels.

Only existence and size are compared. Hashing would read gigabytes, and an interrupted download or a full disk
leaves files that are missing, empty or too short.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal

from gpuwidget.diagnostics.packages import installer, torch_distributions
from gpuwidget.diagnostics.probe_process import begin_step, finish, lower_priority, send
from gpuwidget.model.to_json import to_json

_LIBRARIES = (".so", ".dll", ".pyd", ".dylib")
_MAX_FILES = 5


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """One file that differs from its entry in RECORD."""

    path: str
    """The file's path, relative to site-packages."""
    problem: Literal["missing", "unreadable", "empty", "too-short", "wrong-size"]
    size: int | None
    """The file's size in bytes; None if it is missing or unreadable."""
    recorded_size: int
    error: str | None
    """The system's text of the error if the file is unreadable."""
    library: bool
    """Whether the file is a shared library."""


@dataclass(frozen=True, slots=True)
class CheckedPackage:
    """The result of the file comparison for one package."""

    name: str
    version: str
    files: int | None
    """Number of compared files; None for a package without a RECORD."""
    damaged: tuple[DamagedFile, ...]
    """Up to five files that differ, shared libraries first."""
    count: int
    """Number of files that differ."""


def main(path: Sequence[str]) -> None:
    """Send a :class:`CheckedPackage` for each package.

    Also send the groups of packages that own the same shared libraries.
    """
    lower_priority()
    begin_step("reading the packages' file lists")
    found = torch_distributions(path)
    lists = {name: _recorded_sizes(distribution) for name, distribution in found.items()}
    owners = _owners(lists)
    send(shared=sorted({names for file, names in owners.items() if len(names) > 1 and _is_library(file)}))
    checked: list[Any] = []
    for name, distribution in found.items():
        begin_step(f"checking the files of {name}")
        others = [lists[other] or {} for other in found if other != name]
        checked.append(to_json(_compare(name, distribution, lists[name], others)))
        send(checked=checked)
    finish()


def _recorded_sizes(distribution: metadata.Distribution) -> dict[str, int] | None:
    """Return the recorded size of each file; None without a RECORD or for an editable installation."""
    text, source = distribution.read_text("RECORD"), distribution.read_text("direct_url.json") or ""
    if text is None or '"editable": true' in source:
        return None
    found = {}
    # Distribution.files is avoided, since it creates one object per line, and torch's RECORD has 15,000
    # lines.
    for line in text.splitlines():
        file, _, size = line.rpartition(",")
        file = file.rpartition(",")[0].strip('"')
        # Skip scripts, which are outside the package, and files without a recorded size: bytecode caches and
        # RECORD itself.
        if size.isdecimal() and not file.startswith(("../", "/")) and not file.endswith(".pyc"):
            found[file] = int(size)
    return found


def _owners(lists: Mapping[str, Mapping[str, int] | None]) -> dict[str, tuple[str, ...]]:
    owners: dict[str, tuple[str, ...]] = {}
    for name, sizes in lists.items():
        for file in sizes or ():
            owners[file] = (*owners.get(file, ()), name)
    return owners


def _compare(
    name: str,
    distribution: metadata.Distribution,
    sizes: Mapping[str, int] | None,
    others: Sequence[Mapping[str, int]],
) -> CheckedPackage:
    if sizes is None:
        return CheckedPackage(name, distribution.version, None, (), 0)
    folder = str(distribution.locate_file(""))
    # conda changes the sizes of some files after recording them, by writing the environment's path into the
    # files.
    exact = installer(distribution) != "conda"
    found = []
    for file, size in sizes.items():
        allowed = {size, *(other[file] for other in others if file in other)} if exact else None
        damaged = _damaged_file(folder, file, size, allowed)
        if damaged is not None:
            found.append(damaged)
    found.sort(key=lambda damaged: not damaged.library)
    return CheckedPackage(name, distribution.version, len(sizes), tuple(found[:_MAX_FILES]), len(found))


def _damaged_file(folder: str, file: str, recorded: int, allowed: Iterable[int] | None) -> DamagedFile | None:
    """Return how the file differs from its entry in RECORD, or None if it does not.

    ``allowed`` contains the correct sizes. If it is None, any size except 0 is correct.
    """
    library = _is_library(file)
    try:
        size = os.stat(os.path.join(folder, file)).st_size
    except FileNotFoundError:
        return DamagedFile(file, "missing", None, recorded, None, library)
    except OSError as error:
        return DamagedFile(file, "unreadable", None, recorded, error.strerror, library)
    if size == 0 and recorded > 0:
        return DamagedFile(file, "empty", size, recorded, None, library)
    if allowed is None or size in allowed:
        return None
    return DamagedFile(file, "too-short" if size < recorded else "wrong-size", size, recorded, None, library)


def _is_library(file: str) -> bool:
    name = os.path.basename(file)
    return name.endswith(_LIBRARIES) or ".so." in name
