"""Encoding the stream's samples as JSON, as whole samples and as changes since the previous sample."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from helpers_samples import LIVE, h200, reading

from gpuwidget.model.samples import SAMPLE_SCHEMA, Sample
from gpuwidget.model.to_json import to_json
from gpuwidget.server.encoded_samples import EncodedSample

GPUS = (h200(0), h200(1))
BEFORE = Sample(
    SAMPLE_SCHEMA, 100.0, LIVE, GPUS, tuple(reading(one, missing={"xid": "not read yet"}) for one in GPUS)
)


def test_changes_contain_only_new_values() -> None:
    """A client that has the previous sample receives only the values that differ,
    including values that became null or empty."""
    second = BEFORE.readings[1]
    now = replace(
        BEFORE,
        time=100.2,
        readings=(reading(GPUS[0], utilization=None, missing={"utilization": "the GPU is lost"}), second),
    )
    encoded = EncodedSample(now, BEFORE)
    assert encoded.changes is not None
    assert json.loads(encoded.changes) == {
        "type": "changes",
        "time": 100.2,
        "readings": [
            {
                "utilization": None,
                "missing": {"utilization": "the GPU is lost"},
                "missing_ids": {"utilization": {"id": "test", "params": {}}},
            },
            {},
        ],
    }
    assert json.loads(encoded.message) == {"type": "sample", "sample": to_json(now)}
    assert encoded.whole == json.dumps(to_json(now), separators=(",", ":")).encode()


def test_values_that_are_not_json_are_null() -> None:
    """A value that JSON can't represent, such as NaN, is sent as null."""
    now = replace(BEFORE, readings=(replace(BEFORE.readings[0], power_w=math.nan), BEFORE.readings[1]))
    encoded = EncodedSample(now, BEFORE)
    assert encoded.changes is not None
    assert json.loads(encoded.changes)["readings"] == [{"power_w": None}, {}]


@pytest.mark.parametrize(
    "before",
    [
        None,
        replace(BEFORE, gpus=GPUS[:1], readings=BEFORE.readings[:1]),
        replace(BEFORE, gpus=(replace(GPUS[0], memory_total=1), GPUS[1])),
        replace(BEFORE, origin=replace(LIVE, driver="580.1")),
    ],
)
def test_samples_that_are_sent_whole(before: Any) -> None:
    """The first sample is sent whole,
    and so is a sample whose GPUs or origin differ from those of the previous sample."""
    assert EncodedSample(BEFORE, before).changes is None
