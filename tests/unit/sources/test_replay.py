"""Tests of the replay source, which plays a recording instead of reading the machine's GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import SetClock
from helpers_recordings import GPM, meta, tick, values, write
from helpers_samples import group_reading, status_reading

from gpuwidget.model.errors import GpuLostError, SourceLostError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.messages import message
from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity
from gpuwidget.sources import open_source
from gpuwidget.sources.replay import START_VARIABLE, TRAINING_S, ReplaySource

NOT_RECORDED = message("not-recorded", "not in the recording")
MIB = 1024**2


@pytest.fixture
def clock() -> SetClock:
    """Return a clock that is at 0."""
    return SetClock(0.0)


def test_without_a_path_the_packaged_recording_of_four_h200s_plays(clock: SetClock) -> None:
    """If no path is given, the replay source plays the packaged recording of four H200s, and is labeled as a
    recording."""
    found = open_source("replay", clock).open()
    assert (found.origin.kind, found.origin.reason) == ("replay", None)
    assert found.origin.recording == "Recording of 4 \N{MULTIPLICATION SIGN} NVIDIA H200"
    assert (found.origin.driver, found.origin.cuda_driver) == ("580.159.04", "13.0")
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2, 3]
    assert {gpu.name for gpu in found.gpus} == {"NVIDIA H200"}
    assert {gpu.memory_total for gpu in found.gpus} == {150754820096}
    assert found.gpus[0].pci_bus_id == "00000000:00:06.0"


def test_its_gpus_have_the_same_uuids_in_every_process(clock: SetClock, tmp_path: Path) -> None:
    """A replayed GPU has the same UUID in every process, even if the file was renamed. GPUs of different
    recordings have different UUIDs."""
    uuids = [gpu.uuid for gpu in ReplaySource(None, loop=True, clock=clock).open().gpus]
    assert uuids == [gpu.uuid for gpu in ReplaySource(None, loop=True, clock=clock).open().gpus]
    assert len(set(uuids)) == 4
    assert uuids[0] == "GPU-2c750e73-9a5e-5fcd-8408-96e322833d4a"
    lines = (meta(2), tick(0, values(), values()))
    first, second = (write(tmp_path / name, *lines) for name in ("a.jsonl", "b.jsonl"))
    made = [ReplaySource(str(path), loop=True, clock=clock).open().gpus for path in (first, second)]
    assert made[0] == made[1]
    assert not {gpu.uuid for gpu in made[0]} & set(uuids)


def test_every_value_of_a_tick_comes_in_the_units_of_the_model(clock: SetClock, tmp_path: Path) -> None:
    """Recorded values are converted to the units that samples use, such as watts and bytes. A metric that was
    not recorded is None, with the reason "not in the recording"."""
    path = write(tmp_path / "x.jsonl", meta(), tick(0, values(throttle=0x25)))
    source = ReplaySource(str(path), loop=True, clock=clock)
    gpu = source.open().gpus[0]
    assert source.read(gpu, "fast") == group_reading(
        utilization=50.0, memory_utilization=5.0, memory_used=1024, power_w=100.0, missing={}
    )
    assert source.read(gpu, "memory").values["memory_used"] == 1024
    assert source.read(gpu, "processes").values["processes"] == (Process(7, "compute", 1000, None, None),)
    recorded = {"power_limit_w", "temperature_c", "memory_temperature_c", "sm_clock_mhz"}
    assert source.read(gpu, "status") == status_reading(
        power_limit_w=700.0,
        temperature_c=30.0,
        memory_temperature_c=35.0,
        sm_clock_mhz=1980.0,
        throttle=("too hot", "power cap", "idle"),
        missing=dict.fromkeys(set(keys("status")) - recorded, NOT_RECORDED),
    )
    assert source.read(gpu, "slow") == group_reading(
        energy_j=None,
        utilization_window=0.2,
        ecc_uncorrected=None,
        xid=None,
        missing=dict.fromkeys(("energy_j", "ecc_uncorrected", "xid"), NOT_RECORDED),
    )
    assert source.read(gpu, "activity").values["activity"] is None


def test_what_was_unknown_stays_unknown(clock: SetClock, tmp_path: Path) -> None:
    """If a recorded value is null, NaN or missing, the replayed value is None with the recorded reason, never
    0."""
    unknown = dict.fromkeys(values()) | {"util": float("nan")}
    facts = {
        "missing": {"power_w": "not supported by this GPU"},
        "power_limit_mw": None,
        "memory_total": None,
    }
    path = write(tmp_path / "x.jsonl", meta(1, **facts), tick(0, unknown), tick(1, {}))
    source = ReplaySource(str(path), loop=True, clock=clock)
    gpu = source.open().gpus[0]
    assert gpu.memory_total is None
    for now in (0.5, 1.5):
        clock.now = now
        fast = source.read(gpu, "fast")
        names = ("utilization", "memory_utilization", "memory_used", "power_w")
        assert [fast.values[name] for name in names] == [None] * 4
        unsupported = message("missing-when-recorded", "not supported by this GPU")
        expected = dict.fromkeys(names, NOT_RECORDED) | {"power_w": unsupported}
        assert fast.missing == expected
        assert source.read(gpu, "memory").values["memory_used"] is None
        assert source.read(gpu, "processes").values["processes"] is None
        assert source.read(gpu, "status") == status_reading(
            dict.fromkeys((*keys("status"), "throttle"), NOT_RECORDED)
        )


@pytest.fixture
def four_ticks(tmp_path: Path) -> str:
    """Return the path of a recording with four one-second ticks, at 100 W and with an energy counter."""
    ticks = [tick(10 + t, values(util=t, energy_mj=1000_000 + 100_000 * t)) for t in range(4)]
    return str(write(tmp_path / "four.jsonl", meta(), *ticks))


def test_the_position_follows_the_wall_clock(clock: SetClock, four_ticks: str) -> None:
    """The position in a recording depends only on the wall clock, so that processes that opened the recording
    at different times play the same moment."""
    played = []
    for opened in (0.0, 1234.5):
        clock.now = opened
        source = ReplaySource(four_ticks, loop=True, clock=clock)
        gpu = source.open().gpus[0]
        clock.now = 1_700_000_000.0
        source.close()
        again = []
        for step in range(9):
            clock.now = 1_700_000_000.0 + step * 0.5
            again.append(source.read(gpu, "fast").values["utilization"])
        played.append(again)
    assert played[0] == played[1] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 0.0]


def test_played_once_it_starts_when_opened_and_stays_at_its_end(clock: SetClock, four_ticks: str) -> None:
    """With `replay-once`, a recording plays from its start when it is first opened, and then stays at its
    last tick. Reopening the source does not restart it. The label mentions that it plays once."""
    clock.now = 1000.25
    source = open_source(f"replay-once:{four_ticks}", clock)
    found = source.open()
    assert found.origin.recording == (
        "Recording of 1 \N{MULTIPLICATION SIGN} NVIDIA H200 (four.jsonl), played once, then held at its end"
    )
    seen = []
    for now in (1000.25, 1001.5, 1003.5, 1004.25, 5000.0):
        clock.now = now
        source.open()
        seen.append(
            (
                source.read(found.gpus[0], "fast").values["utilization"],
                source.read(found.gpus[0], "slow").values["energy_j"],
            )
        )
    assert seen == [(0.0, 1000.0), (1.0, 1125.0), (3.0, 1325.0), (3.0, 1400.0), (3.0, 1400.0)]


def test_energy_never_falls_when_the_recording_restarts(clock: SetClock, four_ticks: str) -> None:
    """When a recording starts over, the energy counter continues to rise. At 100 W, it rises by 100 J every
    second."""
    clock.now = 1_700_000_001.0
    source = ReplaySource(four_ticks, loop=True, clock=clock)
    gpu = source.open().gpus[0]
    counter = []
    for second in range(0, 12, 2):
        clock.now = 1_700_000_001.0 + second
        counter.append(source.read(gpu, "slow").values["energy_j"])
    assert counter == [1100.0, 1300.0, 1500.0, 1700.0, 1900.0, 2100.0]


def test_a_rarely_recorded_energy_counter_is_extended_with_the_power(clock: SetClock, tmp_path: Path) -> None:
    """If the energy counter was recorded only now and then, its values at the start and end of the recording
    are computed from the recorded power."""
    lines = [
        tick(0, values(power_mw=50_000)),
        tick(1, values(energy_mj=1_000_000)),
        tick(2, values(power_mw=None)),
        tick(3, values(power_mw=200_000)),
    ]
    path = write(tmp_path / "x.jsonl", meta(), *lines)
    source = ReplaySource(str(path), loop=True, clock=clock)
    gpu = source.open().gpus[0]
    seen = []
    for now in (0.0, 1.0, 3.999999999, 4.0, 5.0):
        clock.now = now
        seen.append(source.read(gpu, "slow").values["energy_j"])
    assert seen == [950.0, 1000.0, pytest.approx(1300.0), 1300.0, 1350.0]


def test_energy_continues_after_a_reload_of_the_recorded_driver(clock: SetClock, tmp_path: Path) -> None:
    """If the recorded energy counter was reset to 0, because the driver was reloaded during the recording,
    the replayed counter continues from its last value."""
    counts = [5_000_000, 5_100_000, 0, 100_000]
    ticks = [tick(t, values(energy_mj=count)) for t, count in enumerate(counts)]
    source = ReplaySource(str(write(tmp_path / "x.jsonl", meta(), *ticks)), loop=True, clock=clock)
    gpu = source.open().gpus[0]
    seen = []
    for now in range(5):
        clock.now = float(now)
        seen.append(source.read(gpu, "slow").values["energy_j"])
    assert seen == [5000.0, 5100.0, 5100.0, 5200.0, 5300.0]


@pytest.fixture
def counters(tmp_path: Path) -> str:
    """Return the path of a 5-second recording with counter windows that end at 2 s and 4 s. In the second
    window, the tensor activity is unknown."""
    second = GPM | {"sm": 80.0, "tensor": None, "nvlink_tx_mib_s": 8.0}
    gpms: dict[int, dict[str, Any]] = {2: {"gpm": GPM}, 4: {"gpm": second}}
    return str(write(tmp_path / "x.jsonl", meta(), *(tick(t, values(**gpms.get(t, {}))) for t in range(5))))


def test_activity_is_the_mean_of_the_windows_since_the_last_call(clock: SetClock, counters: str) -> None:
    """The first read of the counters returns no activity. Each later one returns the mean of the recorded
    windows that ended since the previous call; unknown values are not part of the mean."""
    clock.now = 100.5
    source = ReplaySource(counters, loop=True, clock=clock)
    gpu = source.open().gpus[0]
    assert source.read(gpu, "activity").values["activity"] is None
    clock.now = 101.0
    assert source.read(gpu, "activity").values["activity"] is None
    clock.now = 104.0
    assert source.read(gpu, "activity").values["activity"] == Activity(
        since=100.0,
        until=104.0,
        graphics=90.0,
        sm=65.0,
        sm_occupancy=25.0,
        tensor=10.0,
        dram=20.0,
        fp64=0.0,
        fp32=5.0,
        fp16=1.0,
        pcie_tx=1.0 * MIB,
        pcie_rx=2.0 * MIB,
        nvlink_tx=6.0 * MIB,
        nvlink_rx=3.0 * MIB,
    )
    clock.now = 104.05
    assert source.read(gpu, "activity").values["activity"] is None
    clock.now = 107.5
    across = source.read(gpu, "activity").values["activity"]
    assert across is not None
    assert (across.since, across.until, across.sm) == (105.0, 107.0, 50.0)


def test_activity_starts_again_after_a_stop(clock: SetClock, counters: str) -> None:
    """The first read of the counters after `stop_activity()`, or after the clock was set back, returns no
    activity."""
    clock.now = 100.0
    source = ReplaySource(counters, loop=True, clock=clock)
    gpu = source.open().gpus[0]
    source.read(gpu, "activity")
    source.stop_activity()
    clock.now = 104.5
    assert source.read(gpu, "activity").values["activity"] is None
    clock.now = 90.0
    assert source.read(gpu, "activity").values["activity"] is None
    clock.now = 94.5
    after = source.read(gpu, "activity").values["activity"]
    assert after is not None
    assert (after.since, after.until, after.sm) == (90.0, 94.0, 65.0)


def test_activity_after_hours_is_that_of_the_last_loop(clock: SetClock, counters: str) -> None:
    """If a recording was repeated many times since the last read of the counters, the next one returns
    the mean over the length of one repetition, not over the whole pause between the calls."""
    clock.now = 0.0
    source = ReplaySource(counters, loop=True, clock=clock)
    gpu = source.open().gpus[0]
    source.read(gpu, "activity")
    clock.now = 1_000_000_000.0
    after = source.read(gpu, "activity").values["activity"]
    assert after is not None
    assert (after.since, after.until) == (999_999_995.0, 999_999_999.0)


def test_played_once_activity_has_the_times_of_the_wall_clock(clock: SetClock, counters: str) -> None:
    """With `replay-once`, the times of counter windows are counted from the moment when the recording was
    opened. After the recording's last window, there is no activity."""
    clock.now = 1000.0
    source = ReplaySource(counters, loop=False, clock=clock)
    gpu = source.open().gpus[0]
    source.read(gpu, "activity")
    clock.now = 1003.0
    first = source.read(gpu, "activity").values["activity"]
    assert first is not None
    assert (first.since, first.until) == (1000.0, 1002.0)
    clock.now = 1010.0
    second = source.read(gpu, "activity").values["activity"]
    assert second is not None
    assert (second.since, second.until, second.tensor) == (1002.0, 1004.0, None)
    clock.now = 1020.0
    assert source.read(gpu, "activity").values["activity"] is None


