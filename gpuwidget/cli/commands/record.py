"""``gpuwidget record``: write samples as they arrive, in the format that the source ``replay`` reads."""

from __future__ import annotations

import argparse
import gzip
import json
import shlex
import signal
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO

from gpuwidget.cli.command import Command, print_line, seconds
from gpuwidget.cli.open_sampler import stopped_at_end, wait_until_open
from gpuwidget.model.errors import RecordingError
from gpuwidget.model.metrics import Recorded
from gpuwidget.model.samples import is_settled
from gpuwidget.model.translation import counted
from gpuwidget.model.units import duration
from gpuwidget.sampler import INTERVAL_S
from gpuwidget.sources.recording import (
    GPM_METRICS,
    THROTTLE,
    TICK_METRICS,
    LimitExceeded,
    RecordingSize,
)
from gpuwidget.sources.throttle_reasons import reason_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuwidget.model.gpu_process import Process
    from gpuwidget.model.readings import Activity, Reading
    from gpuwidget.model.samples import Gpu, Sample

_SLOW_WAIT_S = 2.0
_STOP_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="the new file; compressed if its name ends in .gz"
    )
    parser.add_argument(
        "--interval",
        metavar="S",
        type=seconds,
        default=INTERVAL_S,
        help="seconds between readings (default: %(default)s)",
    )


def _record(options: argparse.Namespace) -> int:
    """Write readings to a new file every ``--interval`` seconds, until a signal of :data:`_STOP_SIGNALS`.

    Values that the driver takes long to return are read less often, so that they do not delay the other
    values. Raises RecordingError if there is nothing to record or if the file can't be written.
    """
    with stopped_at_end(options.sampler) as sampler:
        check_new_file(options.file)
        inbox: SimpleQueue[Sample | None] = SimpleQueue()
        with sampler.subscribe(inbox.put, interval_s=options.interval, activity=True):
            wait_until_open(sampler)
            with _stopped_by_signals(inbox):
                write_samples(iter(inbox.get, None), options.file, options.interval, print_line)
    return 0


COMMAND = Command(
    description="Record this machine's GPUs to a file that GPUWIDGET_SOURCE=replay:FILE plays. Ctrl-C stops.",
    add_options=_add_options,
    run=_record,
)


def check_new_file(path: Path) -> None:
    """Raise RecordingError if the file already exists."""
    if path.exists():
        raise RecordingError(f"{str(path)!r} already exists and was not overwritten: choose another name.")


def write_samples(
    samples: Iterator[Sample], path: Path, interval_s: float, print_line: Callable[[str], None]
) -> None:
    """Write samples to a new file. Print a line when the recording starts and one when it ends.

    Samples are skipped until one contains the slow readings, but for at most two seconds. Slow readings are
    values that the driver takes long to return.
    """
    began: float | None = None
    for sample in samples:
        if not sample.gpus:
            raise RecordingError(f"There is nothing to record: {sample.origin.reason or 'no GPU was found.'}")
        began = sample.time if began is None else began
        if sample.time - began >= _SLOW_WAIT_S or all(map(_has_slow_readings, sample.readings)):
            break
    else:
        raise RecordingError("Nothing was recorded: the recording was stopped before the first reading.")
    names = Counter(gpu.name for gpu in sample.gpus)
    what = ", ".join(f"{count} \N{MULTIPLICATION SIGN} {name}" for name, count in names.items())
    try:
        with RecordingWriter(path, sample, interval_s) as writer:
            print_line(f"Recording {what} every {interval_s:g} s to {path}. Ctrl-C stops.")
            writer.write(sample)
            try:
                for later in samples:
                    writer.write(later)
            except LimitExceeded as limit:
                print_line(f"The recording ends here, because it has reached the limit of {limit}.")
    except FileExistsError:
        check_new_file(path)
    except OSError as error:
        raise RecordingError(f"{str(path)!r} can't be written: {error.strerror or error}.") from error
    print_line(
        f"Recorded {counted(writer.ticks, '{number} reading', '{number} readings')} in {duration(writer.t)}. "
        f"To play them: GPUWIDGET_SOURCE={shlex.quote(f'replay:{path}')}"
    )


def _has_slow_readings(reading: Reading) -> bool:
    """Return whether the slow readings are known or will never be known.

    In both cases, the recording need not wait for them.
    """
    if reading.silent_since is not None or reading.lost_since is not None:
        return True
    return is_settled(reading, "utilization_window")


@contextmanager
def _stopped_by_signals(inbox: SimpleQueue[Sample | None]) -> Iterator[None]:
    """Within the ``with`` block, SIGINT, SIGTERM and SIGHUP put None into ``inbox`` and don't end the
    process.

    The recording is therefore always written completely.
    """
    with ExitStack() as restoring:
        for name in _STOP_SIGNALS:
            number = getattr(signal, name, None)  # Windows has no SIGHUP.
            if number is not None:
                # SimpleQueue.put is reentrant, so a signal handler may call it.
                before = signal.signal(number, lambda *_: inbox.put(None))
                restoring.callback(signal.signal, number, before)
        yield


