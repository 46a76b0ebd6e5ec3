"""Tests of the format of recordings: a recording can be read back, and other files are rejected."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from fakes import EPOCH, SetClock
from helpers_recordings import meta, tick, values, why_not, write
from helpers_samples import LIVE, group_reading, h200, process, reading, sample, status_reading

from gpuwidget.cli.commands.record import RecordingWriter, write_samples
from gpuwidget.model.errors import RecordingError
from gpuwidget.model.messages import message
from gpuwidget.model.metrics import keys
from gpuwidget.model.readings import Activity
from gpuwidget.model.samples import NOT_READ_YET, Sample
from gpuwidget.sources.recording import NOT_RECORDED, read
from gpuwidget.sources.replay import SHIPPED, ReplaySource

ACTIVITY = Activity(
    since=EPOCH,
    until=EPOCH + 0.5,
    graphics=91.2,
    sm=50.1,
    sm_occupancy=25.3,
    tensor=None,
    dram=20.7,
    fp64=0.0,
    fp32=5.1,
    fp16=1.9,
    pcie_tx=123456.7,
    pcie_rx=7654321.0,
    nvlink_tx=None,
    nvlink_rx=98765432.1,
)


def recorded(path: Path, *samples: Sample, interval_s: float = 0.5) -> list[str]:
    """Record the samples to a file. Return the lines that recording prints."""
    said: list[str] = []
    write_samples(iter(samples), path, interval_s, said.append)
    return said


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_recording_replays_the_same_values(tmp_path: Path, name: str) -> None:
    """A replay returns the same GPUs, readings, processes, counters and energy that were recorded."""
    one = h200(1, compute_capability="9.0")
    slice_ = h200(1, uuid="MIG-5", mig_index=0, mig_parent=one.uuid, unified_memory=True)
    unknown_keys = [key for key in keys("status") if getattr(reading(one, pstate=None), key) is None]
    why = dict.fromkeys(unknown_keys, "not supported by this GPU")
    procs = (process(7, 100), process(8, None))
    first = reading(one, pstate=None, missing=why, processes=procs, throttle=("power cap", "idle"))
    later = reading(
        one, utilization=12.5, power_w=99.123, memory_used=7, activity=ACTIVITY, energy_j=1306.25, missing=why
    )
    unknown = reading(slice_, utilization=None, power_w=None, throttle=None, processes=None, energy_j=None)
    recorded(
        tmp_path / name,
        sample((one, first), (slice_, unknown)),
        sample((one, later), (slice_, unknown), time=EPOCH + 0.5),
    )
    clock = SetClock(1000.0)
    source = ReplaySource(str(tmp_path / name), loop=False, clock=clock)
    found = source.open()
    assert found.gpus == (one, slice_)
    assert (found.origin.driver, found.origin.cuda_driver) == (LIVE.driver, LIVE.cuda_driver)
    assert source.read(one, "fast") == group_reading(
        utilization=97.0, memory_utilization=40.0, memory_used=first.memory_used, power_w=612.4, missing={}
    )
    steady = status_reading(
        {name: message("missing-when-recorded", text) for name, text in why.items()},
        power_limit_w=700.0,
        temperature_c=51.0,
        memory_temperature_c=55.0,
        sm_clock_mhz=1980.0,
        memory_clock_mhz=3201.0,
        fan_speed=30.0,
        encoder_utilization=0.0,
        decoder_utilization=0.0,
        throttle=("power cap", "idle"),
    )
    assert source.read(one, "status") == steady
    assert source.read(one, "slow") == group_reading(
        energy_j=1000.0,
        utilization_window=0.2,
        ecc_uncorrected=None,
        xid=None,
        missing=dict.fromkeys(("ecc_uncorrected", "xid"), NOT_RECORDED),
    )
    shown = source.read(one, "processes").values["processes"]
    assert shown is not None
    assert [(each.pid, each.kind, each.memory) for each in shown] == [
        (7, "compute", 100),
        (8, "compute", None),
    ]
    assert source.read(slice_, "processes").values["processes"] is None
    assert source.read(slice_, "fast").values["utilization"] is None
    assert source.read(one, "activity").values["activity"] is None
    clock.now = 1000.5
    assert source.read(one, "fast") == group_reading(
        utilization=12.5, memory_utilization=40.0, memory_used=7, power_w=99.123, missing={}
    )
    assert source.read(one, "slow").values["energy_j"] == 1306.25
    activity = source.read(one, "activity").values["activity"]
    assert activity is not None
    for field in ("graphics", "sm", "sm_occupancy", "tensor", "dram", "fp64", "fp32", "fp16"):
        assert getattr(activity, field) == getattr(ACTIVITY, field)
    for field in ("pcie_tx", "pcie_rx", "nvlink_tx", "nvlink_rx"):
        assert getattr(activity, field) == getattr(ACTIVITY, field)
    assert (activity.since, activity.until) == (1000.0, 1000.5)


def test_recordings_have_the_keys_of_the_packaged_recording(tmp_path: Path) -> None:
    """A recording that a user makes has all keys that are in the packaged recording."""
    one = h200(0)
    path = tmp_path / "run.jsonl"
    recorded(path, sample((one, reading(one, activity=ACTIVITY, processes=(process(7, 100),)))))
    made_meta, made_tick = [json.loads(line) for line in path.read_text().splitlines()]
    with gzip.open(SHIPPED, "rt") as file:
        shipped = [json.loads(line) for line in file]
    whole = next(line for line in shipped[1:] if {"gpm", "energy_mj"} <= set(line["gpus"][0]))
    assert set(made_tick) == set(whole)
    assert set(whole["gpus"][0]) <= set(made_tick["gpus"][0])
    assert set(whole["gpus"][0]["gpm"]) <= set(made_tick["gpus"][0]["gpm"])
    assert set(shipped[0]["meta"]) <= set(made_meta["meta"])
    assert made_tick["gpus"][0]["procs"] == [[7, 100]]


def test_rarely_read_values_are_written_when_they_are_new(tmp_path: Path) -> None:
    """Counter windows and energy, which are read less often than other values, are written only in the tick
    in which they are new."""
    one = h200(0)
    same = reading(one, activity=ACTIVITY)
    path = tmp_path / "run.jsonl"
    recorded(path, sample((one, same)), sample((one, same), time=EPOCH + 0.2))
    ticks = [json.loads(line)["gpus"][0] for line in path.read_text().splitlines()[1:]]
    assert [("gpm" in each, "energy_mj" in each) for each in ticks] == [(True, True), (False, False)]


def test_lost_gpus_and_graphics_processes_are_replayed(tmp_path: Path) -> None:
    """A GPU that was lost during the recording is lost in the replay too, and graphics processes are still
    graphics processes. Nothing fails if the clock was set back during the recording."""
    one = h200(0)
    drawing = process(9, 5)
    drawing = type(drawing)(pid=9, kind="graphics", memory=5, user=None, program=None)
    path = tmp_path / "run.jsonl"
    recorded(
        path,
        sample((one, reading(one, processes=(drawing,)))),
        sample((one, reading(one, lost_since=EPOCH)), time=EPOCH - 100),
    )
    track = read(path).gpus[0].series
    assert track.processes == [(drawing,), None]
    assert list(track.lost) == [0, 1]
    assert list(read(path).times) == [0.0, 0.0]


def test_recording_prints_how_to_play_the_file(tmp_path: Path) -> None:
    """Recording prints one line at its start. At its end, it prints another line with the command that plays
    the recording."""
    one = h200(0)
    path = tmp_path / "my run.jsonl"
    said = recorded(path, sample((one, reading(one))), sample((one, reading(one)), time=EPOCH + 0.5))
    assert said == [
        f"Recording 1 \N{MULTIPLICATION SIGN} NVIDIA H200 every 0.5 s to {path}. Ctrl-C stops.",
        f"Recorded 2 readings in 500 ms. To play them: GPUWIDGET_SOURCE='replay:{path}'",
    ]


def test_recording_waits_for_the_utilization_window(tmp_path: Path) -> None:
    """Recording waits until the length of the utilization window is known, because the file's first line
    contains it. If that takes more than two seconds, the first line has no length."""
    one = h200(0)
    # A reading from before the first poll of slow values.
    not_yet = {"utilization_window": NOT_READ_YET}
    blank = reading(one, utilization_window=None, missing=not_yet)
    samples = [sample((one, blank), time=EPOCH + t) for t in (0.0, 0.5)]
    known = sample((one, reading(one, utilization_window=0.1)), time=EPOCH + 1.0)
    recorded(tmp_path / "a.jsonl", *samples, known)
    assert read(tmp_path / "a.jsonl").gpus[0].utilization_window == 0.1
    late = [sample((one, blank), time=EPOCH + t) for t in (0.0, 1.0, 2.0, 3.0)]
    recorded(tmp_path / "b.jsonl", *late)
    assert list(read(tmp_path / "b.jsonl").times) == [0.0, 1.0]
    assert read(tmp_path / "b.jsonl").gpus[0].utilization_window is None


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """If the file already exists, recording raises an error and does not overwrite the file."""
    path = tmp_path / "run.jsonl"
    path.write_text("precious")
    one = h200(0)
    with pytest.raises(
        RecordingError, match=r"run\.jsonl' already exists and was not overwritten: choose another"
    ):
        recorded(path, sample((one, reading(one))))
    assert path.read_text() == "precious"


def test_nothing_to_record_and_nowhere_to_write_are_reported(tmp_path: Path) -> None:
    """If there is no GPU or no sample, or if the file can't be created, recording raises an error and leaves
    no file."""
    one = h200(0)
    path = tmp_path / "no" / "run.jsonl"
    with pytest.raises(RecordingError, match=r"run\.jsonl' can't be written: No such file or directory\."):
        recorded(path, sample((one, reading(one))))
    with pytest.raises(RecordingError, match="There is nothing to record: no GPU was found"):
        recorded(tmp_path / "run.jsonl", sample())
    with pytest.raises(
        RecordingError, match="Nothing was recorded: the recording was stopped before the first reading"
    ):
        recorded(tmp_path / "run.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk becomes full, recording raises an error that contains the operating system's message."""
    one = h200(0)

    class Full(RecordingWriter):
        """Recording writer that fails at the first tick, as if the disk were full."""

        def write(self, sample: Sample) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpuwidget.cli.commands.record.RecordingWriter", Full)
    with pytest.raises(RecordingError, match=r"can't be written: No space left on device\."):
        recorded(tmp_path / "run.jsonl", sample((one, reading(one))))


