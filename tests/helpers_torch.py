"""Fake torch modules for unit tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GIB = 1024**3
STANDIN = Path(__file__).with_name("torch_standin") / "torch" / "__init__.py"


def make_torch() -> Any:
    """Return a new fake torch with two GPUs, whose CUDA is not initialized yet."""
    spec = importlib.util.spec_from_file_location("torch", STANDIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeTorch(SimpleNamespace):
    """A fake torch with the parts that gpuwidget calls, and a fake allocator."""

    def __init__(self, devices: int = 1) -> None:
        self.current = dict.fromkeys(range(devices), 0)
        self.peak = dict.fromkeys(range(devices), 0)
        self.allocations = dict.fromkeys(range(devices), 0)
        self.up = True
        self.resets = 0
        self.contexts = {0}
        self.waited: list[int] = []
        self.backend = "native"

        def reset(index: int) -> None:
            self.resets += 1
            self.peak[index] = self.current[index]

        super().__init__(
            __version__="2.13.0",
            version=SimpleNamespace(cuda="13.0"),
            backends=SimpleNamespace(cudnn=SimpleNamespace(version=lambda: 90701)),
            _GLOBAL_DEVICE_CONTEXT=SimpleNamespace(device_context=SimpleNamespace(device="cuda:0")),
            cuda=SimpleNamespace(
                is_initialized=lambda: self.up,
                device_count=lambda: devices,
                memory_stats_as_nested_dict=self._stats,
                get_device_properties=lambda index: SimpleNamespace(uuid=f"uuid-{index}"),
                get_allocator_backend=lambda: self.backend,
                synchronize=self.waited.append,
                is_current_stream_capturing=lambda: False,
            ),
            _C=SimpleNamespace(
                _cuda_resetPeakMemoryStats=reset,
                _cuda_hasPrimaryContext=lambda index: index in self.contexts,
            ),
        )

    def _stats(self, index: int) -> dict[str, Any]:
        memory = {"all": {"current": self.current[index], "peak": self.peak[index]}}
        return {
            "allocated_bytes": memory,
            "reserved_bytes": memory,
            "allocation": {"all": {"allocated": self.allocations[index]}},
            "num_alloc_retries": 2,
            "num_ooms": 1,
        }

    def allocate(self, size: int, index: int = 0) -> None:
        """Add ``size`` bytes to the allocated memory of ``cuda:index``."""
        self.current[index] += size
        self.allocations[index] += size > 0
        self.peak[index] = max(self.peak[index], self.current[index])
