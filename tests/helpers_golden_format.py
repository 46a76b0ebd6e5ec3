"""Golden outputs as text: the views of a value in each language."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from helpers_golden import LANGUAGES

from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.report import Report, Span
from gpuwidget.model.to_json import to_json
from gpuwidget.model.translation import translations
from gpuwidget.model.units import GIB
from gpuwidget.views import card, diagnosis_view


class _NoTorch:
    """Lets ``import torch`` fail, so that the outputs do not depend on an installed torch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_torch() -> None:
    """Let ``import torch`` fail in this process."""
    sys.meta_path.insert(0, _NoTorch())


@contextmanager
def language(name: str) -> Iterator[None]:
    """Show the views of this process in this language."""
    before = os.environ.get("LANGUAGE", "en")
    os.environ["LANGUAGE"] = name
    try:
        yield
    finally:
        os.environ["LANGUAGE"] = before


def in_languages(value: Any, again: Callable[[], Any] | None = None) -> str:
    """Return the views of ``value`` in all languages. ``again`` makes the value in the current language."""
    parts = []
    for name in LANGUAGES:
        with language(name):
            shown = value if again is None or name == "en" else again()
            parts.append(f"--- {name}\n{formatted(shown, name)}")
    return "\n".join(parts)


def formatted(value: Any, language: str = "en") -> str:
    """Return the views of a value, and its JSON, in the current language."""
    if value is None or isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        return value
    if isinstance(value, Diagnosis):
        value = replace(value, time=0.0)
        texts = {"text": diagnosis_view.text(value), "html": diagnosis_view.html(value)}
        return bundle_text({**texts, "json": to_json(value), "translations": translations(value, language)})
    if isinstance(value, Report):
        value = replace(value, host_memory=Span(0, GIB, GIB))
        return bundle_text({**card.bundle(value), "translations": translations(value, language)})
    if hasattr(value, "_repr_mimebundle_"):
        made = value._repr_mimebundle_()
        return bundle_text(made[0] if isinstance(made, tuple) else made)
    if isinstance(value, Mapping) and any("/" in str(name) for name in value):
        return bundle_text(value)
    return bundle_text({"json": to_json(value), "translations": translations(value, language)})


def bundle_text(bundle: Mapping[str, Any]) -> str:
    """Return a mime bundle as text. HTML is written with one tag per line."""
    parts = []
    for name, value in bundle.items():
        if isinstance(value, str):
            text = value.replace("\n", "\\n\n").replace("><", ">\n<") if "html" in name else value
        else:
            text = json.dumps(value, indent=1, ensure_ascii=False, default=_sorted)
        parts.append(f"[{name}]\n{text}")
    return "\n".join(parts)


def _sorted(value: Any) -> Any:
    return sorted(value, key=repr) if isinstance(value, (set, frozenset)) else repr(value)
