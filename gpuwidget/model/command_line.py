"""Reduce a command line to what may be shown: its program, and its arguments without secrets.

Any user of a machine can read every command line, but what gpuwidget shows may be saved in a notebook and
shared. gpuwidget therefore shortens command lines, and redacts words that may be secret. Full command lines
(:func:`full`) are read only by the server, only if its setting ``full_command_lines`` is on, and only for the
panel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

REDACTED = "[redacted]"
"""Replaces text that may be secret."""
CODE = "[code]"
"""Replaces code that is passed as an argument, as in ``python -c``, together with the code's arguments."""

_MAX_PROGRAM = 60
_MAX_ARGUMENTS = 80
"""Maximum number of characters of the arguments that are shown."""
_MAX_FULL = 2000
"""Maximum number of characters of a full command line."""
_MAX_WORDS = 100
_MAX_WORD = 200
"""Maximum number of characters of a word that is searched for secrets. Longer words are redacted: any user
can start a process with megabytes of arguments, and searching them would take minutes."""
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
    program, rest, _ = _program(words[first:]) if first < len(words) else _NO_PROGRAM
    rest = _without_attached_passwords(program, rest)
    return CommandLine(
        _cut(program or _visible(name), _MAX_PROGRAM), _cut(redact([*words[:first], *rest]), _MAX_ARGUMENTS)
    )


def full(words: Sequence[str], name: str = "") -> str | None:
    """Return the full command line on one line, without possible secrets; None if there are no words.

    It may only be shown in views that are not saved. It is redacted more strictly than the arguments that
    :func:`parse` returns: values of words that look like environment variables, and the queries of URLs, are
    replaced, whatever their names are. ``words`` and ``name`` are as in :func:`parse`.
    """
    words = _split(words, name)
    if not words:
        return None
    first = _first_program(words)
    program, _, code = _program(words[first:]) if first < len(words) else _NO_PROGRAM
    shown = words if code is None else [*words[: first + code], CODE]
    shown = _without_attached_passwords(program, shown)
    return _cut(redact([_without_values(word) for word in shown]), _MAX_FULL)


def program_and_arguments(program: str | None, arguments: str | None) -> str | None:
    """Return program and arguments in the form that live views show, or None if the program is unknown."""
    return program if not arguments else f"{program} {arguments}"


# -- the program ---------------------------------------------------------------------------------------------

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_ENVIRONMENT = re.compile(r"(?<![\w.])([A-Z_][A-Z0-9_]*)=.+", re.DOTALL)
"""A variable of the environment and its value, also in a word such as ``--env=NAME=value``."""
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*[a-z]?")
_PYTHON_OPTIONS_WITH_VALUE = "cmWX"
_MODULE = re.compile(r"\w+(?:\.\w+)*")
_SHELL = re.compile(r"(?:a|ba|c|da|fi|k|tc|z)?sh")
_SHELL_OPTIONS_WITH_VALUE = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
_RUNNERS = re.compile(
    r"Rscript|accelerate|bun|deepspeed|deno|ipython|ipython3|java|julia|lua|node|perl|php|ruby|"
    r"streamlit|torchrun"
)
"""Programs that run a script. gpuwidget does not know which of their options take a value, so it finds the
script by its suffix."""
_SCRIPT = re.compile(r"[^-\s=:?&][^\s=:?&]*\.(?:py|pyz|ipynb|sh|js|mjs|ts|R|r|jl|pl|rb|lua|php|jar)")
_CODE_OPTION = re.compile(r"(?:-[ailnpsw]*[eE].*|-c|--eval(?:=.*)?|--exec|--print|eval)", re.DOTALL)
_WRAPPERS = re.compile(
    r"apptainer|chrt|conda|docker|dumb-init|env|ionice|mamba|mpiexec|mpirun|nice|nohup|numactl|pdm|"
    r"podman|poetry|setsid|singularity|srun|stdbuf|strace|sudo|taskset|time|timeout|tini|unbuffer|uv|"
    r"xvfb-run"
)
"""Programs that run another program. The other program is shown instead, because it is more informative."""


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
            return _Program(program, [*rest[:inner], *after], None if code is None else 1 + inner + code)
    for pattern, parser in ((_PYTHON, _python), (_SHELL, _shell), (_RUNNERS, _runner)):
        if pattern.fullmatch(name):
            program, arguments, code = parser(name, rest)
            return _Program(program, arguments, None if code is None else 1 + code)
    return _Program(name, rest, None)


def _runs_scripts(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_PYTHON, _SHELL, _RUNNERS))


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
        if not word.startswith("--") and "c" in word:
            return _Program(f"{name} -c", [CODE], position)
        position += 2 if word in _SHELL_OPTIONS_WITH_VALUE else 1
    return _Program(name, rest, None)


