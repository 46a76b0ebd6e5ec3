"""Tests of the table of XIDs."""

from __future__ import annotations

import pytest

from gpuwidget.sources import xids
from gpuwidget.sources.xids import XidAction


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (13, "restart"),
        (31, "restart"),
        (32, "restart"),
        (37, "report"),
        (43, "none"),
        (45, "none"),
        (48, "reset"),
        (62, "reset"),
        (63, "none"),
        (64, "reset"),
        (74, "reset"),
        (79, "drain"),
        (92, "none"),
        (94, "restart"),
        (95, "reset"),
        (109, "reset"),
        (119, "reset"),
        (120, "reset"),
        (137, "report"),
        (140, "reset"),
        (149, "recovery"),
        (154, "recovery"),
        (158, "reset"),
        (58, "unknown"),
        (118, "unknown"),
        (9999, "unknown"),
    ],
)
def test_the_action_is_that_of_nvidias_catalog(number: int, action: XidAction) -> None:
    """Each XID has the immediate action of NVIDIA's catalog. If the catalog has none, or doesn't list the
    XID, the action is unknown."""
    assert xids.action(number) == action


def test_xids_of_programs() -> None:
    """The XIDs that a program may cause on a healthy GPU are those of NVIDIA's device plugin for
    Kubernetes."""
    assert [*xids.APPLICATION_XIDS] == [13, 31, 43, 45, 68, 109]


def test_unlisted_xids_lead_to_the_catalog() -> None:
    """An XID that gpuwidget doesn't know has no invented meaning, and leads to NVIDIA's catalog."""
    assert xids.describe(9999) == "see NVIDIA's catalog of XIDs"
    assert xids.INSTRUCTIONS[xids.action(9999)] == (
        "Look the XID up in NVIDIA's catalog: https://docs.nvidia.com/deploy/xid-errors/."
    )


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("None", "none"),
        ("GPU Reset Required", "reset"),
        ("Drain and Reset", "reset"),
        ("Node Reboot Required", "drain"),
        ("Drain P2P", "recovery"),
        ("Something new", "recovery"),
    ],
)
def test_xid_154_names_the_action(name: str, action: XidAction) -> None:
    """XID 154 has the action that its message names. A name that has none of the actions leaves the choice
    to the user."""
    message = f"NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x1 (None) to 0x2 ({name})"
    assert xids.action(154, message) == action
    assert xids.action(79, message) == "drain"


def test_every_action_has_an_instruction() -> None:
    """For each action, one sentence says what to do."""
    assert [*xids.INSTRUCTIONS] == [*xids.ACTIONS]
    assert {record.action for record in xids.XIDS.values()} == {*xids.ACTIONS}


def test_the_table_is_in_order() -> None:
    """The XIDs are listed in ascending order, as in the docs."""
    assert [*xids.XIDS] == sorted(xids.XIDS)
