"""Tests that the translations are complete and up to date, and that JupyterLab and the package load them."""

from __future__ import annotations

import gettext
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Catalog
from jupyterlab_server.translation_utils import get_installed_packages_locale

from gpuwidget.model.translation import DOMAIN
from tools import translation
from tools.translation import LABEXTENSION, LOCALE, PACKAGE

LANGUAGES = [path for domain in translation.DOMAINS for path in translation.languages(domain)]
PLACEHOLDER = re.compile(r"%\d|\{\w+[^}]*\}")
"""Matches a placeholder of the labextension, such as ``%1``, or of the package, such as ``{size}``."""
GRAMMAR = r"\{\w+:[^{}]*\|[^{}]*\}"
"""Matches the choice between two words of one language."""
HAN = re.compile(r"[\u4e00-\u9fff]")
NAMES = {
    *("CSV", "Core", "FP", "GPU", "NCCL", "PCIe", "PyTorch", "TF", "Tensor", "XID"),
    *("benchmark", "cuDNN", "gpuwidget", "kWh", "min", "torch"),
}
"""Words that stay in Latin script in the Chinese translation."""


def forms(value: Any) -> list[str]:
    """Return a list with the message, or with its singular and plural."""
    return [value] if isinstance(value, str) else list(value)


@pytest.mark.parametrize("domain", translation.DOMAINS)
def test_the_catalog_is_up_to_date(domain: str) -> None:
    """Each translation template contains exactly the texts that are in the sources."""
    if not (translation.ROOT / "node_modules" / "typescript").exists():
        pytest.skip("the strings are found with Node and TypeScript: make test-typescript installs them")
    file = translation.template_file(domain).read_text(encoding="utf-8")
    assert file == translation.text_of(translation.catalog(domain))


def test_the_check_fails_without_a_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m tools.translation --check` fails if a text has no translation, or a catalog is old."""
    made = Catalog(domain=PACKAGE)
    made.add("{number} GPUs", locations=[("gpuwidget/a.py", 1)])
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    monkeypatch.setattr(translation, "LOCALE", tmp_path)
    monkeypatch.setattr(translation, "catalog", lambda domain: made)
    translation.main(["--add", "zh_CN"])
    with pytest.raises(SystemExit, match=r"has no translation of '\{number\} GPUs'"):
        translation.main(["--check"])
    made.add("another", locations=[("gpuwidget/a.py", 1)])
    with pytest.raises(SystemExit, match="is out of date"):
        translation.main(["--check"])


def test_a_template_is_a_literal_with_all_its_parameters() -> None:
    """Templates are extracted from every function that receives them. A text that no catalog can contain
    is an error."""
    source = """
message("id", "no {what}", what="GPU")
_("Peak {size}", size=size)
counted(3, "{number} GPU", "{number} GPUs")
FixTemplate("id", "Load it:", COMMAND, "Or reboot.")
_(advice.text)
"""
    assert list(translation.templates(source, "a.py")) == [
        "no {what}",
        "Peak {size}",
        "{number} GPU",
        "{number} GPUs",
        "Load it:",
        "Or reboot.",
    ]
    with pytest.raises(ValueError, match=r"a.py:1: translatable\(text\) has no literal template"):
        list(translation.templates("translatable(text)", "a.py"))
    with pytest.raises(ValueError, match="does not pass all parameters"):
        list(translation.templates("_('{a} of {b}', a=1)", "a.py"))


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_language_is_complete(path: Path) -> None:
    """The translation into each language contains every message of the template, and no others."""
    language = translation.read(path)
    template = translation.read(translation.template_file(path.stem))
    wanted = {(message.id, message.context) for message in template if message.id}
    told = {(message.id, message.context) for message in language if message.id}
    assert told == wanted
    assert translation.missing(language) == []
    assert language.obsolete == {}


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_placeholders_are_in_every_language(path: Path) -> None:
    """Each translation contains the same placeholders, commands and units as the English message."""
    wrong = []
    for message in translation.read(path):
        if not message.id:
            continue
        english = re.sub(rf"\{{en_\w+\}}|{GRAMMAR}", "", forms(message.id)[-1])
        for form in forms(message.string):
            values = re.sub(GRAMMAR, "", form)
            if Counter(PLACEHOLDER.findall(values)) != Counter(PLACEHOLDER.findall(english)):
                wrong.append(form)
            commands = re.findall(
                r"%gpu(?:watch| (?:watch|device|memory|free|compare|switches|doctor))?|%load_ext [a-z]+|%pip"
                r"|torch\.[\w.]+\(\)|--\w+|\b(?:MiB|GiB|µs|Hz)\b",
                english,
            )
            wrong += [form for command in commands if command not in form]
    assert wrong == []


def test_no_message_is_left_in_english() -> None:
    """No message is left in English in the Chinese translation, except for names, values and units."""
    left = [
        message.string
        for message in translation.read(LOCALE / "zh_CN" / "LC_MESSAGES" / f"{LABEXTENSION}.po")
        if message.id and not HAN.search(forms(message.string)[0])
    ]
    words = {word for text in left for word in re.findall("[A-Za-z]{2,}", forms(text)[0])}
    assert words == NAMES


def test_jupyterlab_loads_it() -> None:
    """The JupyterLab server finds the Chinese translation through the package's entry point, including the
    rule for plurals.
    """
    translation.main(["--compile"])
    found, problems = get_installed_packages_locale("zh_CN")
    assert problems.strip() == ""
    told = found["jupyterlab_gpuwidget"]
    assert told[""] == {
        "domain": "jupyterlab_gpuwidget",
        "language": "zh-CN",
        "plural_forms": "nplurals=1; plural=0;",
        "version": "",
    }
    assert told["Holders of the memory of GPU %1"] == ["GPU %1 显存的占用者"]
    assert told["%1 run"] == ["%1 次运行", ""]
    assert told["settings\x04Units"] == ["单位"]
    written = LOCALE / "zh_CN" / "LC_MESSAGES" / f"{LABEXTENSION}.json"
    assert json.loads(written.read_text(encoding="utf-8")) == told


def test_the_package_loads_it() -> None:
    """The package finds its Chinese texts with Python's gettext."""
    assert DOMAIN == PACKAGE
    translation.main(["--compile"])
    chinese = gettext.translation(DOMAIN, LOCALE, ["zh_CN"])
    assert chinese.gettext("Shared memory") == "共享内存"
