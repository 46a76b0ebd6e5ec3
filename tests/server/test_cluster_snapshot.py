"""The snapshot of a cluster from Prometheus's answers, with odd labels, unknown values and duplicates."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from gpuwidget.model.to_json import to_json
from gpuwidget.prometheus.client import InstantValue
from gpuwidget.server.cluster_snapshot import ClusterState, Names, parse
from gpuwidget.server.wire import ClusterGpu, ClusterSnapshot

NOW = 1_000_000.0
GIB = 1024**3


def at(time: float = NOW) -> InstantValue:
    """Return the time of a query."""
    return InstantValue({"metric": "time"}, time, time)


def dcgm(uuid: str = "GPU-a", time: float = NOW, **labels: str) -> InstantValue:
    """Return a GPU of dcgm-exporter, whose newest sample is from ``time``."""
    described = {"gpu": "0", "modelName": "NVIDIA H200", "Hostname": "gpu1", "job": "dcgm", **labels}
    target = {"instance": "10.0.0.1:9400"}
    return InstantValue({"exporter": "dcgm", "uuid": uuid, **target, **described}, NOW, time)


def gpuwidget(uuid: str = "GPU-a", time: float = NOW, **labels: str) -> InstantValue:
    """Return a GPU of gpuwidget's exporter."""
    described = {
        "gpu": "0",
        "model": "NVIDIA H200",
        "job": "gpuwidget",
        "instance": "10.0.0.1:8888",
        **labels,
    }
    return InstantValue({"exporter": "gpuwidget", "uuid": uuid, **described}, NOW, time)


def value(metric: str, number: float, uuid: str = "GPU-a", **labels: str) -> InstantValue:
    """Return a value of a GPU."""
    return InstantValue({"metric": metric, "uuid": uuid, **labels}, NOW, number)


def snapshot(
    *now: InstantValue, hour: tuple[InstantValue, ...] = (), state: ClusterState | None = None
) -> ClusterSnapshot:
    """Return the snapshot after both queries were answered."""
    state = state or ClusterState()
    state.add_hour(parse(hour))
    times = [one for one in now if one.labels.get("metric") == "time"]
    return state.add_now(parse([*([] if times else [at()]), *now]))


def only(found: ClusterSnapshot) -> ClusterGpu:
    """Return the only GPU."""
    (gpu,) = found.gpus
    return gpu


def test_two_exporters_on_one_machine() -> None:
    """A GPU that two exporters report is one, on the node with the name that dcgm-exporter gives, although
    Prometheus has only an address for the other."""
    found = snapshot(dcgm(), gpuwidget(), dcgm("GPU-b", gpu="1"), gpuwidget("GPU-c", gpu="2"))
    assert [(node.name, node.up) for node in found.nodes] == [("gpu1", True)]
    assert [(gpu.uuid, gpu.node, gpu.index, gpu.exporters) for gpu in found.gpus] == [
        ("GPU-a", "gpu1", 0, ("gpuwidget", "dcgm")),
        ("GPU-b", "gpu1", 1, ("dcgm",)),
        ("GPU-c", "gpu1", 2, ("gpuwidget",)),
    ]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({"Hostname": "GPU1.example.org"}, "gpu1.example.org"),
        ({"Hostname": "", "hostname": "gpu2", "node": "other"}, "gpu2"),
        ({"Hostname": "", "node": "gpu3"}, "gpu3"),
        ({"Hostname": ""}, "10.0.0.1"),
        ({"Hostname": "", "instance": "[2001:db8::1]:9400"}, "[2001:db8::1]"),
        ({"Hostname": "", "instance": "hub.example.org/user/anna"}, "hub.example.org/user/anna"),
        ({"Hostname": "", "instance": "gpu4"}, "gpu4"),
        ({"Hostname": "a\nb\x1b[31m\u202e" + 300 * "x"}, "a\ufffdb\ufffd[31m\ufffd" + 191 * "x"),
    ],
)
def test_names_of_machines(labels: dict[str, str], name: str) -> None:
    """A node is named by dcgm-exporter's label, else by a label of the scrape configuration, else by the
    target's host. Characters that a terminal would interpret are replaced."""
    assert [node.name for node in snapshot(dcgm("GPU-a", NOW, **labels)).nodes] == [name]


def test_a_gpu_without_a_machine_or_uuid_is_left_out() -> None:
    """A series without a UUID or any name of a machine is no GPU."""
    unnamed = dcgm(Hostname="", instance="")
    assert snapshot(dcgm(uuid=""), unnamed).gpus == ()


