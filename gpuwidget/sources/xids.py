"""The driver's error numbers (XIDs): their meanings, what to do about them, and which a program may cause.

Meanings and actions are those of NVIDIA's catalog, https://docs.nvidia.com/deploy/xid-errors/. The action is
the catalog's immediate one (its "resolution bucket"): ``RESTART_APP``, ``RESET_GPU`` and ``IGNORE`` are
``restart``, ``reset`` and ``none``; ``RESTART_BM``, ``RESTART_VM`` and ``CHECK_MECHANICALS``, which need the
machine's administrator, are ``drain``. Of its workflows, 48 and 74 need a reset, 45 belongs to another error,
and that of 144 to 150 depends on the rest of the message, which XID 154 summarizes. An XID that needs no
immediate action, and whose cause the catalog sees in software, is ``report``. The catalog has no action for
some XIDs, and the older ones it only names. The action of 61 is from NVIDIA's GPU debug guidelines,
https://docs.nvidia.com/deploy/gpu-debug-guidelines/.

The list of XIDs that a program may cause on a healthy GPU is that of NVIDIA's device plugin for Kubernetes:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from gpuwidget.model.translation import translatable

XidAction = Literal["drain", "reset", "recovery", "restart", "report", "unknown", "none"]
"""What to do about an XID, the most severe first. ``recovery``: the driver itself says it, as the GPU's
recovery action."""
ACTIONS: tuple[XidAction, ...] = get_args(XidAction)

INSTRUCTIONS: Mapping[XidAction, str] = {
    "drain": translatable(
        "Drain the node: ask its administrator to take the machine out of service, check the GPU and restart "
        "the machine."
    ),
    "reset": translatable(
        "Reset the GPU: save your work, stop all programs that use the GPU, then run nvidia-smi --gpu-reset "
        "-i N as root, where N is the GPU's number."
    ),
    "recovery": translatable(
        "Do what the GPU's recovery action says: nvidia-smi -q shows it, and so does XID 154 in the kernel's "
        "log."
    ),
    "restart": translatable(
        "Restart the program that failed, which in a notebook is the kernel. The GPU needs no reset."
    ),
    "report": translatable(
        "Look for a bug in the program (compute-sanitizer). If it has none, report the error to NVIDIA "
        "(nvidia-bug-report.sh)."
    ),
    "unknown": translatable(
        "Look the XID up in NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/."
    ),
    "none": translatable("No action is needed."),
}
"""A sentence per action that says what to do."""


class XidRecord(NamedTuple):
    """What is known about an XID."""

    meaning: str
    action: XidAction
    from_program: bool = False
    """Whether a user's program may cause it on a healthy GPU."""


_NOT_LISTED = XidRecord(translatable("see NVIDIA's catalog of XIDs"), "unknown")

_INVALID_COMMANDS = translatable("invalid or corrupted commands to the GPU")
_STOPPED = translatable("the GPU stopped processing")
_FIRMWARE = translatable("the driver's firmware failed")
_ILLEGAL = translatable("an illegal access by the driver")
_COPY = XidRecord(translatable("a copy engine failed"), "restart")
_VIDEO = XidRecord(translatable("the video engine failed"), "restart")
_JPEG = XidRecord(translatable("the JPEG engine failed"), "restart")
_OPTICAL_FLOW = XidRecord(translatable("the optical flow engine failed"), "restart")
_FLASH = XidRecord(translatable("the GPU's flash memory failed"), "unknown")
_NVLINK = translatable("an NVLink error")
_TEST = XidRecord(translatable("a test message"), "none")
_ECC = translatable("an uncorrectable memory error")

