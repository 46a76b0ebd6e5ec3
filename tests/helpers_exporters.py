"""A cluster of any size that exists only as exporters: a web server with the metrics of simulated nodes.

A real Prometheus scrapes it with :meth:`SimulatedCluster.scrape_configs`. The formats are those of gpuwidget,
dcgm-exporter 4.5 and nvidia_gpu_exporter, reduced to the series that gpuwidget reads.
Run ``python tests/helpers_exporters.py NODES GPUS INTERVAL`` for a cluster to look at.
"""

from __future__ import annotations

import json
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from helpers_http import LocalServer, send

ExporterKind = Literal["gpuwidget", "dcgm", "nvidia_gpu"]
MIB = 1024**2
TOTAL_MIB = 143771
RESERVED_MIB = 615


@dataclass
class SimulatedGpu:
    """One GPU or, with ``instance``, one MIG slice. A value that is None is not exported."""

    node: str
    index: int
    uuid: str
    model: str = "NVIDIA H200"
    instance: int | None = None
    """Id of the GPU instance of a MIG slice."""
    profile: str | None = None
    utilization: float | None = 0
    """Percent."""
    memory_used_mib: int | None = 0
    power_w: float | None = 75
    power_limit_w: float | None = 700
    temperature_c: float | None = 30
    xid: int = 0
    xid_time: float = 0
    ecc: int | None = 0
    up: bool = True
    job: str | None = None
    """Slurm job in dcgm-exporter."""
    pod: str | None = None
    """Pod in dcgm-exporter."""
    notebooks: tuple[str, ...] = ()
    """Notebooks whose kernels hold all of the GPU's memory, for gpuwidget's exporter."""
    user: str | None = None
    energy_j: float | None = None
    """Joules since the driver was loaded."""
    held_s: float | None = None
    """Seconds for which each of ``notebooks`` has held memory on the GPU, half of them with the GPU busy."""
    hostname_label: str = "Hostname"
    """dcgm-exporter's label: ``hostname`` in versions after 4.5.3."""


@dataclass
class SimulatedCluster:
    """``nodes`` machines, each with ``gpus`` GPUs and one exporter of each kind, and their web server.

    ``vary`` is called before a node is scraped, with its GPUs and the epoch seconds, to change their values.
    """

    nodes: int
    gpus: int
    kinds: Sequence[ExporterKind] = ("dcgm",)
    vary: Callable[[Sequence[SimulatedGpu], float], None] | None = None
    down: set[str] = field(default_factory=set)
    """Nodes, or single exporters such as ``node001/dcgm``, that don't answer."""
    recordings: set[str] = field(default_factory=set)
    """Nodes whose Jupyter server plays a recording."""
    address: tuple[str, int] = ("127.0.0.1", 0)
    """Address and port of the web server; any free port if it is 0."""

    def __post_init__(self) -> None:
        self.by_node: dict[str, list[SimulatedGpu]] = {
            (name := f"node{node + 1:03d}"): [
                SimulatedGpu(name, gpu, f"GPU-{node:08x}-{gpu:04x}-4aaa-8bbb-cccccccccccc")
                for gpu in range(self.gpus)
            ]
            for node in range(self.nodes)
        }
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                _, node, kind = self.path.split("/")
                if node in owner.down or f"{node}/{kind}" in owner.down:
                    self.close_connection = True
                    return
                body = owner.text(node, kind).encode()
                send(self, body, Content_Type="text/plain; version=0.0.4; charset=utf-8")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = LocalServer(Handler, self.address)

    @property
    def all_gpus(self) -> list[SimulatedGpu]:
        """All GPUs, by node and index."""
        return [gpu for gpus in self.by_node.values() for gpu in gpus]

    def text(self, node: str, kind: str) -> str:
        """Return what an exporter answers to a scrape."""
        gpus = self.by_node[node]
        if self.vary is not None:
            self.vary(gpus, time.time())
        if kind == "gpuwidget":
            lines = _gpuwidget(gpus, "replay" if node in self.recordings else "nvml")
        else:
            lines = {"dcgm": _dcgm, "nvidia_gpu": _nvidia_gpu}[kind](gpus)
        return "\n".join([*lines, ""])

    def scrape_configs(self, interval: str = "1s") -> list[dict[str, Any]]:
        """Return the entries of Prometheus's ``scrape_configs`` for all exporters."""
        ports = {"gpuwidget": 8888, "dcgm": 9400, "nvidia_gpu": 9835}
        return [
            {
                "job_name": kind,
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "static_configs": [
                    {
                        "targets": [self._server.host],
                        "labels": {
                            "instance": f"{node}:{ports[kind]}",
                            "__metrics_path__": f"/{node}/{kind}",
                        },
                    }
                    for node in self.by_node
                ],
            }
            for kind in self.kinds
        ]

    def stop(self) -> None:
        """Stop the web server."""
        self._server.stop()


