"""The meanings of the driver's error numbers (XIDs), and which of them a user's program may cause.

The list of XIDs after which the GPU is still healthy is that of NVIDIA's device plugin for Kubernetes:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go. The meanings are from
https://docs.nvidia.com/deploy/xid-errors/.
"""

from __future__ import annotations

APPLICATION_XIDS = {
    13: "a kernel failed, often by an index out of bounds",
    31: "a kernel read or wrote memory that is not its own",
    43: "a program's work was stopped",
    45: "a program's work was cleared away after an earlier error or its end",
    68: "the video engine failed",
    109: "a program did not give the GPU back in time",
}
"""Meanings of the XIDs after which only the program that caused them fails. The GPU stays healthy."""

_GPU_XIDS = {
    48: "an uncorrectable memory error",
    63: "memory was set aside after an error; a reset finishes it",
    64: "memory could not be set aside after an error",
    74: "an NVLink error",
    79: "the GPU fell off the bus",
    92: "many corrected memory errors",
    94: "a memory error that stayed within one program",
    95: "a memory error that reached all programs",
    119: "the GPU's own processor does not answer",
    120: "the GPU's own processor failed",
}


def describe(number: int) -> str:
    """Return the meaning of an XID in a few words."""
    return APPLICATION_XIDS.get(number) or _GPU_XIDS.get(number, "see NVIDIA's catalogue of XIDs")
