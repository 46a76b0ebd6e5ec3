"""Files that leave a mark if their code runs, in a notebook's working folder."""

from __future__ import annotations

from pathlib import Path

_HOSTILE = """\
with open({mark!r}, "a") as file:
    file.write(__name__ + "\\n")
def load_ipython_extension(shell):
    with open({mark!r}, "a") as file:
        file.write("loaded")
"""


class HostileFolder:
    """A working folder with hostile files, which write to the file ``mark``."""

    def __init__(self, folder: Path, mark: Path) -> None:
        self.folder, self._mark = folder, mark

    def write_hostile(self, *names: str) -> None:
        """Write files that leave a mark when they run."""
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_HOSTILE.format(mark=str(self._mark)), encoding="utf-8")

    @property
    def ran(self) -> str:
        """What hostile code has written, empty if none ran."""
        return self._mark.read_text() if self._mark.exists() else ""
