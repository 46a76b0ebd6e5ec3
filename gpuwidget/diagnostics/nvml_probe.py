"""In a probe process: query NVML, which may hang with a broken driver."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwidget.diagnostics.probe_process import begin_step, finish, send
from gpuwidget.model.to_json import to_json
from gpuwidget.sources.nvml_diagnostics import query_diagnostics


def main(_path: Sequence[str]) -> None:
    """Send all values that NVML returns. Before each call that may hang, send the name of the call."""
    send(nvml=to_json(query_diagnostics(begin_step)))
    finish()
