"""hatch's metadata hook: adds the project's URLs, which are all derived from one setting.

The setting is ``repository`` in pyproject.toml's ``[tool.hatch.metadata.hooks.custom]``. As long as it is
empty, the distribution has no URLs.
"""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ProjectUrlsHook(MetadataHookInterface):
    """Adds ``project.urls`` to the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the URLs to ``metadata``. Raise ValueError if the setting is not an https address."""
        metadata["urls"] = project_urls(str(self.config.get("repository", "")))


def project_urls(repository: str) -> dict[str, str]:
    """Return the project's URLs by label, or {} if ``repository`` is empty. The URLs have GitHub's paths,
    such as ``/issues``."""
    if not repository:
        return {}
    if not repository.startswith("https://"):
        raise ValueError(f"repository must be an https address, not {repository!r}")
    address = repository.rstrip("/")
    return {
        "Homepage": address,
        "Documentation": f"{address}#readme",
        "Repository": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
    }
