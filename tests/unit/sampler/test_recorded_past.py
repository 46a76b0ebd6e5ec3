"""What a recording would have shown before it was opened."""

from __future__ import annotations

from fakes import FakeSource, SetClock

from gpuwidget.sampler import Sampler
from gpuwidget.sources import open_source


def test_the_past_of_a_recording() -> None:
    """The past of a recording has its values at those times, up to now, with the hardware counters."""
    clock = SetClock(1000.0)
    source = open_source("replay", clock)
    samples = list(Sampler(source, clock).recorded_past(880.0, 0.5))
    assert [samples[0].time, samples[-1].time, len(samples)] == [880.0, 999.5, 240]
    assert {sample.origin.recording for sample in samples} == {
        "Recording of 4 \N{MULTIPLICATION SIGN} NVIDIA H200"
    }
    gpu = source.open().gpus[0]
    for sample in samples[::20]:
        clock.now = sample.time
        reading, fast = sample.readings[0], source.read(gpu, "fast")
        assert (reading.utilization, reading.memory_used) == (
            fast.values["utilization"],
            fast.values["memory_used"],
        )
    assert any((sample.readings[0].activity or 0) and sample.readings[0].activity.sm for sample in samples)


def test_live_gpus_have_no_past() -> None:
    """Nothing is made up about the past of live GPUs."""
    clock = SetClock(1000.0)
    assert list(Sampler(FakeSource(), clock).recorded_past(880.0, 0.5)) == []
