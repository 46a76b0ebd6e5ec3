"""Texts for users that can be shown in other languages: English templates with parameters, and catalogs.

A module of messages makes its texts with :func:`translatable`. Such a text is an English string, which is
what reports and other JSON contain. It keeps its template and parameters, so that a view can translate it
later. A function that makes a view is decorated with :func:`in_view_language`; inside it, ``_()`` returns
texts in the language of the user's page. ``python -m tools.translation`` extracts the templates.
"""

from __future__ import annotations

import gettext
import os
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

DOMAIN = "gpuwidget"
"""Name of the catalogs with the texts of the Python package."""
ENGLISH = "en"
_LOCALES = Path(__file__).resolve().parents[1] / "locale"
_LOCALE = re.compile(r"([A-Za-z]{2,3})(?:[_-][A-Za-z]{4})?(?:[_-]([A-Za-z]{2}))?(?:\.[\w-]+)?(?:@\w+)?")
"""Matches a locale as pages and environment variables write it, such as ``zh-CN`` or ``zh_CN.UTF-8``."""
_VARIABLES = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
"""The environment variables that choose the language, in gettext's order."""

_current: ContextVar[str] = ContextVar("gpuwidget_language", default=ENGLISH)
"""The language of the texts that ``_()`` returns. It is English outside of views."""


class Text(str):
    """An English text that can be translated, because it keeps its template and its parameters."""

    # A report contains a hundred of these. Without a dictionary each, the garbage collector runs less often.
    __slots__ = ("params", "template")

    template: str
    params: Mapping[str, Any]

    def with_english(self, english: str) -> Text:
        """Return a text with the same translation, whose English is ``english``."""
        made = Text(english)
        made.template, made.params = self.template, self.params
        return made


def translatable(template: str, **params: Any) -> Text:
    """Return the English text of ``template``, in which ``{name}`` is replaced as by ``str.format``.

    A parameter may be a translatable text, too. ``{name:format}`` is replaced by what the function of
    :data:`FORMATS` returns, and ``{name:one|many}`` by one of both words: the first if the parameter is 1 or
    has one item. A parameter whose name begins with ``en_`` is grammar of the English text, such as a verb in
    singular or plural, which translations leave out.
    """
    text = Text(_filled(template, params, str) if params else template)
    text.template, text.params = template, params
    return text


FORMATS: dict[str, Callable[[Any], str]] = {
    "list": lambda items: joined(items),
    "and": lambda items: listed(items),
    "gpus": lambda number: counted(number, "{number} GPU", "{number} GPUs"),
}
"""What the format of a template's parameter shows, by its name. ``model/messages.py`` adds units."""


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a template, with its format."""

    name: str
    format: str
    """A name of :data:`FORMATS`, ``one|many``, a format of Python, or empty."""


@cache
def template_fields(template: str) -> tuple[Field, ...]:
    """Return the parameters of a template, in their order."""
    parts = string.Formatter().parse(template)
    return tuple(Field(name, spec or "") for _, name, spec, _ in parts if name is not None)


@cache
def _own_formats(template: str) -> tuple[str, tuple[tuple[str, Field], ...]]:
    """Return a template for ``str.format``, and the fields that must be formatted before, by name."""
    own = {
        f"{field.name}:{field.format}": (f"field_{place}", field)
        for place, field in enumerate(template_fields(template))
        if field.format in FORMATS or "|" in field.format
    }
    for written, (name, _field) in own.items():
        template = template.replace(f"{{{written}}}", f"{{{name}}}")
    return template, tuple(own.values())


def _filled(template: str, params: Mapping[str, Any], language: Callable[[str], str]) -> str:
    """Return the filled template. ``language`` is ``_`` for texts in the view's language, or else ``str``."""
    plain, own = _own_formats(template)
    if not own:
        return plain.format(**params)
    return plain.format(
        **params, **{name: _shown(params[field.name], field, language) for name, field in own}
    )


def _shown(value: Any, field: Field, language: Callable[[str], str]) -> str:
    if field.format in FORMATS:
        return language(FORMATS[field.format](value))
    one, _bar, many = field.format.partition("|")
    return one if (len(value) if isinstance(value, Sized) else value) == 1 else many


def counted(number: int, one: str, many: str, **params: Any) -> Text:
    """Return ``one`` or ``many``, which contain ``{number}``, such as ``{number} GPUs``, with the number."""
    return translatable(one if number == 1 else many, number=number, **params)


def joined(texts: Sequence[str], separator: str = ", ") -> Text:
    """Return the texts with a separator between them. Translatable texts and separators can be translated."""
    params = {f"text_{place}": text for place, text in enumerate(texts)}
    template = "{separator}".join(f"{{{name}}}" for name in params)
    return translatable(template, separator=separator, **params)


def listed(texts: Sequence[str], most: int | None = None) -> Text:
    """Return the texts as a list in prose: ``a``, ``a and b`` or ``a, b and c``.

    If there are more than ``most``, the list ends with the number of the others.
    """
    others = 0 if most is None else len(texts) - most
    if others > 0:
        texts = [*texts[:most], translatable("{number} more", number=others)]
    if len(texts) < 2:
        return joined(texts)
    return translatable("{texts} and {last}", texts=joined(texts[:-1]), last=texts[-1])


