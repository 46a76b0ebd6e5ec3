"""The order in which test files start, so that the processes of ``make test`` end at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

TESTS = Path(__file__).parent
LONGEST = (
    # unit: 280 to 25 s (these times are from CI on a loaded machine)
    "unit/project/test_wheel.py",
    "unit/diagnostics/test_fixes.py",
    "unit/diagnostics/test_faults.py",
    "unit/diagnostics/test_probe_paths.py",
    "unit/project/test_tools.py",
    "unit/diagnostics/test_run_checks.py",
    "unit/cli/test_clean.py",
    "unit/measure/test_advice_recorded.py",
    "unit/diagnostics/test_torch_copies.py",
    "unit/project/test_deploy.py",
    "unit/project/test_lock.py",
    # server: 98 to 19 s
    "server/test_culling_schedules.py",
    "server/test_jupyterhub.py",
    "server/test_memory_ownership.py",
    "server/test_two_hosts.py",
    "server/test_prometheus.py",
    "server/test_soak.py",
    "server/test_deployments.py",
    "server/test_kernel_executions.py",
    # kernel: 470 to 55 s
    "kernel/test_out_of_memory.py",
    "kernel/test_quickstart.py",
    "kernel/test_memory.py",
    "kernel/test_notebooks.py",
    "kernel/test_transparency_while_shown.py",
    "kernel/test_free_cache.py",
    "kernel/test_transparency.py",
    "kernel/test_errors_and_gpus.py",
    "kernel/test_device.py",
    "kernel/test_ranks.py",
    "kernel/test_faults.py",
    "kernel/test_torch_switches_cells.py",
    "kernel/test_waiting.py",
    "kernel/test_dask.py",
    "kernel/test_interrupt.py",
    "kernel/test_saved_outputs.py",
)
"""The test files that take longest, in each group the longest first."""

Item = TypeVar("Item", bound=pytest.Item)


def longest_first(items: Sequence[Item]) -> list[Item]:
    """Return the tests file by file: first the longest files, then the files with the most tests.

    pytest-xdist alone starts a file with few tests late. In the server tests, the files of 98, 83 and 49 s
    have one test each: they ran last, and the other processes waited for them.
    """
    tests = Counter(item.path for item in items)
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    return sorted(items, key=lambda item: (ranks.get(item.path, len(ranks)), -tests[item.path]))
