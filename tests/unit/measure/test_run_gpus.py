"""Which GPUs a run reports, and which of them it shows."""

from __future__ import annotations

import os
import sys

import pytest
from fakes import EPOCH
from helpers_samples import GIB, h200, process, reading, sample

from gpuwidget.measure.run_gpus import Tracks
from gpuwidget.model.errors import OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Origin
from gpuwidget.system import processes

REPLAY = Origin(kind="replay", reason=None, recording="a recording", driver=None, cuda_driver=None)


@pytest.fixture(autouse=True)
def _host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch; process ids are those the driver names, as outside containers."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)


def at(index: int, *holding: Process, measured: float = 0.0) -> tuple[Gpu, Reading]:
    """A GPU with those processes on it."""
    return h200(index), reading(h200(index), processes=holding, measured=EPOCH + measured)


def numbers(tracks: Tracks) -> list[int]:
    return [track.gpu.index for track in tracks.shown()]


def test_those_in_use_are_shown() -> None:
    """The GPUs this process holds memory on, from when it does; nothing is known before the first sample."""
    tracks = Tracks(1.0)
    assert (tracks.all, tracks.origin, tracks.attributed, tracks.course()) == ([], None, False, ((), {}))
    tracks.begin(sample(at(0), at(1)), EPOCH, ())
    assert (tracks.attributed, numbers(tracks), len(tracks.all)) == (True, [], 2)
    tracks.started = EPOCH
    tracks.add(1.0, sample(at(0), at(1, process(os.getpid(), GIB), measured=1.0)))
    assert numbers(tracks) == [1]


def test_those_asked_for_are_shown() -> None:
    """Whether they are in use or not, and no other is reported; one that does not exist is refused."""
    tracks = Tracks(1.0)
    tracks.begin(sample(at(0), at(1)), EPOCH, ("1",))
    assert (numbers(tracks), [track.gpu.index for track in tracks.all]) == ([1], [1])
    with pytest.raises(OptionError):
        Tracks(1.0).begin(sample(at(0)), EPOCH, ("7",))


def test_a_recordings_are_all_shown() -> None:
    """Its processes are nobody's here, and what torch holds is no part of it."""
    tracks = Tracks(1.0)
    tracks.begin(sample(at(0), at(1), origin=REPLAY), EPOCH, ())
    assert (tracks.recorded, tracks.attributed, numbers(tracks)) == (True, False, [0, 1])
    assert (tracks.devices(), tracks.torch_names()) == ((), {})


def test_a_start_that_was_read_too_early_is_unknown() -> None:
    """Where a GPU did not answer anew, what it read before is not the run's start, nor its end."""
    tracks = Tracks(1.0)
    tracks.begin(sample(at(0), at(1, measured=0.5)), EPOCH + 0.5, ())
    tracks.started = EPOCH + 0.5
    tracks.end(1.0, sample(at(0, measured=1.5), at(1, measured=0.5)), EPOCH + 1.5)
    spans = [track.device_memory() for track in tracks.all]
    assert [(span.start, span.end) for span in spans] == [(None, 60 * GIB), (60 * GIB, None)]


def test_what_they_read_lately() -> None:
    """Of each that is shown its latest track, and how long that is; none before a sample in the run."""
    tracks = Tracks(1.0)
    mine = process(os.getpid(), GIB)
    tracks.begin(sample(at(0, mine), at(1)), EPOCH, ())
    tracks.started = EPOCH
    assert tracks.recent(0.5) == []
    tracks.add(1.0, sample(at(0, mine, measured=1.0), at(1, measured=1.0)))
    assert [(track.gpu.index, seconds) for track, seconds in tracks.recent(2.0)] == [(0, 2.0)]


def test_courses_are_told_by_uuid() -> None:
    """Each GPU's course is found by its UUID, whichever of them are shown."""
    tracks = Tracks(1.0)
    tracks.begin(sample(at(0), at(1)), EPOCH, ())
    t, courses = tracks.course()
    assert (t, list(courses)) == ((0.0,), [h200(0).uuid, h200(1).uuid])
