"""The table of ``%gpu``'s subcommands, in which the magic looks up its first word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from gpuwidget.model.errors import OptionError
from gpuwidget.model.lazy_imports import import_attribute
from gpuwidget.model.terminal_text import printable_lines
from gpuwidget.model.translation import Text, joined, translatable
from gpuwidget.views.saved_outputs import output_metadata

if TYPE_CHECKING:
    from gpuwidget.kernel.cells.watched_cells import CellWatcher

_HELP_COLUMN = 22
"""Column of the help in which the descriptions begin."""


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand of ``%gpu``."""

    name: str
    """The first word after ``%gpu``; empty for ``%gpu`` alone."""
    module: str
    """The module of this package whose function ``command`` runs the subcommand.

    It is imported at the first use, not by ``%load_ext``, which must be quick.
    """
    help: Mapping[str, Text]
    """What the subcommand shows or does, by what is written after ``%gpu``."""
    suggestions: tuple[str, ...] = ()
    """What a user who misspelled the subcommand probably meant; the name by default."""


SUBCOMMANDS = (
    Subcommand("", "dashboard_command", {"": translatable("live dashboard of all GPUs")}),
    Subcommand(
        "watch",
        "watch_command",
        {"watch [on|off]": translatable("a one-line GPU summary under every cell")},
        suggestions=("watch on", "watch off"),
    ),
    Subcommand(
        "device",
        "device_command",
        {
            "device": translatable("the default torch device and all devices"),
            "device NAME": translatable("set it: cuda:N, cpu or none; --light: not for new tensors"),
        },
    ),
    Subcommand(
        "memory",
        "memory_command",
        {"memory": translatable("what holds the GPU memory; --cells: which cells allocated it")},
    ),
    Subcommand("free", "free_command", {"free": translatable("memory that can be freed; --yes: free it")}),
    Subcommand("compare", "compare_command", {"compare A B": translatable("two runs side by side")}),
    Subcommand(
        "switches",
        "switches_command",
        {"switches": translatable("PyTorch switches for speed, precision and repeatability")},
    ),
    Subcommand("doctor", "doctor_command", {"doctor": translatable("why torch does not use the GPU")}),
)


@dataclass(frozen=True, slots=True)
class Invocation:
    """One use of ``%gpu``."""

    shell: Any
    watcher: CellWatcher
    line: str
    """What is written after ``%gpu``."""

    @property
    def arguments(self) -> list[str]:
        """The words after the subcommand."""
        return self.line.split()[1:]

    def run(self) -> None:
        """Run the subcommand, which displays its result. Raises GpuWidgetError if it fails."""
        name = (self.line.split() or [""])[0]
        for subcommand in SUBCOMMANDS:
            if subcommand.name == name:
                import_attribute(f"gpuwidget.kernel.commands.{subcommand.module}", "command")(self)
                return
        raise self.unknown()

    def display(self, bundle: Mapping[str, str]) -> None:
        """Display a mime bundle."""
        self.shell.display_pub.publish(data=bundle, metadata=output_metadata())

    def display_text(self, text: str) -> None:
        """Display a text."""
        self.display({"text/plain": printable_lines(text)})

    def wrong_arguments(self, usage: Text) -> OptionError:
        """Return an error that shows how to use the subcommand."""
        command = " ".join(["%gpu", *self.line.split()])
        return OptionError(
            translatable("{command!r} is not a command.\n{usage}", command=command, usage=usage)
        )

    def unknown(self) -> OptionError:
        """Return an error that suggests a subcommand or lists all."""
        command = f"%gpu {self.line}"
        meant = closest_command(self.line.split())
        if meant is not None:
            return OptionError(
                translatable(
                    "{command!r} is not a command. Did you mean {meant}?",
                    command=command,
                    meant=f"%gpu {meant}",
                )
            )
        return OptionError(
            translatable(
                "{command!r} is not a command. The commands:\n{commands}", command=command, commands=_help()
            )
        )


def closest_command(words: Sequence[str]) -> str | None:
    """Return the command that a user who typed these words after ``%gpu`` probably meant.

    Return None if the first word is a command, or similar to none.
    """
    known = [
        suggestion
        for subcommand in SUBCOMMANDS
        for suggestion in subcommand.suggestions or (subcommand.name,)
    ]
    if words[0] in known:
        return None
    for typed in (" ".join(words), words[0]):
        for command in get_close_matches(typed, known, n=1):
            return command
    return None


def _help() -> Text:
    lines = [
        joined([f"%gpu {written}".ljust(_HELP_COLUMN), description], "")
        for subcommand in SUBCOMMANDS
        for written, description in subcommand.help.items()
    ]
    return joined(lines, "\n")
