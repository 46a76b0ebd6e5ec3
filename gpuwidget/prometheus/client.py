"""A client of Prometheus's HTTP API. Its methods block: a server calls them in a thread."""

from __future__ import annotations

import json
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.errors import PrometheusError
from gpuwidget.prometheus.settings import PrometheusSettings
from gpuwidget.version import __version__

_MAX_BYTES = 64 * 1024**2
"""The maximum size of a response. 4,096 GPUs take about 5 MB, so a larger response is not one that gpuwidget
requested."""
_PIECE = 1 << 16
_MAX_ERROR = 300
"""The maximum length of a text from Prometheus that an error contains."""
_REDIRECTS = range(300, 400)
_MAX_TOKEN = 64 * 1024


class InstantValue(NamedTuple):
    """One element of an instant query's result."""

    labels: Mapping[str, str]
    time: float
    """Time for which Prometheus evaluated the query, in epoch seconds of Prometheus's clock."""
    value: float


@dataclass(frozen=True, slots=True)
class RangeValues:
    """One series of a range query's result."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]
    """Time in epoch seconds and value of each step that has a value, ascending."""


class PrometheusClient:
    """Sends queries to one Prometheus server.

    Redirects are not followed and proxies are not used, so that the bearer token reaches only the configured
    server. The connection is closed after each query.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._opener: OpenerDirector | None = None

    def query(self, expression: str) -> tuple[InstantValue, ...]:
        """Return the current values of a PromQL expression. Raises PrometheusError."""
        result = self._request("query", {"query": expression}, "vector")
        try:
            return tuple(
                InstantValue(each["metric"], float(each["value"][0]), float(each["value"][1]))
                for each in result
            )
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._unexpected_response() from None

    def query_range(
        self, expression: str, start: float, end: float, step_s: float
    ) -> tuple[RangeValues, ...]:
        """Return the values of a PromQL expression every ``step_s`` seconds from ``start`` to ``end``.

        Times are in epoch seconds. Prometheus refuses more than 11,000 steps. Raises PrometheusError.
        """
        fields = {"query": expression, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_s:.3f}"}
        result = self._request("query_range", fields, "matrix")
        try:
            return tuple(
                RangeValues(
                    each["metric"], tuple((float(when), float(value)) for when, value in each["values"])
                )
                for each in result
            )
        except (KeyError, TypeError, ValueError):
            raise self._unexpected_response() from None

    # -- requests ------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        """The server in an error's text."""
        return f"Prometheus at {urlsplit(self._settings.url).netloc}"

    def _request(self, path: str, fields: Mapping[str, str], kind: str) -> list[Any]:
        status, body = self._post(path, fields)
        try:
            response = json.loads(body)
        except ValueError:
            response = None
        if not isinstance(response, dict) or response.get("status") not in ("success", "error"):
            raise self._unexpected_response(status)
        if response["status"] == "error":
            text = " ".join(str(response.get("error", "")).split())[:_MAX_ERROR]
            raise PrometheusError(
                f"{self._name} could not answer a query (status {status}: {text}). If it is overloaded or "
                "has just started, the next query may succeed; else see its log."
            )
        data = response.get("data")
        if not isinstance(data, dict) or data.get("resultType") != kind:
            raise self._unexpected_response(status)
        result = data.get("result")
        if not isinstance(result, list):
            raise self._unexpected_response(status)
        return result

    def _post(self, path: str, fields: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a query as a form, because a long query would not fit into a URL. Return status and body."""
        settings = self._settings
        headers = {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": f"gpuwidget/{__version__}",
        }
        if settings.token_file is not None:
            headers["Authorization"] = f"Bearer {self._read_token(settings.token_file)}"
        form = {**fields, "timeout": f"{math.ceil(settings.timeout_s)}s"}
        request = Request(
            f"{settings.url}/api/v1/{path}", urlencode(form).encode(), headers=headers, method="POST"
        )
        deadline = SYSTEM_CLOCK.monotonic() + settings.timeout_s
        try:
            response: HTTPResponse = self._open().open(request, timeout=settings.timeout_s)
        except HTTPError as error:
            with error:
                self._raise_for_status(error.code)
                return error.code, self._read(cast(HTTPResponse, error.fp), deadline)
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        with response:
            return response.status, self._read(response, deadline)

    def _open(self) -> OpenerDirector:
        if self._opener is None:
            # build_opener() would add handlers for redirects, proxies, files and FTP.
            opener = OpenerDirector()
            opener.add_handler(HTTPErrorProcessor())
            opener.add_handler(HTTPDefaultErrorHandler())
            if urlsplit(self._settings.url).scheme == "https":
                opener.add_handler(HTTPSHandler(context=self._tls_context()))
            else:
                opener.add_handler(HTTPHandler())
            self._opener = opener
        return self._opener

    def _tls_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._settings.ca_file)
        except OSError as error:
            raise PrometheusError(
                f"{self._name} can't be queried: the file of prometheus_ca_file can't be used "
                f"({error.strerror or error}). Give the path of a file with certificates in the PEM format "
                "that this server's user may read."
            ) from None

    def _read_token(self, path: str) -> str:
        problem = "it does not contain a token, which is one line of printable characters"
        try:
            with Path(path).open("rb") as file:
                token = file.read(_MAX_TOKEN).decode("ascii").strip()
        except OSError as error:
            problem, token = error.strerror or type(error).__name__, ""
        except ValueError:
            token = ""
        # A line break in the token would begin another header.
        if not token or not token.isprintable() or " " in token:
            raise PrometheusError(
                f"{self._name} can't be queried: the file of prometheus_token_file can't be used "
                f"({problem}). Give the path of a file that contains the token alone and that this server's "
                "user may read."
            )
        return token

    def _read(self, response: HTTPResponse, deadline: float) -> bytes:
        """Read a response piece by piece, so that a slow or endless one is ended."""
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := response.read1(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_BYTES:
                    raise PrometheusError(
                        f"{self._name} has answered with more than {_MAX_BYTES // 1024**2} MiB. If it "
                        "monitors more machines than this server needs, select the needed machines with "
                        "prometheus_matchers."
                    )
                if SYSTEM_CLOCK.monotonic() > deadline:
                    raise self._timed_out()
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        return b"".join(pieces)

    # -- errors --------------------------------------------------------------------------------------

    def _raise_for_status(self, status: int) -> None:
        """Raise PrometheusError for a status of which the cause is known without the response's body."""
        if status in _REDIRECTS:
            raise PrometheusError(
                f"{self._name} redirects to another address (status {status}). gpuwidget does not follow "
                "redirects, so that no token reaches another server. Set prometheus_url to the final address."
            )
        if status in (401, 403):
            what = "token" if self._settings.token_file is not None else "lack of a token"
            raise PrometheusError(
                f"{self._name} has refused the request because of its {what} (status {status}). Check "
                "the token in the file of prometheus_token_file, and what this token permits."
            )
        if status == 404:
            raise self._unexpected_response(status)

    def _unreachable(self, error: OSError | HTTPException) -> PrometheusError:
        reason = error.reason if isinstance(error, URLError) else error
        if isinstance(reason, TimeoutError):
            return self._timed_out()
        if isinstance(reason, ssl.SSLCertVerificationError):
            return PrometheusError(
                f"{self._name} has a certificate that can't be verified ({reason.verify_message}). Set "
                "prometheus_ca_file to the certificate of the authority that signed it."
            )
        text = (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
        text = " ".join(text.split())[:_MAX_ERROR] or type(reason).__name__
        return PrometheusError(
            f"{self._name} can't be reached ({text}). Check that it runs and that prometheus_url is correct."
        )

    def _timed_out(self) -> PrometheusError:
        return PrometheusError(
            f"{self._name} has not answered within {self._settings.timeout_s:g} s. Check its load and the "
            "network, or set a longer prometheus_timeout."
        )

    def _unexpected_response(self, status: int | None = None) -> PrometheusError:
        with_status = "" if status is None else f" (status {status})"
        return PrometheusError(
            f"{self._name} has answered with something other than Prometheus's JSON{with_status}. Set "
            "prometheus_url to the address under which /api/v1/query lies."
        )
