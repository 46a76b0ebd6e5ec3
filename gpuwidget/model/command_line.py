"""Reduce a command line to what may be shown: its program, and its arguments without secrets.

Any user of a machine can read every command line, but what gpuwidget shows may be saved in a notebook and
shared. gpuwidget therefore shortens command lines, and redacts words that may be secret. Full command lines
(:func:`full`) are read only by the server, only if its setting ``full_command_lines`` is on, and only for the
panel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuwidget.model.redaction import (
    MAX_WORD,
    REDACTED,
    redact,
    without_attached_passwords,
    without_values,
)

CODE = "[code]"
"""Replaces code that is passed as an argument, as in ``python -c``, together with the code's arguments."""

_MAX_PROGRAM = 60
_MAX_ARGUMENTS = 80
"""Maximum number of characters of the arguments that are shown."""
_MAX_FULL = 2000
"""Maximum number of characters of a full command line."""
_MAX_WORDS = 100
_SHORT_NAME = 15
"""Number of characters of a process's name that Linux stores (TASK_COMM_LEN without the final NUL)."""


class CommandLine(NamedTuple):
    """The part of a command line that may be shown. Each field is one line, which may contain control
    characters."""

    program: str
    """File name of the executable, with its script or module: ``python train.py``. At most 60 characters."""
    arguments: str
    """The other arguments, redacted. For views that are not saved. At most 80 characters."""


def parse(words: Sequence[str], name: str = "") -> CommandLine:
    """Return the part of a command line that may be shown. The first of ``words`` is the executable.

    If the program has rewritten its command line (setproctitle), ``words`` has one string, possibly followed
    by empty ones. ``name`` is the process's short name. It is used if no word names a program.
    """
    words = _split(words, name)
    first = _first_program(words)
    program, rest, code = _program(words[first:]) if first < len(words) else _NO_PROGRAM
    if code is None and first < len(words):
        program, rest, _ = _program(_without_code(words[first:]))
    rest = without_attached_passwords(program, rest)
    return CommandLine(
        _cut(program or _visible(name), _MAX_PROGRAM), _cut(redact([*words[:first], *rest]), _MAX_ARGUMENTS)
    )


def full(words: Sequence[str], name: str = "") -> str | None:
    """Return the full command line on one line, without possible secrets; None if there are no words.

    It may only be shown in views that are not saved. Code that an interpreter anywhere in the line receives
    as an argument is left out, with all that follows it. The line is redacted more strictly than the
    arguments that :func:`parse` returns: values of words that look like environment variables, and the
    queries of URLs, are replaced, whatever their names are. ``words`` and ``name`` are as in :func:`parse`.
    """
    words = _split(words, name)
    if not words:
        return None
    first = _first_program(words)
    program = _program(words[first:]).name if first < len(words) else ""
    shown = without_attached_passwords(program, _without_code(words))
    return _cut(redact([without_values(word) for word in shown]), _MAX_FULL)


def program_and_arguments(program: str | None, arguments: str | None) -> str | None:
    """Return program and arguments in the form that live views show, or None if the program is unknown."""
    return program if not arguments else f"{program} {arguments}"


# -- the program ---------------------------------------------------------------------------------------------

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PYTHON = re.compile(r"(?:graalpy|pypy|python)[\d.]*(?:[a-z]|-dbg|\.exe)?")
_PYTHON_OPTIONS_WITH_VALUE = "cmWX"
_MODULE = re.compile(r"\w+(?:\.\w+)*")
_SHELL = re.compile(r"(?:a|ba|c|da|fi|k|mk|rba|tc|xon|z)?sh")
_SHELL_OPTIONS_WITH_VALUE = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_RUNNERS = re.compile(
    r"(?:IPython|Rscript|accelerate|bun|deepspeed|deno|ipython|java|julia|lua|luajit|node|nodejs|perl|php|"
    r"ruby|streamlit|torchrun)[\d.]*"
)
"""Programs that run a script. gpuwidget does not know which of their options take a value, so it finds the
script by its suffix."""
_SCRIPT = re.compile(r"[^-\s=:?&][^\s=:?&]*\.(?:py|pyz|ipynb|sh|js|mjs|ts|R|r|jl|pl|rb|lua|php|jar)")
_CODE_OPTION = re.compile(
    r"-(?:0\d*)?[ailnpsw]*[eE].*|-c(?:=.*)?|eval|"
    r"--(?:c|command|eval|exec|execute|print|\w+\.(?:code_to_run|exec_lines))(?:=.*)?",
    re.DOTALL,
)
_WITHOUT_CODE = re.compile(r"accelerate|deepspeed|java|streamlit|torchrun")
"""Programs among ``_RUNNERS`` that receive no code with short options, such as ``-e``."""
_PHP_CODE_OPTION = re.compile(r"-[BER].*|-r.*|--(?:process-(?:begin|code|end)|run)(?:=.*)?", re.DOTALL)
_WRAPPERS = re.compile(
    r"apptainer|chrt|conda|docker|dumb-init|env|ionice|mamba|mpiexec|mpirun|nice|nohup|numactl|pdm|"
    r"podman|poetry|setsid|singularity|srun|stdbuf|strace|sudo|taskset|time|timeout|tini|unbuffer|uv|"
    r"xvfb-run"
)
"""Programs that run another program. The other program is shown instead, because it is more informative."""


