"""A real Prometheus, as Debian packages it,
scrapes a real server and stores the metrics that docs/admin/prometheus.md describes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from fakes import FakeSource, gpu
from helpers_prometheus import (
    ALERTS,
    FLEET_DASHBOARD,
    RECORDING_RULES,
    SERVER_DASHBOARD,
    Prometheus,
    dashboard_queries,
    find_programs,
)
from helpers_recordings import meta, tick, values, write
from helpers_samples import GIB, process
from helpers_server import Server
from server.test_memory_ownership import connected, pid_of, start_session
from server.test_prometheus_text import whole

from gpuwidget.sources.throttle_reasons import ALL_NAMES, HARMFUL
from gpuwidget.sources.xids import silent_xids
from gpuwidget.system import processes

DOCS = Path(__file__).parents[2] / "docs"
OPTIONAL_METRICS = {
    "gpuwidget_kernel_idle_holder",
    "gpuwidget_slurm_job_info",
    "gpuwidget_slurm_job_end_timestamp_seconds",
} | {
    f"gpuwidget_kernel_gpu_{name}_total"
    for name in ("held_seconds", "busy_seconds", "memory_byte_seconds", "energy_joules")
}
"""Metrics that a server exports only if the administrator has turned them on, or in a Slurm job."""
RULES_TEST = Path(__file__).parent / "data" / "rules_test.yml"


@pytest.fixture(scope="session")
def programs() -> dict[str, str]:
    """Return the paths of Prometheus and promtool, or skip the test if they are missing."""
    return find_programs()


Scrape = Callable[[Server], Prometheus]


@pytest.fixture
def scrape(programs: dict[str, str], tmp_path: Path) -> Iterator[Scrape]:
    """Return a function that starts a Prometheus, configured as docs/admin/prometheus.md describes,
    which scrapes the given server every second."""
    started: list[Prometheus] = []

    def scrape(server: Server) -> Prometheus:
        folder = tmp_path / "prometheus"
        folder.mkdir()
        (folder / "token").write_text(server.app.identity_provider.token)
        config = {
            "job_name": "gpuwidget",
            "metrics_path": unquote(f"{server.app.base_url}gpuwidget/metrics"),
            "authorization": {"credentials_file": str(folder / "token")},
            "static_configs": [{"targets": [f"127.0.0.1:{server.app.port}"], "labels": {"instance": "lab"}}],
        }
        started.append(Prometheus(programs["prometheus"], folder, config, [ALERTS, RECORDING_RULES]))
        return started[-1]

    yield scrape
    for one in started:
        one.stop()


def at(index: int, uuid: str, **labels: str) -> dict[str, str]:
    """Return the labels of a GPU's series as Prometheus stores them, without empty labels."""
    return {
        "job": "gpuwidget",
        "instance": "lab",
        "gpu": str(index),
        "UUID": uuid,
        "model": "NVIDIA H200",
        **labels,
    }


def metrics_of(text: str) -> set[str]:
    """Return the names of gpuwidget's metrics that occur in a text."""
    return set(re.findall(r"\bgpuwidget_[a-z0-9_]+\b", text))


