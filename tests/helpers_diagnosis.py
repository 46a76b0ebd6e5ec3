"""Fake diagnoses for the panel: one of a healthy machine, and one with several failed checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from helpers_lab import Notebook
from playwright.sync_api import Route

COMMAND = (
    "'/opt/my env/bin/python' -m pip install --dry-run 'torch>=2.9' && "
    "'/opt/my env/bin/python' -m pip install 'torch>=2.9'"
)


def check(name: str, title: str, found: str, status: str = "ok", **changes: Any) -> dict[str, Any]:
    """Return one check of a diagnosis."""
    return {
        "id": name,
        "title": title,
        "status": status,
        "found": found,
        "reason": None,
        "remedy": None,
        "command": None,
        "evidence": {},
        "issues": [],
    } | changes


def with_issue(status: str, reason: str, before: str | None, command: str | None = None) -> dict[str, Any]:
    """Return the fields of a check with one issue. The text of its fix is ``before``, then ``command``."""
    after = "" if command is None else "."
    fix: dict[str, Any] = {"id": "a-fix", "params": {}, "before": before, "command": command, "after": after}
    remedy = before if command is None else f"{before} {command}."
    issue = {
        "id": "an-issue",
        "status": status,
        "params": {},
        "reason": reason,
        "fix": None if before is None else fix,
    }
    return {"status": status, "reason": reason, "remedy": remedy, "command": command, "issues": [issue]}


def problem(check: dict[str, Any], affects: Sequence[str] = ()) -> dict[str, Any]:
    """Return the problem that is the first issue of a check."""
    issue = check["issues"][0]
    return {
        "check": check["id"],
        "status": issue["status"],
        "issues": [issue["id"]],
        "reasons": [issue["reason"]],
        "fix": issue["fix"],
        "affects": list(affects),
    }


def healthy(place: str = "server") -> dict[str, Any]:
    """Return a diagnosis in which all checks pass."""
    return {
        "schema": 1,
        "version": "0.1.0",
        "time": 1753000000.0,
        "place": place,
        "python": "/opt/conda/bin/python",
        "variables": {},
        "status": "ok",
        "summary": "No problems: all checks passed, from PyTorch to the GPU.",
        "unfinished": [],
        "problems": [],
        "links": [
            check("torch", "PyTorch", "2.13.0+cu130", evidence={"file": "/opt/conda/lib/torch/__init__.py"}),
            check("cuda", "CUDA runtime", "13.0"),
            check("cudnn", "cuDNN", "9.13.0"),
            check("nccl", "NCCL", "2.28.3"),
            check("driver", "Driver", "580.95.05, for CUDA 13.0 and older"),
            check("device_files", "Device files", "4 GPUs under /dev"),
            check("gpu", "GPU", "4 \N{MULTIPLICATION SIGN} NVIDIA H200"),
            check("visible", "Visible GPUs", "all: CUDA_VISIBLE_DEVICES is not set"),
            check("sharing", "MIG and sharing", "MIG off", "skipped"),
            check("shm", "Shared memory", "251.6 GiB"),
            check("package", "gpuwidget", "0.1.0"),
        ],
    }


def without_gpu(place: str = "server") -> dict[str, Any]:
    """Return a diagnosis of a machine without an NVIDIA GPU."""
    made = healthy(place)
    for one in made["links"]:
        if one["id"] == "torch":
            one["found"] = "2.13.0+cpu, built for the CPU only"
        elif one["id"] not in ("shm", "package"):
            one |= {"status": "skipped", "found": "this machine has no NVIDIA GPU"}
    summary = (
        "PyTorch runs on the CPU, because this machine has no NVIDIA GPU. Expected one? If this is a virtual "
        "machine, its host must pass the GPU through to it. In a cloud, choose a machine type with a GPU."
    )
    return made | {"summary": summary}


def unhealthy(place: str = "kernel") -> dict[str, Any]:
    """Return a diagnosis with a broken PyTorch, a warning and a check without a result."""
    made = healthy(place)
    checks = {one["id"]: one for one in made["links"]}
    reason = "This build of PyTorch can't use NVIDIA GPUs: it has no CUDA."
    checks["torch"] |= {
        **with_issue("broken", reason, "Install a build with CUDA:", COMMAND),
        "found": "2.13.0+cpu, built for the CPU only",
        "evidence": {"file": "/opt/conda/lib/torch/__init__.py", "packages": "torch <b>2.13.0+cpu</b> (pip)"},
    }
    checks["shm"] |= {
        **with_issue(
            "warning",
            "/dev/shm has 64 MiB: loaders with several workers die of that.",
            "Start the container with more: docker run --shm-size=8g … (Kubernetes: an emptyDir).",
        ),
        "found": "64 MiB",
    }
    checks["gpu"] |= {
        **with_issue(
            "unknown", "The driver does not report which GPUs can access each other's memory.", None
        ),
        "found": "not visible",
    }
    summary = "1 problem: PyTorch. This build of PyTorch can't use NVIDIA GPUs: it has no CUDA."
    problems = [problem(checks[name]) for name in ("torch", "shm", "gpu")]
    return made | {"status": "broken", "summary": summary, "problems": problems}


def fake_doctor_route(notebook: Notebook, *answers: tuple[int, Any]) -> list[str]:
    """Make the server's doctor route send these replies one after the other and then repeat the last one;
    return a list to which the requested URLs are added."""
    requested: list[str] = []

    def fulfil(route: Route) -> None:
        assert route.request.method == "POST"
        status, body = answers[min(len(requested), len(answers) - 1)]
        requested.append(route.request.url)
        route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    notebook.page.route("**/gpuwidget/api/doctor*", fulfil)
    return requested


def kernel_cell(doctor: dict[str, Any]) -> str:
    """Return the source of a cell that makes its kernel reply to the doctor request with this diagnosis.
    gpuwidget must be loaded in the kernel."""
    return (
        "def _install():\n"
        "    import json\n"
        "    kernel = get_ipython().kernel\n"
        "    before = kernel.control_handlers['gpuwidget_request']\n"
        "    async def handler(stream, ident, parent):\n"
        "        if parent['content']['ask'] != 'doctor':\n"
        "            return await before(stream, ident, parent)\n"
        f"        reply = dict(status='examined', doctor=json.loads({json.dumps(doctor)!r}), state=None)\n"
        "        kernel.session.send(stream, 'gpuwidget_reply', reply, parent, ident=ident)\n"
        "    kernel.control_handlers['gpuwidget_request'] = handler\n"
        "_install()"
    )