_OTHER_INTERPRETERS = re.compile(
    r"R|duckdb|expect|flock|mariadb|mongo|mongosh|mysql|octave|octave-cli|osascript|"
    r"(?:powershell|pwsh)(?:\.exe)?|psql|runuser|su"
)
"""Other programs with an option for code, in a shell's language or their own."""
_OTHER_CODE_OPTION = re.compile(
    r"-[ABHNSXabilmnqrstvwxz01]*[cCeE].*|--(?:c|command|eval|execute|session-command)(?:=.*)?", re.DOTALL
)
_IMAGE_VERSION = re.compile(r"[:@].*", re.DOTALL)
_ENTRYPOINT_CODE = re.compile(r"-[A-Za-z]*[ce].*|--command(?:=.*)?", re.DOTALL)
_TOKEN = re.compile(r"[^\s'\"\\`()$;&|=,{}\[\]<>]+")
"""A part of a word that a remote shell, or the program that parses the word, may read as a separate word."""


class _Program(NamedTuple):
    """The program that a list of words runs."""

    name: str
    arguments: list[str]
    """The arguments, without the options of the interpreter that runs the program."""
    code: int | None
    """Index of the first word that contains code, or an option with code; None if there is no code."""


_NO_PROGRAM = _Program("", [], None)


def _split(words: Sequence[str], name: str) -> list[str]:
    """Return the words that are not empty. Split the string of a program that has rewritten its words."""
    found = [word for word in words[:_MAX_WORDS] if word.strip()]
    if len(found) == 1:
        found = found[0].split()
    elif found and len(found[0].split()) > 1 and not _is_path_to(found[0], name):
        found = [*found[0].split(), *found[1:]]
    return found[:_MAX_WORDS]


def _first_program(words: Sequence[str]) -> int:
    """Return the index of the first word that is no assignment of an environment variable."""
    return next((n for n, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))


def _is_path_to(path: str, name: str) -> bool:
    """Return whether ``path`` is the path of the executable called ``name``. ``path`` may instead be a title
    that the program has set for itself (setproctitle)."""
    file = path.rpartition("/")[2]
    return bool(name) and file[:_SHORT_NAME] == name[:_SHORT_NAME]


def _program(words: Sequence[str]) -> _Program:
    """Return the program that ``words`` run, which must not be empty."""
    name, rest = _file_name(words[0]), list(words[1:])
    if _WRAPPERS.fullmatch(name):
        inner = next((n for n, word in enumerate(rest) if _runs_scripts(_file_name(word))), None)
        if inner is not None:
            program, after, code = _program(rest[inner:])
            before = _without_code(rest[:inner])
            return _Program(program, [*before, *after], None if code is None else 1 + inner + code)
    for pattern, parser in _INTERPRETERS:
        if pattern.fullmatch(name):
            program, arguments, code = parser(name, rest)
            return _Program(program, arguments, None if code is None else 1 + code)
    return _Program(name, rest, None)


def _runs_scripts(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern, _ in _INTERPRETERS)


# Each of the following functions parses the words after the name of an interpreter. The index of the code
# counts from the first of these words.


def _python(name: str, rest: list[str]) -> _Program:
    position = 0
    while position < len(rest):
        word = rest[position]
        if word == "-" or not word.startswith("-"):
            return _Program(f"{name} {_file_name(word) or '-'}", rest[position + 1 :], None)
        position += 1
        if word == "--check-hash-based-pycs":
            position += 1
        if word.startswith("--"):
            continue
        # Single-letter options may be combined, and a value may follow its letter directly: -um train,
        # -Wignore.
        at = next((n for n, letter in enumerate(word) if letter in _PYTHON_OPTIONS_WITH_VALUE), None)
        if at is None:
            continue
        if word[at] == "c":
            # Python's multiprocessing starts its processes with python -c and passes this option after the
            # code.
            spawned = "--multiprocessing-fork" in rest
            shown = f"{name} (multiprocessing)" if spawned else f"{name} -c"
            return _Program(shown, [CODE], position - 1)
        value = word[at + 1 :]
        if not value:
            value = rest[position] if position < len(rest) else ""
            position += 1
        if word[at] == "m":
            module = f" {_visible(value)}" if _MODULE.fullmatch(value) else ""
            return _Program(f"{name} -m{module}", rest[position:], None)
    return _Program(name, rest, None)


