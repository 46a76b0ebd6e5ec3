"""The settings of a Prometheus server: its address, credentials, label matchers and time-out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuwidget.model.errors import OptionError

TIMEOUT_S = 10.0
MIN_TIMEOUT_S = 1.0
MAX_TIMEOUT_S = 60.0

_MATCHER = re.compile(
    r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\\x00-\x1f]|\\[\\"nt])*")\s*(,|$)'
)
"""One label matcher of PromQL and the comma after it. The value can't contain an unescaped quotation mark, so
that a matcher can't end the selector that it is inserted into."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """How to query a Prometheus server. Create it with :func:`prometheus_settings`, which validates it."""

    url: str
    """Address under which ``/api/v1/query`` lies, without a slash at its end."""
    ca_file: str | None
    """Path of a file with the certificates of the authorities that may have signed the server's certificate.
    None for the system's authorities."""
    token_file: str | None
    """Path of a file that contains a bearer token, which is read for each request, so that it may be
    replaced at any time. None for requests without a token."""
    matchers: tuple[str, ...]
    """Label matchers in PromQL, such as ``cluster="a"``, that every selector of a query contains."""
    timeout_s: float
    """Seconds after which a query fails."""


def prometheus_settings(
    url: str,
    *,
    ca_file: str = "",
    token_file: str = "",
    matchers: str = "",
    timeout_s: float = TIMEOUT_S,
) -> PrometheusSettings:
    """Return the validated settings. Raises OptionError with what to do."""
    if not MIN_TIMEOUT_S <= timeout_s <= MAX_TIMEOUT_S:
        raise OptionError(
            f"prometheus_timeout can't be {timeout_s:g}: give a number of seconds from {MIN_TIMEOUT_S:g} to "
            f"{MAX_TIMEOUT_S:g}."
        )
    return PrometheusSettings(
        url=_checked_url(url),
        ca_file=ca_file.strip() or None,
        token_file=token_file.strip() or None,
        matchers=parse_matchers(matchers),
        timeout_s=timeout_s,
    )


def parse_matchers(text: str) -> tuple[str, ...]:
    """Return the label matchers in ``text``, which are separated by commas. Raises OptionError.

    >>> parse_matchers('cluster="a", env!~"test.*"')
    ('cluster="a"', 'env!~"test.*"')
    """
    found: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _MATCHER.match(text, position)
        if match is None:
            raise OptionError(
                "prometheus_matchers can't be used: give label matchers as PromQL has them, separated by "
                'commas, such as cluster="a",env=~"prod|dev".'
            )
        label, operator, value, _ = match.groups()
        found.append(f"{label}{operator}{value}")
        position = match.end()
    return tuple(found)


def _checked_url(url: str) -> str:
    problem = _url_problem(url.strip())
    if problem is not None:
        raise OptionError(
            f"prometheus_url can't be used: {problem}. Give the address under which /api/v1/query lies, such "
            "as https://prometheus.example.org:9090."
        )
    return url.strip().rstrip("/")


def _url_problem(url: str) -> str | None:
    """Return why ``url`` is not the address of a Prometheus server, or None if it can be one.

    The text doesn't contain the address, because it may contain a password.
    """
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "it contains a space or a control character"
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https"):
        return "it begins with neither http:// nor https://"
    if parts.username is not None or parts.password is not None:
        return "it contains a user name or password, which logs would show; use prometheus_token_file"
    if not parts.hostname or not has_port:
        return "it has no host, or its port is not a number from 1 to 65535"
    if parts.query or parts.fragment:
        return "it contains a query or a fragment"
    return None
