"""Records of the doctor's issues and fixes, and its summary. Each topic has its records in a ``messages_*``
module.

A check decides which issue there is, and calls its record with the values. This returns the issue or the fix
with its id, its parameters and its English text. No code compares, searches or splits these texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuwidget.model.diagnosis import Fix, Issue, IssueStatus
from gpuwidget.model.messages import Template, fill, has_values
from gpuwidget.model.translation import joined, template_fields, translatable


@dataclass(frozen=True, slots=True)
class FixTemplate:
    """A fix without the values of its parameters. Call it with them."""

    id: str
    text: str | tuple[str, ...]
    """The text, or the text before the command. Of several, the first whose parameters are known is used."""
    command: str | None = None
    """The command, in which parameters may occur. It is ``{command}`` if the caller passes a whole one."""
    then: str | None = None
    """The sentences that follow the command, if their parameters are known."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters in the texts and the command."""
        texts = (self.text,) if isinstance(self.text, str) else self.text
        parts = (*texts, self.command or "", self.then or "")
        return tuple(dict.fromkeys(field.name for part in parts for field in template_fields(part)))

    def __call__(
        self, /, *, command: str | None = None, shown: Mapping[str, Any] | None = None, **params: Any
    ) -> Fix:
        """Return the fix with these parameters. ``shown`` are more values for the text only."""
        values = {**params, **(shown or {})}
        before = fill(self.text, values)
        if self.command is None:
            return Fix(self.id, params, before, None, "")
        after = "."
        if self.then is not None and has_values(self.then, values):
            after = translatable(". {then}", then=translatable(self.then, **values))
        return Fix(self.id, params, before, self.command.format(command=command, **values), after)


@dataclass(frozen=True, slots=True)
class IssueTemplate:
    """An issue without the values of its parameters. Call it with them."""

    id: str
    status: IssueStatus
    """The status, unless the caller passes another one."""
    reason: str | tuple[str, ...]
    """The sentence that explains the problem. Of several, the first whose parameters are known is used."""
    fix: FixTemplate | None = None
    """The fix, unless the caller passes another one. Its parameters are values of the issue."""
    then: str | None = None
    """The sentence that follows the reason, if its parameters are known."""

    def __call__(
        self,
        /,
        *,
        status: IssueStatus | None = None,
        fix: Fix | None = None,
        shown: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> Issue:
        """Return the issue with these parameters. ``shown`` are more values for the texts only."""
        values = {**params, **(shown or {})}
        reason = fill(self.reason, values)
        if self.then is not None and has_values(self.then, values):
            reason = joined([reason, translatable(self.then, **values)], " ")
        if fix is None and self.fix is not None:
            fix = self.fix(**{name: values[name] for name in self.fix.names})
        return Issue(self.id, status or self.status, params, reason, fix)


LAST_TORCH = translatable("PyTorch {last_torch} is the last version with such a build.")
"""The sentence after a command that installs a build of torch. ``last_torch`` is the newest version that has
this build; None if PyTorch still publishes the build."""


# -- the summary -----------------------------------------------------------------------------------------

BROKEN = Template("broken", "{count} {count:problem|problems}: {titles:list}. {reason}")
UNFINISHED_CHECK = Template("unfinished-check", "Incomplete: {title}. {reason}")
UNFINISHED_STEP = Template("unfinished-step", "Incomplete: {step}.")
DOUBTFUL = Template(
    "doubtful",
    (
        "Nothing is broken; {count} {count:warning|warnings}: {titles:list}; no result: {unknown:list}.",
        "Nothing is broken; {count} {count:warning|warnings}: {titles:list}.",
        "Nothing is broken; no result: {unknown:list}.",
    ),
)
HEALTHY = Template("healthy", "No problems: all checks passed, from PyTorch to the GPU.")


NO_GPU_TO_CHECK = translatable("this machine has no NVIDIA GPU")
"""Why there is nothing to check for a GPU."""


def no_gpu_summary(*, in_container: bool, uses_cpu: bool) -> str:
    """Return the summary for the case that no check has an issue, and the machine has no NVIDIA GPU.

    ``uses_cpu`` is whether torch works, and can only use the CPU.
    """
    fact = (
        translatable("PyTorch runs on the CPU, because this machine has no NVIDIA GPU.")
        if uses_cpu
        else translatable("This machine has no NVIDIA GPU.")
    )
    hint = (
        translatable(
            "Expected one? Start this container on a machine with a GPU, and with access to it (docker run "
            "--gpus all …; in Kubernetes, request nvidia.com/gpu)."
        )
        if in_container
        else translatable(
            "Expected one? If this is a virtual machine, its host must pass the GPU through to it. In a "
            "cloud, choose a machine type with a GPU."
        )
    )
    return joined([fact, hint], " ")