def test_nodes_and_gpus_are_in_natural_order() -> None:
    """node2 comes before node10, and GPU 2 before GPU 10; a GPU without an index comes last."""
    found = snapshot(
        dcgm("GPU-c", Hostname="node10"),
        dcgm("GPU-d", Hostname="node2", gpu="10"),
        dcgm("GPU-e", Hostname="node2", gpu="first"),
        dcgm("GPU-f", Hostname="node2", gpu="2"),
    )
    assert [node.name for node in found.nodes] == ["node2", "node10"]
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-f", "GPU-d", "GPU-e", "GPU-c"]


def test_unknown_and_impossible_values_are_none() -> None:
    """NaN, infinities, negative sizes and sizes beyond any memory are None, not a number."""
    gpu = only(
        snapshot(
            dcgm(),
            value("utilization", math.nan),
            value("memory_used", -1),
            value("power_w", math.inf),
            value("temperature_c", 41.23456),
            hour=(value("memory_total", 1e300),),
        )
    )
    assert (gpu.utilization, gpu.memory_used, gpu.memory_total, gpu.power_w, gpu.power_limit_w) == (None,) * 5
    assert gpu.temperature_c == 41.23
    assert gpu.idle_s is None


def test_slices_have_their_own_entry() -> None:
    """A MIG slice is a separate entry beside its GPU, with its profile. A slice that two exporters report
    is one entry, with the notebooks that gpuwidget reports, if its GPU has one slice of that profile."""
    own = {"mig_parent": "GPU-a", "gpu": "0", "model": "NVIDIA H200 MIG 1g.18gb"}
    other = {"mig_parent": "GPU-a", "gpu": "0", "model": "NVIDIA H200 MIG 2g.35gb"}
    found = snapshot(
        gpuwidget(),
        gpuwidget("MIG-1", NOW, **own),
        dcgm("GPU-a/9", GPU_I_PROFILE="1g.18gb"),
        gpuwidget("MIG-2", NOW, **other),
        value("memory_used", 7.0, "GPU-a/9"),
        value("memory_used", 8.0, "MIG-1"),
        InstantValue({"uuid": "MIG-1", "kernel": "k1"}, NOW, GIB),
        InstantValue({"kernel": "k1", "name": "a.ipynb"}, NOW, 1),
    )
    assert [(gpu.uuid, gpu.model, gpu.mig, gpu.exporters, gpu.memory_used) for gpu in found.gpus] == [
        ("GPU-a", "NVIDIA H200", None, ("gpuwidget",), None),
        ("GPU-a/9", "NVIDIA H200", "1g.18gb", ("gpuwidget", "dcgm"), 8),
        ("MIG-2", "NVIDIA H200", "2g.35gb", ("gpuwidget",), None),
    ]
    assert [gpu.notebooks for gpu in found.gpus] == [(), ("a.ipynb",), ()]
    assert [node.name for node in found.nodes] == ["gpu1"]


def test_equal_slices_are_not_counted_twice() -> None:
    """If a GPU has two slices of one profile, it can't be known which of gpuwidget's is which of
    dcgm-exporter's: there is one entry for each, dcgm-exporter's."""
    own = {"mig_parent": "GPU-a", "gpu": "0", "model": "NVIDIA H200 MIG 1g.18gb"}
    found = snapshot(
        gpuwidget("MIG-1", NOW, **own),
        gpuwidget("MIG-2", NOW, **own),
        dcgm("GPU-a/9", GPU_I_PROFILE="1g.18gb"),
        dcgm("GPU-a/10", GPU_I_PROFILE="1g.18gb"),
    )
    assert [(gpu.uuid, gpu.exporters) for gpu in found.gpus] == [
        ("GPU-a/9", ("dcgm",)),
        ("GPU-a/10", ("dcgm",)),
    ]


def test_a_node_is_kept_for_an_hour() -> None:
    """A node whose exporters no longer answer keeps its name and GPUs for an hour after its newest value."""
    state = ClusterState()
    snapshot(dcgm(), gpuwidget(), state=state)
    other = gpuwidget("GPU-z", instance="10.0.0.9:8888")
    found = snapshot(at(NOW + 3599), other, state=state)
    assert [(node.name, node.up, node.last_seen) for node in found.nodes] == [
        ("10.0.0.9", True, NOW),
        ("gpu1", False, NOW),
    ]
    assert (found.gpus[1].uuid, found.gpus[1].lost, found.gpus[1].utilization) == ("GPU-a", False, None)
    later = gpuwidget("GPU-z", NOW + 3601, instance="10.0.0.9:8888")
    assert [node.name for node in snapshot(at(NOW + 3601), later, state=state).nodes] == ["10.0.0.9"]


