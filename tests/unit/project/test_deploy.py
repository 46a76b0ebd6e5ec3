"""The files in deploy/ are valid for the programs that read them, and as safe as docs/admin/deployments.md
says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from traitlets.config.loader import PyFileConfigLoader

DEPLOY = Path(__file__).parents[3] / "deploy"
CHARTS = ("jupyterhub", "dcgm-exporter")


def program_output(name: str, *arguments: str) -> str:
    """Run a linter of the development environment, and return what it prints if it fails, else an empty
    string."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name(name)), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def compose() -> Any:
    """Return the parsed compose file."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def test_the_container_recipe_has_no_lint() -> None:
    """hadolint accepts the container recipe."""
    assert program_output("hadolint", str(DEPLOY / "Dockerfile")) == ""


def test_the_container_gets_the_tested_versions() -> None:
    """pip installs the versions of a lock file into the container, verifies their hashes, and takes
    gpuwidget from the wheel alone. The lock file for Kubernetes has the chart's version of JupyterHub."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"pip install --no-cache-dir (.*) \\$", text, re.MULTILINE) == [
        '--require-hashes --requirement "/tmp/requirements/${REQUIREMENTS}"',
        "--no-deps --no-index /tmp/wheels/*.whl",
    ]
    assert re.findall(r"^ARG REQUIREMENTS=(.+)$", text, re.MULTILINE) == ["lab.txt"]
    hub, other = re.findall(r"JupyterHub ([\d.]+): --build-arg REQUIREMENTS=(.+)$", text, re.MULTILINE)[0]
    locked = (DEPLOY.parent / "requirements" / other).read_text(encoding="utf-8")
    assert f"\njupyterhub=={hub} " in locked


def test_the_configuration_behind_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """With JupyterHub, the container's configuration leaves address, base URL and token to the Hub, has the
    notebooks in the user's volume, and counts GPU work as activity."""
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/anna/")
    monkeypatch.setenv("GPUWIDGET_METRICS_TOKEN_FILE", "/etc/gpuwidget/token")
    monkeypatch.setenv("HOME", "/home/jovyan")
    config = PyFileConfigLoader("jupyter_server_config.py", str(DEPLOY)).load_config()
    assert config.ServerApp == {"allow_remote_access": True, "root_dir": "/home/jovyan"}
    assert "IdentityProvider" not in config
    assert config.GpuWidget.gpu_activity is True
    assert config.GpuWidget.metrics_token_file == "/etc/gpuwidget/token"


def test_the_container_has_no_root_and_no_secret() -> None:
    """The container's last user is not root, and the builder gets only the files that the recipe copies."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["1000"]
    copied = [
        source for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for source in line.split()[:-1]
    ]
    allowed = re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.MULTILINE)
    assert sorted(copied) == sorted(allowed)


def test_the_compose_file_is_valid() -> None:
    """The compose file follows the compose specification."""
    path = str(DEPLOY / "compose.yaml")
    assert program_output("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path) == ""


def test_every_image_has_a_version() -> None:
    """Every image has a fixed version, so that a set-up doesn't change by itself."""
    images = [service["image"] for service in compose()["services"].values() if "build" not in service]
    images += re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert len(images) == 3
    assert [image for image in images if not re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+[\w.-]*", image)] == []


def test_services_are_open_to_this_machine_alone() -> None:
    """No service of the compose file can be reached from other machines, gets a secret in its environment, or
    may gain privileges."""
    for service in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        secret = {name for name in service.get("environment", {}) if re.search("TOKEN|PASSWORD", name)}
        assert all(name.endswith("_FILE") for name in secret)


def test_every_mounted_file_exists() -> None:
    """Every file and folder that the compose file mounts from the repository exists."""
    mounted = [
        volume.partition(":")[0]
        for service in compose()["services"].values()
        for volume in service["volumes"]
        if volume.startswith("./")
    ]
    assert len(mounted) == 4
    assert [path for path in mounted if not (DEPLOY / path).exists()] == []


def test_grafana_gets_its_data_source_and_dashboards() -> None:
    """Grafana's provisioning has one data source, the set-up's Prometheus, and the folder with both
    dashboards."""
    folder = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())["datasources"]
    port = compose()["services"]["prometheus"]["ports"][0].rpartition(":")[2]
    assert (source["type"], source["url"]) == ("prometheus", f"http://prometheus:{port}")
    (provider,) = yaml.safe_load((folder / "dashboards" / "gpuwidget.yml").read_text())["providers"]
    mounts = [volume.split(":") for volume in compose()["services"]["grafana"]["volumes"]]
    inside = {
        Path(target).name
        for _, target, *_ in mounts
        if Path(target).parent == Path(provider["options"]["path"])
    }
    assert inside == {"server.json", "fleet.json"}


@pytest.mark.parametrize("chart", CHARTS)
def test_the_charts_values_are_valid(chart: str) -> None:
    """Each value that is set for a chart exists in the chart, with the right type. Nothing is rendered."""
    folder = DEPLOY / "kubernetes"
    schema = folder / f"{chart}-values.schema.json"
    assert program_output("check-jsonschema", "--check-metaschema", str(schema)) == ""
    values = str(folder / f"{chart}-values.yaml")
    assert program_output("check-jsonschema", "--schemafile", str(schema), values) == ""


def test_a_misspelled_value_is_found(tmp_path: Path) -> None:
    """A value that the chart doesn't have is an error."""
    values = yaml.safe_load((DEPLOY / "kubernetes" / "jupyterhub-values.yaml").read_text())
    values["singleuser"]["extraEnvironment"] = values["singleuser"].pop("extraEnv")
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values))
    schema = str(DEPLOY / "kubernetes" / "jupyterhub-values.schema.json")
    assert "extraEnvironment" in program_output("check-jsonschema", "--schemafile", schema, str(path))
