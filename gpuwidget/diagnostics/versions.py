"""Versions as numbers that can be compared."""

from __future__ import annotations

import re


def numbers(version: str) -> tuple[int, ...]:
    """``580.159.04`` as (580, 159, 4); what follows the last number is left out."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def cudnn_version(number: int) -> str:
    """91002 as ``9.10.2``, and 8902, in the older way of counting, as ``8.9.2``."""
    major = 10_000 if number >= 90_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def cuda_number(number: int) -> str:
    """13010 as ``13.1``."""
    return f"{number // 1000}.{number % 1000 // 10}"