def plausible_load(gpus: Sequence[SimulatedGpu], now: float) -> None:
    """Set values that change slowly: three quarters of the GPUs work, and some are held while idle."""
    for gpu in gpus:
        seed = zlib.crc32(gpu.uuid.encode()) % 1000
        works = seed % 4 != 0
        wave = 0.5 + 0.5 * math.sin(now / 30 + seed)
        gpu.utilization = round(40 + 60 * wave) if works else 0
        gpu.memory_used_mib = (
            int(TOTAL_MIB * (0.3 + 0.6 * wave)) if works else (40_000 if seed % 3 == 0 else 4)
        )
        gpu.power_w = round(200 + 480 * wave, 1) if works else 75.0
        gpu.temperature_c = round(45 + 30 * wave) if works else 30
        if works or seed % 3 == 0:
            gpu.notebooks = (f"train-{seed % 40}.ipynb",)
            gpu.user = f"user{seed % 20}"
            gpu.job = str(4000 + seed % 90)


# -- texts ---------------------------------------------------------------------------------------------------


def _labels(**values: str | None) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return ",".join(f'{name}="{escaped(value)}"' for name, value in values.items() if value is not None)


def _line(name: str, labels: str, value: float | None) -> Iterator[str]:
    if value is not None:
        yield f"{name}{{{labels}}} {value!r}"


def _dcgm(gpus: Sequence[SimulatedGpu]) -> Iterator[str]:
    for gpu in gpus:
        common: dict[str, str | None] = {
            "gpu": str(gpu.index),
            "UUID": gpu.uuid,
            "pci_bus_id": f"00000000:{gpu.index:02X}:00.0",
            "device": f"nvidia{gpu.index}",
            "modelName": gpu.model,
            "GPU_I_PROFILE": gpu.profile,
            "GPU_I_ID": None if gpu.instance is None else str(gpu.instance),
            gpu.hostname_label: gpu.node,
            "DCGM_FI_DRIVER_VERSION": "590.48.01",
            "hpc_job": gpu.job,
            "pod": gpu.pod,
        }
        labels = _labels(**common)
        used = gpu.memory_used_mib
        yield from _line("DCGM_FI_DEV_GPU_UTIL", labels, gpu.utilization)
        yield from _line("DCGM_FI_DEV_FB_USED", labels, used)
        if used is not None:
            yield from _line("DCGM_FI_DEV_FB_FREE", labels, TOTAL_MIB - RESERVED_MIB - used)
            yield from _line("DCGM_FI_DEV_FB_RESERVED", labels, RESERVED_MIB)
        yield from _line("DCGM_FI_DEV_POWER_USAGE", labels, gpu.power_w)
        yield from _line("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", labels, gpu.power_limit_w)
        yield from _line("DCGM_FI_DEV_GPU_TEMP", labels, gpu.temperature_c)
        yield from _line("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", labels, gpu.ecc)
        energy_mj = None if gpu.energy_j is None else gpu.energy_j * 1000
        yield from _line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, energy_mj)
        errors = _labels(**common, err_code=str(gpu.xid), err_msg="No Error" if gpu.xid == 0 else "An error")
        yield from _line("DCGM_FI_DEV_XID_ERRORS", errors, gpu.xid)


def _nvidia_gpu(gpus: Sequence[SimulatedGpu]) -> Iterator[str]:
    yield "nvidia_smi_last_collect_success 1"
    for gpu in gpus:
        uuid = gpu.uuid.removeprefix("GPU-")
        if gpu.instance is not None:
            mig = _labels(uuid=uuid, gpu_instance_id=str(gpu.instance))
            info = _labels(
                uuid=uuid,
                mig_uuid=f"{gpu.instance:08x}-mig",
                gpu_instance_id=str(gpu.instance),
                compute_instance_id="0",
                profile=gpu.profile,
            )
            yield from _line("nvidia_smi_mig_info", info, 1)
            yield from _line("nvidia_smi_mig_memory_used_bytes", mig, _bytes(gpu.memory_used_mib))
            continue
        labels = _labels(uuid=uuid)
        info = _labels(uuid=uuid, name=gpu.model, index=str(gpu.index), driver_version="590.48.01")
        share = None if gpu.utilization is None else gpu.utilization / 100
        yield from _line("nvidia_smi_gpu_info", info, 1)
        yield from _line("nvidia_smi_utilization_gpu_ratio", labels, share)
        yield from _line("nvidia_smi_memory_used_bytes", labels, _bytes(gpu.memory_used_mib))
        yield from _line("nvidia_smi_memory_total_bytes", labels, TOTAL_MIB * MIB)
        yield from _line("nvidia_smi_power_draw_instant_watts", labels, gpu.power_w)
        yield from _line("nvidia_smi_enforced_power_limit_watts", labels, gpu.power_limit_w)
        yield from _line("nvidia_smi_temperature_gpu", labels, gpu.temperature_c)
        yield from _line("nvidia_smi_ecc_errors_uncorrected_volatile_total", labels, gpu.ecc)
        if gpu.xid:
            error = _labels(uuid=uuid, xid=str(gpu.xid))
            yield from _line("nvidia_smi_xid_errors_total", error, 1)
            yield from _line("nvidia_smi_xid_last_timestamp_seconds", error, gpu.xid_time)


