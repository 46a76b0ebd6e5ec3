"""GPU work as activity of kernels and of the server, on a real server whose GPUs a test sets."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from fakes import EPOCH, FakeClock, FakeSource
from helpers_samples import GIB, process
from helpers_server import Server
from server.test_memory_ownership import connected, pid_of, start_kernel

LONG_AGO = datetime.fromtimestamp(EPOCH - 3600.0, timezone.utc)
STEP_S = 10.0


@pytest.fixture
def configuration() -> dict[str, object]:
    """Turn the trait on."""
    return {"gpu_activity": True}


def server_activity(server: Server) -> Any:
    """Return the time of the server's newest activity on a GPU, which JupyterHub receives; None if there is
    none."""
    return server.app.web_app.settings["last_activity_times"].get("gpuwidget_gpu")


async def test_work_without_viewers_is_activity(server: Server, source: FakeSource, clock: FakeClock) -> None:
    """Without any client, GPU work of a kernel renews its own last activity and the server's. A kernel that
    only holds memory on an idle GPU is not active."""
    working, holding = await start_kernel(server), await start_kernel(server)
    for kernel in (working, holding):
        (await connected(server, kernel)).close()
    managers = [server.app.kernel_manager.get_kernel(kernel) for kernel in (working, holding)]
    source.processes[0] = (process(pid_of(server, working), GIB),)
    source.processes[1] = (process(pid_of(server, holding), 60 * GIB),)
    source.utilization = {0: 30.0, 1: 0.0}
    for manager in managers:
        manager.last_activity = LONG_AGO
    await server.until(lambda: managers[0].last_activity > LONG_AGO)
    assert managers[0].last_activity == server_activity(server)
    assert abs(managers[0].last_activity.timestamp() - clock.time()) < 2 * STEP_S
    assert managers[1].last_activity == LONG_AGO
    # JupyterHub reads the server's last activity.
    assert server.app.web_app.last_activity() >= server_activity(server)
    source.utilization[0] = 0.0
    await server.until(lambda: clock.time() > server_activity(server).timestamp() + 5 * STEP_S)
    assert managers[0].last_activity == server_activity(server)


@pytest.mark.parametrize("configuration", [{}])
async def test_off_by_default(server: Server, source: FakeSource) -> None:
    """Without the trait, nothing is sampled without viewers."""
    await start_kernel(server)
    assert source.calls["open"] == 0
