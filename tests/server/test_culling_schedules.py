"""The cullers of Jupyter Server and of JupyterHub, with their own code, on 200 simulated machines."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import jupyterhub_idle_culler
import pytest
from fakes import EPOCH
from helpers_gpu_schedule import Machine, random_machine
from jupyter_server.serverapp import ServerWebApplication
from jupyter_server.services.kernels import kernelmanager

from gpuwidget.sampler.subscriptions import WINDOWS_INTERVAL_S
from gpuwidget.server.gpu_work import STEP_S, GpuWorkTracker
from gpuwidget.server.jupyter_activity import JupyterActivity

SEEDS = 200
LENGTH_S = 3600.0
TIMEOUT_S = 600.0
CULL_INTERVAL_S = 60.0
SLACK_S = 3 * STEP_S
"""Work is noticed up to two steps late, and a poll may be late too."""
LONGEST_PAUSE_S = TIMEOUT_S - SLACK_S


def moment(time: float) -> datetime:
    """Return a time of the simulation as Jupyter writes it."""
    return datetime.fromtimestamp(EPOCH + time, timezone.utc)


class Kernels(dict[str, Any]):
    """The kernels of one server, with the attributes that the kernel culler reads."""

    cull_idle_timeout = int(TIMEOUT_S)
    cull_busy = False
    cull_connected = False
    log = logging.getLogger("test")

    def __init__(self, ids: list[str]) -> None:
        super().__init__()
        for kernel_id in ids:
            self[kernel_id] = SimpleNamespace(
                execution_state="idle",
                kernel_name="python3",
                last_activity=moment(0.0),
                kernel_spec=SimpleNamespace(metadata={}),
            )
        self._kernels = self
        self._kernel_connections: dict[str, int] = {}
        self.last_kernel_activity = moment(0.0)

    def manager(self, kernel_id: str) -> Any:
        return self.get(kernel_id)

    async def shutdown_kernel(self, kernel_id: str) -> None:
        del self[kernel_id]

    async def cull(self, kernel_id: str) -> bool:
        """Run the kernel culler's check on one kernel, and return whether it has ended the kernel."""
        await kernelmanager.MappingKernelManager.cull_kernel_if_idle(self, kernel_id)  # type: ignore[arg-type]
        return kernel_id not in self


class Hub:
    """The replies of JupyterHub to the idle culler, for one user's server."""

    def __init__(self) -> None:
        self.last_activity = moment(0.0)
        self.ended = False

    def configure(self, *_: object, **__: object) -> None:
        """Accept the client's options."""

    def __call__(self) -> Hub:
        return self

    async def fetch(self, request: Any) -> Any:
        reply: Any = {"version": "6.1.0"}
        if request.method == "DELETE":
            self.ended = True
        elif "/users" in request.url:
            server = {
                "pending": None,
                "ready": True,
                "url": "/user/a/",
                "started": moment(0.0).isoformat(),
                "last_activity": self.last_activity.isoformat(),
            }
            reply = [{"name": "a", "servers": {"": server}}]
        return SimpleNamespace(code=204, body=json.dumps(reply).encode())


async def run(
    machine: Machine, hub: Hub, chance: random.Random, patch: pytest.MonkeyPatch
) -> dict[str, float]:
    """Run one simulation. Return when each kernel, and the server under the name ``server``, was ended."""
    owners = {one.owner for one in machine.workloads}
    kernels = Kernels(sorted(owner.kernel for owner in owners if owner.kernel is not None))
    settings: dict[str, Any] = {
        "started": moment(0.0),
        "kernel_manager": kernels,
        "last_activity_times": {},
    }
    tracker = GpuWorkTracker(machine)
    activity = JupyterActivity(kernels, settings)  # type: ignore[arg-type]
    ended: dict[str, float] = {}
    next_cull, late = CULL_INTERVAL_S, 0.0
    for step in range(int(LENGTH_S / STEP_S)):
        # The slow thread reads the driver's records at another moment than the fast thread takes the sample.
        for shared in range(int(STEP_S / WINDOWS_INTERVAL_S)):
            machine.now = (step - 1) * STEP_S + (shared + 1) * WINDOWS_INTERVAL_S + late
            machine.read_working_processes()
        machine.now = step * STEP_S + late + chance.uniform(0.0, 2.0)
        machine.read_windows()
        machine.now = step * STEP_S + 2.0 + late
        sample, found = machine.sample()
        lookup_hangs = chance.random() < 0.02
        steps = tracker.add_owners(sample, machine.now, None if lookup_hangs else found)
        activity.record({owner for one in steps or () for owner in one.working}, sample.time)
        late = chance.choice((0.0, 0.0, 0.0, 1.5))
        if machine.now < next_cull:
            continue
        next_cull += CULL_INTERVAL_S
        now = moment(machine.now)
        patch.setattr(kernelmanager, "utcnow", lambda now=now: now)
        patch.setattr(jupyterhub_idle_culler, "utcnow", lambda now=now: now)
        for kernel_id in list(kernels):
            if await kernels.cull(kernel_id):
                ended[kernel_id] = machine.now
        application: Any = SimpleNamespace(settings=settings)
        hub.last_activity = ServerWebApplication.last_activity(application)
        if not hub.ended:
            await jupyterhub_idle_culler.cull_idle(
                "http://hub", "token", TIMEOUT_S, logging.getLogger("test")
            )
            if hub.ended:
                ended["server"] = machine.now
    return ended


def last_work(machine: Machine, name: str, time: float) -> float:
    """Return when a kernel, or anything of the server, has worked last."""
    times = [
        one.last_work(time) or 0.0
        for one in machine.workloads
        if one.owner.kernel == name or (name == "server" and one.owner != (None, None))
    ]
    return max(times)


def test_no_training_is_ended_and_every_idle_holder_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In none of 200 simulated hours is a kernel or a server ended within the cullers' timeout after it had
    used a GPU, although trainings pause, share GPUs and are not visible to Jupyter. Every kernel that only
    holds memory on a GPU without other work is ended in time."""
    caplog.set_level(logging.CRITICAL, logger="test")
    wrong, kept, ended_holders = [], [], 0
    for seed in range(SEEDS):
        machine, hub = random_machine(seed, LENGTH_S, LONGEST_PAUSE_S), Hub()
        monkeypatch.setattr(jupyterhub_idle_culler, "AsyncHTTPClient", hub)
        ended = asyncio.run(run(machine, hub, random.Random(seed), monkeypatch))
        for name, time in ended.items():
            idle = time - last_work(machine, name, time)
            if idle < LONGEST_PAUSE_S:
                wrong.append((seed, name, round(idle)))
        for one in machine.workloads:
            kernel = one.owner.kernel
            if kernel is None:
                continue
            idle = LENGTH_S - last_work(machine, kernel, LENGTH_S)
            unanswered = sum(end - begin for begin, end in machine.silent)
            if kernel.startswith("hold") and kernel not in ended and idle > 2 * TIMEOUT_S + unanswered:
                kept.append((seed, kernel))
            ended_holders += kernel.startswith("hold") and kernel in ended
    assert wrong == []
    assert kept == []
    assert ended_holders > SEEDS
