"""Tests of finding the GPU memory that JAX has reserved in advance, with a stand-in for JAX."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwidget.measure.jax_pool import JaxPool, jax_pools

STATS = {"pool_bytes": 112_583_507_968, "bytes_in_use": 536_870_912, "peak_bytes_in_use": 2_785_018_112}
"""As JAX 0.10 returned them on an H200."""


class Jax:
    """A stand-in for JAX, which fails the test if a function would start it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, started: bool, devices: list[Any]) -> None:
        self._started, self._devices = started, devices
        bridge = SimpleNamespace(backends_are_initialized=lambda: started)
        monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
        monkeypatch.setitem(sys.modules, "jax", self)

    def local_devices(self) -> list[Any]:
        assert self._started, "JAX would have been started"
        return self._devices


def device(number: int, platform: str = "gpu", stats: dict[str, int] | None = STATS) -> Any:
    return SimpleNamespace(platform=platform, local_hardware_id=number, memory_stats=lambda: stats)


def test_pools_by_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU on which JAX has reserved memory has its pool, and how much of it arrays use."""
    Jax(monkeypatch, started=True, devices=[device(1), device(2, stats=None), device(0, "cpu")])
    assert jax_pools() == {1: JaxPool(112_583_507_968, 536_870_912, 2_785_018_112)}


def test_jax_is_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """If JAX is not imported, or has not started, there are no pools, and JAX is not started."""
    assert jax_pools() == {}
    Jax(monkeypatch, started=False, devices=[device(0)])
    assert jax_pools() == {}


@pytest.mark.parametrize("broken", [object(), SimpleNamespace(backends_are_initialized=lambda: 1 / 0)])
def test_an_unknown_version_of_jax(monkeypatch: pytest.MonkeyPatch, broken: object) -> None:
    """If JAX's functions are missing or fail, there are no pools, and no error."""
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", broken)
    assert jax_pools() == {}
