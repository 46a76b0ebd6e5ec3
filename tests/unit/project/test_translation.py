"""Tests that the labextension's translations are complete and up to date, and that JupyterLab loads them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from jupyterlab_server.translation_utils import get_installed_packages_locale

from tools import translation

LANGUAGES = translation.languages()
PLACEHOLDER = re.compile(r"%\d")
HAN = re.compile(r"[\u4e00-\u9fff]")
NAMES = {
    *("CSV", "Core", "FP", "GPU", "NCCL", "PCIe", "PyTorch", "TF", "Tensor", "XID"),
    *("benchmark", "cuDNN", "gpuwidget", "kWh", "min", "torch"),
}
"""Words that stay in Latin script in the Chinese translation."""


@pytest.fixture(scope="module")
def strings() -> Any:
    """Return the catalogue of messages that is extracted from the current sources."""
    if not (translation.ROOT / "node_modules" / "typescript").exists():
        pytest.skip("the strings are found with Node and TypeScript: make test-typescript installs them")
    return translation.catalogue()


def forms(value: Any) -> list[str]:
    """Return a list with the message, or with its singular and plural."""
    return [value] if isinstance(value, str) else list(value)


def test_the_catalogue_is_up_to_date(strings: Any) -> None:
    """The translation template contains exactly the messages that are in the labextension's sources."""
    assert translation.TEMPLATE.read_text(encoding="utf-8") == translation.text_of(strings)


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.parts[-3])
def test_a_language_is_complete(path: Path) -> None:
    """The translation into each language contains every message of the template, and no others."""
    language = translation.read(path)
    wanted = {
        (message.id, message.context) for message in translation.read(translation.TEMPLATE) if message.id
    }
    told = {(message.id, message.context) for message in language if message.id}
    assert told == wanted
    missing = [message.id for message in language if message.id and not all(forms(message.string))]
    assert missing == []
    assert language.obsolete == {}


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.parts[-3])
def test_placeholders_are_in_every_language(path: Path) -> None:
    """Each translation contains the same placeholders (`%1`), commands and units as the English message."""
    wrong = []
    for message in translation.read(path):
        if not message.id:
            continue
        english = forms(message.id)[-1]
        for form in forms(message.string):
            if Counter(PLACEHOLDER.findall(form)) != Counter(PLACEHOLDER.findall(english)):
                wrong.append(form)
            commands = re.findall(
                r"%(?:gpu|load_ext|pip)[a-z ]*|torch\.[\w.]+\(\)|--\w+|\b(?:MiB|GiB|µs|Hz)\b", english
            )
            wrong += [form for command in commands if command.strip() not in form]
    assert wrong == []


def test_no_message_is_left_in_english() -> None:
    """No message is left in English in the Chinese translation, except for names, values and units."""
    left = [
        message.string
        for message in translation.read(
            translation.LOCALE / "zh_CN" / "LC_MESSAGES" / f"{translation.DOMAIN}.po"
        )
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
    assert told["Who holds the memory of GPU %1"] == ["GPU %1 的显存由谁占用"]
    assert told["%1 run"] == ["%1 次运行", ""]
    assert told["settings\x04Units"] == ["单位"]
    written = (LANGUAGES[0].with_suffix(".json")).read_text(encoding="utf-8")
    assert json.loads(written) == told
