"""Two hosts with a Jupyter server and an exporter like NVIDIA's each, and one Prometheus between them, in
network namespaces that the test makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_programs import skip
from helpers_prometheus import find_programs
from helpers_two_hosts import Host, in_namespaces, missing_program, namespaces_problem
from nvml_standin import Standin, build

GPUS = {
    "gpu-a": ("GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-aaaaaaaa-0001-4000-8000-000000000000"),
    "gpu-b": ("GPU-bbbbbbbb-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0001-4000-8000-000000000000"),
}


def host(name: str, number: int, library: Path, folder: Path) -> Host:
    """Return a host whose driver has the GPUs that its exporter reports."""
    uuids = GPUS[name]
    standin = Standin(library, folder / f"driver-{name}")
    lines = [f"gpu.{index}.uuid={uuid}" for index, uuid in enumerate(uuids)]
    standin.scenario("gpus=2", "gpu.*.util=97", "gpu.*.memory_used=20000000000", *lines)
    variables = {
        **standin.variables,
        "LD_LIBRARY_PATH": standin.environment()["LD_LIBRARY_PATH"],
        "GPUWIDGET_SOURCE": "nvml",
    }
    return Host(name, number, uuids, variables)


def test_a_host_that_drops_off_and_comes_back(tmp_path: Path) -> None:
    """Every host's Jupyter server shows both hosts, each GPU once, under the host's name. While a host is cut
    off, it is shown as down with the time of its newest value, and without values. Afterwards it is as
    before."""
    programs = find_programs()
    missing = missing_program()
    if missing is not None:
        skip(missing)
    reason = namespaces_problem()
    if reason is not None:
        # Not a failure in CI either, because many containers do not allow namespaces.
        pytest.skip(reason)
    library = build(tmp_path / "library")
    hosts = [host(name, 1 + index, library, tmp_path) for index, name in enumerate(GPUS)]
    answers = in_namespaces(programs["prometheus"], tmp_path, hosts)
    for moment in ("before", "afterwards", "from the other host"):
        answer = answers[moment]
        assert [node["name"] for node in answer["nodes"]] == ["gpu-a", "gpu-b"], moment
        assert [
            (gpu["node"], gpu["uuid"], gpu["exporters"], gpu["utilization"], gpu["memory_used"])
            for gpu in answer["gpus"]
        ] == [
            (name, uuid, ["gpuwidget", "dcgm"], 97.0, 20_000_000_000)
            for name, uuids in GPUS.items()
            for uuid in uuids
        ], moment
        assert answer["problem"] is None
    gone = answers["meanwhile"]
    assert [(node["name"], node["up"]) for node in gone["nodes"]] == [("gpu-a", True), ("gpu-b", False)]
    assert gone["nodes"][1]["last_seen"] < gone["time"]
    assert [(gpu["uuid"], gpu["utilization"], gpu["memory_used"], gpu["lost"]) for gpu in gone["gpus"]] == [
        *((uuid, 97.0, 20_000_000_000, False) for uuid in GPUS["gpu-a"]),
        *((uuid, None, None, False) for uuid in GPUS["gpu-b"]),
    ]