@pytest.mark.parametrize("jp_base_url", ["/user/anna/"])
class TestOnARecording:
    """Prometheus scrapes a server that plays a recording with constant values."""

    @pytest.fixture(autouse=True)
    def recording(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write a recording of two GPUs.
        The first is throttled by its power limit, and the second has no clock reading."""
        busy = values(util=97, mem_used=60 * GIB, power_mw=612_400, temp_c=51, throttle=4)
        quiet = values(util=0, mem_used=0, power_mw=75_000, sm_mhz=None)
        path = write(tmp_path / "still.jsonl", meta(2), tick(0, busy, quiet), tick(1, busy, quiet))
        monkeypatch.setenv("GPUWIDGET_SOURCE", f"replay:{path}")

    async def test_series_have_the_values_of_the_sample(self, real_server: Server, scrape: Scrape) -> None:
        """Prometheus stores every known value of the server's sample in base units,
        and stores nothing for unknown values."""
        prometheus = scrape(real_server)
        await prometheus.until('up{job="gpuwidget"} == 1')
        uuids = [one["uuid"] for one in (await real_server.get("sample"))[1]["gpus"]]
        expected = {
            "gpuwidget_gpu_up": [1.0, 1.0],
            "gpuwidget_gpu_utilization_ratio": [0.97, 0.0],
            "gpuwidget_gpu_memory_used_bytes": [60.0 * GIB, 0.0],
            "gpuwidget_gpu_memory_total_bytes": [150754820096.0, 150754820096.0],
            "gpuwidget_gpu_memory_reserved_bytes": [644939776.0, 644939776.0],
            "gpuwidget_gpu_power_watts": [612.4, 75.0],
            "gpuwidget_gpu_power_limit_watts": [700.0, 700.0],
            "gpuwidget_gpu_temperature_celsius": [51.0, 30.0],
            "gpuwidget_gpu_sm_clock_hertz": [1.98e9],
            "gpuwidget_gpu_throttle_reason == 1": [1.0],
            "gpuwidget_gpu_memory_other_bytes": [60.0 * GIB, 0.0],
            "gpuwidget_gpu_ecc_uncorrected_errors_total": [],
            "gpuwidget_gpu_xid": [],
            "gpuwidget_kernel_memory_bytes": [],
        }
        more = {
            "gpuwidget_gpu_throttle_reason == 1": {"reason": "power cap"},
            "gpuwidget_gpu_memory_other_bytes": {"holder": "unattributed"},
        }
        for expression, of_gpus in expected.items():
            found = sorted(await prometheus.query(expression), key=lambda one: one[0]["gpu"])
            labels = more.get(expression, {})
            assert found == [
                (at(index, uuids[index], **labels), value) for index, value in enumerate(of_gpus)
            ], expression
        ((labels, _),) = await prometheus.query("gpuwidget_build_info")
        assert labels["source"] == "replay"
        ((_, age),) = await prometheus.query("time() - gpuwidget_sample_timestamp_seconds")
        assert age < 30

    async def test_prometheus_accepts_the_dashboard_and_the_rules(
        self, real_server: Server, scrape: Scrape
    ) -> None:
        """Prometheus loads all rules, and evaluates every query of the server's dashboard."""
        prometheus = scrape(real_server)
        await prometheus.until("gpuwidget_gpu_up")
        asked = dashboard_queries(SERVER_DASHBOARD)
        answers = {expression: await prometheus.query(expression) for expression in asked}
        gpus, lost, utilization, *_ = asked
        assert answers[gpus] == [({}, 2.0)]
        assert answers[lost] == [({}, 0.0)]
        assert answers[utilization] == [({}, 0.485)]
        groups = (await prometheus.api("rules"))["data"]["groups"]
        assert [(one["name"], len(one["rules"])) for one in groups] == [
            ("gpuwidget", 10),
            ("gpuwidget-nodes", 13),
            ("gpuwidget-users-and-notebooks", 14),
        ]


@pytest.fixture
def fake_gpus(source: FakeSource, hubs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server use the test's GPUs, but the system clock, which Prometheus also uses."""
    monkeypatch.setattr("gpuwidget.server.settings.open_source", lambda *_: source)
    monkeypatch.setattr(processes, "in_host_pid_namespace", lambda: True)


@pytest.mark.parametrize("configuration", [{"metrics_names": True}])
@pytest.mark.parametrize("jp_base_url", ["/user/a%2Bb%40c/"])
async def test_memory_by_notebook(
    fake_gpus: None, real_server: Server, source: FakeSource, scrape: Scrape
) -> None:
    """Prometheus stores each notebook's memory correctly,
    whatever characters the names of the notebook and the user contain."""
    name = 'a "b"\\c é.ipynb'
    kernel = (await start_session(real_server, f"work/{name}"))["kernel"]["id"]
    channels = await connected(real_server, kernel)
    channels.close()
    source.memory[0] = 40 * GIB
    source.processes[0] = (process(pid_of(real_server, kernel), 20 * GIB), process(3_999_999, 7 * GIB))
    prometheus = scrape(real_server)
    found = await prometheus.until(
        "gpuwidget_kernel_memory_bytes "
        "* on (job, instance, kernel) group_left (path, name) gpuwidget_kernel_info"
    )
    holder = {"kernel": kernel, "source": "driver", "path": f"work/{name}", "name": name}
    assert found == [(at(0, gpu(0).uuid, **holder), 20.0 * GIB)]
    others = {
        (labels["gpu"], labels["holder"]): value
        for labels, value in await prometheus.query("gpuwidget_gpu_memory_other_bytes")
    }
    assert others == {
        ("0", "process"): 7.0 * GIB,
        ("0", "unattributed"): 13.0 * GIB,
        ("1", "unattributed"): 1_000_000.0,
    }
    assert [value for _, value in await prometheus.query("gpuwidget_gpu_energy_joules_total")] == [1000.0] * 2
    types = (await prometheus.api("metadata"))["data"]
    assert types["gpuwidget_gpu_energy_joules_total"][0]["type"] == "counter"
    assert types["gpuwidget_kernel_memory_bytes"][0]["type"] == "gauge"
    ((info, _),) = await prometheus.query("gpuwidget_kernel_info")
    labels = {"instance": "lab", "kernel": kernel, "name": name}
    labels |= {"notebook": info["notebook"], "user": info["user"]}
    by_notebook = next(
        one
        for one in dashboard_queries(SERVER_DASHBOARD)
        if one.startswith("sum by (instance, kernel, notebook, user,")
    )
    assert await prometheus.query(by_notebook) == [(labels, 20.0 * GIB)]
    # The dashboard lists a notebook as idle after ten minutes.
    # A test can't wait so long, so any idle time counts here.
    await prometheus.until("gpuwidget_kernel_idle_since_timestamp_seconds")
    idle = [one.replace("> 600", ">= 0") for one in dashboard_queries(SERVER_DASHBOARD) if "> 600" in one]
    rows = [await prometheus.query(expression) for expression in idle]
    assert [[labels for labels, _ in row] for row in rows] == [[{**labels, "path": f"work/{name}"}]] * 2
    assert rows[0][0][1] == 20.0 * GIB


def run(*command: str, standard_input: bytes | None = None) -> str:
    """Run promtool, and return what it prints if it fails or warns,
    or an empty string if it accepts the input."""
    done = subprocess.run(command, input=standard_input, capture_output=True, check=False, timeout=60)
    return "" if done.returncode == 0 and not done.stderr else (done.stdout + done.stderr).decode()


def test_promtool_accepts_every_metric(programs: dict[str, str]) -> None:
    """promtool accepts the metrics' names, units, types and help texts."""
    assert run(programs["promtool"], "check", "metrics", standard_input=whole()) == ""


def test_each_rule_is_tested(programs: dict[str, str], tmp_path: Path) -> None:
    """Each alert fires under its condition, with its text, and none on a healthy machine.
    Each recording rule has the expected values."""
    assert run(programs["promtool"], "check", "rules", str(ALERTS), str(RECORDING_RULES)) == ""
    path = tmp_path / "test.yml"
    path.write_text(RULES_TEST.read_text(encoding="utf-8").replace("RULES", str(ALERTS.parent)))
    assert run(programs["promtool"], "test", "rules", str(path)) == ""
    alerts = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    tested = re.findall(r"alertname: (\w+)\n\s+exp_alerts", RULES_TEST.read_text())
    assert set(tested) == alerts
    # The rules of GPUs are tested through those of their nodes.
    recorded = {name for name in recorded_series() if not name.startswith("uuid:")}
    assert recorded - set(re.findall(r"expr: .*?([a-z]+:gpuwidget_\w+:\w+)", RULES_TEST.read_text())) == set()


def test_the_dashboard_counts_each_gpu_once(programs: dict[str, str], tmp_path: Path) -> None:
    """The totals of the server's dashboard count a GPU that two servers export once, without its MIG slices,
    and leave the memory of a GPU out of the share if it is unknown how much of it is used."""
    values: dict[str, dict[str, float]] = {
        "gpus": {"": 3},
        "gpu_up": {"A": 1, "B": 1, "C": 0},
        "gpu_utilization_ratio": {"A": 0.5, "B": 0.25},
        "gpu_memory_used_bytes": {"A": 50e9, "B": 10e9},
        "gpu_memory_total_bytes": {"A": 100e9, "B": 100e9, "C": 100e9},
        "gpu_power_watts": {"A": 300, "B": 100},
    }
    exported = {
        f'gpuwidget_{name}{{job="j",instance="{server}",UUID="{uuid}",mig=""}}': f"{value}x10"
        for server in ("anna", "ben")
        for name, by_gpu in values.items()
        for uuid, value in by_gpu.items()
    }
    exported |= {
        f'gpuwidget_gpu_energy_joules_total{{job="j",instance="{server}",UUID="A",mig=""}}': "0+6000x10"
        for server in ("anna", "ben")
    }
    exported |= {
        f'gpuwidget_{name}{{job="j",instance="anna",UUID="A1",mig="1"}}': "1x10"
        for name in ("gpu_up", "gpu_memory_used_bytes", "gpu_memory_total_bytes")
    }
    gpus, lost, utilization, memory, power, energy, *_ = dashboard_queries(SERVER_DASHBOARD)
    expected = {gpus: 3, lost: 1, utilization: 0.375, memory: 0.3, power: 400, energy: 60000}
    path = tmp_path / "test.json"
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": samples} for name, samples in exported.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": value}]}
            for query, value in expected.items()
        ],
    }
    path.write_text(json.dumps({"evaluation_interval": "1m", "tests": [case]}), encoding="utf-8")
    assert run(programs["promtool"], "test", "rules", str(path)) == ""


