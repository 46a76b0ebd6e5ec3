"""Recordings of any size and with any content: a limit is named and checked before memory is used, and a
recording that can be read can also be shown."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fakes import EPOCH, FakeClock
from helpers_hostile import mutated
from helpers_recordings import meta, tick, values, why_not, write
from helpers_samples import h200, process, reading, sample

from gpuwidget.cli.commands.record import write_samples
from gpuwidget.model.errors import GpuLostError, RecordingError, SourceLostError
from gpuwidget.model.metrics import GROUPS
from gpuwidget.model.to_json import to_json
from gpuwidget.server.prometheus import KernelLabels, metrics_text
from gpuwidget.sources import recording
from gpuwidget.sources.recording import read
from gpuwidget.sources.replay import ReplaySource

DAY_S = 86400.0
SEEDS = 400


def too_large(path: Path, line: int, limit: str) -> str:
    """Return the message for a recording that exceeds a limit."""
    return (
        f"The recording {str(path)!r} is too large: line {line} exceeds the limit of {limit}. Make a shorter "
        "one, or one with a longer interval, with 'gpuwidget record FILE'."
    )


def pack(path: Path, pieces: Iterable[bytes]) -> Path:
    """Write a compressed file piece by piece, and return its path."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for piece in pieces:
            file.write(piece)
    return path


def head(gpus: int = 1) -> bytes:
    """Return the first line of a recording."""
    return json.dumps(meta(gpus)).encode() + b"\n"


# -- limits ----------------------------------------------------------------------------------------------


def test_a_large_machine_fits(tmp_path: Path) -> None:
    """A recording of a day on a machine with 112 MIG slices and thousands of processes can be read, as can a
    recording of a month on a small one."""
    procs = [[4_194_304 + number, 150_754_820_096, "graphics"] for number in range(150)]
    large = write(
        tmp_path / "large",
        meta(112),
        *(tick(t, *(values(procs=procs) for _ in range(112))) for t in (0, DAY_S)),
    )
    assert [len(one.series.processes[1] or ()) for one in read(large).gpus] == [150] * 112
    small = write(tmp_path / "small", meta(), tick(0, values()), tick(31 * DAY_S - 1, values()))
    assert read(small).duration_s == 31 * DAY_S


def test_a_long_line(tmp_path: Path) -> None:
    """A line of more than 1 MiB is refused with its number."""
    padded = {**tick(0, values()), "phase": "x" * (1 << 20)}
    path = write(tmp_path / "x", meta(), tick(0, values()), padded)
    assert why_not(path) == too_large(path, 3, "1 MiB per line")


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    """Of a small compressed file with a line of 2 GiB, at most a line of the allowed length is unpacked."""
    path = pack(tmp_path / "bomb.gz", [head(), b'{"t":0,"phase":"'])
    # A file may consist of several compressed parts.
    part = gzip.compress(b"x" * (1 << 24))
    with path.open("ab") as file:
        file.writelines([part] * 128)
    assert path.stat().st_size < 3 << 20
    tracemalloc.start()
    try:
        assert why_not(path) == too_large(path, 2, "1 MiB per line")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_the_unpacked_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of more than 2 GiB of text is refused, however small its file is."""
    assert recording.MAX_BYTES == 2 << 30
    line = json.dumps({**tick(0, values()), "phase": "x" * 1_000_000}).encode() + b"\n"
    monkeypatch.setattr(recording, "MAX_BYTES", 3 * len(line))
    path = pack(tmp_path / "x.gz", [head(), *[line] * 4])
    assert why_not(path) == too_large(path, 4, "0 GiB of text")


def test_the_number_of_gpus(tmp_path: Path) -> None:
    """A recording of more than 256 GPUs and slices is refused."""
    path = write(tmp_path / "x", meta(257), tick(0, *[values()] * 257))
    assert why_not(path) == too_large(path, 1, "256 GPUs")
    assert len(read(write(path, meta(256), tick(0, *[values()] * 256))).gpus) == 256


@pytest.mark.parametrize("t", [31 * DAY_S + 1, 1e300])
def test_the_duration(tmp_path: Path, t: float) -> None:
    """A recording of more than 31 days is refused, also if its first line gives a longer interval."""
    path = write(tmp_path / "x", meta(), tick(0, values()), tick(t, values()))
    assert why_not(path) == too_large(path, 3, "31 days")
    first = meta()
    first["meta"]["tick_s"] = t
    assert why_not(write(path, first, tick(0, values()))) == too_large(path, 1, "31 days")


def test_the_number_of_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of ticks, GPUs and processes is limited, because each takes memory, even if its text is
    short. A list of processes that has not changed counts once."""
    assert recording.MAX_ENTRIES == 5_000_000
    monkeypatch.setattr(recording, "MAX_ENTRIES", 20)
    empty = write(tmp_path / "x", meta(0), *(tick(t) for t in range(21)))
    assert why_not(empty) == too_large(empty, 22, "20 entries")
    cards = write(tmp_path / "y", meta(8), *(tick(t, *[{}] * 8) for t in range(3)))
    assert why_not(cards) == too_large(cards, 4, "20 entries")
    changing = [[[pid, number] for pid in range(9)] for number in range(3)]
    lists = write(tmp_path / "z", meta(), *(tick(t, values(procs=one)) for t, one in enumerate(changing)))
    assert why_not(lists) == too_large(lists, 4, "20 entries")
    same = write(tmp_path / "w", meta(), *(tick(t, values(procs=changing[0])) for t in range(11)))
    assert len(read(same).times) == 11


