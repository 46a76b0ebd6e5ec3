"""Remove private data from a diagnosis: the user's home folder and name in paths, and secrets.

A diagnosis is often shared, in a saved notebook or in a report of a problem. Commands still work after their
paths have been shortened, because the user's shell expands ``~`` and variables such as ``$USER``.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from gpuwidget.model.diagnosis import Check, Diagnosis, Fix
from gpuwidget.model.redaction import redact_text
from gpuwidget.model.translation import Text, with_english, with_params

_Value = TypeVar("_Value")

_ENDS_NAME = r"(?![\w-]|\.\w)"
"""What follows a complete name of a file or folder. A dot may also end a sentence."""
_STARTS_PATH = r"(?:(?<![\w.~-])|(?<=\W-[A-Za-z]))"
"""What precedes an absolute path. The path may directly follow an option such as ``-L``."""
_PATH = re.compile(r"/[^\s:;,'\"()\[\]]+")
"""An absolute path, or a path after ``~``."""
_SYSTEM_FOLDERS = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "snap", "sys", "usr")
)
"""Folders below / in which a part of a path that equals the user's name does not mean the user."""
_WORDS = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|(?:[^'\"\\]|\\.)+", re.DOTALL)
"""The parts of a command in single quotes, in double quotes and without quotes."""


@dataclass(frozen=True, slots=True)
class UserPaths:
    """The home folder and the name of the user, which are shortened in paths."""

    homes: tuple[str, ...]
    """The home folder under the paths by which programs name it. The longest comes first."""
    names: Mapping[str, str]
    """The user's names, each with what a shell expands to it."""

    @classmethod
    def find(cls, variables: Mapping[str, str]) -> UserPaths:
        """Return the paths and names of the user who runs this process with these environment variables."""
        home, name = variables.get("HOME", ""), ""
        with suppress(KeyError):
            entry = pwd.getpwuid(os.getuid())
            home, name = home or entry.pw_dir, entry.pw_name
        names: dict[str, str] = {}
        for known, expansion in (
            (variables.get("USER", ""), "$USER"),
            (name, "$(id -un)"),
            (variables.get("LOGNAME", ""), "$LOGNAME"),
            (variables.get("JUPYTERHUB_USER", ""), "$JUPYTERHUB_USER"),
        ):
            if known not in ("", "root"):
                names.setdefault(known, expansion)
        homes = {home.rstrip("/"), os.path.realpath(home)} - {"", "/"} if os.path.isabs(home) else set()
        return cls(tuple(sorted(homes, key=len, reverse=True)), names)

    def shorten(self, text: str) -> str:
        """Return a text with ``~`` in place of the home folder, and ``$USER`` in place of the name."""
        return self._replaced(text, lambda before: "~", lambda name: "$USER")

    def shorten_command(self, command: str) -> str:
        """Return a shell command in which the paths are shortened so that the command still works."""
        parts: list[str] = []
        for match in _WORDS.finditer(command):
            part = match[0]
            begins_word = not parts or parts[-1][-1:].isspace()
            if part.startswith('"'):
                part = self._replaced(part, lambda before: "$HOME", self.names.__getitem__)
            elif part.startswith("'"):
                part = self._quoted(part, begins_word)
            else:
                part = self._replaced(part, self._home_in(begins_word), self.names.__getitem__)
            parts.append(part)
        return "".join(parts)

    @staticmethod
    def _home_in(begins_word: bool) -> Callable[[str], str]:
        # A shell expands ~ only at the start of a word.
        return lambda before: "~" if before[-1:].isspace() or (not before and begins_word) else "$HOME"

    def _quoted(self, part: str, begins_word: bool) -> str:
        """Return a part in single quotes, in which a shell expands nothing, so the quotes are interrupted."""
        home = next((home for home in self.homes if part.startswith(f"'{home}/")), None)
        if home is not None and begins_word:
            return f"~/{self._quoted(chr(39) + part[len(home) + 2 :], False)}"
        return self._replaced(part, lambda before: "'\"$HOME\"'", lambda name: f"'\"{self.names[name]}\"'")

    def _replaced(self, text: str, home_after: Callable[[str], str], name_as: Callable[[str], str]) -> str:
        """Return the text without the home folder and the user's names.

        ``home_after`` returns what replaces the home folder after a text. ``name_as`` returns what replaces a
        name.
        """
        for home in self.homes:
            pattern = f"{_STARTS_PATH}{re.escape(home)}{_ENDS_NAME}"
            text = re.sub(pattern, lambda match: home_after(match.string[: match.start()]), text)
        if not self.names:
            return text
        names = "|".join(map(re.escape, self.names))
        part = re.compile(rf"(?<=/)(?:{names}){_ENDS_NAME}")

        def without_names(match: re.Match[str]) -> str:
            path = match[0]
            is_system = (
                re.split("/+", path)[1] in _SYSTEM_FOLDERS
                and match.string[max(0, match.start() - 1) : match.start()] != "~"
            )
            return path if is_system else part.sub(lambda found: name_as(found[0]), path)

        return _PATH.sub(without_names, text)


def remove_private_data(diagnosis: Diagnosis, user: UserPaths) -> Diagnosis:
    """Return the diagnosis without the user's home folder and name in paths, and without secrets."""
    return _cleaned(diagnosis, user)


def _cleaned(value: _Value, user: UserPaths) -> _Value:
    """Return a value in which each string is cleaned.

    A translatable text contains other data only in its parameters, so its template does not change.
    """
    made: Any = value
    if isinstance(value, Text):
        params = {name: _cleaned(item, user) for name, item in value.params.items()}
        if params != value.params:
            made = with_params(value, params)
            if with_params(value, value.params) != value:
                made = with_english(made, clean_text(value, user))
    elif isinstance(value, str):
        made = clean_text(value, user)
    elif isinstance(value, Mapping):
        made = {_cleaned(name, user): _cleaned(item, user) for name, item in value.items()}
    elif isinstance(value, (list, tuple)):
        made = type(value)(_cleaned(item, user) for item in value)
    elif is_dataclass(value) and not isinstance(value, type):
        made = replace(value, **{one.name: _cleaned(getattr(value, one.name), user) for one in fields(value)})
        if isinstance(value, Fix) and value.command is not None:
            made = replace(made, command=redact_text(user.shorten_command(value.command)))
        elif isinstance(value, Check) and made.issues and made.issues[0].fix is not None:
            # These fields repeat the fix of the worst issue.
            made = replace(made, remedy=made.issues[0].fix.text, command=made.issues[0].fix.command)
    return made  # type: ignore[no-any-return]


def clean_text(text: str, user: UserPaths) -> str:
    """Return a text without the user's home folder and name in paths, and without secrets."""
    return redact_text(user.shorten(text))
