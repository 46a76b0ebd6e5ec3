"""The JSON of a sample for the stream: the whole sample, and the changes since the previous sample."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property

from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Sample
from gpuwidget.model.to_json import to_json
from gpuwidget.server.encoding import encode, encode_at_once

_FIELDS = tuple(field.name for field in fields(Reading))


class EncodedSample:
    """The JSON of one sample. Changes are encoded immediately, the whole sample only when it is first read.

    Chromium passes a websocket's data to the page in pieces of 1,000 bytes, and each piece is a task of the
    main thread. A whole sample of 16 GPUs takes 13 pieces. Its changes usually take 2 to 4 pieces, as long as
    no client requests the hardware counters.
    """

    def __init__(self, sample: Sample, previous: Sample | None) -> None:
        self.sample = sample
        self.previous = previous
        """The sample to which :attr:`changes` apply."""
        self.changes = _encode_changes(previous, sample)
        """The changes as a :class:`gpuwidget.server.wire.SampleChanges`. None if there is no previous sample,
        or if the GPUs or the origin have changed."""

    @cached_property
    def whole(self) -> bytes:
        """The whole sample as JSON."""
        return encode(to_json(self.sample))

    @property
    def message(self) -> bytes:
        """The whole sample as a :class:`gpuwidget.server.wire.SampleMessage`."""
        return encode_at_once({"type": "sample", "sample": self.whole})


def _encode_changes(previous: Sample | None, sample: Sample) -> bytes | None:
    if previous is None or (previous.gpus, previous.origin) != (sample.gpus, sample.origin):
        return None
    readings = [_changed_fields(*pair) for pair in zip(previous.readings, sample.readings, strict=True)]
    return encode({"type": "changes", "time": to_json(sample.time), "readings": readings})


def _changed_fields(previous: Reading, reading: Reading) -> dict[str, object]:
    return {
        name: to_json(value)
        for name in _FIELDS
        if (value := getattr(reading, name)) != getattr(previous, name)
    }
