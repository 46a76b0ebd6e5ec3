"""Two hosts and a Prometheus between them, as network namespaces: a program that runs in its own namespaces.

:func:`in_namespaces` starts this file with ``unshare``, as an ordinary user or root. Each host has a Jupyter
server and an exporter like NVIDIA's. All addresses exist only in these namespaces, which end with their
processes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

_TESTS = Path(__file__).parent
_PATIENCE_S = 60.0
_LIMIT_S = 240.0
_TOKEN = "two-hosts"
_EXPORTER = """
import sys, threading
sys.path.insert(0, {tests!r})
from helpers_exporters import SimulatedCluster
cluster = SimulatedCluster(1, 2, ("dcgm",), address=("0.0.0.0", 9400))
for gpu, uuid in zip(cluster.all_gpus, {uuids!r}):
    gpu.node, gpu.uuid, gpu.utilization, gpu.memory_used_mib = {name!r}, uuid, 97, 20000
threading.Event().wait()
"""


@dataclass(frozen=True)
class Host:
    """One host. Its address is ``10.90.NUMBER.2``. Prometheus has ``10.90.NUMBER.1`` on the same cable."""

    name: str
    number: int
    uuids: tuple[str, str]
    variables: Mapping[str, str]
    """Environment variables of the Jupyter server, which select the driver."""


def missing_program() -> str | None:
    """Return which program for namespaces is missing, as a sentence, or None if there is none."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"no network namespaces: {program} is not on the PATH (Debian: util-linux, iproute2)"
    return None


def namespaces_problem() -> str | None:
    """Return why this machine can't have namespaces of the test's own, or None if it can."""
    try_it = "ip link add gpu-veth0 type veth peer name gpu-veth1"
    done = subprocess.run([*_UNSHARE, *try_it.split()], capture_output=True, text=True, check=False)
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return None if done.returncode == 0 else f"no network namespaces: {reason}"


_UNSHARE = ("unshare", "--user", "--map-root-user", "--net")


