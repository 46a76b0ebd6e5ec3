"""Tests of docs/developers/architecture.md: the picture of the packages, and the way of one reading."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from helpers_nvml import Machine

from gpuwidget.measure.run import Run
from gpuwidget.measure.run_options import RunOptions
from gpuwidget.model import units
from gpuwidget.sampler import Sampler
from gpuwidget.views import card
from gpuwidget.views.card import CardReport
from tools import architecture

USED = 3 * units.GIB + 4096
"""Bytes in use on the simulated GPU."""
DOCS = Path(__file__).parents[3] / "docs" / "developers" / "architecture.md"
STEPS = re.findall(r"^\d+\. `([\w/]+)\.py` `([\w.]+)`", DOCS.read_text(encoding="utf-8"), re.MULTILINE)


def contains(value: object, depth: int = 9) -> bool:
    """Return whether a value, or a part of it, is the memory in use, or a text with it."""
    if isinstance(value, str):
        return units.memory(USED) in value.replace("\N{NO-BREAK SPACE}", " ")
    if isinstance(value, (int, float)):
        return value == USED
    if not depth:
        return False
    if isinstance(value, Mapping):
        return any(contains(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(contains(item, depth - 1) for item in value)
    if is_dataclass(value):
        return any(contains(getattr(value, field.name), depth - 1) for field in fields(value))
    return False


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the steps that the value has passed, in the order of their first call with it."""
    found: list[str] = []

    def follow(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def followed(*arguments: Any, **named: Any) -> Any:
            value = function(*arguments, **named)
            if name not in found and (contains(value) or contains(arguments)):
                found.append(name)
            return value

        return followed

    for path, name in STEPS:
        owner: Any = importlib.import_module(f"gpuwidget.{path.replace('/', '.')}")
        *classes, last = name.split(".")
        for part in classes:
            owner = getattr(owner, part)
        original, step = vars(owner)[last], f"{path} {name}"
        getter = original.fget if isinstance(original, property) else None
        made = follow(step, original) if getter is None else property(follow(step, getter))
        # Other modules may have imported a function by name.
        modules = [module for name, module in sys.modules.items() if name.startswith("gpuwidget.")]
        for holder in [owner] if classes else modules:
            if vars(holder).get(last) is original:
                monkeypatch.setattr(holder, last, made)
    return found


def test_one_reading_takes_the_way_of_the_docs(machine: Machine, passed: list[str]) -> None:
    """The memory that NVML reports passes the ten steps of the docs, in this order, to the card."""
    machine.set_scenario(f"gpu.0.memory_used={USED}")
    sampler = Sampler(machine.source())
    run = Run(sampler, RunOptions(gpus=("0",)), report_type=CardReport)
    run.start()
    with sampler.subscribe(interval_s=0.05):
        sampler.read_now(10.0)
    run.end("ok")
    report = run.report()
    sampler.stop()
    assert report is not None
    assert contains(card.bundle(report)["text/html"])
    assert passed == [f"{path} {name}" for path, name in STEPS]
    assert len(STEPS) == 10


def test_the_picture_is_made_from_the_imports() -> None:
    """The picture of the packages shows the imports of the code as it is."""
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture()


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    """If a imports b, and b imports c, the picture does not need the arrow from a to c."""
    found = {"a": {"b", "c"}, "b": {"c"}, "c": set()}
    assert architecture.without_implied(found) == {"a": {"b"}, "b": {"c"}, "c": set()}
