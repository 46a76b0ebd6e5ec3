"""The meanings of the driver's error numbers (XIDs), and which of them a user's program may cause.

The list of XIDs after which the GPU is still healthy is that of NVIDIA's device plugin for Kubernetes:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go. The meanings are from
https://docs.nvidia.com/deploy/xid-errors/.
"""

from __future__ import annotations

from gpuwidget.model.translation import translatable

APPLICATION_XIDS = {
    13: translatable("a GPU kernel failed, often because an index was out of bounds"),
    31: translatable("a GPU kernel read or wrote memory that it may not access"),
    43: translatable("a program's work was stopped"),
    45: translatable("a program's work was removed after an earlier error or after the program's end"),
    68: translatable("the video engine failed"),
    109: translatable("a program did not release the GPU in time"),
}
"""Meanings of the XIDs after which only the program that caused them fails. The GPU stays healthy."""

_GPU_XIDS = {
    48: translatable("an uncorrectable memory error"),
    63: translatable("faulty memory is taken out of use at the next reset"),
    64: translatable("faulty memory could not be taken out of use"),
    74: translatable("an NVLink error"),
    79: translatable("the GPU fell off the bus"),
    92: translatable("many corrected memory errors"),
    94: translatable("a memory error that affected one program"),
    95: translatable("a memory error that affected all programs"),
    119: translatable("the GPU's system processor (GSP) does not answer"),
    120: translatable("the GPU's system processor (GSP) failed"),
}


def describe(number: int) -> str:
    """Return the meaning of an XID in a few words."""
    return APPLICATION_XIDS.get(number) or _GPU_XIDS.get(number, translatable("see NVIDIA's catalog of XIDs"))
