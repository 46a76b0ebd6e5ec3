"""torch's stand-in in the tests' own process."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

STANDIN = Path(__file__).with_name("torch_standin") / "torch" / "__init__.py"


def make_torch() -> Any:
    """A fresh stand-in with two GPUs, in which CUDA is not up."""
    spec = importlib.util.spec_from_file_location("torch", STANDIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
