"""Replace text that may be secret.

A value is redacted if its name or its form shows that it may be a secret: no list of secrets is complete.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"
"""Replaces text that may be secret."""

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
_AMBIGUOUS = re.compile(r"(?i:auth|cookies?|dsn|keys?|pass|pat|pw|sas|sig|signature)")
"""Words that prose has before a colon, as in *The key: a basic check*. They show a secret only as a part of a
longer name, or if they are quoted."""

# The numbers of repetitions are limited. Without a limit, the search in a long text would take minutes.
_QUOTE = r"\\{0,4}[\"']"
_STRING = (
    r"(?P<open>\"{3}|'{3}|\\{1,4}[\"'])(?:(?!(?P=open))[\s\S])*(?P<close>(?P=open))?"
    r"|(?P<quote>[\"'])(?:\\.|(?!(?P=quote))[^\\\n])*(?P<end>(?P=quote))?"
)
"""A string of Python, JSON or a shell, also one in another string (``\\"``). A text may lack its end."""
_BARE = r"\[[^\]]*\]?|\{[^}]*\}?|\([^)]*\)?|[^\s'\";]*[^\s'\";,)}\]\\]"
"""A value without quotes, or a list or an object."""
_VALUE = re.compile(rf"[bfru]{{0,2}}(?:{_STRING})|{_BARE}")
_ANNOTATION = re.compile(r"[A-Za-z_][\w.\[\]|, ]{0,60}?\s{0,9}=(?!=)\s{0,9}")
"""The type in ``token: str = "x"``."""
_NAME = re.compile(
    # In a pair (name, value), or in the list of a program's arguments.
    rf"(?:(?<=\()|(?=[\"']-)){_QUOTE}(?P<listed>-{{0,2}}[A-Za-z_][\w.\- ]{{0,99}}){_QUOTE}\s{{0,9}},"
    rf"\s{{0,9}}(?=[bfru]{{0,2}}[\"'])"
    # An option and its value. Two dashes start the next option.
    rf"|(?<![\w.\-])--?(?P<option>[A-Za-z][\w.\-]{{2,99}})(?:{_QUOTE})?\s{{1,20}}(?!--|[\"']--)"
    # name=value, also with spaces, quotes or an index: environ["name"] = "value"
    rf"|(?<![\w.\-])(?:--?)?(?P<assigned>[A-Za-z_][\w.\-]{{0,99}})(?:{_QUOTE})?\]?\s{{0,20}}:?=(?![=~])\s{{0,20}}"
    # "name": value
    rf"|{_QUOTE}(?P<quoted>[A-Za-z_][\w.\- ]{{0,99}}){_QUOTE}\s{{0,20}}:\s{{0,20}}"
    # name: value
    r"|(?<![\w.\-])(?P<prose>(?:(?i:access|api|auth|private|secret) )?[A-Za-z_][\w.\-]{0,99}):(?![:/])"
    r"\s{0,20}"
)
"""A name, and what separates it from its value."""
_HEADER = re.compile(
    r"(?i:(?<![\w\-])((?:proxy-)?authorization|(?:set-)?cookie2?)(\s{0,9}:\s{0,9}))"
    r"(?:\w{1,99}=\\{0,4}\"[^\"\n]*\"|[^\"'\n])+"
)
"""A header of HTTP with several words, up to the end of the line or of the string."""
_USER_AND_PASSWORD = re.compile(r"(?<!\S)(-u|-U|--user|--proxy-user)([ =]?[\"']?)[^\s:\"']*:[^\s\"']+")
"""Options of curl and similar programs whose value may be ``name:password``."""
_SCHEME = re.compile(
    r"\b([Bb]earer\s{1,9})[^\s'\"]+"
    r"|\b([Bb]asic\s{1,9})(?=[A-Za-z+/]*(?:[\d=]|[a-z][A-Z]))[A-Za-z\d+/]{6,}={0,2}"
)
_URL_CREDENTIALS = re.compile(r"([A-Za-z][\w+.\-]{0,30}://)[^\s/]*@")
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


def redact_text(text: str) -> str:
    """Return a text of any kind with ``[redacted]`` in place of what may be secret.

    That is: values with the name of a secret, as code, JSON, a shell and a program's options write them;
    credentials in URLs and headers; and words that look like a token of a well-known service. In prose, a
    word such as *key* before a colon is no reason to redact what follows.
    """
    text = _URL_CREDENTIALS.sub(rf"\1{REDACTED}@", text)
    text = _HEADER.sub(rf"\1\2{REDACTED}", text)
    text = _USER_AND_PASSWORD.sub(rf"\1\2{REDACTED}", text)
    text = _redact_named(text)
    text = _SCHEME.sub(lambda match: f"{match[1] or match[2]}{REDACTED}", text)
    # A path may have the length of a key.
    return _TOKENS.sub(lambda match: match[0] if match[0].startswith("/") else REDACTED, text)


def is_secret(name: str) -> bool:
    """Return whether the value of an option, variable or field called ``name`` may be a secret."""
    if name.startswith("D") and is_secret(name[1:]):
        return True  # An option of Java: -Dname=value
    parts = [part.lower() for part in _PARTS.findall(name)]
    if "tokens" in parts and any(map(_COUNTS_TOKENS.fullmatch, parts)):
        parts.remove("tokens")
    return any(map(_is_secret_part, parts))


def _is_secret_part(part: str) -> bool:
    return _SECRET_PARTS.fullmatch(part) is not None or part.endswith(_SECRET_ENDINGS)


def _redact_named(text: str) -> str:
    shown: list[str] = []
    position = 0
    while (name := _NAME.search(text, position)) is not None:
        start = end = name.end()
        shown.append(text[position:start])
        if _names_secret(name):
            annotation = name["prose"] and _ANNOTATION.match(text, start)
            value = _VALUE.match(text, annotation.end() if annotation else start)
            if value is not None:
                opening, closing = value["open"] or value["quote"] or "", value["close"] or value["end"] or ""
                shown.append(f"{opening}{REDACTED}{closing}")
                end = value.end()
        position = end
    return "".join((*shown, text[position:]))


def _names_secret(name: re.Match[str]) -> bool:
    prose = name["prose"]
    if prose is None:
        return is_secret(name["listed"] or name["option"] or name["assigned"] or name["quoted"])
    # The last word tells what the value is: KeyError is an error, and api_key is a key.
    parts = [part.lower() for part in _PARTS.findall(prose)]
    return is_secret(prose) and _is_secret_part(parts[-1]) and _AMBIGUOUS.fullmatch(prose) is None