def _shell(name: str, rest: list[str]) -> _Program:
    position = 0
    while position < len(rest):
        word = rest[position]
        if not word.startswith(("-", "+")):
            return _Program(f"{name} {_file_name(word)}", rest[position + 1 :], None)
        # fish also runs the code of -C and --init-command.
        letters = word.lower() if name == "fish" else word
        if word.partition("=")[0] in ("--command", "--init-command") or (
            not word.startswith("--") and "c" in letters
        ):
            return _Program(f"{name} -c", [CODE], position)
        position += 2 if word in _SHELL_OPTIONS_WITH_VALUE else 1
    return _Program(name, rest, None)


def _runner(name: str, rest: list[str]) -> _Program:
    code_option = _PHP_CODE_OPTION if name.startswith("php") else _CODE_OPTION
    for position, word in enumerate(rest):
        may_be_code = word.startswith("--") or not _WITHOUT_CODE.fullmatch(name)
        if may_be_code and code_option.fullmatch(word):
            return _Program(name, [*rest[:position], CODE], position)
        if _SCRIPT.fullmatch(word):
            return _Program(f"{name} {_file_name(word)}", [*rest[:position], *rest[position + 1 :]], None)
    return _Program(name, rest, None)


_INTERPRETERS = ((_PYTHON, _python), (_SHELL, _shell), (_RUNNERS, _runner))
"""The names of interpreters, each with the function that parses the words after the name."""


def _other_interpreter(name: str, rest: list[str]) -> _Program:
    for position, word in enumerate(rest):
        # Options after a script are the script's. The other programs' arguments only look like one (db.pl).
        if name in ("flock", "runuser") and _SCRIPT.fullmatch(word):
            break
        if _OTHER_CODE_OPTION.fullmatch(word):
            return _Program(name, rest, position)
    return _Program(name, rest, None)


def _file_name(word: str) -> str:
    """Return the last part of a path. Remove the dash that starts a login shell's name (``-bash``) and the
    colon that ends a title such as ``sshd:``."""
    name = word.rstrip("/").rpartition("/")[2].lstrip("-").rstrip(":")
    return _visible(name)


# -- code anywhere in a command line -------------------------------------------------------------------------


class _Token(NamedTuple):
    """A word or a part of it, with the word's index and the position in the word."""

    text: str
    word: int
    start: int


def _without_code(words: Sequence[str]) -> list[str]:
    """Return the words before the first option with which an interpreter receives code.

    The interpreter may be anywhere in the line, also within a word such as ``python -c 'x'`` of ``ssh host``.
    The end of a very long line is left out, so that the search takes a short time.
    """
    words = _without_end(words)
    tokens = list(_tokens(words))
    texts = [token.text for token in tokens]
    found = [
        1 + place + code for place in range(len(texts)) if (code := _code_after(texts, place)) is not None
    ]
    if not found:
        return list(words)
    token = tokens[min(found)]
    before = words[token.word][: token.start].rstrip("\\'\" ")
    return [*words[: token.word], f"{before} {CODE}" if before else CODE]


def _tokens(words: Sequence[str]) -> Iterator[_Token]:
    for number, word in enumerate(words):
        if len(word) > MAX_WORD:
            yield _Token(REDACTED, number, 0)
        else:
            yield from (_Token(match[0], number, match.start()) for match in _TOKEN.finditer(word))


def _without_end(words: Sequence[str]) -> list[str]:
    """Return the words up to the maximum length of a full command line, with "…" in place of the others."""
    length = 0
    for number, word in enumerate(words):
        if length > _MAX_FULL:
            return [*words[:number], "…"]
        length += len(word) if len(word) <= MAX_WORD else len(REDACTED)
    return list(words)


def _code_after(texts: Sequence[str], place: int) -> int | None:
    """Return the index of the first code among the texts after ``place``.

    Return None if there is no code, or if ``texts[place]`` is neither an interpreter nor an image with one.
    """
    name = _IMAGE_VERSION.sub("", texts[place].rpartition("/")[2])
    if place == 0:
        name = name.removeprefix("-")  # the dash that starts a login shell's name
    for pattern, parser in (*_INTERPRETERS, (_OTHER_INTERPRETERS, _other_interpreter)):
        if pattern.fullmatch(name):
            rest = list(texts[place + 1 :])
            if place > 0 and texts[place - 1] == "--entrypoint":
                # The interpreter's arguments are those after the name of the container's image.
                return next((n for n, word in enumerate(rest) if _ENTRYPOINT_CODE.fullmatch(word)), None)
            return parser(name, rest).code
    return None


def _visible(name: str) -> str:
    """Return a word of the program's name, redacted if necessary."""
    return redact([name])


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
