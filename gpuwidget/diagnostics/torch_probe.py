"""In a probe process: import torch and query it, step by step; any step may raise, crash or hang.

No CUDA context is created, since counting devices needs none. The steps that may start CUDA come last.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import PathFinder
from typing import Any

from gpuwidget.diagnostics.probe_process import begin_step, error_text, finish, lower_priority, run_step, send

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
"""The steps in order: for each, the id of its check, and its name as displayed."""

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
"""Prefixes of the names of shared libraries whose files are reported."""
_MAX_TEXT = 2000


def main(path: Sequence[str]) -> None:
    """Run the steps. The name of each step is sent before it begins, so that a hang or crash is attributed to
    it."""
    lower_priority()
    begin_step("import")
    # From here on, ``sys.path`` is the notebook's, in which the user's files may hide standard modules.
    sys.path[:] = path
    torch = _import()
    if torch is not None:
        _query(torch)
    finish()


def _import() -> Any:
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            torch = importlib.import_module("torch")
    # BaseException includes SystemExit: a broken installation may raise anything.
    except BaseException as error:
        send(
            import_error=error_text(error),
            import_error_type=type(error).__name__,
            **_blamed_code(error),
        )
        return None
    send(
        imported=True, version=_attribute_text(torch, "__version__"), file=_attribute_text(torch, "__file__")
    )
    version = getattr(torch, "version", None)
    send(cuda=_attribute_text(version, "cuda"), hip=_attribute_text(version, "hip"))
    send(import_warnings=_warning_messages(warned))
    return torch


def _blamed_code(error: BaseException) -> dict[str, str | None]:
    """Return the file whose code raised the error, and its top-level package or the package that could not be
    found."""
    traceback, name, file = error.__traceback__, None, None
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        # Frames of the standard library are skipped, since the module that called it is the cause.
        if module != __name__ and package != "_frozen_importlib" and package not in sys.stdlib_module_names:
            name, file = package, traceback.tb_frame.f_code.co_filename
        traceback = traceback.tb_next
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
    return {"import_error_package": name, "import_error_file": file}


def _query(torch: Any) -> None:
    native: Any = getattr(torch, "_C", None)
    cudnn: Any = getattr(native, "_cudnn", None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        run_step("libraries", lambda: send(mapped=mapped_libraries()))
        # Builds without CUDA, without NCCL or without cuDNN lack these functions.
        if hasattr(native, "_cuda_getArchFlags"):
            run_step("archs", lambda: (native._cuda_getArchFlags() or "").split())
        if PathFinder.find_spec("numpy", sys.path) is not None:
            run_step("numpy", lambda: _use_numpy(torch))
        run_step("distributed", lambda: bool(torch.distributed.is_available()))
        if hasattr(native, "_nccl_version"):
            run_step("nccl", lambda: ".".join(str(part) for part in torch.cuda.nccl.version()))
        run_step("cudnn_enabled", lambda: bool(torch.backends.cudnn.enabled))
        if cudnn is not None:
            run_step("cudnn_compiled", lambda: ".".join(map(str, cudnn.getCompileVersion())))
        run_step("cudnn", lambda: int(torch.backends.cudnn.version() or 0) or None)
        run_step("available", lambda: bool(torch.cuda.is_available()))
        run_step("count", lambda: int(torch.cuda.device_count()))
    send(warnings=_warning_messages(warned), mapped=mapped_libraries())


def _use_numpy(torch: Any) -> str:
    """Import numpy, pass an array to torch, and return numpy's version. Raises the errors of these steps."""
    numpy = importlib.import_module("numpy")
    torch.from_numpy(numpy.zeros(1))
    return str(numpy.__version__)


def _warning_messages(warned: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message)[:_MAX_TEXT] for warning in warned][:5]


def _attribute_text(owner: Any, name: str) -> str | None:
    value = getattr(owner, name, None)
    return None if value is None else str(value)


def mapped_libraries() -> list[str]:
    """Return the files of ``LIBRARIES`` that are mapped into this process, by their real paths."""
    found = set()
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                path = line.rstrip("\n").partition("/")[2]
                if path and os.path.basename(path).partition(".")[0].partition("_")[0] in _LIBRARY_STEMS:
                    found.add("/" + path)
    except OSError:
        return []
    return sorted(found)


_LIBRARY_STEMS = frozenset(name.partition("_")[0] for name in LIBRARIES)