def test_a_gpu_that_was_lost_is_lost_in_the_replay(clock: SetClock, tmp_path: Path) -> None:
    """If a GPU was lost during the recording, reading it raises GpuLostError until the recorded moment of its
    return. Other GPUs are still read."""
    lines = (tick(0, values(), values()), tick(1, {"lost": True}, values()), tick(2, values(), values()))
    source = ReplaySource(str(write(tmp_path / "x.jsonl", meta(2), *lines)), loop=True, clock=clock)
    gpus = source.open().gpus
    clock.now = 1.0
    with pytest.raises(GpuLostError):
        source.read(gpus[0], "fast")
    assert source.read(gpus[1], "fast").values["utilization"] == 50.0
    clock.now = 2.0
    assert source.read(gpus[0], "fast").values["utilization"] == 50.0


def test_a_file_that_cannot_be_played_is_explained(clock: SetClock, tmp_path: Path) -> None:
    """If the recording does not exist, no exception is raised. The source has no GPUs, and its reason
    explains what to do, even if the file's name looks like a parameter of a template."""
    path = tmp_path / "{gone}.jsonl.gz"
    found = ReplaySource(str(path), loop=True, clock=clock).open()
    assert found.gpus == ()
    assert (found.origin.kind, found.origin.recording) == (
        "replay",
        "Recording that can't be played ({gone}.jsonl.gz)",
    )
    assert found.origin.reason == (
        f"The recording {str(path)!r} does not exist. Check the path, or make one with "
        "'gpuwidget record FILE'."
    )


