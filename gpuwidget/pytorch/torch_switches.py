"""Read and set torch's switches that trade speed for precision or repeatability.

torch 2.9 and later have two APIs for TF32. A value that was set through the older API can be read through
both. A value that was set through the newer API can't be read through the older one, which raises an error.
This module therefore sets values through the older API, and reads them through the newer one if it exists.
That way, both APIs can be read. torch.compile needs this, because some of its parts read the older API and
others the newer one.

Nothing in this module imports torch or initializes CUDA. Reading or setting a switch does not use the GPU.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.boundary import Boundary
from gpuwidget.model.errors import OptionError
from gpuwidget.model.torch_state import ComputeSwitches, SwitchValue
from gpuwidget.model.translation import translatable
from gpuwidget.pytorch import cuda_state

_LOG = logging.getLogger(__name__)

ON, OFF = "on", "off"

_TF32_ONLY_CONVOLUTIONS = translatable(
    "TF32 is on for convolutions and off for recurrent layers: your code has set them separately."
)
_TF32_ONLY_RECURRENT = translatable(
    "TF32 is off for convolutions and on for recurrent layers: your code has set them separately."
)


@dataclass(frozen=True, slots=True)
class TorchSwitch:
    """A setting of torch that trades speed for precision or repeatability."""

    name: str
    title: str
    choices: tuple[str, ...]
    default: str
    """torch's default value."""
    trades: str
    """Sentences for the user that describe what each value gains and what it costs."""
    read: Callable[[Any], SwitchValue]
    """Returns the current value, given ``torch._C``."""
    statements: Callable[[Any, str], tuple[str, ...]]
    """Returns the Python statements that set the switch, given ``torch._C`` and the new value."""

    def current_value(self) -> str | None:
        """Return the current value, or None if it is unknown or torch is not loaded."""
        return self.read(getattr(cuda_state.loaded_torch(), "_C", None)).value


def compute_switches() -> ComputeSwitches | None:
    """Return the values of the switches on which advice depends, or None if torch is not loaded."""
    torch: Any = cuda_state.loaded_torch()
    if torch is None:
        return None
    native = getattr(torch, "_C", None)
    return ComputeSwitches(
        tf32_matmul=_tf32(native, "matmul"),
        tf32_conv=_tf32(native, "conv"),
        cudnn=_read_flag(native, "_get_cudnn_enabled"),
        cudnn_benchmark=_read_flag(native, "_get_cudnn_benchmark"),
    )


def cpu_threads() -> int | None:
    """Return how many CPU threads torch uses for one operation, or None if torch is not loaded."""
    torch: Any = cuda_state.loaded_torch()
    if torch is None:
        return None
    with Boundary(_LOG, "torch's number of threads could not be read", foreign=True):
        return int(torch._C.get_num_threads())
    return None


def switch_values() -> dict[str, SwitchValue] | None:
    """Return the values of all ``TORCH_SWITCHES`` by name, or None if torch is not loaded."""
    torch: Any = cuda_state.loaded_torch()
    if torch is None:
        return None
    native = getattr(torch, "_C", None)
    return {switch.name: switch.read(native) for switch in TORCH_SWITCHES}


def find_switch(name: str, value: str | None = None) -> TorchSwitch:
    """Return the switch called ``name``. Raises OptionError for an unknown name or an invalid ``value``."""
    switch = next((switch for switch in TORCH_SWITCHES if switch.name == name), None)
    if switch is None:
        names = "\n".join(f"  {switch.name}" for switch in TORCH_SWITCHES)
        raise OptionError(
            translatable("{name!r} is not a switch. The switches:\n{names}", name=name, names=names)
        )
    if value is not None and value not in switch.choices:
        raise OptionError(
            translatable(
                "{name} can be {choices} or {last}, not {value!r}.",
                name=name,
                choices=", ".join(switch.choices[:-1]),
                last=switch.choices[-1],
                value=value,
            )
        )
    return switch


