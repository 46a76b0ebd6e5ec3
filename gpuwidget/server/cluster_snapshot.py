"""Build a :class:`~gpuwidget.server.wire.ClusterSnapshot` from the answers of Prometheus."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from gpuwidget.prometheus.client import InstantValue
from gpuwidget.prometheus.cluster_queries import GRID_S, HELD_BYTES, HOUR_S, JOB_LABELS, NODE_LABELS
from gpuwidget.prometheus.exporters import DCGM_BLANK, EXPORTERS, Exporter
from gpuwidget.server.wire import ClusterGpu, ClusterNode, ClusterSnapshot

MIN_INTERVAL_S = 5.0
MAX_INTERVAL_S = 60.0
_MEASURE_AGAIN_S = 3600.0
"""Seconds after which the scrape interval is measured again, because the configuration may have changed."""
_MEASURING_S = MAX_INTERVAL_S + MIN_INTERVAL_S
"""Seconds for which the scrape interval is measured, so that each exporter is scraped meanwhile."""
_REFRESH_S = 60.0
"""Seconds after which the query for the last hour is repeated."""
_REST_FACTOR = 20
"""The query for the last hour is repeated at the earliest after this multiple of the time that it took."""
_RANKS: Mapping[Exporter, int] = {exporter: rank for rank, exporter in enumerate(EXPORTERS)}
_OWN_HOST_RANK = 1
"""Names of machines up to this rank are from dcgm-exporter itself, not from the scrape configuration."""
_MAX_TEXT = 200
"""The maximum length of a name from a label."""
_CACHED = 1 << 14
"""Number of GPUs whose parsed labels are kept, since most series are the same in the next answer."""
_MAX_INT = 2**53
"""Integers from here on are not exact in JavaScript."""
_NO_GPUS = (
    "Prometheus has no GPUs. Check that it scrapes dcgm-exporter, nvidia_gpu_exporter or gpuwidget/metrics, "
    "and that the series match prometheus_matchers."
)
_OWN_POD = "dcgm-exporter"
"""Part of the names of dcgm-exporter's own pod and container. Prometheus's service discovery adds these as
labels to a GPU that no pod uses."""

_Known = TypeVar("_Known", int, str)


class Target(NamedTuple):
    """An exporter that Prometheus scrapes."""

    job: str
    instance: str


class HostName(NamedTuple):
    """A name of a machine. The lowest is the most reliable."""

    rank: int
    """Position in ``NODE_LABELS`` of the label that contains the name."""
    name: str


@dataclass(frozen=True, slots=True)
class ReportedGpu:
    """One GPU or MIG slice as one exporter reports it."""

    exporter: Exporter
    uuid: str
    """The label ``uuid`` of the exporter's values: see :mod:`gpuwidget.prometheus.exporters`."""
    whole: str
    """UUID of the GPU that a slice is part of; else ``uuid``."""
    host: HostName
    target: Target
    index: int | None
    model: str | None
    mig: str | None
    """Profile of a slice; None for a whole GPU, or if unknown."""
    job: str | None

    def __hash__(self) -> int:
        # Reports are keys of dicts, and the generated method would take most of the time of a snapshot.
        return hash(self.uuid)


