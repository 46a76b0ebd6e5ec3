"""Texts keep their templates and parameters, so that views can show them in another language."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuwidget.model import translation
from gpuwidget.model.translation import (
    ENGLISH,
    Text,
    _,
    counted,
    find_language,
    in_view_language,
    joined,
    restore_texts,
    set_view_language,
    text_sources,
    translatable,
    translations,
    use_language,
    view_language,
)
from tools import translation as tool


@pytest.fixture(autouse=True)
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the Chinese catalog, and start without the locale of a page or of the environment."""
    tool.main(["--compile"])
    translation._languages.cache_clear()
    monkeypatch.setattr(translation._ViewLanguage, "name", None)
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


SUMMARY = translatable(
    "Incomplete: {title}. {reason}",
    title=translatable("Shared memory"),
    reason=translatable(
        "{variable} is set, so NCCL does not use {feature} and is slower.", variable="A", feature="B"
    ),
)


def test_a_text_is_english_until_a_view_translates_it() -> None:
    """A text is an English string everywhere. A view translates it, including the texts in its parameters."""
    english = "Incomplete: Shared memory. A is set, so NCCL does not use B and is slower."
    assert (SUMMARY, json.dumps(SUMMARY)) == (english, f'"{english}"')
    assert _(SUMMARY) == english
    with use_language("zh_CN"):
        assert _(SUMMARY) == "未完成：共享内存。设置了 A：NCCL 不使用B，因此较慢。"
        assert english == SUMMARY
    assert _(SUMMARY) == english


def test_foreign_text_is_not_a_template() -> None:
    """Braces and words in a parameter, which may be any text of a user, stay as they are."""
    text = translatable("an NVLink error")
    with use_language("zh_CN"):
        assert _("{file} was", file="{x} Shared memory") == "{x} Shared memory was"
        assert _(joined([text, "Shared memory {0}"])) == "NVLink 错误, Shared memory {0}"
    assert translatable("100 % {of}", of="a {b}") == "100 % a {b}"


def test_counts() -> None:
    """A count has a singular and a plural in English and the same form in Chinese."""
    one, four = (counted(number, "{number} GPU", "{number} GPUs") for number in (1, 4))
    assert (one, four) == ("1 GPU", "4 GPUs")
    with use_language("zh_CN"):
        assert (_(one), _(four)) == ("1 个 GPU", "4 个 GPU")


@pytest.mark.parametrize(
    ("locale", "language"),
    [
        ("zh_CN", "zh_CN"),
        ("zh-CN", "zh_CN"),
        ("zh_CN.UTF-8", "zh_CN"),
        ("zh-Hans-CN", "zh_CN"),
        ("zh", "zh_CN"),
        ("zh_TW", ENGLISH),
        ("en_US.UTF-8", ENGLISH),
        ("C.UTF-8", ENGLISH),
        ("default", ENGLISH),
        ("../../etc", ENGLISH),
        ("", ENGLISH),
    ],
)
def test_locales(locale: str, language: str) -> None:
    """A page's or an environment's locale selects a language that has a catalog, or else English."""
    assert find_language(locale) == language


def test_the_language_of_the_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are in the environment's language, until a page sends its own. Other code is not affected."""
    show = in_view_language(lambda: _("Shared memory"))
    assert (view_language(), show()) == (ENGLISH, "Shared memory")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert (view_language(), show(), _("Shared memory")) == ("zh_CN", "共享内存", "Shared memory")
    monkeypatch.setenv("LANGUAGE", "en:zh_CN")
    assert show() == "Shared memory"
    set_view_language("zh-CN")
    assert show() == "共享内存"
    set_view_language("en")
    assert (view_language(), show()) == (ENGLISH, "Shared memory")


@dataclass(frozen=True)
class Finding:
    """A dataclass with texts."""

    reason: str
    evidence: dict[str, str]
    files: tuple[str, ...]


def test_texts_in_json() -> None:
    """Texts that another process sent as JSON can be translated, as can those in dataclasses. A user's value
    stays as it is, even if it is the same string as a text."""
    single = joined([translatable("none")])
    finding = Finding(SUMMARY, {"finding 2": single}, ("Shared memory", "/dev/shm"))
    sent = json.loads(json.dumps([finding.__dict__, text_sources(finding)]))
    restored = restore_texts(*sent)
    assert restored == {
        "reason": SUMMARY,
        "evidence": {"finding 2": "none"},
        "files": ["Shared memory", "/dev/shm"],
    }
    expected = {
        SUMMARY: "未完成：共享内存。设置了 A：NCCL 不使用B，因此较慢。",
        "none": "无",
    }
    assert translations(finding, "zh_CN") == expected
    assert translations(restored, "zh_CN") == expected
    assert translations(finding, ENGLISH) == {}
    assert isinstance(restored["reason"], Text)
    source = translatable(
        "{variable} is set, so NCCL does not use {feature} and is slower.", variable="none", feature="B"
    )
    with use_language("zh_CN"):
        assert (
            _(restore_texts(source, text_sources([source, single])))
            == "设置了 none：NCCL 不使用B，因此较慢。"
        )


def test_texts_can_be_pickled() -> None:
    """A text that another process receives by pickle can still be translated."""
    with use_language("zh_CN"):
        assert _(pickle.loads(pickle.dumps(SUMMARY))) == _(SUMMARY)


def test_a_catalog_that_was_not_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without compiled catalogs, as in a fresh clone, texts are English."""
    monkeypatch.setattr(translation, "_LOCALES", tmp_path)
    translation._languages.cache_clear()
    assert find_language("zh_CN") == ENGLISH
    translation._languages.cache_clear()
