"""Tests of the validation of the settings for a Prometheus server."""

from __future__ import annotations

import pytest

from gpuwidget.model.errors import OptionError
from gpuwidget.prometheus.settings import PrometheusSettings, parse_matchers, prometheus_settings


def test_valid_settings() -> None:
    """An address with a path, files and matchers are accepted; spaces and a last slash are removed."""
    assert prometheus_settings(
        " https://prometheus.example.org/prefix/ ",
        ca_file="/etc/ca.pem ",
        token_file="",
        matchers=' cluster = "a" , env=~"prod|dev\\\\.x",quoted!="a\\"b",',
        timeout_s=5,
    ) == PrometheusSettings(
        url="https://prometheus.example.org/prefix",
        ca_file="/etc/ca.pem",
        token_file=None,
        matchers=('cluster="a"', 'env=~"prod|dev\\\\.x"', 'quoted!="a\\"b"'),
        timeout_s=5,
    )
    assert prometheus_settings("http://[::1]:9090").url == "http://[::1]:9090"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("prometheus:9090", "it begins with neither http:// nor https://"),
        ("file:///etc/passwd", "it begins with neither http:// nor https://"),
        ("", "it begins with neither http:// nor https://"),
        (
            "http://me:secret@example.org",
            "it contains a user name or password, which logs would show; use prometheus_token_file",
        ),
        ("http://", "it has no host, or its port is not a number from 1 to 65535"),
        ("http://:9090", "it has no host, or its port is not a number from 1 to 65535"),
        ("http://example.org:0", "it has no host, or its port is not a number from 1 to 65535"),
        ("http://example.org:99999", "it is not a URL"),
        ("http://[::1", "it is not a URL"),
        ("http://example.org/?a=b", "it contains a query or a fragment"),
        ("http://exam ple.org", "it contains a space or a control character"),
        ("http://example.org\r\nX: y", "it contains a space or a control character"),
    ],
)
def test_invalid_addresses(url: str, problem: str) -> None:
    """An address that is not a Prometheus server's is refused with the reason; a password is not repeated."""
    with pytest.raises(OptionError) as raised:
        prometheus_settings(url)
    assert str(raised.value) == (
        f"prometheus_url can't be used: {problem}. Give the address under which /api/v1/query lies, such as "
        "https://prometheus.example.org:9090."
    )


@pytest.mark.parametrize(
    "text",
    [
        "cluster",
        "cluster=a",
        'cluster="a',
        'cluster="a"} or up{a="b"',
        'cluster="a" env="b"',
        '{cluster="a"}',
        'cluster="a\nb"',
        'cluster="\\x41"',
        '__name__"="a"',
        ',cluster="a"',
        'cluster="a",,',
    ],
)
def test_text_that_is_no_list_of_matchers(text: str) -> None:
    """Anything but label matchers is refused, above all text that would end the selector."""
    with pytest.raises(OptionError, match=r"^prometheus_matchers can't be used: give label matchers"):
        parse_matchers(text)


@pytest.mark.parametrize("timeout_s", [0.9, 61, float("nan")])
def test_invalid_time_outs(timeout_s: float) -> None:
    """A time-out outside 1 to 60 seconds is refused."""
    with pytest.raises(OptionError, match=r"^prometheus_timeout can't be "):
        prometheus_settings("http://127.0.0.1", timeout_s=timeout_s)
