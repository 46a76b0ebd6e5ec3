"""A real JupyterHub with jupyterhub-idle-culler and servers whose kernels are culled. NVML is a stand-in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from helpers_jupyterhub import PROXY, JupyterHub
from helpers_programs import skip
from nvml_standin import Standin, build

KERNEL_TIMEOUT_S, SERVER_TIMEOUT_S = 25, 40
GIB = 1024**3


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    """Return a stand-in for NVML with two idle GPUs."""
    return Standin(build(tmp_path / "library"), tmp_path / "standin", "gpus=2")


@pytest.fixture
def hub(tmp_path: Path, standin: Standin) -> Iterator[JupyterHub]:
    """Return a JupyterHub whose servers and kernels are ended after short idle times."""
    if not PROXY.exists():
        skip("configurable-http-proxy is missing: run jlpm install")
    environment = standin.environment()
    names = (*standin.variables, "LD_LIBRARY_PATH")
    arguments = [
        "--GpuWidget.gpu_activity=True",
        "--GpuWidget.source=nvml",
        f"--MappingKernelManager.cull_idle_timeout={KERNEL_TIMEOUT_S}",
        "--MappingKernelManager.cull_interval=1",
    ]
    folder = tmp_path / "hub"
    folder.mkdir()
    found = JupyterHub(folder, {name: environment[name] for name in names}, arguments, SERVER_TIMEOUT_S)
    yield found
    found.stop()


def pid_of(kernel: str) -> int | None:
    """Return the process id of a kernel, by the name of its connection file."""
    for process in psutil.process_iter(["cmdline"]):
        if any(kernel in word for word in process.info["cmdline"] or ()):
            return int(process.pid)
    return None


@pytest.mark.timeout(300)
def test_a_silent_training_survives_and_an_idle_holder_ends(hub: JupyterHub, standin: Standin) -> None:
    """A kernel that works on the GPU outlives both timeouts, and so does its server, although Jupyter
    sees no activity. A kernel that only holds memory is ended by Jupyter Server, and its server by the Hub's
    idle culler."""
    kernels = {}
    for user in ("trains", "holds"):
        hub.start_server(user)
        kernels[user] = hub.start_kernel(user)
    pids = {user: hub.until(partial(pid_of, kernel)) for user, kernel in kernels.items()}
    standin.scenario(
        "gpus=2",
        "gpu.0.util=80",
        f"gpu.0.compute={pids['trains']}:{20 * GIB}",
        f"gpu.1.compute={pids['holds']}:{60 * GIB}",
        "gpu.*.memory_used=70000000000",
    )
    hub.until(lambda: not hub.is_ready("holds"))
    assert re.search(rf"Culling '\w+' kernel 'python3' \({kernels['holds']}\)", hub.log)
    assert "Culling server holds" in hub.log
    assert f"({kernels['trains']})" not in hub.log
    assert hub.is_ready("trains")
    assert hub.kernels("trains") == [kernels["trains"]]
