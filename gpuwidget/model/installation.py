"""How users install gpuwidget: as the administrator configured it, or else as the documentation describes.

The name on the package index does not belong to the project yet. No text therefore suggests ``pip install``
with only the name.
"""

from __future__ import annotations

import re
import shlex
from importlib import metadata

DISTRIBUTION = "jupyterlab-gpuwidget"
REQUIREMENT_VARIABLE = "GPUWIDGET_INSTALL_REQUIREMENT"
"""Environment variable whose value is passed to ``pip install`` to install gpuwidget. The server extension
sets it for the kernels and terminals that the server starts."""
INSTRUCTIONS = "see docs/using/install.md in gpuwidget's repository"
"""Refers users to the installation instructions. It is used as long as the documentation has no public
address."""

_PASSWORD = re.compile(r"://[^/@\s]+@")
_SECRET_PARAMETER = re.compile(r"[?&][^=&\s]*(?:key|pass|secret|sig|token)[^=&\s]*=", re.IGNORECASE)
_WHEEL = re.compile(r"(?!.* -)(/|~|\.|[A-Za-z]:)[^'\"]*\.whl(\[[^\]]*\])?")
_BARE = re.compile(r"([\w.-]+)(\[[^\]]*\])?")


def pip_arguments(requirement: str, version: str) -> list[str]:
    """Split a requirement into arguments, as a shell does.

    The requirement is the path or address of a wheel, or a name with the options for a package index. If it
    is only a wheel's path, the path may contain unquoted spaces, because traitlets removes the quotes from a
    command line. ``version`` is added to a bare name, so that kernel and server have the same version. Raise
    ValueError for an unclosed quote, for an empty requirement, and for an address with a password or token,
    which every user could read.
    """
    words = [requirement.strip()] if _WHEEL.fullmatch(requirement.strip()) else shlex.split(requirement)
    if not words:
        raise ValueError("nothing to install")
    if any(_PASSWORD.search(word) or _SECRET_PARAMETER.search(word) for word in words):
        raise ValueError("an address with a user name, a password or a token")
    return [_with_version(word, version) for word in words]


def without_passwords(text: str) -> str:
    """Return ``text`` with ``***`` in place of the user name and password in every address."""
    return _PASSWORD.sub("://***@", text)


def documentation() -> str | None:
    """Return the documentation's address from the package's metadata, or None if the metadata has none."""
    try:
        urls = metadata.metadata(DISTRIBUTION).get_all("Project-URL") or ()
    except metadata.PackageNotFoundError:
        return None
    known = {
        label.strip().lower(): url.strip() for label, _, url in (str(entry).partition(",") for entry in urls)
    }
    return next((known[label] for label in ("documentation", "homepage") if label in known), None)


def _with_version(word: str, version: str) -> str:
    bare = _BARE.fullmatch(word)
    ours = bare is not None and re.sub(r"[-_.]+", "-", bare[1]).lower() == DISTRIBUTION
    return f"{word}=={version}" if ours else word
