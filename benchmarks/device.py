"""Compare the speed of torch calls when gpuwidget, torch or nothing sets the default device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure
from benchmarks.programs import run_python
from benchmarks.settings import Settings
from benchmarks.statistics import median, ratios

_ROWS = (
    ("full", "full mode over torch.set_default_device", 1.02),
    ("light", "light mode over none", 1.02),
    ("cost", "torch.set_default_device over none: what the full mode costs", None),
)


def measure(settings: Settings) -> Iterator[Figure]:
    """Compare the times of ``torch.empty`` and of an addition. Light mode (``new_tensors=False``) is measured
    only with a CUDA device."""
    found = run_python(
        "-m", "benchmarks.device_loops", str(settings.pick(40, 4)), str(settings.pick(20_000, 2_000))
    )
    for comparison, words, bar in _ROWS:
        for call in ("empty", "add"):
            pairs = found.get("runs", {}).get(comparison, {}).get(call)
            reason = None if pairs else found.get("not_measured", "torch finds no CUDA GPU here")
            yield Figure(
                benchmark="device",
                what=f"{'torch.empty(1)' if call == 'empty' else 'a + b'}, {words}",
                unit="ratio",
                bar=bar,
                values=ratios(pairs) if pairs else (),
                not_measured=reason,
                details=_details(pairs, found) if pairs else {},
            )


def _details(pairs: list[tuple[float, float]], found: dict[str, Any]) -> dict[str, Any]:
    before, after = (median([pair[place] for pair in pairs]) for place in (0, 1))
    return {"µs a call": [before, after], "device": found["device"]}
