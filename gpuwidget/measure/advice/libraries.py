"""The rule of a library that was switched off."""

from __future__ import annotations

from gpuwidget.measure.advice.facts import Facts, advice, busiest
from gpuwidget.measure.report import Advice

AT_WORK = 5.0
"""Percent of utilization below which the switch made no difference."""


def cudnn_off(facts: Facts) -> Advice | None:
    """cuDNN is off, and a model with layers that need it is on a GPU that worked."""
    switches = facts.around.switches
    if switches is None or switches.cudnn is not False:
        return None
    utilization = busiest(facts)
    model = next((one for one in facts.around.models if one.uses_cudnn and one.on_gpu), None)
    if model is None or utilization is None or utilization < AT_WORK:
        return None
    return advice(
        "cudnn-off",
        f"cuDNN is off (torch.backends.cudnn.enabled), and {model.name} ({model.type}) has convolutions or "
        "recurrent layers on the GPU.",
        "torch.backends.cudnn.enabled = True, unless it was switched off for a reason.",
        {"model": model.name, "cudnn": False, "utilization": utilization},
    )