def test_a_changed_file_is_read_again(clock: SetClock, tmp_path: Path) -> None:
    """If the file has changed, reopening the source reads it again."""
    path = write(tmp_path / "x.jsonl", meta(), tick(0, values(util=1)))
    source = ReplaySource(str(path), loop=True, clock=clock)
    gpu = source.open().gpus[0]
    source.open()
    assert source.read(gpu, "fast").values["utilization"] == 1.0
    write(path, meta(), tick(0, values(util=22)))
    source.open()
    assert source.read(gpu, "fast").values["utilization"] == 22.0
    path.unlink()
    assert source.open().gpus == ()
    with pytest.raises(SourceLostError):
        source.read(gpu, "fast")


def test_the_packaged_recording_shows_what_utilization_hides(clock: SetClock) -> None:
    """In the packaged recording, GPUs that wait for a slow rank have a utilization of 100 %, but an SM
    activity of only 20 to 40 %."""
    clock.now = 135.2 * 1000 + 80.0
    source = ReplaySource(None, loop=True, clock=clock)
    gpu = source.open().gpus[0]
    source.read(gpu, "activity")
    clock.now += 2.0
    activity = source.read(gpu, "activity").values["activity"]
    assert activity is not None
    assert activity.sm is not None
    assert source.read(gpu, "fast").values["utilization"] == 100.0
    assert 20 < activity.sm < 40