def switch_statement(switch: TorchSwitch, value: str) -> str:
    """Return the Python statement that sets a switch to ``value``. Raises OptionError if torch is not
    loaded."""
    return "\n".join(switch.statements(getattr(_require_torch(), "_C", None), value))


def set_switch(switch: TorchSwitch, value: str) -> str:
    """Set a switch, and return the statement that was run. Raises OptionError if torch raises an error."""
    torch = _require_torch()
    text = switch_statement(switch, value)
    first_line = text.partition("\n")[0]
    try:
        # torch 2.9 warns once about the older API. The warning is of no use to the user, because it is
        # gpuwidget that calls the API.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(text, {"torch": torch})
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise OptionError(
            translatable("{statement} failed: {reason}", statement=first_line, reason=reason)
        ) from None
    now = switch.current_value()
    if now not in (value, None):
        raise OptionError(
            translatable(
                "{statement} had no effect: torch still reports {now}.", statement=first_line, now=now
            )
        )
    return text


def _require_torch() -> Any:
    torch = cuda_state.loaded_torch()
    if torch is None:
        raise OptionError(
            translatable("torch is not imported yet: import it in a cell first. gpuwidget never imports it.")
        )
    return torch


def _read_flag(native: Any, name: str) -> bool | None:
    with Boundary(_LOG, "a switch of torch could not be read", foreign=True):
        return bool(getattr(native, name)())
    return None


_OLD_GETTERS = {
    "matmul": "_get_cublas_allow_tf32",
    "conv": "_get_cudnn_allow_tf32",
    "rnn": "_get_cudnn_allow_tf32",
}


def _tf32(native: Any, operation: str) -> bool | None:
    if getattr(native, "_get_fp32_precision_getter", None) is None:
        return _read_flag(native, _OLD_GETTERS[operation])
    precision = _precision(native, "cuda", operation)
    return None if precision is None else precision == "tf32"


def _precision(native: Any, backend: str, operation: str) -> str | None:
    with Boundary(_LOG, "a precision of torch could not be read", foreign=True):
        return str(native._get_fp32_precision_getter(backend, operation))
    return None


def _flag(
    attribute: str, getter: str
) -> tuple[Callable[[Any], SwitchValue], Callable[[Any, str], tuple[str, ...]]]:
    """Return the functions that read and set one flag of torch.backends.cudnn."""

    def read(native: Any) -> SwitchValue:
        flag = _read_flag(native, getter)
        return _cudnn_value(native, _UNKNOWN if flag is None else SwitchValue(ON if flag else OFF))

    def statements(native: Any, value: str) -> tuple[str, ...]:
        return (f"torch.backends.cudnn.{attribute} = {value == ON}",)

    return read, statements


def _cudnn_value(native: Any, found: SwitchValue) -> SwitchValue:
    if found.note is None and getattr(native, "_has_cudnn", None) is False:
        return found._replace(
            note=translatable("This torch was built without cuDNN, so the switch has no effect.")
        )
    return found


def _read_cudnn_tf32(native: Any) -> SwitchValue:
    conv, rnn = _tf32(native, "conv"), _tf32(native, "rnn")
    if conv is None or rnn is None:
        return _UNKNOWN
    if conv != rnn:
        return SwitchValue(None, _TF32_ONLY_RECURRENT if rnn else _TF32_ONLY_CONVOLUTIONS)
    return _cudnn_value(native, SwitchValue(ON if conv else OFF))


def _set_cudnn_tf32(native: Any, value: str) -> tuple[str, ...]:
    lines = [f"torch.backends.cudnn.allow_tf32 = {value == ON}"]
    if value == OFF and _precision(native, "cuda", "all") == "tf32":
        # If TF32 was enabled for all of CUDA or all of torch, the older API alone would not turn it off for
        # convolutions and recurrent layers.
        lines += [f'torch.backends.cudnn.{layer}.fp32_precision = "ieee"' for layer in ("conv", "rnn")]
    return tuple(lines)