def _runner(name: str, rest: list[str]) -> _Program:
    for position, word in enumerate(rest):
        if _CODE_OPTION.fullmatch(word):
            return _Program(name, [*rest[:position], CODE], position)
        if _SCRIPT.fullmatch(word):
            return _Program(f"{name} {_file_name(word)}", [*rest[:position], *rest[position + 1 :]], None)
    return _Program(name, rest, None)


def _file_name(word: str) -> str:
    """Return the last part of a path. Remove the dash that starts a login shell's name (``-bash``) and the
    colon that ends a title such as ``sshd:``."""
    name = word.rstrip("/").rpartition("/")[2].lstrip("-").rstrip(":")
    return _visible(name)


# -- secrets -------------------------------------------------------------------------------------------------

_SECRET_PARTS = re.compile(
    r"auth|authorization|bearer|cookie|cookies|cred|creds|credential|dsn|jwt|key|keys|pass|passphrase|passw|"
    r"pat|pw|pwd|sas|sig|signature|token|tokens"
)
_SECRET_ENDINGS = (
    "credentials",
    "key",
    "passwd",
    "password",
    "passwords",
    "secret",
    "secrets",
    "token",
    "tokens",
)
_COUNTS_TOKENS = re.compile(
    r"add|batch|batched|budget|context|count|input|limit|max|min|n|new|num|output|per|prompt|skip|"
    r"special|total"
)
"""Words that show that ``tokens`` in a name means the tokens of a language model, as in ``max_tokens``."""
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

_NAME_OF_VALUE = re.compile(r"([A-Za-z_][\w.\-]*)(?:\\?[\"'])?\s*[=:]\s*")
_OPTION = re.compile(r"--?([A-Za-z][\w.\-]*)")
_ENDS_VALUE = re.compile(r"-{1,2}[A-Za-z]|[A-Za-z_][\w.\-]*=")
_SHORT_PASSWORD = re.compile(r"-p(?![a-z][a-z_\-]*(?:=|$))")
"""Matches ``-p``, alone or with an attached value, but not longer options such as ``-patience``."""
_PASSWORD_CLIENTS = frozenset(("mariadb", "mysql", "mysqladmin", "mysqldump", "sshpass"))
"""Programs that take a password attached to ``-p``. Any text after ``-p`` is a password."""
_USER_OPTIONS = frozenset(("-u", "--user", "-U", "--proxy-user"))
"""Options of curl and similar programs whose value may be ``name:password``."""
_SCHEMES = frozenset(("basic", "bearer", "digest", "negotiate", "token"))
_AFTER_SCHEME = re.compile(r"\b(basic|bearer|negotiate)\s+\S.*", re.IGNORECASE | re.DOTALL)
_URL_CREDENTIALS = re.compile(r"([A-Za-z][\w+.\-]*://)\S*@")
_URL_CREDENTIALS_IN_TEXT = re.compile(r"([A-Za-z][\w+.\-]*://)[^\s/]*@")
_URL_QUERY = re.compile(r"([A-Za-z][\w+.\-]*://[^\s?#]*[?#])\S+")
_NAMED_IN_TEXT = re.compile(
    r"(?<![\w.\-])((?:--?)?([A-Za-z_][\w.\-]{0,99})=|--([A-Za-z][\w.\-]{0,99}) +)[^\s'\";]+"
)
_BEARER = re.compile(r"\b([Bb]earer)\s+\S+")
_CREDENTIALS = re.compile(r"(?<!\S)[^\s:@/=]+:(?!//)[^\s@]+@(?=\S)")
_TOKENS = re.compile(
    r"-----BEGIN .*"
    r"|\bhf_(?=[A-Za-z]*[A-Z0-9])[A-Za-z0-9]{10,}"
    r"|\b[sprx]k[_\-](?=[A-Za-z_\-]*[A-Z0-9])[\w\-]{10,}"
    r"|\b(?:dapi|github_pat|gh[opsur]|glpat|gsk|npm|nvapi|pypi|r8|xai)[_\-][\w\-]{10,}"
    r"|\bxox[a-z]-[\w\-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\bAIza[\w\-]{30,}"
    r"|\bya29\.[\w\-.]{10,}"
    r"|\beyJ[\w\-]{8,}\.[\w\-.]*"
    # Tokens without a prefix, such as secret keys of AWS and keys of Weights & Biases.
    r"|(?<![\w/+])(?=[a-z0-9/+]*[A-Z])(?=[A-Z0-9/+]*[a-z])(?=[A-Za-z/+]*\d)[A-Za-z0-9/+]{40}(?![\w/+.])"
    r"|(?<!\w)(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*\d)[A-Za-z0-9]{32,}(?!\w)"
    r"|(?<!\w)[0-9a-fA-F]{32,}(?!\w)",
    re.DOTALL,
)