def test_a_loop_begins_when_the_environment_says(
    clock: SetClock, four_ticks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop's beginning can be set, so that all processes with that environment start at the same moment of
    the recording. An invalid time has no effect."""
    clock.now = 1_700_000_001.5
    for start, utilization in (("1700000000", 1.0), ("1699999999.5", 2.0), ("soon", 1.0), ("nan", 1.0)):
        monkeypatch.setenv(START_VARIABLE, start)
        source = ReplaySource(four_ticks, loop=True, clock=clock)
        assert source.read(source.open().gpus[0], "fast").values["utilization"] == utilization


def test_the_demo_starts_where_all_gpus_train(clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the demo's server has started, all GPUs of the recording are training."""
    monkeypatch.setenv(START_VARIABLE, str(1000.0 - TRAINING_S))
    clock.now = 1000.0
    source = ReplaySource(None, loop=True, clock=clock)
    gpus = source.open().gpus
    for seconds in (8.0, 12.0, 19.0):
        clock.now = 1000.0 + seconds
        assert all((source.read(gpu, "fast").values["utilization"] or 0.0) >= 98.0 for gpu in gpus)


def test_only_the_packaged_recording_can_be_rewound(clock: SetClock, four_ticks: str) -> None:
    """The past of the packaged recording can be read without changing what it shows now. A user's recording
    may be very large, and has no past, like one that is played once."""
    clock.now = 10_000.0
    source = ReplaySource(None, loop=True, clock=clock)
    gpu = source.open().gpus[0]
    now = source.read(gpu, "fast")
    past = source.rewound(SetClock(9_970.0))
    assert past is not None
    assert past.open().gpus[0] == gpu
    before = past.read(gpu, "fast")
    assert before != now
    assert source.read(gpu, "fast") == now
    clock.now = 9_970.0
    assert source.read(gpu, "fast") == before
    for path, loop in ((four_ticks, True), (None, False)):
        assert ReplaySource(path, loop=loop, clock=clock).rewound(clock) is None


def test_a_recording_has_no_windows_of_the_driver() -> None:
    """A replayed GPU has no utilization windows, because recordings don't contain them."""
    source = open_source("replay")
    assert source.read(source.open().gpus[0], "windows") == ({"windows": None}, {"windows": NOT_RECORDED})
