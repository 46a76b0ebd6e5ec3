"""Load the extension for the panel's button, without running code from the notebook's folder.

The panel sends the text of this file to the kernel, because the kernel may have no gpuwidget or an older one.
The text runs in a separate namespace.

The kernel's working folder is usually the first entry of the module search path. Python would therefore
import a folder "gpuwidget" or a file "psutil.py" beside the notebook instead of the installed package. A user
who clicks a button has not asked for that code, and it may come from anyone. The modules that this file
imports at its top are loaded in every kernel, so no file can take their place. What gpuwidget would import
soon afterwards, on another thread or while the kernel is idle, is imported here too.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib_external import PathFinder
from _thread import get_ident

TYPE_CHECKING = False  # As in typing, which is not imported, because not every kernel has loaded it.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_NAME = "gpuwidget"
_DISTRIBUTION = "jupyterlab_gpuwidget-"


class _SafeFinder(PathFinder):
    """Takes the place of PathFinder while the extension is loaded.

    The thread that loads it imports top-level modules only from trusted folders. Other threads are not
    affected.
    """

    thread = get_ident()
    trusted: tuple[str, ...] = ()

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module; None if there is none in the trusted folders."""
        if path is None and get_ident() == cls.thread:
            path = cls.trusted
        return PathFinder.find_spec(fullname, path, target)


def load(shell: object) -> str:
    """Load the extension in ``shell``, and return the outcome, a space and the detail in hexadecimal UTF-8.

    The outcomes are "loaded" (detail: the version), "refused" (the path of the folder or file that Python
    would import), "not-installed", and "other-package" (PyPI has an unrelated gpuwidget). If the package
    can't be loaded, its exception is raised.
    """
    untrusted = _untrusted_folders(shell)
    _SafeFinder.trusted = tuple(entry for entry in _entries() if _real(entry) not in untrusted)
    sys.meta_path[sys.meta_path.index(PathFinder)] = _SafeFinder
    try:
        outcome, detail = _load(shell, untrusted)
    finally:
        sys.meta_path[sys.meta_path.index(_SafeFinder)] = PathFinder
    return f"{outcome} {detail.encode('utf-8', 'replace').hex()}"


def _load(shell: object, untrusted: set[str]) -> tuple[str, str]:
    package = _package()
    if package is not None:
        folder = _real(os.path.dirname(package))
        if folder in untrusted:
            if folder not in _source_folders(_SafeFinder.trusted):
                return "refused", os.path.abspath(package)
            # The last place, so that other modules in this folder do not replace installed ones.
            _SafeFinder.trusted = (*_SafeFinder.trusted, folder)
    try:
        module = __import__(_NAME)
    except ModuleNotFoundError as error:
        if error.name != _NAME:
            raise
        return "not-installed", ""
    if hasattr(module, "load_ipython_extension"):
        _import_pynvml()
    if shell.extension_manager.load_extension(_NAME) == "no load function":  # type: ignore[attr-defined]
        return "other-package", ""
    # An older gpuwidget has no such function.
    warm_up_now = getattr(sys.modules.get(f"{_NAME}.kernel.magics"), "warm_up_now", None)
    if warm_up_now is not None:
        warm_up_now()
    return "loaded", str(getattr(module, "__version__", ""))


def _import_pynvml() -> None:
    """Import pynvml, which the sampler's thread would otherwise import from any folder.

    If it is not installed, gpuwidget shows that. If only an untrusted folder has it, raise ImportError.
    """
    try:
        __import__("pynvml")
    except ImportError:
        if PathFinder.find_spec("pynvml", _entries()) is not None:
            raise


def _entries() -> list[str]:
    return [entry for entry in sys.path if isinstance(entry, str)]


def _untrusted_folders(shell: object) -> set[str]:
    """Return the folders that are on the search path only because code runs in a certain folder.

    They are the kernel's first and current working folders, the notebook's folder, and what relative entries
    of the search path stand for. Python makes the relative entries of PYTHONPATH absolute when it starts.
    """
    start = str(getattr(shell, "starting_dir", os.curdir))
    notebook = os.environ.get("JPY_SESSION_NAME", "")
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [
        os.curdir,
        start,
        *([os.path.dirname(notebook)] if os.path.isabs(notebook) else []),
        *(os.path.join(start, entry) for entry in python_path if not os.path.isabs(entry)),
        *(entry for entry in _entries() if not os.path.isabs(entry)),
    ]
    return {_real(folder) for folder in folders}


def _package() -> str | None:
    """Return the path of the package or module that is loaded or that Python would import; None if there is
    none.

    A folder without __init__.py is skipped, since Python prefers a package in any later folder to it.
    """
    loaded = sys.modules.get(_NAME)
    specs = (
        [PathFinder.find_spec(_NAME, [entry]) for entry in _entries()]
        if loaded is None
        else [getattr(loaded, "__spec__", None)]
    )
    for spec in specs:
        if spec is not None and spec.loader is not None and spec.origin is not None:
            is_package = os.path.basename(spec.origin).startswith("__init__.")
            return os.path.dirname(spec.origin) if is_package else spec.origin
    return None


def _source_folders(entries: tuple[str, ...]) -> set[str]:
    """Return the source folders of the distributions in ``entries`` that were installed with pip install -e.

    The user has chosen these folders, even if a notebook lies in one of them.
    """
    import json
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    found = set()
    for entry in entries:
        try:
            names = [name for name in os.listdir(entry) if name.startswith(_DISTRIBUTION)]
        except OSError:
            continue
        for name in names:
            try:
                with open(os.path.join(entry, name, "direct_url.json"), encoding="utf-8") as file:
                    direct_url = json.load(file)
                url = urlsplit(direct_url["url"])
                if url.scheme == "file" and direct_url["dir_info"]["editable"] is True:
                    project = url2pathname(url.path)
                    found |= {_real(project), _real(os.path.join(project, "src"))}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue
    return found


def _real(folder: str) -> str:
    try:
        return os.path.normcase(os.path.realpath(folder))
    except (OSError, ValueError):  # The working folder was deleted, or the path contains a null character.
        return folder
