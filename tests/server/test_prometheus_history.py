"""``GET gpuwidget/api/history`` for times that the server has no samples of, and for other machines: a real
Prometheus answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from fakes import EPOCH, FakeSource, gpu
from helpers_prometheus import Prometheus, find_programs, write_past
from helpers_server import Server

from gpuwidget.server import wire

DAY_S = 24 * 3600.0
GIB = 1024**3
NIGHT = (EPOCH - DAY_S) // 3600 * 3600
"""The beginning of an hour, a day before the server's start, of which Prometheus has samples."""
SCRAPE_S = 30
SPIKE_S = 1995
"""Seconds after ``NIGHT`` of the only sample of GPU 1 with a utilization of 100 %."""
FIRST, SECOND = gpu(0).uuid, gpu(1).uuid
OTHER_NIGHT = NIGHT + 4 * 3600
"""The beginning of an hour with samples from nvidia_gpu_exporter and unknown values from dcgm-exporter."""
RECORDED = NIGHT + 8 * 3600
"""The beginning of an hour in which a server played a recording of this machine for 15 minutes."""
BLANK = 2147483632
"""DCGM's number for an unknown value."""


def samples(value: float, *, since: float = NIGHT, until: float = NIGHT + 3600) -> list[tuple[float, float]]:
    """Return one sample with the same value per scrape."""
    return [(since + SCRAPE_S * (number + 0.5), value) for number in range(int((until - since) / SCRAPE_S))]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with three hours of samples.

    In the hour from ``NIGHT`` on, GPU 0 has samples from gpuwidget's exporter, with a gap of ten minutes, and
    GPU 1 from dcgm-exporter.
    """
    programs = find_programs()
    folder = tmp_path_factory.mktemp("prometheus")
    own = f'{{job="gpuwidget",instance="a:8888",gpu="0",UUID="{FIRST}"}}'
    dcgm = f'{{job="dcgm",instance="a:9400",gpu="1",UUID="{SECOND}",Hostname="a"}}'
    early, late = {"until": NIGHT + 1200}, {"since": NIGHT + 1800}
    nvidia = f'{{job="nvidia",instance="a:9835",uuid="{FIRST.removeprefix("GPU-")}"}}'
    other = {"since": OTHER_NIGHT, "until": OTHER_NIGHT + 3600}
    recording = '{job="gpuwidget",instance="b:8888"'
    recorded = {"since": RECORDED, "until": RECORDED + 900}
    write_past(
        programs["promtool"],
        folder,
        {
            f"gpuwidget_gpu_utilization_ratio{own}": [
                *samples(0.25, **early),
                *samples(0.75, **late),
                *samples(0.25, since=RECORDED, until=RECORDED + 1800),
            ],
            f'gpuwidget_gpu_utilization_ratio{recording},gpu="0",UUID="{FIRST}"}}': samples(0.5, **recorded),
            f'gpuwidget_build_info{recording},source="replay"}}': samples(1, **recorded),
            f"gpuwidget_gpu_memory_used_bytes{own}": [*samples(GIB, **early), *samples(2 * GIB, **late)],
            f"DCGM_FI_DEV_GPU_UTIL{dcgm}": [
                *((time, 100 if time == NIGHT + SPIKE_S else value) for time, value in samples(40)),
                *samples(50, since=OTHER_NIGHT, until=OTHER_NIGHT + 900),
                *samples(BLANK, since=OTHER_NIGHT + 900, until=OTHER_NIGHT + 1800),
                *samples(50, since=OTHER_NIGHT + 1800, until=OTHER_NIGHT + 3600),
            ],
            f"DCGM_FI_DEV_FB_USED{dcgm}": [*samples(2048), *samples(2048, **other)],
            f"nvidia_smi_utilization_gpu_ratio{nvidia}": samples(0.25, **other),
            f"nvidia_smi_memory_used_bytes{nvidia}": samples(GIB, **other),
        },
    )
    made = Prometheus(programs["prometheus"], folder, [])
    made.wait_until_ready()
    yield made
    made.stop()


@pytest.fixture
def configuration(prometheus: Prometheus, request: pytest.FixtureRequest) -> dict[str, object]:
    """The server queries the Prometheus, or the address in the test's parameter."""
    return {"prometheus_url": getattr(request, "param", prometheus.url)}


async def past(server: Server, **query: Any) -> tuple[int, Any]:
    """Request utilization and memory of the hour."""
    return await server.get(
        "history",
        **{"metrics": "utilization,memory_used", "since": NIGHT, "until": NIGHT + 3599, "points": 6, **query},
    )


