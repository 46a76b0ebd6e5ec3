"""Every page of docs/ can be found from the README and starts with its purpose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def links(path: Path) -> list[str]:
    """Return the targets of a page's Markdown links and pictures, without those on the web."""
    targets = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    return [target for target in targets if "://" not in target]


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_lists_every_page() -> None:
    """A reader of the README finds a link to each page of docs/."""
    linked = {target.partition("#")[0] for target in links(ROOT / "README.md")}
    assert [page.name for page in PAGES if f"docs/{page.name}" not in linked] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_starts_with_what_it_is_for(page: Path) -> None:
    """Below its title, a page has one sentence on its purpose before any table, list, picture or section."""
    title, first = [line for line in page.read_text(encoding="utf-8").splitlines() if line][:2]
    assert re.match(r"# \S", title)
    assert re.match(r"[A-Z`]", first), first


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Each link to a file, picture or heading of the project leads to one that exists."""
    missing = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            missing.append(target)
    assert missing == []


def test_each_protection_names_tests_that_exist() -> None:
    """On the page about security, each protection names at least one test, and each named test exists."""
    rows = [
        line
        for line in (ROOT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.endswith("| test |")
    ]
    named = [re.findall(r"`((?:labextension/)?tests/[\w./]+)::([^`]+)`", row) for row in rows]
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == []
    assert [
        f"{path}::{name}"
        for tests in named
        for path, name in tests
        if not {f"def {name}(", f"test('{name}'"}
        & set(re.findall(r"def \w+\(|test\('[^']+'", (ROOT / path).read_text(encoding="utf-8")))
    ] == []