@dataclass(slots=True)
class Answer:
    """The answer of Prometheus to one of the two queries: see :mod:`gpuwidget.prometheus.cluster_queries`."""

    time: float = 0.0
    gpus: dict[ReportedGpu, float] = field(default_factory=dict)
    """Time of each GPU's newest sample in epoch seconds."""
    metrics: defaultdict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    """Values of each metric, by ``ReportedGpu.uuid``."""
    kernels: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Ids of the kernels that hold memory on a GPU, by ``ReportedGpu.uuid``."""
    notebooks: dict[str, str] = field(default_factory=dict)
    """Names of notebooks, by the kernel's id."""
    users: dict[str, str] = field(default_factory=dict)
    """Names of users, by the kernel's id."""
    xid_times: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Time and number of the newest XID from nvidia_gpu_exporter, by ``ReportedGpu.uuid``."""


class Names(NamedTuple):
    """A user and a Slurm job. If other users are hidden, no other name of a user or job is shown, and only
    notebooks of this user."""

    user: str
    job: str | None


class ClusterState:
    """The state of the cluster, from the answers of Prometheus to both queries.

    A GPU that Prometheus does not return any more is kept for an hour after its newest sample. All times are
    those of Prometheus's clock.
    """

    def __init__(self, shown: Names | None = None) -> None:
        """``shown`` are the only names that snapshots may contain; None for no limit."""
        self._shown = shown
        self.interval_s = MIN_INTERVAL_S
        """Seconds after which clients request the next snapshot: the scrape interval, or 5 while that is
        measured."""
        self.scrape_interval_s = MIN_INTERVAL_S
        """Seconds between two samples of the exporter with the shortest scrape interval, 5 to 60, as measured
        last."""
        self._seen: dict[ReportedGpu, float] = {}
        self._before: Answer | None = None
        self._measured: float | None = None
        self._measured_since: float | None = None
        """When measuring the scrape interval began, by Prometheus's clock."""
        self._last_busy: dict[str, float] = {}
        self._known_for_an_hour: set[str] = set()
        self._memory_total: Mapping[str, float] = {}
        self._power_limit_w: Mapping[str, float] = {}
        self._xids: dict[str, int] = {}
        self._ecc: dict[str, int] = {}
        self._hour_queried: float | None = None
        """When the query for the last hour was sent, by Prometheus's clock."""
        self._hour_took_s = 0.0
        self._has_hour = False
        self._errors: Mapping[str, Mapping[str, float]] = {}

    def needs_hour(self, now: Answer) -> bool:
        """Return whether the query for the last hour must be sent: every minute, and for errors and new GPUs.

        It is sent less often if it takes long, so that Prometheus spends at most a twentieth of its time on
        it.
        """
        errors = {name: values for name, values in now.metrics.items() if "errors" in name}
        if self._hour_queried is not None and now.time >= self._hour_queried:
            elapsed = now.time - self._hour_queried
            is_new = any(gpu not in self._seen for gpu in now.gpus)
            due = elapsed >= _REFRESH_S or is_new or errors != self._errors
            if not due or elapsed < _REST_FACTOR * self._hour_took_s:
                return False
        self._hour_queried, self._errors = now.time, errors
        return True

    def set_hour_duration(self, took_s: float) -> None:
        """Store how many seconds the query for the last hour took, whether it was answered or not."""
        self._hour_took_s = took_s

    def add_hour(self, hour: Answer) -> None:
        """Store the answer to the query for the last hour."""
        self._has_hour = True
        self._memory_total = hour.metrics["memory_total"]
        self._power_limit_w = hour.metrics["power_limit_w"]
        for gpu, seen in hour.gpus.items():
            self._seen[gpu] = max(seen, self._seen.get(gpu, seen))
        for uuid, busy in hour.metrics["busy"].items():
            self._last_busy[uuid] = max(busy, self._last_busy.get(uuid, busy))
        self._known_for_an_hour = {gpu.uuid for gpu in hour.gpus}
        self._xids = {
            uuid: int(number)
            for name in ("xid", "xid_of_gpuwidget")
            for uuid, number in hour.metrics[name].items()
            if 0 < number < DCGM_BLANK
        } | {uuid: number for uuid, (_, number) in hour.xid_times.items()}
        # increase() extrapolates and so may exceed the true number. The range is exact, but it contains older
        # errors if the driver was loaded again.
        most = hour.metrics["ecc_range"]
        self._ecc = {
            uuid: int(min(round(increase), most.get(uuid, 0)))
            for uuid, increase in hour.metrics["ecc_increase"].items()
            if 0 <= increase < _MAX_INT
        }

    def add_now(self, now: Answer) -> ClusterSnapshot:
        """Store the answer to the query for the newest values, and return the snapshot."""
        self._update_interval(now)
        self._update_busy(now)
        self._seen.update(now.gpus)
        self._seen = {gpu: seen for gpu, seen in self._seen.items() if now.time - seen <= HOUR_S}
        reports = self._newest_reports(now.gpus)
        names = _node_names(reports.values())
        nodes: dict[str, ClusterNode] = {}
        gpus: list[ClusterGpu] = []
        for uuid, reported in reports.items():
            name = self._shown_node(names[reported[0].host.name])
            live = [gpu for gpu in reported if gpu in now.gpus]
            before = nodes.get(name, ClusterNode(name, False, 0.0))
            newest = max(self._seen[gpu] for gpu in reported)
            nodes[name] = ClusterNode(name, before.up or bool(live), max(before.last_seen or 0.0, newest))
            last = [gpu for gpu in reported if self._seen[gpu] > newest - 2 * GRID_S]
            lost = not live and _answers(reported, now)
            gpus.append(self._gpu(uuid, live or last, name, now, lost=lost))
        return ClusterSnapshot(
            time=now.time,
            interval_s=self.interval_s,
            problem=None if gpus else _NO_GPUS,
            nodes=tuple(sorted(nodes.values(), key=lambda node: _natural(node.name))),
            gpus=tuple(sorted(gpus, key=_order)),
        )

    def _shown_node(self, name: str) -> str:
        """Return the name of a node without the path of another user's server, which contains that user's
        name."""
        host, slash, _ = name.partition("/")
        is_own = self._shown is None or f"/user/{self._shown.user.lower()}/" in f"{name}/"
        return name if is_own or not slash else host

    def _newest_reports(self, live: Mapping[ReportedGpu, float]) -> Mapping[str, list[ReportedGpu]]:
        """Return the exporters' reports of each GPU, the exporter with the finest values first.

        An earlier report remains if its exporter does not answer any more. If the exporter answers, but does
        not list the GPU any more, either the exporter has moved to another machine, as a user's Jupyter
        server may, and the report is left out; or the GPU is lost, which is certain if dcgm-exporter
        still reports the same host name.
        """
        live_targets = {gpu.target for gpu in live}
        live_hosts = {(gpu.target, gpu.host) for gpu in live}
        by_uuid: defaultdict[str, list[ReportedGpu]] = defaultdict(list)
        lost: defaultdict[str, list[ReportedGpu]] = defaultdict(list)
        for gpu in self._seen:
            if gpu in live or gpu.target not in live_targets:
                by_uuid[gpu.uuid].append(gpu)
            elif gpu.uuid == gpu.whole:
                lost[gpu.uuid].append(gpu)
        for uuid, reported in lost.items():
            certain = [gpu for gpu in reported if gpu.host.rank <= _OWN_HOST_RANK]
            if uuid not in by_uuid and any((gpu.target, gpu.host) in live_hosts for gpu in certain):
                by_uuid[uuid] = certain
        _merge_slices(by_uuid)
        return {
            uuid: sorted(reported, key=lambda gpu: (_RANKS[gpu.exporter], -self._seen[gpu]))
            for uuid, reported in by_uuid.items()
        }

    def _update_interval(self, now: Answer) -> None:
        before, self._before = self._before, now
        if self._measured_since is None or not 0 <= now.time - self._measured_since < _MEASURE_AGAIN_S:
            self._measured, self._measured_since = None, now.time
        if before is not None and now.time - before.time >= 2 * self.interval_s:
            # No client has requested snapshots meanwhile. Several samples may lie between the two answers.
            if before.time - self._measured_since < _MEASURING_S:
                self._measured, self._measured_since = None, now.time
            before = None
        if before is not None:
            spacings = [time - before.gpus[gpu] for gpu, time in now.gpus.items() if gpu in before.gpus]
            known = [spacing for spacing in (*spacings, self._measured or 0.0) if spacing > 0.5]
            self._measured = min(known, default=None)
        is_known = self._measured is not None and now.time - self._measured_since >= _MEASURING_S
        if self._measured is not None:
            self.scrape_interval_s = min(max(round(self._measured, 1), MIN_INTERVAL_S), MAX_INTERVAL_S)
        self.interval_s = self.scrape_interval_s if is_known else MIN_INTERVAL_S

    def _update_busy(self, now: Answer) -> None:
        utilization, memory = now.metrics["utilization"], now.metrics["memory_used"]
        for uuid in {gpu.uuid for gpu in now.gpus}:
            works = utilization.get(uuid, 0) > 0 or memory.get(uuid, HELD_BYTES + 1) <= HELD_BYTES
            is_new = uuid not in self._last_busy and uuid not in self._known_for_an_hour
            if works or is_new:
                self._last_busy[uuid] = now.time
        self._last_busy = {uuid: busy for uuid, busy in self._last_busy.items() if now.time - busy <= HOUR_S}

    def _gpu(
        self, uuid: str, reported: Sequence[ReportedGpu], node: str, now: Answer, *, lost: bool
    ) -> ClusterGpu:
        uuids = list(dict.fromkeys(gpu.uuid for gpu in reported))

        def known(values: Mapping[str, float]) -> float | None:
            if len(uuids) == 1:
                value = values.get(uuids[0])
            else:
                value = next((values[one] for one in uuids if one in values), None)
            return None if value is None or not math.isfinite(value) else value

        metrics = now.metrics
        shown = self._shown
        kernels = [
            kernel
            for one in uuids
            for kernel in now.kernels.get(one, ())
            if shown is None or now.users.get(kernel) == shown.user
        ]
        utilization, memory = known(metrics["utilization"]), _bytes(known(metrics["memory_used"]))
        jobs = sorted(
            {gpu.job for gpu in reported if gpu.job is not None and (shown is None or gpu.job == shown.job)}
        )
        return ClusterGpu(
            uuid=uuid,
            node=node,
            index=_first(gpu.index for gpu in reported),
            model=_first(gpu.model for gpu in reported),
            mig=_first(gpu.mig for gpu in reported),
            exporters=tuple(dict.fromkeys(gpu.exporter for gpu in reported)),
            utilization=_rounded(utilization),
            memory_used=memory,
            memory_total=_bytes(known(self._memory_total)),
            power_w=_rounded(known(metrics["power_w"])),
            power_limit_w=_rounded(known(self._power_limit_w)),
            temperature_c=_rounded(known(metrics["temperature_c"])),
            xid=_first(self._xids.get(one) for one in uuids),
            ecc_uncorrected=_first(self._ecc.get(one) for one in uuids),
            lost=lost or known(metrics["lost"]) is not None,
            idle_s=self._idle_s(uuids, utilization, memory, now.time),
            users=tuple(sorted({now.users[kernel] for kernel in kernels if kernel in now.users})),
            notebooks=tuple(sorted({now.notebooks[kernel] for kernel in kernels if kernel in now.notebooks})),
            job=", ".join(jobs)[:_MAX_TEXT] or None,
        )

    def _idle_s(
        self, uuids: Sequence[str], utilization: float | None, memory: int | None, now: float
    ) -> float | None:
        if memory is not None and memory <= HELD_BYTES:
            return 0.0
        if utilization is None or memory is None or not self._has_hour:
            return None
        busy = [self._last_busy[one] for one in uuids if one in self._last_busy]
        return min(max(0.0, round(now - max(busy), 1)), HOUR_S) if busy else float(HOUR_S)


