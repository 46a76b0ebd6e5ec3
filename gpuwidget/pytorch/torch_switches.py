"""torch's switches that trade speed for precision or repeatability: read, and set by a statement to show.

torch ≥ 2.9 has two ways to say TF32. Where the newer one was used to set it, the older way to read raises;
what the older one sets, both read. So each is set in the older way and read in the newer one, where there is
one: whatever the user's code reads goes on working, in torch.compile too, which reads both.

Nothing here imports torch or initialises CUDA: all are plain flags.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuwidget.model.errors import OptionError
from gpuwidget.pytorch import cuda_state

ON, OFF = "on", "off"


@dataclass(frozen=True, slots=True)
class Switches:
    """Those that decide which units of the GPU compute; None for what this torch does not say."""

    tf32_matmul: bool | None
    """Whether float32 matrix products may use TF32 on the tensor cores."""
    tf32_conv: bool | None
    """The same of cuDNN's convolutions."""
    cudnn: bool | None
    """Whether cuDNN is used at all."""
    cudnn_benchmark: bool | None = None
    """Whether it tries its algorithms on each new shape (torch.backends.cudnn.benchmark)."""


class Value(NamedTuple):
    """What a switch is at."""

    value: str | None
    note: str | None = None
    """Why that can't be told, or what to know beside it; a sentence."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One switch."""

    name: str
    title: str
    choices: tuple[str, ...]
    default: str
    """torch's own."""
    trades: str
    """What it trades, in sentences."""
    read: Callable[[Any], Value]
    """Asks ``torch._C``."""
    statements: Callable[[Any, str], tuple[str, ...]]
    """The Python that sets it to a choice, given ``torch._C`` as it is."""

    def present(self) -> str | None:
        """What it is at; None where that can't be told, as where torch is not loaded."""
        return self.read(getattr(cuda_state.loaded(), "_C", None)).value


def switches() -> Switches | None:
    """Those that advice looks at, as they are now; None where torch is not loaded."""
    torch: Any = cuda_state.loaded()
    if torch is None:
        return None
    native = getattr(torch, "_C", None)
    return Switches(
        tf32_matmul=_tf32(native, "matmul"),
        tf32_conv=_tf32(native, "conv"),
        cudnn=_asked(native, "_get_cudnn_enabled"),
        cudnn_benchmark=_asked(native, "_get_cudnn_benchmark"),
    )


def values() -> dict[str, Value] | None:
    """What every one of ``KINDS`` is at, by name; None where torch is not loaded."""
    torch: Any = cuda_state.loaded()
    if torch is None:
        return None
    native = getattr(torch, "_C", None)
    return {kind.name: kind.read(native) for kind in KINDS}


def kind_of(name: str, value: str | None = None) -> Kind:
    """The switch of that name. Raises OptionError where there is none, or it can't be ``value``."""
    kind = next((one for one in KINDS if one.name == name), None)
    if kind is None:
        raise OptionError(f"{name!r} is no switch. There are: {', '.join(one.name for one in KINDS)}.")
    if value is not None and value not in kind.choices:
        raise OptionError(
            f"{name} can be {', '.join(kind.choices[:-1])} or {kind.choices[-1]}, not {value!r}."
        )
    return kind


def statement(kind: Kind, value: str) -> str:
    """The Python that would set it to ``value`` now. Raises OptionError where torch is not loaded."""
    return "\n".join(kind.statements(getattr(_loaded(), "_C", None), value))


def run(kind: Kind, value: str) -> str:
    """Set it, by just the statement that is returned. Raises OptionError where torch refuses."""
    torch = _loaded()
    text = statement(kind, value)
    try:
        # torch 2.9 warns of the older way, once, in words meant for who wrote it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(text, {"torch": torch})
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise OptionError(f"torch refused {text!r}: {reason}") from None
    now = kind.present()
    if now not in (value, None):
        raise OptionError(f"{text!r} was run, and torch still says {now}.")
    return text


def _loaded() -> Any:
    torch = cuda_state.loaded()
    if torch is None:
        raise OptionError("torch is not imported yet: import it in a cell first. gpuwidget never does.")
    return torch


def _asked(native: Any, name: str) -> bool | None:
    try:
        return bool(getattr(native, name)())
    except Exception:
        return None


_OLDER = {"matmul": "_get_cublas_allow_tf32", "conv": "_get_cudnn_allow_tf32", "rnn": "_get_cudnn_allow_tf32"}


def _tf32(native: Any, operation: str) -> bool | None:
    if getattr(native, "_get_fp32_precision_getter", None) is None:
        return _asked(native, _OLDER[operation])
    precision = _precision(native, "cuda", operation)
    return None if precision is None else precision == "tf32"


def _precision(native: Any, backend: str, operation: str) -> str | None:
    try:
        return str(native._get_fp32_precision_getter(backend, operation))
    except Exception:
        return None