def test_a_node_that_was_lost_before_the_server_started() -> None:
    """A node that dropped off within the hour is shown even if this server never saw it up."""
    found = snapshot(hour=(dcgm(time=NOW - 1800),))
    assert [(node.name, node.up, node.last_seen) for node in found.nodes] == [("gpu1", False, NOW - 1800)]


def test_a_users_server_that_moves_to_another_machine() -> None:
    """If a Jupyter server is started on another machine, neither are the first machine's GPUs lost nor are
    the two machines taken for one."""
    state = ClusterState()
    anna = {"instance": "hub.example.org/user/anna"}
    snapshot(dcgm(), gpuwidget("GPU-a", NOW, **anna), gpuwidget("GPU-x", NOW, **anna), state=state)
    second = dcgm("GPU-b", Hostname="gpu2", instance="10.0.0.2:9400")
    found = snapshot(dcgm(), second, gpuwidget("GPU-b", NOW, **anna), state=state)
    assert [(gpu.uuid, gpu.node, gpu.lost, gpu.exporters) for gpu in found.gpus] == [
        ("GPU-a", "gpu1", False, ("dcgm",)),
        ("GPU-b", "gpu2", False, ("gpuwidget", "dcgm")),
    ]


def test_a_gpu_that_dcgm_exporter_no_longer_lists_is_lost() -> None:
    """A GPU that dcgm-exporter no longer lists while it answers for the same machine is lost; a slice is
    gone, because MIG was set up again."""
    state = ClusterState()
    snapshot(dcgm(), dcgm("GPU-b", gpu="1"), dcgm("GPU-b/3", gpu="1"), state=state)
    found = snapshot(dcgm(), state=state)
    assert [(gpu.uuid, gpu.lost) for gpu in found.gpus] == [("GPU-a", False), ("GPU-b", True)]
    assert [node.up for node in found.nodes] == [True]


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({"hpc_job": "4711", "pod": "train-0"}, "4711"),
        ({"exported_pod": "train-0", "pod": "gpu-metrics-x1"}, "train-0"),
        ({"pod": "train-0", "container": "train"}, "train-0"),
        ({"pod": "nvidia-dcgm-exporter-x1", "container": "nvidia-dcgm-exporter"}, None),
        ({"pod": "metrics-x1", "container": "dcgm-exporter"}, None),
        ({"pod": "metrics-x1", "exported_container": "train"}, None),
        ({}, None),
    ],
)
def test_jobs(labels: dict[str, str], job: str | None) -> None:
    """The job or pod is the one that uses the GPU, never dcgm-exporter's own pod, which Prometheus adds."""
    assert only(snapshot(dcgm("GPU-a", NOW, **labels))).job == job


def test_several_jobs_on_one_gpu() -> None:
    """A GPU that several jobs use is one entry with all jobs; a job that has ended is not shown."""
    state = ClusterState()
    snapshot(dcgm(hpc_job="1"), state=state)
    assert only(snapshot(dcgm(hpc_job="3"), dcgm(hpc_job="2"), state=state)).job == "2, 3"


def test_notebooks_and_users() -> None:
    """A GPU has the notebooks whose kernels hold memory on it, by name or else by id, and their users."""
    gpu = only(
        snapshot(
            dcgm(),
            gpuwidget(),
            *(InstantValue({"uuid": "GPU-a", "kernel": kernel}, NOW, GIB) for kernel in ("k1", "k2", "k3")),
            InstantValue({"kernel": "k1", "name": "b.ipynb", "notebook": "id1", "user": "anna"}, NOW, 1),
            InstantValue({"kernel": "k2", "notebook": "id2", "user": "anna"}, NOW, 1),
            InstantValue({"kernel": "k4", "name": "elsewhere.ipynb", "user": "bert"}, NOW, 1),
        )
    )
    assert (gpu.notebooks, gpu.users) == (("b.ipynb", "id2"), ("anna",))