class RecordingWriter:
    """Writes samples to a new file, limited to the GPUs of the first sample.

    Raises OSError if writing fails, and LimitExceeded instead of writing a tick with which the recording
    would be too large to be read.
    """

    def __init__(self, path: Path, first: Sample, interval_s: float) -> None:
        packed = path.suffix == ".gz"
        # __exit__ closes the file.
        self._file: BinaryIO | gzip.GzipFile = gzip.open(path, "xb") if packed else path.open("xb")  # noqa: SIM115
        self._start = first.time
        self._uuids = tuple(gpu.uuid for gpu in first.gpus)
        self._activity: dict[str, Activity] = {}
        self._energy: dict[str, float] = {}
        self._processes: dict[str, tuple[Process, ...] | None] = {}
        self._size = RecordingSize()
        self.ticks = 0
        self.t = 0.0
        """Seconds from the first tick to the newest one."""
        self._write_line({"meta": _meta(first, interval_s)})

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, sample: Sample) -> None:
        # The wall clock may be set back, but times in a recording must never decrease.
        t = max(self.t, round(sample.time - self._start, 3))
        self._size.add_tick(t, len(self._uuids))
        readings = {reading.uuid: reading for reading in sample.readings}
        gpus = [self._tick(readings[uuid]) for uuid in self._uuids]
        self._write_line({"t": t, "phase": None, "gpus": gpus})
        self.t = t
        self.ticks += 1

    def _tick(self, reading: Reading) -> dict[str, Any]:
        if reading.lost_since is not None:
            self._processes.pop(reading.uuid, None)
            return {"lost": True}
        if reading.processes != self._processes.get(reading.uuid):
            self._processes[reading.uuid] = reading.processes
            self._size.add_entries(len(reading.processes or ()))
        throttle = reading.throttle
        tick: dict[str, Any] = {
            **{metric.key: _recorded(getattr(reading, key), metric) for key, metric in TICK_METRICS},
            THROTTLE: None if throttle is None else reason_mask(throttle),
            "procs": None
            if reading.processes is None
            else [_process(process) for process in reading.processes],
        }
        # Values that are read rarely are written only when they have changed.
        activity, energy = reading.activity, reading.energy_j
        if activity is not None and activity != self._activity.get(reading.uuid):
            self._activity[reading.uuid] = activity
            tick["gpm"] = _gpm(activity)
        if energy is not None and energy != self._energy.get(reading.uuid):
            self._energy[reading.uuid] = energy
            tick["energy_mj"] = round(energy * 1000)
        return tick

    def _write_line(self, value: dict[str, Any]) -> None:
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        self._size.add_line(len(line))
        self._file.write(line)


def _meta(first: Sample, interval_s: float) -> dict[str, Any]:
    major, _, minor = (first.origin.cuda_driver or "").partition(".")
    return {
        "driver": first.origin.driver,
        "cuda_driver": int(major) * 1000 + int(minor) * 10 if major.isdigit() and minor.isdigit() else None,
        "tick_s": interval_s,
        "recorded": first.time,
        "gpus": [_gpu_meta(gpu, reading) for gpu, reading in zip(first.gpus, first.readings, strict=True)],
    }


def _gpu_meta(gpu: Gpu, reading: Reading) -> dict[str, Any]:
    limit = reading.power_limit_w
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "mig_index": gpu.mig_index,
        "mig_parent": gpu.mig_parent,
        "name": gpu.name,
        "memory_total": gpu.memory_total,
        "memory_reserved": gpu.memory_reserved,
        "unified_memory": gpu.unified_memory,
        "power_limit_mw": None if limit is None else round(limit * 1000),
        "pci_bus_id": gpu.pci_bus_id,
        "compute_capability": gpu.compute_capability,
        "peak_fp32_flops": gpu.peak_fp32_flops,
        "memory_bandwidth": gpu.memory_bandwidth,
        "utilization_window_s": reading.utilization_window,
        "missing": dict(reading.missing),
    }


def _process(process: Process) -> list[Any]:
    entry = [process.pid, process.memory]
    return entry if process.kind == "compute" else [*entry, process.kind]


def _gpm(activity: Activity) -> dict[str, float | None]:
    return {metric.key: _recorded(getattr(activity, key), metric) for key, metric in GPM_METRICS}


def _recorded(value: float | None, recorded: Recorded) -> float | None:
    if value is None:
        return None
    # A value is stored as a whole number if its unit in the recording, such as mW, is smaller than its unit
    # in gpuwidget.model, such as W.
    return round(value * recorded.scale) if recorded.scale > 1 else value * recorded.scale
