"""Compare JSON values with the generated schemas in docs/reference.

The schemas allow unknown fields, because a later version may add some. The tests do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.model.report import Report
from gpuwidget.views import size_budget

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
_MOST_ERRORS = 5


def check_report(values: object) -> None:
    """Fail unless ``values`` are the JSON of a report, as the schema describes it."""
    _check(values, _report_validator())


def check_values(values: object, schema: Mapping[str, Any]) -> None:
    """Fail unless ``values`` match a schema of the OpenAPI description."""
    _check(values, Draft202012Validator({**_components(), **schema}))


def check_response(method: str, path: str, status: int, values: object) -> None:
    """Fail unless the OpenAPI description has the response of a request. ``values`` are its decoded JSON."""
    operation = openapi()["paths"].get(path, {}).get(method)
    if operation is None or status in (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.INTERNAL_SERVER_ERROR):
        return  # Jupyter's own errors.
    response = operation["responses"][str(status)]
    content = response.get("content", {}).get("application/json", {"schema": {"type": "null"}})
    check_values(values, content["schema"])


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI description, without unknown fields of the objects."""
    found: dict[str, Any] = _strict(json.loads((REFERENCE / "openapi.json").read_text(encoding="utf-8")))
    return found


@contextmanager
def every_report_checked() -> Iterator[None]:
    """Compare each report that a view stores in a card, or that code exports, with the schema."""
    fit, to_dict = size_budget.fit, Report.to_dict

    def checked_fit(report: Report, render: Any) -> Any:
        bundle = fit(report, render)
        check_report(bundle[MIME_TYPE])
        return bundle

    def checked_to_dict(report: Report) -> dict[str, Any]:
        values = to_dict(report)
        check_report(values)
        return values

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(size_budget, "fit", checked_fit)
        patch.setattr(Report, "to_dict", checked_to_dict)
        yield


@cache
def _report_validator() -> Draft202012Validator:
    schema = json.loads((REFERENCE / "report.schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator(_strict(schema))


@cache
def _components() -> dict[str, Any]:
    return {"components": openapi()["components"]}


def _check(values: object, validator: Draft202012Validator) -> None:
    # The JSON that is sent, in which a subclass of str is a plain string.
    found = list(validator.iter_errors(json.loads(json.dumps(values))))
    errors = [f"{error.json_path}: {error.message[:300]}" for error in found[:_MOST_ERRORS]]
    assert errors == []


def _strict(schema: Any) -> Any:
    """Return a schema that allows no unknown field of an object whose fields it lists."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict(value) for name, value in schema.items()}
    return {**made, "additionalProperties": False} if isinstance(made.get("properties"), dict) else made
