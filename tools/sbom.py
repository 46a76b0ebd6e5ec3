"""Write the wheel's software bill of materials (SBOM), in CycloneDX's JSON format.

``python -m tools.sbom FILE`` is the last step of a wheel's build. The SBOM lists the npm packages whose code
the built labextension contains, and the Python packages that pyproject.toml requires. Versions and checksums
come from yarn.lock and requirements/lock.txt. The same sources give the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCK = "requirements/lock.txt"
YARN_LOCK = "yarn.lock"
BUNDLED = "gpuwidget/labextension/static/third-party-licenses.json"
"""The npm packages in the labextension. JupyterLab's builder writes this file with each build."""
PYTHON_LICENSES = {
    "bqplot": "Apache-2.0",
    "ipykernel": "BSD-3-Clause",
    "ipython": "BSD-3-Clause",
    "ipywidgets": "BSD-3-Clause",
    "jupyter-client": "BSD-3-Clause",
    "jupyter-server": "BSD-3-Clause",
    "jupyterlab": "BSD-3-Clause",
    "notebook": "BSD-3-Clause",
    "numpy": "BSD-3-Clause",
    "nvidia-ml-py": "BSD-3-Clause",
    "packaging": "Apache-2.0 OR BSD-2-Clause",
    "prometheus-client": "Apache-2.0 AND BSD-2-Clause",
    "psutil": "BSD-3-Clause",
    "six": "MIT",
    "torch": "BSD-3-Clause",
    "tornado": "Apache-2.0",
    "traitlets": "BSD-3-Clause",
}
"""The licenses of the required Python packages, without those of libraries inside their binary files. The
lock has no licenses, and an isolated build has none of these packages."""


class Pin(NamedTuple):
    """One version of a package in requirements/lock.txt."""

    version: str
    marker: str
    """The environments for which the lock has this version, or ''."""
    hashes: list[str]
    """SHA-256 of each of the version's files."""


def main(target: str) -> None:
    """Write the SBOM into the file ``target``."""
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(bill_of_materials(ROOT), encoding="utf-8")


def bill_of_materials(root: Path) -> str:
    """Return the SBOM of the sources in ``root``, in which the labextension is built."""
    project = ProjectMetadata[Any](str(root), PluginManager())
    ours = Component(
        name=project.core.raw_name,
        version=project.version,
        type=ComponentType.LIBRARY,
        description=project.core.description,
        licenses=[LicenseFactory().make_from_string(project.core.license_expression)],
        purl=(purl := PackageURL("pypi", name=project.core.name, version=project.version)),
        bom_ref=str(purl),
    )
    required = [
        *bundled_packages(root),
        *python_packages(root, project.core.dependencies, ""),
        *(
            component
            for extra, requirements in project.core.optional_dependencies.items()
            for component in python_packages(root, requirements, extra)
        ),
    ]
    bom = Bom(metadata=BomMetaData(component=ours), components=required)
    bom.register_dependency(ours, required)
    made = json.loads(JsonV1Dot6(bom).output_as_string())
    # By default, every SBOM has a random number and the time of the build.
    del made["serialNumber"], made["metadata"]["timestamp"]
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        made["metadata"]["timestamp"] = datetime.fromtimestamp(int(epoch), timezone.utc).isoformat()
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def bundled_packages(root: Path) -> Iterator[Component]:
    """Yield the npm packages whose code the built labextension contains."""
    checksums = yarn_checksums((root / YARN_LOCK).read_text(encoding="utf-8"))
    for package in json.loads((root / BUNDLED).read_text(encoding="utf-8"))["packages"]:
        scope, _, name = package["name"].rpartition("/")
        version = package["versionInfo"]
        purl = PackageURL("npm", scope, name, version)
        license_id = package.get("licenseId")
        yield Component(
            name=name,
            group=scope or None,
            version=version,
            scope=ComponentScope.REQUIRED,
            licenses=[LicenseFactory().make_from_string(license_id)] if license_id else [],
            purl=purl,
            bom_ref=str(purl),
            properties=[
                Property(name="gpuwidget:included", value="yes"),
                # Yarn's SHA-512 of its own archive of the package, not of the file in the npm registry.
                Property(name="gpuwidget:yarn-checksum", value=checksums[package["name"], version]),
            ],
        )


def python_packages(root: Path, requirements: list[str], extra: str) -> Iterator[Component]:
    """Yield the Python packages of a list of requirements, in each version that the lock has."""
    locked = pins((root / LOCK).read_text(encoding="utf-8"))
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        properties = {"included": "no", "requirement": str(requirement), "extra": extra}
        for pin in locked.get(name, [Pin("", "", [])]):
            purl = PackageURL("pypi", name=name, version=pin.version or None)
            yield Component(
                name=name,
                version=pin.version or None,
                scope=ComponentScope.OPTIONAL if extra else ComponentScope.REQUIRED,
                licenses=[LicenseFactory().make_from_string(PYTHON_LICENSES[name])],
                purl=purl,
                bom_ref=str(purl),
                properties=[
                    Property(name=f"gpuwidget:{key}", value=value)
                    for key, value in {**properties, "marker": pin.marker}.items()
                    if value
                ],
                external_references=[
                    ExternalReference(
                        type=ExternalReferenceType.DISTRIBUTION,
                        url=XsUri(str(purl)),
                        comment="the hashes of all files of this version",
                        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in pin.hashes],
                    )
                ]
                if pin.hashes
                else [],
            )


def pins(lock: str) -> dict[str, list[Pin]]:
    """Return the pinned versions of each package in the text of a lock file."""
    found: dict[str, list[Pin]] = {}
    for entry in re.findall(r"^\w.*\n(?:[ \t].*\n)*", lock, re.MULTILINE):
        requirement = Requirement(entry.partition("\\\n")[0].strip())
        (specifier,) = requirement.specifier
        pin = Pin(specifier.version, str(requirement.marker or ""), re.findall(r"sha256:(\w+)", entry))
        found.setdefault(canonicalize_name(requirement.name), []).append(pin)
    return found


def yarn_checksums(lock: str) -> dict[tuple[str, str], str]:
    """Return the checksum of each npm package by name and version, from the text of yarn.lock."""
    entries = re.findall(
        r'^  resolution: "(.+)@npm:(.+)"\n(?:  .*\n)*?  checksum: (\w+)$', lock, re.MULTILINE
    )
    return {(name, version): checksum for name, version, checksum in entries}


if __name__ == "__main__":
    main(*sys.argv[1:])