def recorded_series() -> set[str]:
    """Return the names of the series that the recording rules create."""
    return set(re.findall(r"record: (\S+)", RECORDING_RULES.read_text()))


def test_xids_without_an_alert() -> None:
    """The XID alert excludes the XIDs that users' programs can cause, and those that need no action, as the
    panel does."""
    (condition,) = re.findall(r"gpuwidget_gpu_xid (!= .*?) and on", ALERTS.read_text(), re.DOTALL)
    assert [int(number) for number in re.findall(r"!= (\d+)", condition)] == silent_xids()


def test_the_throttle_alert_has_all_harmful_reasons() -> None:
    """The throttling alert fires for exactly the throttle reasons that the panel and the doctor treat as
    harmful."""
    (pattern,) = re.findall(r"gpuwidget_gpu_throttle_reason\{reason=~`(.*?)`\}", ALERTS.read_text())
    assert [reason for reason in ALL_NAMES if re.fullmatch(pattern, reason)] == list(HARMFUL)


@pytest.mark.parametrize(
    "path",
    [ALERTS, RECORDING_RULES, SERVER_DASHBOARD, FLEET_DASHBOARD, DOCS / "admin" / "prometheus.md"],
    ids=lambda path: path.name,
)
def test_every_named_metric_exists(path: Path) -> None:
    """Every metric that a rule, a dashboard or the documentation names exists: exported, or recorded."""
    text = path.read_text(encoding="utf-8")
    # The documentation names the series of users and notebooks without this first part.
    series = set(re.findall(r"(?:\b[a-z]+:)?\bgpuwidget_\w+:\w+\b", text))
    without = {name.partition(":")[2] for name in recorded_series()}
    assert series - recorded_series() - without == set()
    exported = set(re.findall(r"^# TYPE (\w+) ", whole().decode(), re.MULTILINE)) | OPTIONAL_METRICS
    named = metrics_of(re.sub(r"\bgpuwidget_\w+:\w+\b", "", text))
    assert named | series
    assert named - exported == set()


def test_every_metric_is_documented() -> None:
    """The documentation's tables list every metric."""
    exported = set(re.findall(r"^# TYPE (\w+) ", whole().decode(), re.MULTILINE))
    assert exported - metrics_of((DOCS / "admin" / "prometheus.md").read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize(
    ("path", "variables"),
    [(SERVER_DASHBOARD, ["datasource", "instance"]), (FLEET_DASHBOARD, ["datasource", "node", "user"])],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_dashboards_are_valid_for_grafana(path: Path, variables: list[str]) -> None:
    """Each Grafana dashboard takes its data source from a variable,
    and its panels have unique ids and do not overlap."""
    dashboard = json.loads(path.read_text())
    assert [one["name"] for one in dashboard["templating"]["list"]] == variables
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert {panel["datasource"]["uid"], *(one["datasource"]["uid"] for one in panel["targets"])} == {
            "${datasource}"
        }
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
