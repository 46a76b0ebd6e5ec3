"""Every page of docs/ can be found from the README, starts with its purpose, and has valid code blocks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
README = ROOT / "README.md"
CHECKED = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *PAGES]


def name_of(page: Path) -> str:
    """Return the path of a page from the project's root."""
    return page.relative_to(ROOT).as_posix()


def text_without_code(page: Path) -> str:
    """Return a page's Markdown without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page: Path) -> list[str]:
    """Return the targets of a page's Markdown links and pictures, without those on the web."""
    targets = re.findall(r"\]\(([^)\s]+)\)", text_without_code(page))
    return [target for target in targets if "://" not in target]


def linked_pages(page: Path) -> set[Path]:
    """Return the pages to which a page links."""
    paths = {(page.parent / target.partition("#")[0]).resolve() for target in links(page)}
    return paths & set(PAGES)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub, and the site, give to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text_without_code(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_blocks(page: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, the language and the text of each of a page's code blocks."""
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(r"^( *)```([\w+-]*)\n(.*?)^ *```$", text, re.M | re.S):
        lines = (line.removeprefix(block[1]) for line in block[3].splitlines(keepends=True))
        yield text.count("\n", 0, block.start()) + 1, block[2], "".join(lines)


def error_in(language: str, code: str) -> str | None:
    """Return what is wrong with a code block; None if it is valid, or a language is not known."""
    try:
        if language == "python":
            # IPython passes the code below a %% magic as text, without compiling it.
            cell = re.sub(r"\A%%gpuwatch.*\n", "", code)
            compile(TransformerManager().transform_cell(cell), "block", "exec")  # type: ignore[no-untyped-call]
        elif language == "json":
            json.loads(code)
        elif language == "yaml":
            list(yaml.safe_load_all(code))
        elif language == "toml":
            tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no parser of TOML")
            tomllib.loads(code)
    except (SyntaxError, ValueError, yaml.YAMLError) as error:
        return str(error)
    if language in ("sh", "bash", "shell"):
        done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
        return done.stderr or None
    return None


def test_every_page_is_two_clicks_from_the_readme() -> None:
    """A reader of the README finds each page of docs/, by a link to the page or by one to its shelf."""
    shelves = linked_pages(README)
    found = shelves.union(*map(linked_pages, shelves))
    assert [name_of(page) for page in PAGES if page not in found] == []


def test_a_shelf_lists_its_pages() -> None:
    """Each folder's index.md has a line with a link for every page of the folder."""
    shelves = {page.parent for page in PAGES} - {ROOT / "docs"}
    unlisted = {
        name_of(shelf): set(shelf.glob("*.md")) - linked_pages(shelf / "index.md") - {shelf / "index.md"}
        for shelf in sorted(shelves)
    }
    assert {shelf: pages for shelf, pages in unlisted.items() if pages} == {}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_starts_with_what_it_is_for(page: Path) -> None:
    """Below its title, a page has one sentence on its purpose before any table, list, picture or section."""
    title, first = [line for line in page.read_text(encoding="utf-8").splitlines() if line][:2]
    assert re.match(r"# \S", title)
    assert re.match(r"\w|`", first), first


@pytest.mark.parametrize("page", CHECKED, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    """Each link to a file, picture or heading of the project leads to one that exists."""
    missing = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            missing.append(target)
    assert missing == []


@pytest.mark.parametrize("page", CHECKED, ids=name_of)
def test_code_blocks_are_valid(page: Path) -> None:
    """Code can be copied: cells compile, a shell parses the commands, and data files can be read."""
    errors = {line: error_in(language, code) for line, language, code in code_blocks(page)}
    assert {line: error for line, error in errors.items() if error} == {}


def test_an_invalid_code_block_is_found() -> None:
    """The check of code blocks accepts magics, and finds an error in each language."""
    assert error_in("python", "%%gpuwatch --lines\ntrain()\n") is None
    assert error_in("python", "%load_ext gpuwidget\n!nvidia-smi\nx = 1\n") is None
    assert error_in("sh", "pip install '.[lab]' && (make demo)\n") is None
    assert "never closed" in str(error_in("python", "%%gpuwatch --lines\ntrain(\n"))
    assert "syntax error" in str(error_in("sh", "if true\n"))
    assert "Expecting" in str(error_in("json", "{"))
    assert "expected" in str(error_in("yaml", "a: [1"))


def rows(path: Path) -> list[list[str]]:
    """Return the cells of a page's table rows, without the tables' headers."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    headers = {index - 1 for index, line in enumerate(lines) if line.startswith("|---")}
    return [
        re.split(r" \| ", line.strip("| "))
        for index, line in enumerate(lines)
        if index not in headers and not line.startswith("|---")
    ]


def test_each_protection_names_tests_that_exist() -> None:
    """Each threat of the page about security is listed for developers with at least one test, and each named
    test exists."""
    listed = rows(ROOT / "docs" / "developers" / "security-tests.md")
    threats = [threat for threat, _ in rows(ROOT / "docs" / "admin" / "security.md")]
    assert [threat for threat, _ in listed] == threats
    named = [re.findall(r"`((?:labextension/)?tests/[\w./]+)::([^`]+)`", tests) for _, tests in listed]
    assert [threat for threat, tests in zip(threats, named, strict=True) if not tests] == []
    assert [
        f"{path}::{name}"
        for tests in named
        for path, name in tests
        if not {f"def {name}(", f"test('{name}'"}
        & set(re.findall(r"def \w+\(|test\('[^']+'", (ROOT / path).read_text(encoding="utf-8")))
    ] == []
