"""Record GPU work as activity of Jupyter's kernels and of the server.

Two cullers read two different times. Jupyter Server's kernel culler reads ``last_activity`` of each kernel
(``MappingKernelManager.cull_idle_timeout``). JupyterHub and its idle culler read the server's, which is the
newest of several times; extensions add theirs to the setting ``last_activity_times``.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from datetime import datetime, timezone
from typing import Any

from gpuwidget.server.gpu_owners import ProcessOwner
from gpuwidget.server.kernel_inventory import KernelInventory

_NAME = "gpuwidget_gpu"
"""Name of the time in ``last_activity_times``."""


class JupyterActivity:
    """Renews the times of the last activity. All methods are called on the server's event loop."""

    def __init__(self, inventory: KernelInventory, settings: MutableMapping[str, Any]) -> None:
        """``settings`` are those of the web application."""
        self._inventory = inventory
        self._settings = settings

    def record(self, owners: Iterable[ProcessOwner], time: float) -> None:
        """Record that ``owners`` have worked at ``time``, in epoch seconds. A time is never set back."""
        moment = datetime.fromtimestamp(time, timezone.utc)
        for owner in owners:
            times = self._settings.setdefault("last_activity_times", {})
            times[_NAME] = max(times.get(_NAME, moment), moment)
            if owner.kernel is not None:
                manager = self._inventory.manager(owner.kernel)
                before = getattr(manager, "last_activity", None)
                # A kernel that is not monitored for activity is never culled and has no time to renew.
                if manager is not None and isinstance(before, datetime):
                    manager.last_activity = max(before, moment)