XIDS: Mapping[int, XidRecord] = {
    8: XidRecord(_STOPPED, "restart"),
    11: XidRecord(_INVALID_COMMANDS, "restart"),
    13: XidRecord(
        translatable("a GPU kernel failed, often because an index was out of bounds"), "restart", True
    ),
    14: XidRecord(translatable("a test error that a program injected"), "none"),
    25: XidRecord(_INVALID_COMMANDS, "restart"),
    31: XidRecord(translatable("a GPU kernel read or wrote memory that it may not access"), "restart", True),
    32: XidRecord(_INVALID_COMMANDS, "restart"),
    37: XidRecord(_FIRMWARE, "report"),
    38: XidRecord(_FIRMWARE, "none"),
    **dict.fromkeys((39, 40, 41), _COPY),
    43: XidRecord(translatable("a program's work was stopped"), "none", True),
    44: XidRecord(translatable("a fault while the GPU switched between programs"), "none"),
    45: XidRecord(
        translatable("a program's work was removed after an earlier error or after the program's end"),
        "none",
        True,
    ),
    46: XidRecord(_STOPPED, "reset"),
    48: XidRecord(_ECC, "reset"),
    54: XidRecord(translatable("the GPU's power cable isn't connected"), "drain"),
    56: XidRecord(translatable("a display error"), "unknown"),
    57: XidRecord(translatable("the GPU's memory could not be set up"), "unknown"),
    58: XidRecord(translatable("the connection to the GPU's memory is unstable"), "unknown"),
    59: XidRecord(translatable("the GPU's internal controller failed"), "unknown"),
    60: _VIDEO,
    61: XidRecord(translatable("the GPU's internal controller reached a breakpoint"), "reset"),
    62: XidRecord(translatable("the GPU's internal controller stopped"), "reset"),
    63: XidRecord(translatable("faulty memory is taken out of use at the next reset"), "none"),
    64: XidRecord(translatable("faulty memory could not be taken out of use"), "reset"),
    66: XidRecord(_ILLEGAL, "report"),
    67: XidRecord(_ILLEGAL, "none"),
    68: _VIDEO._replace(from_program=True),
    69: XidRecord(translatable("the graphics engine received a wrong command"), "restart"),
    **dict.fromkeys((70, 71, 72), _COPY),
    74: XidRecord(_NVLINK, "reset"),
    **dict.fromkeys((75, 76, 77), _COPY),
    78: XidRecord(translatable("a virtual GPU could not start"), "unknown"),
    79: XidRecord(translatable("the GPU fell off the bus"), "drain"),
    80: XidRecord(translatable("corrupted data was sent to the GPU"), "restart"),
    82: _JPEG,
    **dict.fromkeys((83, 84), _VIDEO),
    85: _COPY,
    86: _OPTICAL_FLOW,
    **dict.fromkeys((88, 89), _VIDEO),
    92: XidRecord(translatable("many corrected memory errors"), "none"),
    93: XidRecord(translatable("the GPU's InfoROM was written too often"), "none"),
    94: XidRecord(translatable("a memory error that affected one program"), "restart"),
    95: XidRecord(translatable("a memory error that affected all programs"), "reset"),
    **dict.fromkeys((96, 97, 98), _VIDEO),
    **dict.fromkeys(range(99, 106), _JPEG),
    **dict.fromkeys((106, 107), _TEST),
    109: XidRecord(translatable("a program did not release the GPU in time"), "reset", True),
    110: XidRecord(translatable("a security fault"), "reset"),
    119: XidRecord(translatable("the GPU's system processor (GSP) does not answer"), "reset"),
    120: XidRecord(translatable("the GPU's system processor (GSP) failed"), "reset"),
    121: XidRecord(translatable("corrected errors on the link to the CPU"), "none"),
    **dict.fromkeys((122, 123, 124), _FLASH),
    125: XidRecord(translatable("the GPU's InfoROM failed"), "unknown"),
    **dict.fromkeys(range(126, 136), _COPY),
    136: XidRecord(translatable("an NVLink could not be set up"), "reset"),
    137: XidRecord(translatable("an illegal access to another GPU's memory over NVLink"), "report"),
    139: _OPTICAL_FLOW,
    140: XidRecord(translatable("an uncorrectable memory error that interrupted the driver"), "reset"),
    141: XidRecord(translatable("an error in CUDA's fast path"), "none"),
    142: XidRecord(_VIDEO.meaning, "unknown"),
    143: XidRecord(translatable("the GPU could not be initialized"), "reset"),
    **dict.fromkeys(range(144, 151), XidRecord(_NVLINK, "recovery")),
    151: XidRecord(translatable("the encryption keys could not be replaced"), "drain"),
    154: XidRecord(translatable("the driver changed the GPU's recovery action"), "recovery"),
    155: XidRecord(translatable("an NVLink went down"), "reset"),
    156: XidRecord(translatable("a faulty part of the GPU was taken out of use"), "reset"),
    157: XidRecord(translatable("a faulty part of the GPU could not be taken out of use"), "none"),
    158: XidRecord(translatable("the GPU did not answer in time"), "reset"),
    159: XidRecord(translatable("an error on the link to the CPU"), "unknown"),
    167: XidRecord(translatable("PCIe did not answer in time"), "unknown"),
    **dict.fromkeys((171, 172), XidRecord(_ECC, "unknown")),
}
"""The XIDs that current drivers report, by number."""

APPLICATION_XIDS = {number: record.meaning for number, record in XIDS.items() if record.from_program}
"""Meanings of the XIDs after which only the program that caused them fails. The GPU stays healthy."""

_RECOVERY_ACTION = re.compile(r"recovery action changed from .* to 0x[0-9a-fA-F]+ \(([^)]+)\)")
_RECOVERY_ACTIONS: Mapping[str, XidAction] = {
    "none": "none",
    "drain and reset": "reset",
    "gpu reset required": "reset",
    "node reboot required": "drain",
}
"""What to do by the recovery action's name in the message of XID 154."""


def describe(number: int) -> str:
    """Return the meaning of an XID in a few words."""
    return XIDS.get(number, _NOT_LISTED).meaning


def action(number: int, message: str = "") -> XidAction:
    """Return what to do about an XID.

    ``message`` is its line in the kernel's log, in which XID 154 names the action.
    """
    named = _RECOVERY_ACTION.search(message) if number == 154 else None
    usual = XIDS.get(number, _NOT_LISTED).action
    return usual if named is None else _RECOVERY_ACTIONS.get(named[1].lower(), usual)


def numbers(wanted: XidAction) -> list[int]:
    """Return the listed XIDs with this action."""
    return [number for number, record in XIDS.items() if record.action == wanted]


def silent_xids() -> list[int]:
    """Return the XIDs that raise no alert, because a program may cause them or they need no action."""
    return sorted({*APPLICATION_XIDS, *numbers("none")})
