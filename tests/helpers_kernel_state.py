"""A cell that makes its kernel reply to the panel with a fake state, so that neither torch nor GPUs are
needed."""

from __future__ import annotations

import json
from typing import Any

_CELL = """\
import json as _json
def _answer():
    kernel = get_ipython().kernel
    state = _json.loads({state!r})
    async def handler(stream, ident, parent):
        request = parent["content"]
        if request["ask"] == "set_device":
            chosen = dict(chosen=request["device"], new_tensors=request["new_tensors"])
            state["device"] |= dict(chosen, pending=True)
        if request["ask"] == "watch":
            state["watching"] = request["on"]
        done = {freed!r} if request["ask"] == "free_cache" else None
        reply = dict(status="ok", done=done, state=state)
        kernel.session.send(stream, "gpuwidget_reply", reply, parent, ident=ident)
    kernel.control_handlers["gpuwidget_request"] = handler
_answer()
# gpuwidget"""


def cell(state: dict[str, Any], freed: str | None = None) -> str:
    """Return the source of a cell that makes its kernel reply with ``state``, and with the message ``freed``
    to requests to free its cache."""
    return _CELL.format(state=json.dumps(state), freed=freed)


def state(uuids: list[str], **changes: Any) -> dict[str, Any]:
    """Return the state of a kernel with torch. The last of the GPUs is ``cuda:0`` in this kernel, which holds
    14 GiB there."""
    gib = 1024**3
    order = list(reversed(uuids))
    return {
        "schema": 1,
        "version": "0.1.0",
        "pid": 4711,
        "torch": "2.13.0",
        "cuda_initialized": True,
        "watching": False,
        "device": {"chosen": None, "new_tensors": True, "pending": False, "present": "cpu", "note": None},
        "choices": [
            dict.fromkeys(("uuid", "index", "name", "compute_capability", "memory_total", "memory_free"))
            | {"device": "cpu", "holders": [], "candidates": []},
            *(
                {
                    "device": f"cuda:{number}",
                    "uuid": uuid,
                    "index": uuids.index(uuid),
                    "name": "NVIDIA H200",
                    "compute_capability": "9.0",
                    "memory_total": 140 * gib,
                    "memory_free": 82 * gib,
                    "holders": ["this notebook"] if number == 0 else ["ada: python train.py"],
                    "candidates": [],
                }
                for number, uuid in enumerate(order)
            ),
        ],
        "order": {"source": "cuda", "notes": [], "note_ids": []},
        "unavailable": None,
        "gpus": [
            {
                "uuid": uuid,
                "torch_device": f"cuda:{number}",
                "process_memory": 14 * gib if number == 0 else 0,
                "torch_reserved": 13 * gib if number == 0 else 0,
                "context": number == 0,
            }
            for number, uuid in enumerate(order)
        ],
        "switches": [],
    } | changes