def test_memory_per_entry(tmp_path: Path) -> None:
    """A recording that consists of very short entries takes at most 300 bytes of memory per entry."""
    ticks, cards = 800, 8
    for number, one in enumerate(({}, {"gpm": {}, "energy_mj": 1})):
        line = json.dumps(tick(0, *[one] * cards)).encode() + b"\n"
        path = pack(tmp_path / str(number), [head(cards), *[line] * ticks])
        tracemalloc.start()
        try:
            kept = read(path)
            used, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert len(kept.times) == ticks
        assert used / (ticks * cards) < 300


@pytest.mark.parametrize("choice", ["replay", "replay-once"])
def test_the_command_shows_the_sentence(tmp_path: Path, choice: str) -> None:
    """If the environment variable selects a recording that is too large, the command shows why."""
    path = write(tmp_path / "x", meta(257), tick(0, *[values()] * 257))
    variables = {**os.environ, "GPUWIDGET_SOURCE": f"{choice}:{path}", "COLUMNS": "80"}
    table, sample_json = (
        subprocess.run(
            [sys.executable, "-m", "gpuwidget", *arguments], env=variables, capture_output=True, text=True
        )
        for arguments in ((), ("--json",))
    )
    assert json.loads(sample_json.stdout)["origin"]["reason"] == too_large(path, 1, "256 GPUs")
    words = " ".join((table.stdout + table.stderr).split())
    assert "is too large: line 1 exceeds the limit of 256 GPUs. Make a shorter one" in words