# -- parsing -------------------------------------------------------------------------------------------------


def parse(values: Iterable[InstantValue]) -> Answer:
    """Return the answer that consists of these values."""
    parsed = Answer()
    for value in values:
        labels = value.labels
        if "exporter" in labels:
            gpu = _reported_gpu(tuple(labels.items()))
            if gpu is not None and math.isfinite(value.value):
                parsed.gpus[gpu] = max(value.value, parsed.gpus.get(gpu, value.value))
        elif "metric" in labels:
            if labels["metric"] == "time":
                parsed.time = value.value
            elif labels["metric"] == "xid_time":
                uuid, number = labels.get("uuid", ""), _index(labels.get("xid"))
                if number is not None:
                    error = (value.value, number)
                    parsed.xid_times[uuid] = max(error, parsed.xid_times.get(uuid, error))
            elif "uuid" in labels:
                parsed.metrics[labels["metric"]][labels["uuid"]] = value.value
        elif "kernel" in labels:
            kernel = labels["kernel"]
            if "uuid" in labels:
                parsed.kernels[labels["uuid"]].append(kernel)
                continue
            notebook = _text(labels.get("name")) or _text(labels.get("notebook"))
            user = _text(labels.get("user"))
            if notebook is not None:
                parsed.notebooks[kernel] = notebook
            if user is not None:
                parsed.users[kernel] = user
    return parsed