class _Next(Enum):
    """What :func:`redact` expects of the next word."""

    FREE = auto()
    VALUE = auto()
    """The next word is the value of a secret option."""
    REST = auto()
    """The next word may continue a secret value that consists of several words. The value ends before the
    next option or name."""


def redact(words: Sequence[str]) -> str:
    """Return the words on one line, with ``[redacted]`` in place of text that may be secret.

    Such text includes values of options and names that indicate a secret (``--hf-token X``, ``API_KEY=X``),
    credentials in URLs and headers, and words that look like a token of a well-known service.
    """
    shown: list[str] = []
    coming, before = _Next.FREE, ""
    for word in words:
        text, after = _redacted(word)
        if coming is _Next.VALUE and word.lower() in _SCHEMES:
            text, after = word, _Next.VALUE
        elif coming is _Next.VALUE:
            # Treat the word as a value even if it looks like an option, because a password may start with a
            # dash. The word may also be the name of another secret, if the option before it had no value. In
            # that case, redact the next word too.
            text, after = REDACTED, _Next.VALUE if after is _Next.VALUE else _Next.REST
        elif coming is _Next.REST and not _ENDS_VALUE.match(word):
            text, after = "", _Next.REST
        elif before in _USER_OPTIONS and ":" in word:
            text, after = REDACTED, _Next.FREE
        shown.append(text)
        coming, before = after, word
    return " ".join(" ".join(shown).split())


def redact_text(text: str) -> str:
    """Return a text of any kind with ``[redacted]`` in place of what may be secret.

    In prose, a word such as *key* before a colon is no reason to redact what follows. Only ``name=value``,
    options with a value, credentials in URLs and headers, and tokens are redacted.
    """
    text = _URL_CREDENTIALS_IN_TEXT.sub(rf"\1{REDACTED}@", text)
    text = _NAMED_IN_TEXT.sub(_redacted_value, text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    # A path may have the length of a key.
    return _TOKENS.sub(lambda match: match[0] if match[0].startswith("/") else REDACTED, text)


def _redacted_value(match: re.Match[str]) -> str:
    return f"{match[1]}{REDACTED}" if _is_secret(match[2] or match[3]) else match[0]


def _redacted(word: str) -> tuple[str, _Next]:
    if len(word) > _MAX_WORD:
        return REDACTED, _Next.REST
    if _SHORT_PASSWORD.match(word):
        return (word, _Next.VALUE) if word == "-p" else (f"-p{REDACTED}", _Next.REST)
    option = _OPTION.fullmatch(word)
    if option is not None and _is_secret(option[1]):
        return word, _Next.VALUE
    for named in _NAME_OF_VALUE.finditer(word):
        if _is_secret(named[1]):
            before = _without_credentials(word[: named.end()].rstrip())
            empty = named.end() == len(word)
            return (before, _Next.VALUE) if empty else (f"{before}{REDACTED}", _Next.REST)
    if word.lower() == "bearer":
        return word, _Next.VALUE
    return _without_credentials(word), _Next.FREE


def _without_values(word: str) -> str:
    """Return the word without the query of a URL and without the value of an environment variable."""
    if len(word) > _MAX_WORD:
        return REDACTED
    return _ENVIRONMENT.sub(rf"\1={REDACTED}", _URL_QUERY.sub(rf"\1{REDACTED}", word))


def _without_attached_passwords(program: str, words: Sequence[str]) -> list[str]:
    """Return the words without the passwords that some clients of databases take directly after ``-p``."""
    if program not in _PASSWORD_CLIENTS:
        return list(words)
    return [f"-p{REDACTED}" if word.startswith("-p") and len(word) > 2 else word for word in words]


def _is_secret(name: str) -> bool:
    """Return whether the value of an option, variable or field called ``name`` may be a secret."""
    if name.startswith("D") and _is_secret(name[1:]):
        return True  # An option of Java: -Dname=value
    parts = [part.lower() for part in _PARTS.findall(name)]
    if "tokens" in parts and any(map(_COUNTS_TOKENS.fullmatch, parts)):
        parts.remove("tokens")
    return any(_SECRET_PARTS.fullmatch(part) or part.endswith(_SECRET_ENDINGS) for part in parts)


def _without_credentials(text: str) -> str:
    text = _URL_CREDENTIALS.sub(rf"\1{REDACTED}@", text)
    text = _CREDENTIALS.sub(f"{REDACTED}@", text)
    text = _AFTER_SCHEME.sub(rf"\1 {REDACTED}", text)
    return _TOKENS.sub(REDACTED, text)


def _visible(name: str) -> str:
    """Return a word of the program's name, redacted if necessary."""
    return redact([name])


def _cut(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