def test_names_of_other_users_are_hidden() -> None:
    """If other users are hidden, the cluster contains no user, notebook and job but those of the server's own
    user, and no node is named after another user's server. The memory of the GPUs stays."""
    state = ClusterState(Names("anna", "4711"))
    gpus = snapshot(
        gpuwidget("GPU-a", instance="hub.example.org/user/ben", gpu="0"),
        dcgm("GPU-b", Hostname="gpu2", hpc_job="4712", gpu="1"),
        dcgm("GPU-c", Hostname="gpu3", hpc_job="4711", gpu="2"),
        dcgm("GPU-c", Hostname="gpu3", hpc_job="4713", gpu="2"),
        value("memory_used", 7.0),
        InstantValue({"uuid": "GPU-a", "kernel": "k1"}, NOW, GIB),
        InstantValue({"uuid": "GPU-a", "kernel": "k3"}, NOW, GIB),
        InstantValue({"uuid": "GPU-c", "kernel": "k1"}, NOW, GIB),
        InstantValue({"uuid": "GPU-c", "kernel": "k2"}, NOW, GIB),
        InstantValue({"kernel": "k1", "name": "ben.ipynb", "user": "ben"}, NOW, 1),
        InstantValue({"kernel": "k2", "name": "anna.ipynb", "user": "anna"}, NOW, 1),
        InstantValue({"kernel": "k3", "name": "nobody.ipynb"}, NOW, 1),
        state=state,
    ).gpus
    ben, other, both = sorted(gpus, key=lambda gpu: gpu.uuid)
    assert (ben.node, ben.users, ben.notebooks, ben.memory_used) == ("hub.example.org", (), (), 7)
    assert (other.node, other.job, both.job) == ("gpu2", None, "4711")
    assert (both.users, both.notebooks) == (("anna",), ("anna.ipynb",))


def test_the_node_of_the_own_server_keeps_its_name() -> None:
    """A node that is named after the server of the own user keeps its name if other users are hidden."""
    own = "hub.example.org/user/anna/gpu"
    found = snapshot(gpuwidget(instance=own), state=ClusterState(Names("Anna", None)))
    assert [node.name for node in found.nodes] == [own]


def test_errors_of_the_last_hour() -> None:
    """The newest XID is taken from any exporter, and the number of memory errors is a whole number that is
    not larger than the counter's change."""
    hour = (
        value("xid", 79, "GPU-a"),
        value("xid_time", NOW - 60, "GPU-b", xid="31"),
        value("xid_time", NOW - 30, "GPU-b", xid="13"),
        value("ecc_increase", 1.97, "GPU-a"),
        value("ecc_range", 1, "GPU-a"),
        value("ecc_increase", 0, "GPU-b"),
        value("ecc_range", 5, "GPU-b"),
        value("xid", math.nan, "GPU-c"),
        value("ecc_increase", math.inf, "GPU-c"),
        # DCGM's number for an unknown value.
        value("xid", 2147483632, "GPU-d"),
    )
    gpus = [dcgm(f"GPU-{letter}", gpu=str(index)) for index, letter in enumerate("abcd")]
    found = snapshot(*gpus, hour=hour)
    assert [(gpu.xid, gpu.ecc_uncorrected) for gpu in found.gpus] == [
        (79, 1),
        (13, 0),
        (None, None),
        (None, None),
    ]


def test_the_query_for_the_hour_is_repeated_each_minute_and_after_an_error() -> None:
    """The query for the last hour is sent at first, once a minute, and at once for a new error or GPU."""
    state = ClusterState()
    assert state.needs_hour(parse([at(NOW)]))
    assert not state.needs_hour(parse([at(NOW + 59)]))
    assert state.needs_hour(parse([at(NOW + 60)]))
    assert state.needs_hour(parse([at(NOW + 61), value("errors", 79)]))
    assert not state.needs_hour(parse([at(NOW + 62), value("errors", 79)]))
    assert state.needs_hour(parse([at(NOW + 63), value("errors", 79), dcgm()]))
    assert state.needs_hour(parse([at(NOW - 5), value("errors", 79)]))


def test_a_slow_query_for_the_hour_is_sent_less_often() -> None:
    """If the query for the last hour takes 7 s, it is repeated after 140 s, also if there is a new error."""
    state = ClusterState()
    assert state.needs_hour(parse([at(NOW)]))
    state.set_hour_duration(7)
    assert not state.needs_hour(parse([at(NOW + 139), value("errors", 79)]))
    assert state.needs_hour(parse([at(NOW + 140)]))


def test_held_while_idle() -> None:
    """A GPU that holds memory without utilization is idle since it was last utilized; an hour at most. A GPU
    that works or holds no memory has 0, and one that is new counts from now."""
    held = (dcgm(), value("utilization", 0), value("memory_used", 20 * GIB))
    busy = value("busy", NOW - 600)
    assert only(snapshot(*held, hour=(dcgm(), busy))).idle_s == 600.0
    assert only(snapshot(*held, hour=(dcgm(),))).idle_s == 3600.0
    assert only(snapshot(*held)).idle_s == 0.0
    works = (dcgm(), value("utilization", 5), value("memory_used", 20 * GIB))
    assert only(snapshot(*works, hour=(dcgm(),))).idle_s == 0.0
    free = (dcgm(), value("utilization", 0), value("memory_used", 1e9))
    assert only(snapshot(*free, hour=(dcgm(), busy))).idle_s == 0.0
    state = ClusterState()
    snapshot(*works, hour=(dcgm(),), state=state)
    assert only(snapshot(at(NOW + 5), *held, state=state)).idle_s == 5.0


