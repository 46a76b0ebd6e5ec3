"""The JSON Schemas of dataclasses, whose values :func:`gpuwidget.model.to_json.to_json` converts to JSON."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

from gpuwidget.model import diagnosis, report, samples
from gpuwidget.model.messages import Message
from gpuwidget.model.metrics import REPORTED
from gpuwidget.model.to_json import INLINED
from gpuwidget.server import wire
from tools.dataclass_types import field_docstrings, paragraphs, reached, write_type

DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]

_VERSIONS: Mapping[type, int] = {
    report.Report: report.REPORT_SCHEMA,
    samples.Sample: samples.SAMPLE_SCHEMA,
    wire.InitialMessage: wire.STREAM_SCHEMA,
    diagnosis.Diagnosis: diagnosis.DIAGNOSIS_SCHEMA,
}
"""The versions in the field ``schema``, by dataclass."""
OPTIONAL: Mapping[type, Sequence[str]] = {
    report.SourceInfo: ("reason_id",),
    report.TorchMemory: ("inactive_split", "returnable"),
    report.GpuReport: (
        *("memory_reserved", "memory_utilization", "bursts", "fp32_activity", "pcie", "nvlink"),
        *("power_limit_w", "throttled", "missing", "missing_ids", "children", "children_memory"),
        *("worked", "mig_index", "mig_parent", "lost_since", "energy_at_least_j", "energy_error_j"),
        "unified_memory",
    ),
    report.CodeTime: ("reason_ids",),
    report.WorkerReport: ("host", "torch_reserved", "missing", "missing_ids", "energy_error_j"),
    report.Report: ("workers",),
    diagnosis.Diagnosis: ("texts",),
}
"""The fields that the JSON may lack, by dataclass: a card with too little room omits them. A field that is
added after a release belongs here too, because the JSON of earlier versions does not have it."""


class _JsonSchema:
    """How JSON Schema writes types."""

    language = "JSON Schema"

    def __init__(self, definitions: str) -> None:
        """``definitions`` is the place of the dataclasses' schemas, such as ``#/$defs``."""
        self._definitions = definitions
        self.names: Mapping[Any, Schema] = {
            str: {"type": "string"},
            bool: {"type": "boolean"},
            int: {"type": "integer"},
            float: {"type": "number"},
            type(None): {"type": "null"},
            Any: {},
            Message: {"type": "string"},
            wire.PartialReading: {"type": "object"},
        }

    def reference(self, message_type: type) -> Schema:
        return {"$ref": f"{self._definitions}/{message_type.__name__}"}

    def literals(self, values: Sequence[object]) -> Schema:
        return {"const": values[0]} if len(values) == 1 else {"enum": [*values]}

    def union(self, members: Sequence[Schema]) -> Schema:
        if all(set(member) == {"type"} for member in members):
            return {"type": [member["type"] for member in members]}
        return {"anyOf": [*members]}

    def array(self, item: Schema) -> Schema:
        return {"type": "array", "items": item}

    def sequence(self, items: Sequence[Schema]) -> Schema:
        return {"type": "array", "prefixItems": [*items], "items": False, "minItems": len(items)}

    def dictionary(self, value: Schema) -> Schema:
        return {"type": "object", "additionalProperties": value}


def definitions(roots: Sequence[type], place: str) -> dict[str, Schema]:
    """Return the schemas of ``roots`` and of the dataclasses of their fields, by name."""
    notation = _JsonSchema(place)
    return {found.__name__: _object(found, notation) for found in reached(roots)}


def _object(message_type: type, notation: _JsonSchema) -> Schema:
    properties = dict(_properties(message_type, notation))
    omitted = OPTIONAL.get(message_type, ())
    return {
        **_described(inspect.cleandoc(message_type.__doc__ or "")),
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in omitted],
    }


def _properties(message_type: type, notation: _JsonSchema) -> Iterator[tuple[str, Schema]]:
    hints, docstrings = get_type_hints(message_type), field_docstrings(message_type)
    for field in fields(message_type):
        if field.metadata == INLINED:
            level: Schema = write_type(report.Level | None, notation)
            for metric, reported in REPORTED:
                yield reported.name, {**_described(metric.doc), **level}
        elif field.name == "schema":
            yield field.name, {"description": "Version of the format.", "const": _VERSIONS[message_type]}
        else:
            written: Schema = write_type(hints[field.name], notation)
            yield field.name, {**_described(docstrings.get(field.name, "")), **written}
    if message_type is report.Report:
        totals = inspect.cleandoc(report.Report.totals.__doc__ or "")
        yield "totals", {**_described(totals), **notation.reference(report.RunTotals)}
    if message_type is diagnosis.Diagnosis:
        translated = "Translations of the texts, by the English text, if the request has a `locale`."
        yield "texts", {"description": translated, **notation.dictionary({"type": "string"})}


def _described(docstring: str) -> Schema:
    return {"description": "\n\n".join(paragraphs(docstring))} if docstring else {}
