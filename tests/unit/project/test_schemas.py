"""The JSON Schema of a report and the OpenAPI description of the server's routes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers_golden_made import all_reports
from helpers_schemas import check_report
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from gpuwidget.model.mime_types import MIME_TYPE
from gpuwidget.views import size_budget
from gpuwidget.views.reductions import reduce
from tools import schemas
from tools.json_schema import OPTIONAL, definitions

NOTEBOOKS = Path(__file__).parents[3] / "notebooks"
REPORT: dict[str, Any] = json.loads(schemas.REPORT.read_text(encoding="utf-8"))


def test_the_files_match_the_dataclasses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The check succeeds as long as the published files are those of the dataclasses, and names a file that
    is not."""
    assert schemas.main(["--check"]) == 0
    changed = tmp_path / "report.schema.json"
    changed.write_text("{}")
    monkeypatch.setattr(schemas, "REPORT", changed)
    assert schemas.main(["--check"]) == 1
    assert schemas.main([]) == 0
    assert json.loads(changed.read_text(encoding="utf-8")) == REPORT


def test_the_schemas_are_valid() -> None:
    """The report's schema is a JSON Schema, and the routes' description is OpenAPI 3.1."""
    Draft202012Validator.check_schema(REPORT)
    validate(json.loads(schemas.OPENAPI.read_text(encoding="utf-8")))


def test_a_card_lacks_only_fields_that_the_schema_does_not_require() -> None:
    """The cards of all levels of detail match the schema. Each field that it does not require is absent from
    at least one of them."""
    absent = {name: set[str]() for name in (*REPORT["$defs"], "Report")}

    def visit(values: Any, schema: dict[str, Any], name: str | None) -> None:
        if name is not None and isinstance(values, dict):
            absent[name] |= schema["properties"].keys() - values.keys()
        for key, part in schema.get("properties", {}).items():
            if isinstance(values, dict) and values.get(key) is not None:
                descend(values[key], part)

    def descend(values: Any, schema: dict[str, Any]) -> None:
        if "anyOf" in schema:
            descend(values, schema["anyOf"][0])
        elif "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            visit(values, REPORT["$defs"][name], name)
        elif isinstance(values, list):
            for item in values:
                descend(item, schema.get("items", {}))

    for _, report in all_reports():
        for level in size_budget._LEVELS:
            stored = reduce(report, level).stored
            check_report(stored)
            visit(stored, REPORT, "Report")
    optional = {type_.__name__: {*names} for type_, names in OPTIONAL.items() if type_.__name__ in absent}
    assert {name: names for name, names in absent.items() if names} == optional


def test_saved_reports_match_the_schema() -> None:
    """The reports in the example notebooks match the schema. The example on the report's page is a part of
    one of them."""
    found = [report for path in sorted(NOTEBOOKS.glob("*.ipynb")) for report in saved_reports(path)]
    assert len(found) >= 20
    for report in found:
        check_report(report)
    page = schemas.REPORT_PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(\{\n.*?)```", page, re.DOTALL)
    (shown,) = [report for report in found if report["cell"]["label"] == "starved"]
    assert is_part(json.loads(example), shown)


def saved_reports(path: Path) -> list[Any]:
    """Return the reports in a notebook."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    return [data[MIME_TYPE] for data in outputs if MIME_TYPE in data]


def is_part(values: Any, whole: Any) -> bool:
    """Return whether ``whole`` has all fields and items of ``values``."""
    if isinstance(values, dict):
        return all(name in whole and is_part(value, whole[name]) for name, value in values.items())
    if isinstance(values, list):
        return all(is_part(*pair) for pair in zip(values, whole, strict=False))
    return bool(values == whole)


def test_an_object_or_a_list_of_another_form_is_rejected() -> None:
    """A report without its version, or with the version of another format, does not match the schema."""
    validator = Draft202012Validator(REPORT)
    ((_, report), *_) = all_reports()
    values = report.to_dict()
    assert validator.is_valid(values)
    assert not validator.is_valid({**values, "schema": 2})
    assert not validator.is_valid({name: value for name, value in values.items() if name != "schema"})
    assert validator.is_valid({**values, "added_later": 1})


@dataclass(frozen=True)
class Unknown:
    """A set has no JSON Schema type."""

    names: set[str]


def test_a_type_without_schema_is_rejected() -> None:
    """A field whose type has no JSON Schema stops the generator, which names the type."""
    with pytest.raises(TypeError, match=r"set\[str\] has no JSON Schema type"):
        definitions([Unknown], "#/$defs")
