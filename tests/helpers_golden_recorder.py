"""A plugin of pytest that saves what gpuwidget's views return during tests, one file per test function.

Each call of a function in :data:`DOORS` from a test is recorded in English and in Chinese.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest
from helpers_golden import FIXED, save
from helpers_golden_format import in_languages, no_torch

DOORS = (
    ("gpuwidget.measure.out_of_memory", "advise"),
    ("gpuwidget.measure.advice.rules", "advise"),
    ("gpuwidget.diagnostics.run_checks", "diagnose"),
    ("gpuwidget.views.comparison", "compare_reports"),
    ("gpuwidget.views.comparison", "since_last_run"),
    ("gpuwidget.views.oom_card", "bundle"),
    ("gpuwidget.views.card", "bundle"),
    ("gpuwidget.views.card", "line_bundle"),
    ("gpuwidget.cli.gpu_table", "render_table"),
    ("gpuwidget.server.prometheus", "metrics_text"),
)
"""The modules and names of the functions, those first that others import."""
_VARYING = frozenset(("machine", "old_machine"))
"""Fixtures of tests whose values depend on the time, because the stand-in for NVML measures it."""


class _Recorder:
    def __init__(self) -> None:
        self.saved: dict[str, list[str]] = {}
        self.test: str | None = None
        self.inside = False

    @contextmanager
    def called(self) -> Iterator[bool]:
        """Yield whether the test itself made this call, not a function that is being recorded."""
        outermost, self.inside = not self.inside, True
        try:
            yield outermost
        finally:
            self.inside = not outermost

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self.called() as outermost:
                value = function(*args, **kwargs)
                if outermost and self.test is not None:
                    self.add(name, in_languages(value, lambda: function(*args, **kwargs)))
            return value

        return recorded

    def add(self, name: str, text: str) -> None:
        assert self.test is not None
        where, _, case = self.test.partition("[")
        path, _, function = where.partition("::")
        group = path.removeprefix("tests/").removeprefix("unit/").removesuffix(".py").replace("/test_", "/")
        key = f"tests/{group}/{function.replace('::', '/').removeprefix('test_')}"
        self.saved.setdefault(key, []).append(f"=== [{case}\n--- {name}\n{text}\n")


_RECORDER = _Recorder()
no_torch()
for _module, _name in DOORS:
    _of = importlib.import_module(_module)
    setattr(_of, _name, _RECORDER.wrap(f"{_module.rpartition('.')[2]}.{_name}", getattr(_of, _name)))
_package = importlib.import_module("gpuwidget.measure.advice")
setattr(_package, "advise", sys.modules["gpuwidget.measure.advice.rules"].advise)  # noqa: B010


def pytest_configure() -> None:
    """Restore the fixed environment, of which conftest.py has removed most."""
    os.environ.update(FIXED)
    time.tzset()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Name the outputs of this test."""
    varies = _VARYING & {*getattr(item, "fixturenames", ())}
    _RECORDER.test = None if varies else item.nodeid


def pytest_runtest_teardown() -> None:
    """End the recording of a test."""
    _RECORDER.test = None


def pytest_sessionfinish() -> None:
    """Save what was recorded."""
    for name, texts in _RECORDER.saved.items():
        save(name, "\n".join(texts))
