"""Measure how much clients of gpuwidget's sample stream slow down a Jupyter server.

Each open panel is a client of the stream. With 1, 20 and 100 clients, the benchmark measures the response
time of requests that have nothing to do with the stream. The server runs fifty notebooks, and each of their
kernels holds memory on one of the GPUs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clients import clients, messages
from benchmarks.figures import Figure
from benchmarks.servers import Server, server
from benchmarks.settings import Settings, environment
from benchmarks.standin import machine
from benchmarks.statistics import p95

_GPUS = 8
_COUNTS = (1, 20, 100)
_NOTEBOOKS = 50
_REPORT_TIMEOUT_S = 10.0
_BAR_MS = 3.0
_CALLS_BAR = 1.05
"""Highest acceptable ratio of the NVML calls per second with the most clients to those with one client. It
exceeds 1 because one of the two measurements may contain one more full poll than the other."""
_SETTLE_S = 2.0
_LINGER_S = 12.0
"""Seconds to wait after the last client has left, until the server has closed the driver."""
_PATH = "/gpuwidget/api/stream"


def measure(settings: Settings) -> Iterator[Figure]:
    """Measure by how much clients raise the 95th percentile of ``GET /api/status``; count NVML calls."""
    rounds, window_s = settings.pick(4, 1), settings.pick(10.0, 3.0)
    times: dict[int, list[float]] = {count: [] for count in (0, *_COUNTS)}
    calls: dict[int, list[float]] = {count: [] for count in (0, *_COUNTS)}
    with TemporaryDirectory() as folder:
        standin = machine(Path(folder), _GPUS)
        with server(Path(folder), "gpuwidget", environment(standin.environment())) as running:
            standin.scenario(*_held_by(running.start_notebooks(_NOTEBOOKS)))
            received = _kernels_received(running)
            for number in range(rounds):
                # Alternate the order of the client counts, so that drift does not favor one of them.
                for count in (0, *_COUNTS) if number % 2 == 0 else (*reversed(_COUNTS), 0):
                    with clients(running, [_PATH] * count):
                        time.sleep(_SETTLE_S if count else _LINGER_S)
                        standin.calls()
                        began = time.perf_counter()
                        times[count].append(p95(running.status_times(window_s)))
                        calls[count].append(sum(standin.calls().values()) / (time.perf_counter() - began))
    baseline = times[0]
    for count in _COUNTS:
        clients_text = "1 stream client" if count == 1 else f"{count} stream clients"
        yield Figure(
            benchmark="streams",
            what=f"p95 of GET /api/status beside {clients_text}, minus that without; {_NOTEBOOKS} kernels",
            unit="ms",
            bar=_BAR_MS,
            values=[loaded - idle for loaded, idle in zip(times[count], baseline, strict=True)],
            conditions={"each kernel's memory is told": received == _NOTEBOOKS},
            details={"p95 without, ms": baseline, "p95 with, ms": times[count]},
        )
    yield Figure(
        benchmark="streams",
        what=f"NVML calls a second with {_COUNTS[-1]} clients over those with one",
        unit="ratio",
        bar=_CALLS_BAR,
        values=[most / single for most, single in zip(calls[_COUNTS[-1]], calls[1], strict=True)],
        conditions={"no call without a client": not any(calls[0])},
        details={f"calls a second, {count} clients": calls[count] for count in calls},
    )


def _kernels_received(running: Server) -> int:
    """Return the number of kernels for which a client receives the memory usage."""
    usages = [
        message for message in messages(running, _PATH, _REPORT_TIMEOUT_S) if message["type"] == "usage"
    ]
    held = [holding for gpu in usages[-1]["gpus"] for holding in gpu["holdings"]] if usages else []
    return len({each["kernel"] for each in held if each["kernel"] is not None and each["memory"] is not None})


def _held_by(pids: Sequence[int]) -> list[str]:
    """Return scenario lines in which each of these processes holds memory on one GPU."""
    lines = [f"gpus={_GPUS}", "latency=h200", "gpu.*.util=97", "gpu.*.memory_used=80000000000"]
    for gpu in range(_GPUS):
        held = " ".join(f"{pid}:{1 << 30}" for pid in pids[gpu::_GPUS])
        lines.append(f"gpu.{gpu}.compute={held}")
    return lines