def _flag(
    attribute: str, getter: str
) -> tuple[Callable[[Any], Value], Callable[[Any, str], tuple[str, ...]]]:
    """How a flag of torch.backends.cudnn is read and set."""

    def read(native: Any) -> Value:
        asked = _asked(native, getter)
        return _of_cudnn(native, _UNKNOWN if asked is None else Value(ON if asked else OFF))

    def statements(native: Any, value: str) -> tuple[str, ...]:
        return (f"torch.backends.cudnn.{attribute} = {value == ON}",)

    return read, statements


def _of_cudnn(native: Any, found: Value) -> Value:
    if found.note is None and getattr(native, "_has_cudnn", None) is False:
        return found._replace(note="This torch was built without cuDNN: it changes nothing here.")
    return found


def _read_cudnn_tf32(native: Any) -> Value:
    conv, rnn = _tf32(native, "conv"), _tf32(native, "rnn")
    if conv is None or rnn is None:
        return _UNKNOWN
    if conv != rnn:
        words = (
            "on for convolutions and off for recurrent layers",
            "off for convolutions and on for recurrent layers",
        )
        return Value(None, f"TF32 is {words[rnn]}: your code has set them apart.")
    return _of_cudnn(native, Value(ON if conv else OFF))


def _set_cudnn_tf32(native: Any, value: str) -> tuple[str, ...]:
    said = [f"torch.backends.cudnn.allow_tf32 = {value == ON}"]
    if value == OFF and _precision(native, "cuda", "all") == "tf32":
        # The older way leaves them to what all of CUDA, or of torch, was set to.
        said += [f'torch.backends.cudnn.{one}.fp32_precision = "ieee"' for one in ("conv", "rnn")]
    return tuple(said)


def _read_matmul(native: Any) -> Value:
    if getattr(native, "_get_fp32_precision_getter", None) is None:
        try:
            return Value(str(native._get_float32_matmul_precision()))
        except Exception:
            return _UNKNOWN
    tf32 = _tf32(native, "matmul")
    if tf32 is None:
        return _UNKNOWN
    # Of the three, only what they mean on CUDA and on the CPU is there to be read without an error.
    faster = "medium" if _precision(native, "mkldnn", "matmul") == "bf16" else "high"
    return Value(faster if tf32 else "highest")


def _set_matmul(native: Any, value: str) -> tuple[str, ...]:
    return (f'torch.set_float32_matmul_precision("{value}")',)


def _read_deterministic(native: Any) -> Value:
    on = _asked(native, "_get_deterministic_algorithms")
    warn = _asked(native, "_get_deterministic_algorithms_warn_only")
    if on is None or warn is None:
        return _UNKNOWN
    return Value(("warn" if warn else "error") if on else "default")


def _set_deterministic(native: Any, value: str) -> tuple[str, ...]:
    # Not use_deterministic_algorithms, which imports torch's compiler: a second in which nobody is answered.
    return (f'torch.set_deterministic_debug_mode("{value}")',)


_UNKNOWN = Value(None, "This torch does not say.")

KINDS: tuple[Kind, ...] = (
    Kind(
        "cudnn.enabled",
        "cuDNN",
        (ON, OFF),
        ON,
        "On: convolutions and recurrent layers run in NVIDIA's cuDNN. Off: in torch's own kernels, mostly "
        "slower; tells whether a fault is cuDNN's.",
        *_flag("enabled", "_get_cudnn_enabled"),
    ),
    Kind(
        "cudnn.benchmark",
        "cuDNN benchmark",
        (ON, OFF),
        OFF,
        "On: cuDNN tries its algorithms on each new shape and keeps the fastest. Pays where shapes repeat, "
        "costs where they change, and another run may take another algorithm.",
        *_flag("benchmark", "_get_cudnn_benchmark"),
    ),
    Kind(
        "cudnn.deterministic",
        "cuDNN deterministic",
        (ON, OFF),
        OFF,
        "On: cuDNN takes only algorithms that give the same result each time, which may be slower. "
        "Operations outside cuDNN are not concerned.",
        *_flag("deterministic", "_get_cudnn_deterministic"),
    ),
    Kind(
        "cudnn.tf32",
        "cuDNN TF32",
        (ON, OFF),
        ON,
        "On: float32 convolutions and recurrent layers may use the tensor cores, on Ampere and later, with "
        "10 bits of mantissa for 23: faster, less precise.",
        _read_cudnn_tf32,
        _set_cudnn_tf32,
    ),
    Kind(
        "matmul.precision",
        "float32 matmul",
        ("highest", "high", "medium"),
        "highest",
        "highest: float32 matrix products keep 23 bits of mantissa. high: TF32 on the tensor cores of Ampere "
        "and later, 10 bits: faster, less precise. medium: on CUDA the same, on the CPU bfloat16.",
        _read_matmul,
        _set_matmul,
    ),
    Kind(
        "deterministic",
        "Determinism",
        ("default", "warn", "error"),
        "default",
        "warn, error: a repeatable algorithm, often slower, where there is one; where there is none, a "
        "warning or an error. cuBLAS wants CUBLAS_WORKSPACE_CONFIG=:4096:8 set before CUDA starts.",
        _read_deterministic,
        _set_deterministic,
    ),
)
"""In the order in which they are shown."""
