"""Fixtures of the doctor's tests: a simulated machine whose libraries are stubs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers_faults import FaultMachine, Stubs


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """Compile the stub libraries, once per test session."""
    return Stubs(tmp_path_factory.mktemp("stubs"))


@pytest.fixture
def fault_machine(
    tmp_path: Path, stubs: Stubs, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultMachine]:
    """Return a machine with one H200 and a working driver, and an environment without packages."""
    machine = FaultMachine(tmp_path, stubs, library, monkeypatch)
    yield machine
    machine.standin.scenario()
