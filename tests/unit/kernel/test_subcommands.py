"""Tests of the table of ``%gpu``'s subcommands."""

from __future__ import annotations

from importlib import import_module

import pytest

from gpuwidget.kernel import commands
from gpuwidget.kernel.commands.subcommands import SUBCOMMANDS, Subcommand
from gpuwidget.kernel.magics import Extension


@pytest.mark.parametrize("subcommand", SUBCOMMANDS, ids=lambda subcommand: subcommand.module)
def test_every_subcommand_can_be_run_and_is_described(subcommand: Subcommand) -> None:
    """The module of each subcommand has its function, and ``%gpu?`` describes the subcommand."""
    assert callable(import_module(f"{commands.__name__}.{subcommand.module}").command)
    assert f"``%gpu {subcommand.name}".rstrip() in str(Extension._gpu.__doc__)
    assert all(written.partition(" ")[0] == subcommand.name for written in subcommand.help)