@lru_cache(_CACHED)
def _reported_gpu(items: tuple[tuple[str, str], ...]) -> ReportedGpu | None:
    """Return the GPU that a series with these labels describes; None if it has no UUID or machine."""
    labels = dict(items)
    exporter = labels["exporter"]
    uuid = labels.get("uuid")
    host = _host(labels)
    if exporter not in EXPORTERS or not uuid or len(uuid) > _MAX_TEXT or host is None:
        return None
    whole = uuid.partition("/")[0]
    model = _text(labels.get("model") or labels.get("modelName") or labels.get("name"))
    mig = _text(labels.get("GPU_I_PROFILE") or labels.get("profile"))
    if exporter == "gpuwidget" and labels.get("mig_parent"):
        whole = labels["mig_parent"]
        # The name of a slice ends with its profile.
        name, _, profile = (model or "").rpartition(" MIG ")
        model, mig = (name, profile) if name else (model, None)
    return ReportedGpu(
        exporter=exporter,
        uuid=uuid,
        whole=whole,
        host=host,
        target=Target(labels.get("job", ""), labels.get("instance", "")),
        index=_index(labels.get("gpu") or labels.get("index")),
        model=model,
        mig=mig,
        job=_job(labels),
    )


def _host(labels: Mapping[str, str]) -> HostName | None:
    for rank, label in enumerate(NODE_LABELS):
        name = _text(labels.get(label))
        if name is not None:
            return HostName(rank, _without_port(name) if label == "instance" else name.lower())
    return None


