"""Tests of the system's clock, in a process whose code replaces the functions of the module time."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

_CODE = """
import json, sys, threading, time
real = time.time
import gpuwidget
with gpuwidget.watch():
    pass
frozen = {name: lambda: 1000.0 for name in ("time", "monotonic", "perf_counter")}
originals = {id(getattr(time, name)): fake for name, fake in frozen.items()}
for name, fake in frozen.items():
    setattr(time, name, fake)
if sys.argv[1] == "freezegun":
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").split(".")[0] == "gpuwidget":
            for name, value in list(vars(module).items()):
                if id(value) in originals:
                    setattr(module, name, originals[id(value)])
while True:  # On a busy machine, a run may end without a reading.
    before = real()
    with gpuwidget.watch() as watch:
        threading.Event().wait(0.3)
    report = watch.report
    if report.gpus:
        break
print(json.dumps({
    "duration_s": report.cell.duration_s,
    "started_late_s": report.cell.started - before,
    "t": report.timeline.t,
    "energy_j": report.gpus[0].energy_j,
}))
"""


@pytest.mark.parametrize("how", ["in the module time", "freezegun"])
def test_replaced_functions_of_time_change_no_duration(how: str) -> None:
    """If a notebook's code replaces time.time, time.monotonic and time.perf_counter, in the module or as
    freezegun does in every module that has imported them, the times and the energy of a run stay true."""
    process = subprocess.run(
        [sys.executable, "-c", _CODE, how],
        env={**os.environ, "GPUWIDGET_SOURCE": "replay"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout.splitlines()[-1])
    assert 0.3 <= found["duration_s"] < 60.0
    assert 0.0 <= found["started_late_s"] < 60.0
    assert found["t"] == sorted(found["t"])
    assert found["t"][0] >= 0.0
    # A run waits 0.25 s at most for the reading at its end. On a busy machine, the last point may be earlier.
    assert 0.1 <= found["t"][-1] < 60.0
    assert found["energy_j"] > 0