async def test_what_happened_before_the_server_was_started(server: Server) -> None:
    """A new server answers what its GPUs did a day ago, in the format and the units of its own history,
    whichever exporter reported them. A gap stays a gap."""
    # The page learns from its config that it may offer more than the last hour.
    assert server.app.web_app.settings["page_config_data"]["gpuwidgetCluster"] == "true"
    status, answer = await past(server)
    assert status == 200, answer
    assert set(answer) == {field.name for field in fields(wire.MetricHistory)}
    assert (answer["since"], answer["until"], answer["step_s"]) == (NIGHT, NIGHT + 3599, 600)
    assert answer["newest"] == NIGHT + 3599
    assert answer["t"] == [NIGHT + 600 * number for number in range(6)]
    assert answer["samples"] == [20] * 6
    gap = [None]
    assert answer["gpus"] == [
        {
            "uuid": FIRST,
            "metrics": {
                "utilization": {"mean": [25.0] * 2 + gap + [75.0] * 3, "min": None, "max": None},
                "memory_used": {"mean": [GIB] * 2 + gap + [2 * GIB] * 3, "min": None, "max": None},
            },
        },
        {
            "uuid": SECOND,
            "metrics": {
                # No spike is lost.
                "utilization": {
                    "mean": [40.0] * 3 + [43.0] + [40.0] * 2,
                    "min": [40.0] * 6,
                    "max": [40.0] * 3 + [100.0] + [40.0] * 2,
                },
                "memory_used": {"mean": [2 * GIB] * 6, "min": None, "max": None},
            },
        },
    ]


async def test_nvidia_gpu_exporter_and_unknown_values(server: Server) -> None:
    """The history from nvidia_gpu_exporter has the same units. A number that stands for an unknown value in
    DCGM is never part of a mean, a minimum or a maximum: a step that contains one is unknown."""
    _, answer = await past(server, since=OTHER_NIGHT, until=OTHER_NIGHT + 3599)
    assert answer["t"] == [OTHER_NIGHT + 600 * number for number in range(6)]
    assert answer["samples"] == [20] * 6
    assert answer["gpus"] == [
        {
            "uuid": FIRST,
            "metrics": {
                "utilization": {"mean": [25.0] * 6, "min": None, "max": None},
                "memory_used": {"mean": [GIB] * 6, "min": None, "max": None},
            },
        },
        {
            "uuid": SECOND,
            "metrics": {
                "utilization": {"mean": [50.0] + [None] * 2 + [50.0] * 3, "min": None, "max": None},
                "memory_used": {"mean": [2 * GIB] * 6, "min": None, "max": None},
            },
        },
    ]


async def test_a_recording_that_ends_within_a_step(server: Server) -> None:
    """What a server played from a recording is never history, not even in the step in which it stopped."""
    _, answer = await past(server, since=RECORDED, until=RECORDED + 3599, metrics="utilization")
    assert answer["t"] == [RECORDED + 600 * number for number in range(3)]
    assert answer["gpus"] == [
        {"uuid": FIRST, "metrics": {"utilization": {"mean": [25.0] * 3, "min": None, "max": None}}},
        {"uuid": SECOND, "metrics": {}},
    ]


async def test_steps_are_not_shorter_than_a_600th_of_the_range(server: Server) -> None:
    """Thirty days have at most 600 steps, however many points a client requests."""
    _, answer = await past(server, since=EPOCH - 30 * DAY_S, until=EPOCH, points=4000)
    assert answer["step_s"] == 7200
    assert answer["t"] == [hour // 7200 * 7200 for hour in (NIGHT, OTHER_NIGHT, RECORDED)]


async def test_times_without_any_sample(server: Server) -> None:
    """For a time of which nobody has samples, the answer is empty: nothing is drawn through."""
    status, answer = await past(server, since=NIGHT - 3 * 3600, until=NIGHT - 2 * 3600)
    assert (status, answer["t"], answer["newest"]) == (200, [], None)
    assert answer["gpus"] == [{"uuid": uuid, "metrics": {}} for uuid in (FIRST, SECOND)]


async def test_ranges_are_limited_to_30_days(server: Server) -> None:
    """With a Prometheus, a range that begins more than 30 days ago is cut there."""
    _, answer = await past(server, since=0)
    assert server.clock is not None
    assert answer["since"] == pytest.approx(server.clock.time() - 30 * DAY_S, abs=60)


@pytest.mark.parametrize("node", ["b", 'a"} or vector(1) #', ""])
async def test_an_unknown_node_is_refused(server: Server, node: str) -> None:
    """A name that no node of the cluster has is refused, and never becomes part of a query."""
    status, answer = await past(server, node=node)
    assert status == 404
    assert answer["message"].startswith("Prometheus has no GPUs of a machine with this name.")


@pytest.mark.parametrize("configuration", ["http://127.0.0.1:9"], indirect=True)
async def test_a_dead_prometheus_affects_only_the_long_ranges(server: Server) -> None:
    """If Prometheus is down, a request for yesterday fails with the reason, and the last hour is answered."""
    status, answer = await past(server)
    assert status == 503
    assert answer["message"].startswith("Prometheus at 127.0.0.1:9 can't be reached (Connection refused).")
    status, answer = await server.get("history", metrics="utilization", seconds=600)
    assert status == 200


async def test_a_hung_driver(server: Server, source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the driver hangs, the server has no list of its GPUs: a request for yesterday fails with the
    reason, instead of returning an empty history. The last hour is answered from the server's own history."""
    monkeypatch.setattr("gpuwidget.server.handlers._SAMPLE_TIMEOUT_S", 0.1)
    source.hang_in_open = threading.Event()
    status, answer = await past(server)
    assert (status, answer["message"].partition(".")[0]) == (
        503,
        "The driver has not answered within 5 seconds",
    )
    status, answer = await past(server, since=EPOCH - 600, until=EPOCH)
    assert (status, answer["t"], answer["gpus"]) == (200, [], [])