def _gpuwidget(gpus: Sequence[SimulatedGpu], source: str) -> Iterator[str]:
    build = _labels(version="1", source=source, driver="590.48.01", cuda_driver="13.1")
    yield from _line("gpuwidget_build_info", build, 1)
    for gpu in gpus:
        labels = _labels(gpu=str(gpu.index), UUID=gpu.uuid, model=gpu.model)
        info = f"{labels},{_labels(pci_bus_id=f'00000000:{gpu.index:02X}:00.0', compute_capability='9.0')}"
        share = None if gpu.utilization is None else gpu.utilization / 100
        yield from _line("gpuwidget_gpu_info", info, 1)
        yield from _line("gpuwidget_gpu_up", labels, int(gpu.up))
        yield from _line("gpuwidget_gpu_utilization_ratio", labels, share)
        yield from _line("gpuwidget_gpu_memory_used_bytes", labels, _bytes(gpu.memory_used_mib))
        yield from _line("gpuwidget_gpu_memory_total_bytes", labels, TOTAL_MIB * MIB)
        yield from _line("gpuwidget_gpu_power_watts", labels, gpu.power_w)
        yield from _line("gpuwidget_gpu_power_limit_watts", labels, gpu.power_limit_w)
        yield from _line("gpuwidget_gpu_temperature_celsius", labels, gpu.temperature_c)
        yield from _line("gpuwidget_gpu_ecc_uncorrected_errors_total", labels, gpu.ecc)
        yield from _line("gpuwidget_gpu_energy_joules_total", labels, gpu.energy_j)
        if gpu.xid:
            yield from _line("gpuwidget_gpu_xid", labels, gpu.xid)
            yield from _line("gpuwidget_gpu_xid_timestamp_seconds", labels, gpu.xid_time)
    kernels = {
        (gpu.node, name): (f"kernel-{gpu.node}-{name}", gpu.user) for gpu in gpus for name in gpu.notebooks
    }
    for gpu in gpus:
        for name in gpu.notebooks:
            labels = _labels(
                gpu=str(gpu.index),
                UUID=gpu.uuid,
                model=gpu.model,
                kernel=kernels[gpu.node, name][0],
                source="driver",
            )
            yield from _line("gpuwidget_kernel_memory_bytes", labels, _bytes(gpu.memory_used_mib))
            if gpu.held_s is not None:
                used = _labels(
                    gpu=str(gpu.index),
                    UUID=gpu.uuid,
                    kernel=kernels[gpu.node, name][0],
                    notebook=_notebook_id(name),
                    user=gpu.user,
                )
                held = (gpu.memory_used_mib or 0) * MIB * gpu.held_s
                yield from _line("gpuwidget_kernel_gpu_held_seconds_total", used, gpu.held_s)
                yield from _line("gpuwidget_kernel_gpu_busy_seconds_total", used, gpu.held_s / 2)
                yield from _line("gpuwidget_kernel_gpu_memory_byte_seconds_total", used, held)
                yield from _line("gpuwidget_kernel_gpu_energy_joules_total", used, gpu.energy_j)
    for (_, name), (kernel, user) in kernels.items():
        described = _labels(
            kernel=kernel, notebook=_notebook_id(name), path=name, name=name, kind="notebook", user=user
        )
        yield from _line("gpuwidget_kernel_info", described, 1)


def _notebook_id(name: str) -> str:
    return f"id-{name[:8]}"


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def main(arguments: Sequence[str]) -> None:
    """Serve a cluster until the input ends, and print the ``scrape_configs`` for Prometheus."""
    nodes, gpus, interval = (*arguments, *("64", "8", "5s")[len(arguments) :])
    cluster = SimulatedCluster(int(nodes), int(gpus), ("dcgm", "gpuwidget"), plausible_load)
    print(json.dumps({"scrape_configs": cluster.scrape_configs(interval)}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