def capitalized(text: str) -> str:
    """Return the text with a capital first letter in English. Its translation is unchanged."""
    return with_english(text, f"{text[0].upper()}{text[1:]}")


def with_english(text: str, english: str) -> str:
    """Return the string ``english``, whose translation is that of ``text``."""
    if not isinstance(text, Text):
        return english
    return text if text == english else text.with_english(english)


def with_params(text: Text, params: Mapping[str, Any]) -> Text:
    """Return the text of the same template with other parameters."""
    return translatable(text.template, **params)


def _(text: str, /, **params: Any) -> str:
    """Return a text in the view's language: a translatable text, or a template with its parameters.

    Any other string is returned unchanged.
    """
    template = text
    if isinstance(text, Text):
        template, params = text.template, dict(text.params)
    language = _current.get()
    if language == ENGLISH and isinstance(text, Text):
        return str(text)
    if language != ENGLISH and template:
        template = _catalog(language).gettext(template)
        params = {name: _(value) if isinstance(value, Text) else value for name, value in params.items()}
    return _filled(template, params, _) if params else template


def error_text(error: BaseException) -> str:
    """Return an error's text, in the view's language if the error was raised with a translatable text."""
    text = error.args[0] if error.args else None
    return _(text) if isinstance(text, Text) else str(error)


# -- the language of the views -----------------------------------------------------------------------------


class _ViewLanguage:
    """The language of this process's views, once a page has sent its locale."""

    name: str | None = None


def set_view_language(locale: str) -> None:
    """Show this process's views in the language of ``locale``, or in English if there is no translation."""
    _ViewLanguage.name = find_language(locale)


def view_language() -> str:
    """Return the language of this process's views: the page's, or else the environment's, or else English."""
    if _ViewLanguage.name is not None:
        return _ViewLanguage.name
    for name in _VARIABLES:
        value = os.environ.get(name)
        if value:
            return find_language(value.partition(":")[0])
    return ENGLISH


def find_language(locale: str) -> str:
    """Return the language whose catalog fits ``locale``, such as ``zh_CN`` for ``zh-CN``, or English."""
    match = _LOCALE.fullmatch(locale)
    if match is None:
        return ENGLISH
    language, territory = match[1].lower(), match[2]
    for known in _languages():
        if known == f"{language}_{territory.upper()}" if territory else known.partition("_")[0] == language:
            return known
    return ENGLISH


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Let ``_()`` return texts in ``language``, which :func:`find_language` returned."""
    token = _current.set(language)
    try:
        yield
    finally:
        _current.reset(token)


def in_view_language(view: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Decorate a function that makes a view: ``_()`` returns texts in the language of the process's views."""

    @wraps(view)
    def translated(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        with use_language(view_language()):
            return view(*args, **kwargs)

    return translated


@cache
def _languages() -> tuple[str, ...]:
    """Return the names of the languages that have a compiled catalog."""
    return tuple(sorted(path.parts[-3] for path in _LOCALES.glob(f"*/LC_MESSAGES/{DOMAIN}.mo")))


@cache
def _catalog(language: str) -> gettext.NullTranslations:
    return gettext.translation(DOMAIN, _LOCALES, [language], fallback=True)


# -- texts in JSON -----------------------------------------------------------------------------------------


def text_sources(value: object) -> dict[str, Any]:
    """Return the template and the parameters of each translatable text, as JSON values, by the English text.

    ``value`` consists of dataclasses and collections.
    """
    return {str(text): _source(text) for text in texts_in(value)}


def _source(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and any(isinstance(item, Text) for item in value):
        return {"items": [_source(item) for item in value]}
    if not isinstance(value, Text):
        return {"value": value}
    return {
        "template": value.template,
        "params": {name: _source(item) for name, item in value.params.items()},
    }


def restore_texts(value: Any, sources: Mapping[str, Any]) -> Any:
    """Return JSON values in which each string with an entry in ``sources`` is a translatable text again."""
    if isinstance(value, str):
        # A template of another version may have a format that this version lacks.
        with suppress(KeyError, IndexError, TypeError, ValueError):
            return _restored(sources[value])
        return value
    if isinstance(value, Mapping):
        return {name: restore_texts(item, sources) for name, item in value.items()}
    if isinstance(value, list):
        return [restore_texts(item, sources) for item in value]
    return value


def _restored(source: Mapping[str, Any]) -> Any:
    if "value" in source:
        return source["value"]
    if "items" in source:
        return [_restored(item) for item in source["items"]]
    params = {name: _restored(item) for name, item in source["params"].items()}
    return translatable(source["template"], **params)


def translations(value: object, language: str) -> dict[str, str]:
    """Return the translation of each translatable text in dataclasses and collections, by its English text.

    A text without a translation has no entry.
    """
    with use_language(language):
        pairs = [(str(text), _(text)) for text in texts_in(value)]
    return {text: translated for text, translated in pairs if text != translated}


def texts_in(value: object) -> Iterator[Text]:
    """Return the translatable texts in dataclasses and collections."""
    if isinstance(value, Text):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts_in(name)
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)
    else:
        for name in getattr(value, "__dataclass_fields__", ()):
            yield from texts_in(getattr(value, name))