def in_namespaces(program: str, folder: Path, hosts: Sequence[Host]) -> dict[str, Any]:
    """Run the hosts and Prometheus, cut the second host off and connect it again.

    Return what the Jupyter servers answer to ``GET api/cluster`` before, meanwhile and afterwards.
    """
    arguments = {"program": program, "hosts": [asdict(host) for host in hosts]}
    (folder / "arguments.json").write_text(json.dumps(arguments))
    with (folder / "hosts.log").open("wb") as log:
        # In a separate session, so that all of its processes can be ended together.
        process = subprocess.Popen(
            [*_UNSHARE, sys.executable, __file__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        status = process.wait(timeout=_LIMIT_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert status == 0, (folder / "hosts.log").read_text()
    result: dict[str, Any] = json.loads((folder / "answers.json").read_text())
    return result


# -- within the namespaces -----------------------------------------------------------------------------------


def _run(command: str, host: int | None = None) -> None:
    inside = [] if host is None else ["nsenter", f"--net=/proc/{host}/ns/net"]
    subprocess.run([*inside, *command.split()], check=True)


def _start(
    command: Sequence[str],
    host: int,
    folder: Path,
    name: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    with (folder / f"{name}.log").open("wb") as log:
        subprocess.Popen(
            ["nsenter", f"--net=/proc/{host}/ns/net", *command],
            env={**os.environ, **variables},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _start_host(host: Host, folder: Path) -> None:
    """Connect a new network namespace, and start the host's servers in it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", str(_LIMIT_S)])
    own = os.readlink("/proc/self/ns/net")
    _until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
    here, there = f"gpu-host{host.number}", f"gpu-cable{host.number}"
    _run(f"ip link add {here} type veth peer name {there}")
    _run(f"ip link set {there} netns {holder.pid}")
    _run(f"ip address add 10.90.{host.number}.1/30 dev {here}")
    _run(f"ip link set {here} up")
    for command in (
        "ip link set lo up",
        f"ip address add 10.90.{host.number}.2/30 dev {there}",
        f"ip link set {there} up",
    ):
        _run(command, holder.pid)
    for name in ("home", "data", "runtime", "config"):
        (folder / host.name / name).mkdir(parents=True)
    homes = {
        "HOME": str(folder / host.name / "home"),
        "JUPYTER_DATA_DIR": str(folder / host.name / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / host.name / "runtime"),
        "JUPYTER_CONFIG_DIR": str(folder / host.name / "config"),
        "JUPYTER_TOKEN": _TOKEN,
    }
    jupyter = [
        *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=0.0.0.0", "--ServerApp.port=8888", "--ServerApp.allow_remote_access=True"),
        "--ServerApp.jpserver_extensions={'gpuwidget': True}",
        f"--GpuWidget.prometheus_url=http://10.90.{host.number}.1:9090",
    ]
    _start(jupyter, holder.pid, folder / host.name, "jupyter", {**host.variables, **homes})
    exporter = _EXPORTER.format(tests=str(_TESTS), uuids=host.uuids, name=host.name)
    _start([sys.executable, "-c", exporter], holder.pid, folder / host.name, "exporter")


def _start_prometheus(program: str, hosts: Sequence[Host], folder: Path) -> None:
    addresses = [f"10.90.{host.number}.2" for host in hosts]
    paths = {"dcgm": (9400, "/node001/dcgm"), "gpuwidget": (8888, "/gpuwidget/metrics")}
    configuration = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "scrape_configs": [
            {
                "job_name": job,
                "metrics_path": path,
                "static_configs": [{"targets": [f"{address}:{port}" for address in addresses]}],
                **({"authorization": {"credentials": _TOKEN}} if job == "gpuwidget" else {}),
            }
            for job, (port, path) in paths.items()
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(configuration))
    with (folder / "prometheus.log").open("wb") as log:
        subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                "--web.listen-address=0.0.0.0:9090",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _cluster(host: Host) -> Any:
    """Return what a host's Jupyter server answers to ``GET api/cluster``."""
    request = urllib.request.Request(
        f"http://10.90.{host.number}.2:8888/gpuwidget/api/cluster",
        headers={"Authorization": f"token {_TOKEN}"},
    )
    # No proxy of the environment is in these namespaces.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=20) as answer:
        return json.load(answer)


def _until(holds: Callable[[], Any]) -> Any:
    """Repeat until the result is true, and return it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            result = holds()
        except OSError as error:
            result = None
            failed: object = error
        else:
            failed = result
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"what was waited for has not happened: {failed}")
        time.sleep(0.1)


def _answer_with(host: Host, up: Sequence[bool]) -> Any:
    """Wait until the nodes are up as in ``up`` and every live GPU has both exporters; return the answer."""

    def holds() -> Any:
        answer = _cluster(host)
        live = {node["name"] for node in answer["nodes"] if node["up"]}
        complete = all(len(gpu["exporters"]) == 2 for gpu in answer["gpus"] if gpu["node"] in live)
        return answer if [node["up"] for node in answer["nodes"]] == list(up) and complete else None

    return _until(holds)


def main(folder: Path) -> None:
    """Run the hosts and Prometheus, and write the answers to a file."""
    values = json.loads((folder / "arguments.json").read_text())
    hosts = [Host(**{**host, "uuids": tuple(host["uuids"])}) for host in values["hosts"]]
    _run("ip link set lo up")
    for host in hosts:
        _start_host(host, folder)
    _start_prometheus(values["program"], hosts, folder)
    answers = {"before": _answer_with(hosts[0], [True, True])}
    _run(f"ip link set gpu-host{hosts[1].number} down")
    answers["meanwhile"] = _answer_with(hosts[0], [True, False])
    _run(f"ip link set gpu-host{hosts[1].number} up")
    answers["afterwards"] = _answer_with(hosts[0], [True, True])
    answers["from the other host"] = _answer_with(hosts[1], [True, True])
    (folder / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
