"""Issues of the probes' steps: those that hung, crashed, raised or were not reached."""

from __future__ import annotations

from gpuwidget.diagnostics.messages import FixTemplate, IssueTemplate
from gpuwidget.model.messages import Template, by_id
from gpuwidget.model.translation import translatable

PYTHON_START = translatable("starting Python")
"""The step name that is displayed if a probe ends before its first step."""
ENDINGS = by_id(
    Template("hung", ("did not return within {seconds} s", "did not finish in time")),
    Template("crashed", "crashed Python ({how})"),
    Template("not started", "failed ({how})"),
    Template("ended", "ended Python without an error"),
)
"""How a step ended, as the end of a sentence."""

STEP_UNFINISHED = IssueTemplate("step-unfinished", "broken", "{name} {ending}.")
STEPS_NOT_REACHED = IssueTemplate(
    "steps-not-reached", "unknown", "Some steps did not run, because {step} {ending}: {steps:list}."
)
FILES_NOT_COMPARED = IssueTemplate(
    "files-not-compared", "unknown", "Not all installed files were compared: {step} {ending}."
)
STEP_FAILED = IssueTemplate("step-failed", "warning", "{step} raises {error}")

SEE_WHAT_HANGS = FixTemplate(
    "see-what-hangs",
    "Run the doctor again. If this step hangs again, see the kernel log (dmesg), and check whether "
    "nvidia-smi hangs too. A restart of the machine usually helps.",
)
SEE_WHAT_CRASHES = FixTemplate(
    "see-what-crashes",
    "See the kernel log (dmesg), and check that the driver supports PyTorch's CUDA version.",
)
REPAIR_DRIVER = FixTemplate(
    "repair-driver",
    "The crash is in the driver's library {library}, not in PyTorch. Restart the machine if the driver was "
    "updated; otherwise, install the driver again. The kernel log (dmesg) may show the cause.",
)
FIX_DRIVER_FIRST = FixTemplate("fix-driver-first", "Fix the driver first.")
