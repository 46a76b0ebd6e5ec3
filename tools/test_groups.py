"""Run groups of tests one after the other, and print which passed, what was skipped, and how long they took.

``python -m tools.test_groups FOLDER GROUP...`` runs ``make test-GROUP`` for each group, also if an earlier
one failed. The tests of a group write a JUnit XML file with the group's name into FOLDER. The exit status is
1 if a test failed or a group did not run to its end.
"""

from __future__ import annotations

import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Group:
    """The result of a group of tests. ``status`` is the exit status of its make, and ``seconds`` the time
    that it took. ``passed`` and ``failed`` have the names of tests, and ``skipped`` the number of tests per
    reason."""

    name: str
    status: int
    seconds: float
    passed: Collection[str] = ()
    failed: Collection[str] = ()
    skipped: Counter[str] = field(default_factory=Counter)


def run_group(folder: Path, name: str, clock: Callable[[], float]) -> Group:
    """Run the tests of a group, and return their result."""
    file = folder / f"{name}.xml"
    file.unlink(missing_ok=True)
    start = clock()
    status = subprocess.run(["make", "--no-print-directory", f"test-{name}"], check=False).returncode
    return read_group(file, status, clock() - start)


def read_group(file: Path, status: int, seconds: float) -> Group:
    """Return the result of a group from its JUnit XML file, which is missing if no test ran."""
    try:
        root = ElementTree.parse(file)
    except (OSError, ElementTree.ParseError):
        return Group(file.stem, status or 1, seconds)
    passed, failed, skipped = [], [], Counter[str]()
    for case in root.iter("testcase"):
        name, skip = f"{case.get('classname')}.{case.get('name')}", case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif skip is not None and skip.get("type") != "pytest.xfail":
            skipped[skip.get("message", "")] += 1
        else:
            passed.append(name)
    return Group(file.stem, status, seconds, [name for name in passed if name not in failed], failed, skipped)


def summary(groups: Sequence[Group]) -> str:
    """Return a table with a row per group, the failed tests, and the reasons why tests were skipped."""
    lines = [f"{'':16}{'passed':>8}{'failed':>8}{'skipped':>9}{'time':>8}"]
    for group in groups:
        row = f"{group.name:16}{len(group.passed):8}{len(group.failed):8}{group.skipped.total():9}"
        stopped = "  did not run to its end" if group.status and not group.failed else ""
        lines.append(f"{row}{group.seconds:6.0f} s{stopped}")
    for group in groups:
        lines += [f"Failed: {name}" for name in group.failed]
    for reason, count in sum((group.skipped for group in groups), Counter[str]()).most_common():
        lines.append(f"Skipped {count}: {reason}")
    passed, failed = sum(len(group.passed) for group in groups), sum(len(group.failed) for group in groups)
    lines.append(
        f"{passed} passed, {failed} failed, {sum(group.skipped.total() for group in groups)} skipped"
    )
    return "\n".join(lines)


def main(folder: str, *names: str, clock: Callable[[], float] = time.monotonic) -> int:
    """Run the groups and print the summary. Return 1 if a group failed, else 0."""
    groups = [run_group(Path(folder), name, clock) for name in names]
    print(f"\n{summary(groups)}", flush=True)
    return int(any(group.status or group.failed for group in groups))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