def test_idle_times_are_unknown_without_the_last_hour() -> None:
    """Without an answer to the query for the last hour, the idle time is unknown, not 0."""
    state = ClusterState()
    found = state.add_now(parse([at(), dcgm(), value("utilization", 0), value("memory_used", 20 * GIB)]))
    assert only(found).idle_s is None


def requests(state: ClusterState, begin: float, seconds: float, *scrape_s: float) -> list[float]:
    """Return the times of the requests of a client that repeats its request after each snapshot's interval.

    Each of two exporters has a sample at every multiple of its scrape interval.
    """
    times = []
    now = begin
    while now < begin + seconds:
        times.append(now)
        dcgm_time, gpuwidget_time = (now // each * each for each in scrape_s)
        answer = parse([at(now), dcgm(time=dcgm_time), gpuwidget(time=gpuwidget_time)])
        if state.needs_hour(answer):
            state.add_hour(parse([]))
        now += state.add_now(answer).interval_s
    return times


@pytest.mark.parametrize(
    ("scrape_s", "interval"),
    [((2.0, 1.0), 5.0), ((15.0, 30.0), 15.0), ((60.0, 60.0), 60.0), ((120.0, 300.0), 60.0)],
)
def test_one_request_per_scrape_interval(scrape_s: tuple[float, float], interval: float) -> None:
    """Clients request a snapshot once per scrape interval of the exporter with the shortest one, but at most
    every 5 s and at least once a minute. For about a minute at first, they request one every 5 s."""
    state = ClusterState()
    begin = 6000.0 + 1
    times = requests(state, begin, 1800, *scrape_s)
    spacings = [after - before for before, after in itertools.pairwise(times)]
    measured_after = max(65.0, scrape_s[0])
    first = [spacing for time, spacing in zip(times, spacings, strict=False) if time - begin < measured_after]
    later = [
        spacing for time, spacing in zip(times, spacings, strict=False) if time - begin >= measured_after + 5
    ]
    assert set(first) == {5.0}
    assert set(later) == {interval}
    assert state.scrape_interval_s == interval


def test_the_scrape_interval_is_measured_again() -> None:
    """If the scrape interval changes, clients follow within about an hour. Until then, the history's steps
    have the interval that was measured last."""
    state = ClusterState()
    requests(state, 6000.0, 1800, 60.0, 60.0)
    assert state.scrape_interval_s == 60.0
    times = requests(state, 7800.0, 3600, 10.0, 60.0)
    assert times[-1] - times[-2] == 10.0
    assert state.scrape_interval_s == 10.0
    state.add_now(parse([at(20_000), dcgm(time=19_999)]))
    assert (state.interval_s, state.scrape_interval_s) == (5.0, 10.0)


def test_a_pause_while_the_scrape_interval_is_measured() -> None:
    """If a client watches only for a moment, the scrape interval is measured when a client returns."""
    state = ClusterState()
    requests(state, 6001.0, 10, 15.0, 60.0)
    times = requests(state, 6600.0, 600, 15.0, 60.0)
    assert (times[1] - times[0], times[-1] - times[-2]) == (5.0, 15.0)
    assert state.scrape_interval_s == 15.0


def test_a_pause_without_clients_does_not_change_the_interval() -> None:
    """If no client requests a snapshot for a while, the samples of that time do not lengthen the interval."""
    state = ClusterState()
    for time in (NOW, NOW + 5, NOW + 70, NOW + 75):
        assert state.add_now(parse([at(time), dcgm(time=time)])).interval_s == 5.0


def test_a_lost_gpu() -> None:
    """A GPU that gpuwidget's exporter reports as lost or hanging is lost."""
    assert only(snapshot(gpuwidget(), value("lost", 0))).lost is True


def test_an_empty_cluster_has_the_reason() -> None:
    """Without any GPU, the snapshot contains what to check."""
    found: Any = to_json(snapshot())
    problem = found.pop("problem")
    assert found == {"time": NOW, "interval_s": 5.0, "nodes": [], "gpus": []}
    assert problem.startswith("Prometheus has no GPUs.")
    for name in ("dcgm-exporter", "nvidia_gpu_exporter", "gpuwidget/metrics", "prometheus_matchers"):
        assert name in problem