# -- files that are not recordings ---------------------------------------------------------------------


def whole(path: Path) -> Path:
    """Write a valid recording to ``path``, and return the path."""
    return write(path, meta(), tick(0, values()), tick(1, values()))


def test_a_truncated_file_is_reported(tmp_path: Path) -> None:
    """If a recording is cut off, whether compressed or not, the error reports that it is incomplete and what
    to do."""
    plain = whole(tmp_path / "x.jsonl")
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes())[:-20])
    plain.write_bytes(plain.read_bytes()[:-20])
    for path in (plain, packed):
        assert why_not(path) == (
            f"The recording {str(path)!r} is incomplete: it was not fully written or copied. "
            "Copy it again, or make a new one with 'gpuwidget record FILE'."
        )


def test_an_empty_file_and_one_without_readings_are_reported(tmp_path: Path) -> None:
    """If a recording has no ticks, an error is raised, even if the file is valid otherwise."""
    empty = write(tmp_path / "x.jsonl")
    begun = write(tmp_path / "y.jsonl", meta())
    packed = tmp_path / "z.jsonl.gz"
    packed.write_bytes(gzip.compress(b""))
    for path in (empty, begun, packed):
        assert why_not(path) == (
            f"The recording {str(path)!r} contains no readings. Make one with 'gpuwidget record FILE'."
        )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a recording\n", "line 1: not JSON"),
        (b"\x89PNG\r\n\x1a\n", "'utf-8' codec can't decode"),
        (b"[1, 2]\n", "line 1: list indices must be integers"),
        (b"12\n", "line 1: 'int' object is not subscriptable"),
        (b"{}\n", "line 1: 'meta' is missing"),
        (b'{"meta": {"gpus": [{}]}}\n', "line 1: 'name' is missing"),
        (
            b'{"meta": {"gpus": []}}\n{"t": 0, "gpus": [{}]}\n',
            "line 2: it has 1 GPUs, but the first line",
        ),
        (
            b'{"meta": {"gpus": []}}\n{"t": 1, "gpus": []}\n{"t": 0, "gpus": []}\n',
            "line 3: the time 0 is out of",
        ),
        (b'{"meta": {"gpus": []}}\n{"t": NaN, "gpus": []}\n', "line 2: the time nan is out of order"),
        (b'{"meta": {"gpus": []}}\n{"t": "soon", "gpus": []}\n', "line 2: could not convert"),
        (
            b'{"meta": {"gpus": [{"name": "A", "uuid": "GPU-1"}, {"name": "B", "uuid": "GPU-1"}]}}\n',
            "the same UUID",
        ),
        (b'{"meta": {"gpus": [{"name": "A"}]}}\n{"t": 0, "gpus": [{"util": [1]}]}\n', "line 2: float"),
        (gzip.compress(b"text\n", mtime=0), "line 1: not JSON"),
        (b"\x1f\x8b no gzip after all", "Unknown compression method"),
    ],
)
def test_any_other_file_is_rejected_with_the_line(tmp_path: Path, content: bytes, reason: str) -> None:
    """A file that is not a recording is rejected. The error contains the reason and, where there is one, the
    number of the line."""
    path = tmp_path / "x"
    path.write_bytes(content)
    said = why_not(path)
    assert said.startswith(f"{str(path)!r} is not a recording of GPUs (")
    assert reason in said
    assert said.endswith("Make one with 'gpuwidget record FILE'.")


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    """If the path of a recording is a folder, the error contains the operating system's message."""
    assert why_not(tmp_path) == f"The recording {str(tmp_path)!r} can't be read: Is a directory."


def test_a_recording_of_a_single_tick_lasts_as_long_as_one(tmp_path: Path) -> None:
    """The last tick of a recording lasts for a whole sampling interval, even if the first line does not
    contain the interval."""
    first = meta()
    assert read(write(tmp_path / "a", first, tick(5, values()))).duration_s == 1.0
    del first["meta"]["tick_s"]
    assert read(write(tmp_path / "b", first, tick(5, values()))).duration_s == 1.0
    assert read(write(tmp_path / "c", first, tick(5, values()), tick(7, values()))).duration_s == 4.0
