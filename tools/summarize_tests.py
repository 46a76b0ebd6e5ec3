"""Print what ``make test`` ran, what it could not run, and why.

``python -m tools.summarize_tests FILE...`` reads the JUnit XML files that pytest wrote, one per group of
tests.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

TYPESCRIPT = "typescript"
"""The group of tests that run in Node. It has no JUnit file, and none of its tests are skipped."""


def skip_reasons(path: Path) -> Iterator[str]:
    """Yield the reason for each skipped test of one group."""
    for skipped in ElementTree.parse(path).iter("skipped"):
        if skipped.get("type") == "pytest.skip":
            yield skipped.get("message", "")


def repeated_tests(path: Path) -> Iterator[str]:
    """Yield the name of each test of one group that failed.

    All of them passed when they ran again; otherwise, ``make test`` would have ended before this summary.
    """
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            yield f"{case.get('classname')}.{case.get('name')}"


def count_tests(path: Path) -> int:
    """Return the number of tests in one group, including skipped ones."""
    return sum(1 for _ in ElementTree.parse(path).iter("testcase"))


def summary(paths: Iterable[Path]) -> str:
    """Return a line about the test run, followed by the tests that passed only the second time and the
    reasons why some tests did not run."""
    reasons: Counter[str] = Counter()
    passed, not_run = [], []
    repeated: list[str] = []
    for path in paths:
        group, of_group = path.stem, Counter(skip_reasons(path))
        reasons += of_group
        repeated += repeated_tests(path)
        passed.append(f"{group} {count_tests(path) - of_group.total()}")
        if of_group:
            not_run.append(f"{group} {of_group.total()}")
    line = f"All tests passed: {', '.join([*passed, TYPESCRIPT])}"
    lines = [f"{line}."]
    if repeated:
        lines += ["Failed at first and passed when run again:", *(f"    {name}" for name in repeated)]
    if not_run:
        lines += [f"Not run: {', '.join(not_run)}:"]
        lines += [f"{count:5} {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(summary(map(Path, sys.argv[1:])))
