"""Compares every report that the unit tests make with the published JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers_schemas import every_report_checked


@pytest.fixture(autouse=True, scope="session")
def _reports_match_the_schema() -> Iterator[None]:
    with every_report_checked():
        yield