def _without_port(instance: str) -> str:
    """Return the host of a target's address, such as ``gpu1`` of ``gpu1:9400`` or ``[::1]`` of
    ``[::1]:9400``."""
    return re.sub(r"^(\[[^\]]+\]|[^:/]+):\d+$", r"\1", instance).lower()


def _job(labels: Mapping[str, str]) -> str | None:
    for label in JOB_LABELS:
        name = _text(labels.get(label))
        is_own = label == "pod" and (
            "exported_pod" in labels
            or "exported_container" in labels
            or _OWN_POD in labels.get("container", "")
            or _OWN_POD in (name or "")
        )
        if name is not None and not is_own:
            return name
    return None


def _text(value: str | None) -> str | None:
    """Return a label's value without control characters, shortened; None if it is empty."""
    if not value:
        return None
    if value.isprintable():
        return value[:_MAX_TEXT]
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value[:_MAX_TEXT])


def _index(value: str | None) -> int | None:
    return (
        int(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 10 else None
    )


# -- names, order and units ----------------------------------------------------------------------------------


def _merge_slices(by_uuid: dict[str, list[ReportedGpu]]) -> None:
    """Make each MIG slice that gpuwidget and another exporter report one entry, under the other's UUID.

    gpuwidget's exporter has NVML's UUID of a slice and the others the id of its GPU instance. The profile
    tells which are the same if a GPU has one slice of it. Else gpuwidget's entries are removed, since each
    slice would be there twice.
    """
    own: defaultdict[tuple[str, str | None], list[str]] = defaultdict(list)
    others: defaultdict[tuple[str, str | None], list[str]] = defaultdict(list)
    for uuid, reported in by_uuid.items():
        gpu = reported[0]
        if gpu.uuid != gpu.whole:
            (own if gpu.exporter == "gpuwidget" else others)[gpu.whole, gpu.mig].append(uuid)
    for profile, uuids in own.items():
        same = others.get(profile, [])
        removed = [by_uuid.pop(uuid) for uuid in uuids] if same else []
        if len(removed) == len(same) == 1:
            by_uuid[same[0]] += removed[0]


def _node_names(reports: Iterable[Sequence[ReportedGpu]]) -> Mapping[str, str]:
    """Return the name of the node for each name of a machine.

    Names that exporters give to the machine of the same GPU are names of one node: dcgm-exporter's ``gpu1``
    and the address ``10.0.0.5`` of the Jupyter server on it. The most reliable becomes the node's name.
    """
    group: dict[str, set[HostName]] = {}
    by_gpu: defaultdict[str, set[HostName]] = defaultdict(set)
    for reported in reports:
        for gpu in reported:
            by_gpu[gpu.whole].add(gpu.host)
    for hosts in by_gpu.values():
        merged = set(hosts).union(*(group.get(host.name, ()) for host in hosts))
        for host in merged:
            group[host.name] = merged
    return {name: min(hosts).name for name, hosts in group.items()}


def _answers(reported: Sequence[ReportedGpu], now: Answer) -> bool:
    targets = {gpu.target for gpu in now.gpus}
    return any(gpu.target in targets for gpu in reported)


@lru_cache(_CACHED)
def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts ``node2`` before ``node10``."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))


def _order(gpu: ClusterGpu) -> tuple[object, ...]:
    index = math.inf if gpu.index is None else gpu.index
    return _natural(gpu.node), index, _natural(gpu.uuid)


def _first(values: Iterable[_Known | None]) -> _Known | None:
    return next((value for value in values if value is not None), None)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _bytes(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < _MAX_INT else None
