"""Show the cards of this notebook's runs that died with an earlier kernel, when the extension is loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuwidget.journal.folder import journal_folder, run_ids
from gpuwidget.journal.settings import JournalSettings
from gpuwidget.kernel.cells.run_journal import notebook_of

if TYPE_CHECKING:
    from gpuwidget.journal.store import JournalStore

_MAX_CARDS = 3
_TIMEOUT_S = 2.0
"""Maximum seconds for which loading the extension waits until it is clear why a run died. Slurm, for example,
may not answer. The card is then shown when the extension is loaded again."""


def show_died_runs(shell: Any, folder: Path | None = None) -> None:
    """Show each run of this notebook that died and was not shown yet, at most the newest three.

    If no run has died, this only lists two folders, which takes 0.1 ms.
    """
    folder = journal_folder() if folder is None else folder
    if not JournalSettings.of(os.environ).enabled or not (run_ids(folder, "live") or run_ids(folder, "died")):
        return
    notebook = notebook_of(shell)
    if notebook is None or _is_silent(shell):
        return
    # Imported here, because what explains a death is rarely needed.
    from gpuwidget.journal.conclude import conclude
    from gpuwidget.journal.store import JournalStore

    store = JournalStore(folder)
    concluding = threading.Thread(target=conclude, args=(JournalStore(folder),), daemon=True)
    concluding.start()
    concluding.join(_TIMEOUT_S)
    own = [row for row in store.rows("died") if row.notebook == notebook]
    for row in reversed(own[:_MAX_CARDS]):
        _show(shell, store, row.id)
    for row in own:
        store.mark_shown(row.id)


def _is_silent(shell: Any) -> bool:
    """Return whether nobody sees what is displayed: if the panel loads the extension, or a kernel's start."""
    if getattr(shell, "kernel", None) is None:
        return False
    parent = shell.get_parent()
    content = parent.get("content") if isinstance(parent, Mapping) else None
    return not isinstance(content, Mapping) or content.get("silent") is True


def _show(shell: Any, store: JournalStore, run_id: str) -> None:
    from gpuwidget.views import journal_view
    from gpuwidget.views.saved_outputs import output_metadata

    found = store.read("died", run_id)
    if found is not None:
        shell.display_pub.publish(data=journal_view.bundle(*found), metadata=output_metadata())
