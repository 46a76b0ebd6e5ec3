"""In a child: import torch and ask it, step by step; any step may raise, crash or hang.

No CUDA context is made: counting devices needs none. The steps that may start CUDA come last.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import PathFinder
from typing import Any

from gpuwidget.diagnostics.probe_process import announce, attempt, be_modest, error_text, finish, say

STEPS = {
    "import": ("torch", "'import torch'"),
    "libraries": ("cuda", "reading /proc/self/maps"),
    "archs": ("gpu", "torch._C._cuda_getArchFlags()"),
    "numpy": ("torch", "torch.from_numpy()"),
    "distributed": ("nccl", "torch.distributed.is_available()"),
    "nccl": ("nccl", "torch.cuda.nccl.version()"),
    "cudnn_enabled": ("cudnn", "torch.backends.cudnn.enabled"),
    "cudnn_compiled": ("cudnn", "torch._C._cudnn.getCompileVersion()"),
    "cudnn": ("cudnn", "torch.backends.cudnn.version()"),
    "available": ("gpu", "torch.cuda.is_available()"),
    "count": ("gpu", "torch.cuda.device_count()"),
}
"""Each step in its order: the link whose problem it is, and its name on the screen."""

LIBRARIES = (
    "libcudart",
    "libcudnn",
    "libnccl",
    "libcublas",
    "libcublasLt",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcusparseLt",
    "libcupti",
    "libnvrtc",
    "libnvJitLink",
    "libnvToolsExt",
    "libnvshmem_host",
    "libcufile",
    "libcuda",
    "libtorch_cuda",
    "libtorch_cpu",
)
"""Shared libraries whose files are told, by the beginning of their names."""
_MOST_TEXT = 2000


def main(path: Sequence[str]) -> None:
    """Run the steps; each is announced before it begins, so that a hang or a crash is known by its step."""
    be_modest()
    announce("import")
    # From here on as in the notebook, with whatever of the user's comes before Python's own modules.
    sys.path[:] = path
    torch = _import()
    if torch is not None:
        _ask(torch)
    finish()


def _import() -> Any:
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            torch = importlib.import_module("torch")
    except BaseException as error:  # also SystemExit: whatever a broken installation does
        say(
            import_error=error_text(error),
            import_error_type=type(error).__name__,
            import_error_package=_package_of(error),
        )
        return None
    say(imported=True, version=_text(torch, "__version__"), file=_text(torch, "__file__"))
    version = getattr(torch, "version", None)
    say(cuda=_text(version, "cuda"), hip=_text(version, "hip"))
    say(import_warnings=_messages(warned))
    return torch


def _package_of(error: BaseException) -> str | None:
    """Return the top-level package whose code raised the error, or that was not found."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return error.name.partition(".")[0]
    traceback, name = error.__traceback__, None
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        # What importlib raises is about the module that asked for the import.
        if not module.startswith(("importlib", "_frozen_importlib", __name__)):
            name = module.partition(".")[0]
        traceback = traceback.tb_next
    return name


def _ask(torch: Any) -> None:
    native: Any = getattr(torch, "_C", None)
    cudnn: Any = getattr(native, "_cudnn", None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        attempt("libraries", lambda: say(mapped=mapped_libraries()))
        # Builds without CUDA, without NCCL or without cuDNN lack these functions.
        if hasattr(native, "_cuda_getArchFlags"):
            attempt("archs", lambda: (native._cuda_getArchFlags() or "").split())
        if PathFinder.find_spec("numpy", sys.path) is not None:
            attempt("numpy", lambda: _use_numpy(torch))
        attempt("distributed", lambda: bool(torch.distributed.is_available()))
        if hasattr(native, "_nccl_version"):
            attempt("nccl", lambda: ".".join(str(part) for part in torch.cuda.nccl.version()))
        attempt("cudnn_enabled", lambda: bool(torch.backends.cudnn.enabled))
        if cudnn is not None:
            attempt("cudnn_compiled", lambda: ".".join(map(str, cudnn.getCompileVersion())))
        attempt("cudnn", lambda: int(torch.backends.cudnn.version() or 0) or None)
        attempt("available", lambda: bool(torch.cuda.is_available()))
        attempt("count", lambda: int(torch.cuda.device_count()))
    say(warnings=_messages(warned), mapped=mapped_libraries())


def _use_numpy(torch: Any) -> str:
    """Import numpy, give torch an array, return numpy's version. Raises what numpy or torch raises."""
    numpy = importlib.import_module("numpy")
    torch.from_numpy(numpy.zeros(1))
    return str(numpy.__version__)


def _messages(warned: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message)[:_MOST_TEXT] for one in warned][:5]


def _text(of: Any, name: str) -> str | None:
    value = getattr(of, name, None)
    return None if value is None else str(value)


def mapped_libraries() -> list[str]:
    """The files of the libraries above that are mapped into this process, as the kernel names them."""
    found = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                path = line.rstrip("\n").partition("/")[2]
                if path and os.path.basename(path).partition(".")[0].partition("_")[0] in _STEMS:
                    found.add("/" + path)
    except OSError:
        return []
    return sorted(found)


_STEMS = frozenset(name.partition("_")[0] for name in LIBRARIES)
