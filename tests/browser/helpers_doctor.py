"""What a doctor says, for the panel: of a machine where all is well, and of one where nothing is."""

from __future__ import annotations

import json
from typing import Any

from helpers_lab import Notebook
from playwright.sync_api import Route

COMMAND = (
    "'/opt/my env/bin/python' -m pip install --dry-run 'torch>=2.9' && "
    "'/opt/my env/bin/python' -m pip install 'torch>=2.9'"
)
BROKEN = f"Install a build with CUDA: {COMMAND}."


def link(name: str, title: str, found: str, status: str = "ok", **changes: Any) -> dict[str, Any]:
    """One link of the chain."""
    return {
        "id": name,
        "title": title,
        "status": status,
        "found": found,
        "reason": None,
        "remedy": None,
        "command": None,
        "evidence": {},
    } | changes


def well(place: str = "server") -> dict[str, Any]:
    """All links found."""
    return {
        "schema": 1,
        "version": "0.1.0",
        "time": 1753000000.0,
        "place": place,
        "python": "/opt/conda/bin/python",
        "variables": {},
        "status": "ok",
        "summary": "All links are found: PyTorch can use 4 GPUs.",
        "unfinished": [],
        "links": [
            link("torch", "PyTorch", "2.13.0+cu130", evidence={"file": "/opt/conda/lib/torch/__init__.py"}),
            link("cuda", "CUDA runtime", "13.0"),
            link("cudnn", "cuDNN", "9.13.0"),
            link("nccl", "NCCL", "2.28.3"),
            link("driver", "Driver", "580.95.05, for CUDA 13.0 and older"),
            link("device_files", "Device files", "4 GPUs under /dev"),
            link("gpu", "GPU", "4 \N{MULTIPLICATION SIGN} NVIDIA H200"),
            link("visible", "Visible GPUs", "all: CUDA_VISIBLE_DEVICES is not set"),
            link("sharing", "MIG and sharing", "MIG off", "skipped"),
            link("shm", "Shared memory", "251.6 GiB"),
            link("package", "gpuwidget", "0.1.0"),
        ],
    }


def ill(place: str = "kernel") -> dict[str, Any]:
    """Broken at PyTorch, with a warning and what could not be looked at."""
    made = well(place)
    links = {one["id"]: one for one in made["links"]}
    links["torch"] |= {
        "status": "broken",
        "found": "2.13.0+cpu, built for the CPU only",
        "reason": "This build of PyTorch can't use a GPU: it has no CUDA.",
        "remedy": BROKEN,
        "command": COMMAND,
        "evidence": {"file": "/opt/conda/lib/torch/__init__.py", "packages": "torch <b>2.13.0+cpu</b> (pip)"},
    }
    links["shm"] |= {
        "status": "warning",
        "found": "64 MiB",
        "reason": "/dev/shm has 64 MiB: loaders with several workers die of that.",
        "remedy": "Start the container with more: docker run --shm-size=8g … (Kubernetes: an emptyDir).",
    }
    links["gpu"] |= {"status": "unknown", "found": "not to be seen", "reason": "The driver does not say."}
    summary = "Broken: PyTorch. This build of PyTorch can't use a GPU: it has no CUDA."
    return made | {"status": "broken", "summary": summary}


def answer_server(notebook: Notebook, *answers: tuple[int, Any]) -> list[str]:
    """Have the server's doctor answer so, one after the other, the last again and again; what was asked."""
    asked: list[str] = []

    def fulfil(route: Route) -> None:
        assert route.request.method == "POST"
        status, body = answers[min(len(asked), len(answers) - 1)]
        asked.append(route.request.url)
        route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    notebook.page.route("**/gpuwidget/api/doctor*", fulfil)
    return asked


def kernel_cell(doctor: dict[str, Any]) -> str:
    """A cell that makes its kernel, in which gpuwidget is loaded, answer the doctor's question so."""
    return (
        "def _answer():\n"
        "    import json\n"
        "    kernel = get_ipython().kernel\n"
        "    before = kernel.control_handlers['gpuwidget_request']\n"
        "    async def handler(stream, ident, parent):\n"
        "        if parent['content']['ask'] != 'doctor':\n"
        "            return await before(stream, ident, parent)\n"
        f"        reply = dict(status='examined', doctor=json.loads({json.dumps(doctor)!r}), state=None)\n"
        "        kernel.session.send(stream, 'gpuwidget_reply', reply, parent, ident=ident)\n"
        "    kernel.control_handlers['gpuwidget_request'] = handler\n"
        "_answer()"
    )
