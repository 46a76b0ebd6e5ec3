"""Find the processes that torch makes work together: the ranks that this process has started (by ``mp.spawn``
or by a launcher in a notebook), and its own process group.

The environment of a started process contains no rank, since torch passes the rank as an argument. The objects
with which torch waits for the processes contain it. They are local variables of torch's functions, so they
are read from the stacks of this process's threads. Nothing in torch is replaced.
"""

from __future__ import annotations

import logging
import sys
from types import FrameType
from typing import Any

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.thread_frames import caller_of, frames_of_threads
from gpuwidget.model.torch_state import SpawnedRank
from gpuwidget.pytorch import cuda_state

_LOG = logging.getLogger(__name__)

_SPAWN = "torch.multiprocessing.spawn"
_AGENT = "torch.distributed.elastic.agent.server.api"


def spawned_ranks() -> dict[int, SpawnedRank]:
    """Return the ranks for which a thread of this process waits in torch, by process id. Never raises."""
    if _SPAWN not in sys.modules:
        return {}
    found: dict[int, SpawnedRank] = {}
    for top in frames_of_threads().values():
        frame: FrameType | None = top
        while frame is not None:
            with Boundary(_LOG, "the ranks of torch's launcher could not be read", foreign=True):
                found |= _ranks_in(frame)
            frame = caller_of(frame)
    return found


def uses_nccl() -> bool:
    """Return whether this process belongs to a process group of torch whose GPUs communicate through NCCL."""
    torch: Any = cuda_state.loaded_torch()
    # torch may have no distributed package, or there is no process group yet.
    with Boundary(_LOG, "torch's process group could not be read", foreign=True):
        distributed = torch.distributed
        return bool(distributed.is_initialized()) and "nccl" in str(distributed.get_backend())
    return False


def _ranks_in(frame: FrameType) -> dict[int, SpawnedRank]:
    module, function = frame.f_globals.get("__name__"), frame.f_code.co_name
    if module == _SPAWN and function == "join":
        pids = frame.f_locals["self"].pids()
        return {pid: SpawnedRank(index, index, len(pids)) for index, pid in enumerate(pids)}
    if module == _AGENT and function == "_invoke_run":
        # accelerate's notebook_launcher, and torch.distributed.launcher
        workers: list[Any] = frame.f_locals["self"].get_worker_group().workers
        return {
            worker.id: SpawnedRank(worker.global_rank, worker.local_rank, worker.world_size)
            for worker in workers
            if type(worker.id) is int
        }
    return {}