# -- recording -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("MAX_ENTRIES", 20, "20 entries"),
        ("MAX_DURATION_S", 2.0, "2.31481e-05 days"),
        ("MAX_BYTES", 3000, "0 GiB of text"),
        ("MAX_LINE_BYTES", 700, "0 MiB per line"),
    ],
)
def test_recording_ends_at_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, limit: str
) -> None:
    """Recording ends before the file is too large to be read, and says so. The file can be read."""
    monkeypatch.setattr(recording, name, value)
    one, path = h200(0), tmp_path / "run.jsonl"
    said: list[str] = []

    def samples() -> Iterator[Any]:
        for number in range(100):
            held = tuple(process(10**6 + pid, 10**10) for pid in range(number // 3))
            lost = EPOCH if number == 2 else None
            listed = reading(one, processes=held, lost_since=lost)
            yield sample((one, listed), time=EPOCH + 0.5 * number)

    write_samples(samples(), path, 0.5, said.append)
    assert said[1] == f"The recording ends here, because it has reached the limit of {limit}."
    assert said[2].startswith("Recorded ")
    assert len(read(path).times) == int(said[2].split()[1]) < 100


# -- content ---------------------------------------------------------------------------------------------


def play(path: Path) -> None:
    """Read everything from a recording at several moments, and encode it as a view does."""
    clock = FakeClock()
    source = ReplaySource(str(path), loop=True, clock=clock)
    found = source.open()
    for _ in range(4):
        clock.advance(0.37)
        for one in found.gpus:
            for group in GROUPS:
                try:
                    shown = source.read(one, group)
                except (GpuLostError, SourceLostError):
                    continue
                text = json.dumps(to_json((one, found.origin, shown)), ensure_ascii=False, allow_nan=False)
                text.encode()


def test_no_recording_breaks_a_view(tmp_path: Path) -> None:
    """Whatever a file contains, it is either refused with a sentence or can be played."""
    path = tmp_path / "x.jsonl"
    gpm = {"gpm": {"sm": 50.0, "fp32": 5.0}, "energy_mj": 100_000}
    valid = [
        meta(2),
        *(tick(t, values(**gpm), values(procs=[[7, 1000], [8, None, "graphics"]])) for t in (0, 1, 2)),
    ]
    for index, card in enumerate(valid[0]["meta"]["gpus"]):
        card.update(uuid=f"GPU-{index}", index=index, missing={"fan_speed": "not supported"})
    read_ones = 0
    for seed in range(SEEDS):
        lines = mutated(Random(seed), valid, 1 + seed % 3)
        lines = lines if isinstance(lines, list) else [lines]
        try:
            text = "".join(f"{json.dumps(line)}\n" for line in lines)
        except (RecursionError, ValueError):
            text = "[" * 5000
        path.write_text(text)
        with suppress(RecordingError):
            read(path)
            read_ones += 1
            play(path)
    assert SEEDS / 10 < read_ones < SEEDS


def test_tiny_intervals_can_be_played(tmp_path: Path) -> None:
    """A recording that claims to last for an infinitely small time can be played."""
    first = meta()
    first["meta"]["tick_s"] = 5e-324
    play(write(tmp_path / "x", first, tick(0, values())))
    del first["meta"]["tick_s"]
    play(write(tmp_path / "y", first, tick(0, values()), tick(5e-324, values())))


@pytest.mark.parametrize("size", [-1, 2**53, 1e300])
def test_impossible_sizes_of_processes(tmp_path: Path, size: float) -> None:
    """A process with an impossible number of bytes is an error with the line's number."""
    path = write(tmp_path / "x", meta(), tick(0, values(procs=[[7, size]])))
    assert "(line 2: a process has an impossible id or number of bytes)" in why_not(path)


def test_names_that_cannot_be_encoded(tmp_path: Path) -> None:
    """A name with a lone surrogate, which JSON can contain but UTF-8 can't, breaks neither a view nor the
    metrics. Very long names are cut off."""
    card = {
        "name": "H\ud800",
        "uuid": "GPU-\udfff",
        "pci_bus_id": "\ud800",
        "missing": {"fan_speed": "\ud800"},
    }
    first = meta(1, **card)
    first["meta"]["driver"] = "\ud800" * 5000
    path = write(tmp_path / "x", first, tick(0, values(util=None)))
    play(path)
    kept = read(path)
    assert (kept.gpus[0].gpu.name, kept.gpus[0].gpu.uuid) == ("H?", "GPU-?")
    assert kept.driver == "?" * 1000
    one = replace(kept.gpus[0].gpu, name="\ud800", uuid="\ud800")
    text = metrics_text(sample((one, reading(one))), None, KernelLabels(str, "anna", names=True)).decode()
    assert 'gpuwidget_gpu_utilization_ratio{UUID="?",gpu="0",mig="",model="?"}' in text