def _read_matmul(native: Any) -> SwitchValue:
    if getattr(native, "_get_fp32_precision_getter", None) is None:
        with Boundary(_LOG, "torch's matmul precision could not be read", foreign=True):
            return SwitchValue(str(native._get_float32_matmul_precision()))
        return _UNKNOWN
    tf32 = _tf32(native, "matmul")
    if tf32 is None:
        return _UNKNOWN
    # torch.get_float32_matmul_precision may raise. Derive its value from the precisions of matrix products on
    # CUDA (TF32) and on the CPU (bf16).
    faster = "medium" if _precision(native, "mkldnn", "matmul") == "bf16" else "high"
    return SwitchValue(faster if tf32 else "highest")


def _set_matmul(native: Any, value: str) -> tuple[str, ...]:
    return (f'torch.set_float32_matmul_precision("{value}")',)


def _read_deterministic(native: Any) -> SwitchValue:
    on = _read_flag(native, "_get_deterministic_algorithms")
    warn = _read_flag(native, "_get_deterministic_algorithms_warn_only")
    if on is None or warn is None:
        return _UNKNOWN
    return SwitchValue(("warn" if warn else "error") if on else "default")


def _set_deterministic(native: Any, value: str) -> tuple[str, ...]:
    # use_deterministic_algorithms would import torch's compiler, which blocks the kernel for a second.
    return (f'torch.set_deterministic_debug_mode("{value}")',)


_UNKNOWN = SwitchValue(None, translatable("Not reported by this PyTorch."))

TORCH_SWITCHES: tuple[TorchSwitch, ...] = (
    TorchSwitch(
        "cudnn.enabled",
        "cuDNN",
        (ON, OFF),
        ON,
        translatable(
            "On: convolutions and recurrent layers run in NVIDIA's cuDNN. Off: they run in torch's native "
            "kernels, which are usually slower; turn it off to find out whether cuDNN causes an error."
        ),
        *_flag("enabled", "_get_cudnn_enabled"),
    ),
    TorchSwitch(
        "cudnn.benchmark",
        "cuDNN benchmark",
        (ON, OFF),
        OFF,
        translatable(
            "On: cuDNN times its algorithms on each new shape and keeps the fastest. Faster if "
            "shapes repeat, slower if they change; another run may use another algorithm."
        ),
        *_flag("benchmark", "_get_cudnn_benchmark"),
    ),
    TorchSwitch(
        "cudnn.deterministic",
        "cuDNN deterministic",
        (ON, OFF),
        OFF,
        translatable(
            "On: cuDNN uses only deterministic algorithms, which may be slower. Has no effect on operations "
            "outside cuDNN."
        ),
        *_flag("deterministic", "_get_cudnn_deterministic"),
    ),
    TorchSwitch(
        "cudnn.tf32",
        "cuDNN TF32",
        (ON, OFF),
        ON,
        translatable(
            "On: float32 convolutions and recurrent layers may use the tensor cores of Ampere and "
            "later, with 10 instead of 23 bits of mantissa: faster, less precise."
        ),
        _read_cudnn_tf32,
        _set_cudnn_tf32,
    ),
    TorchSwitch(
        "matmul.precision",
        "float32 matmul",
        ("highest", "high", "medium"),
        "highest",
        translatable(
            "highest: float32 matrix products use 23 bits of mantissa. high: TF32 on the tensor "
            "cores of Ampere and later, 10 bits: faster, less precise. medium: like high on CUDA, "
            "bfloat16 on the CPU."
        ),
        _read_matmul,
        _set_matmul,
    ),
    TorchSwitch(
        "deterministic",
        "Determinism",
        ("default", "warn", "error"),
        "default",
        translatable(
            "warn, error: torch uses deterministic algorithms, which are often slower. If an operation has "
            "none, torch warns (warn) or raises an error (error). cuBLAS needs "
            "CUBLAS_WORKSPACE_CONFIG=:4096:8 before CUDA starts."
        ),
        _read_deterministic,
        _set_deterministic,
    ),
)
"""All switches, in the order in which views show them."""
