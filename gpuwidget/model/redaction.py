"""Replace text that may be secret in command lines and other texts.

A word is redacted if its name or its form shows that it may be a secret: no list of secrets is complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto

REDACTED = "[redacted]"
"""Replaces text that may be secret."""
MAX_WORD = 200
"""Maximum number of characters of a word that is searched for secrets. Longer words are redacted: any user
can start a process with megabytes of arguments, and searching them would take minutes."""

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

_ENVIRONMENT = re.compile(r"(?<![\w.])([A-Z_][A-Z0-9_]*)=.+", re.DOTALL)
"""A variable of the environment and its value, also in a word such as ``--env=NAME=value``."""
_NAME_OF_VALUE = re.compile(r"(?<![A-Za-z_])([A-Za-z_][\w.\-]*)(?:\\?[\"'])?\s*[=:]\s*")
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
# The length of a URL's scheme is limited. Without a limit, the search in a long text would take minutes.
_URL_CREDENTIALS = re.compile(r"([A-Za-z][\w+.\-]{0,30}://)\S*@")
_URL_CREDENTIALS_IN_TEXT = re.compile(r"([A-Za-z][\w+.\-]{0,30}://)[^\s/]*@")
_URL_QUERY = re.compile(r"([A-Za-z][\w+.\-]{0,30}://[^\s?#]*[?#])\S+")
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
    r"|\beyJ[\w\-]{8,1000}\.[\w\-.]*"
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
    if len(word) > MAX_WORD:
        return REDACTED, _Next.REST
    if _SHORT_PASSWORD.match(word):
        return (word, _Next.VALUE) if word == "-p" else (f"-p{REDACTED}", _Next.REST)
    option = _OPTION.fullmatch(word)
    if option is not None and _is_secret(option[1]):
        return word, _Next.VALUE
    for named in _NAME_OF_VALUE.finditer(word):
        if _is_secret(named[1]):
            before = _without_secret_parts(word[: named.end()].rstrip())
            empty = named.end() == len(word)
            return (before, _Next.VALUE) if empty else (f"{before}{REDACTED}", _Next.REST)
    if word.lower() == "bearer":
        return word, _Next.VALUE
    return _without_secret_parts(word), _Next.FREE


def without_values(word: str) -> str:
    """Return the word without the query of a URL and without the value of an environment variable."""
    if len(word) > MAX_WORD:
        return REDACTED
    return _ENVIRONMENT.sub(rf"\1={REDACTED}", _URL_QUERY.sub(rf"\1{REDACTED}", word))


def without_attached_passwords(program: str, words: Sequence[str]) -> list[str]:
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


def _without_secret_parts(word: str) -> str:
    """Return the word without secrets. A word with spaces may be a command line, for example of ``ssh``."""
    text = _without_credentials(word)
    parts = text.split()
    return redact(parts) if len(parts) > 1 else text


def _without_credentials(text: str) -> str:
    text = _URL_CREDENTIALS.sub(rf"\1{REDACTED}@", text)
    text = _CREDENTIALS.sub(f"{REDACTED}@", text)
    text = _AFTER_SCHEME.sub(rf"\1 {REDACTED}", text)
    return _TOKENS.sub(REDACTED, text)
