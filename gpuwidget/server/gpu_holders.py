"""Who holds the memory of one GPU: kernels, terminals and other processes, and what can't be told apart.

Nothing is guessed: what the driver does not say, or says of process ids that can't be matched with this
server's, is ``unattributed``, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpuwidget.model.gpu_process import Process
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Origin
from gpuwidget.server.kernel_reports import Word
from gpuwidget.server.wire import GpuUsage, Holding, MeanUtilization
from gpuwidget.system.processes import UNKNOWN, Identity

RECORDED = "The processes of a recording are not this machine's."
_FOREIGN = (
    "The driver's process ids can't be matched with this server's, as in a container that has ids of its own."
)
_BY_TORCH = (
    "What kernels hold is torch's own count, without CUDA contexts, other libraries and child processes."
)
_BY_TORCH_WHERE_UNSAID = (
    "What torch counts in a kernel stands for its own process, without CUDA contexts and other libraries; "
    "child processes whose size the driver does not say are not in it."
)
_BY_LOADING = "A notebook that has loaded gpuwidget (%load_ext gpuwidget) says what torch holds in it."
_INVALID = "A kernel reported an impossible amount of torch memory, so what it holds is unknown."
_UNSAID = "The driver does not say how much each process holds."
_OUTSIDE = "Processes outside this container, which are not listed here, may hold some of it."


class Owner(NamedTuple):
    """Whose process it is: one of these, or neither."""

    kernel: str | None
    terminal: str | None


class People(NamedTuple):
    """What tells who a process is."""

    owner: Callable[[int], Owner]
    identity: Callable[[Process], Identity]
    kernels: Mapping[str, int | None]
    """Every kernel, and its process id where it runs on this machine."""
    match: bool
    """Whether the driver's process ids are this server's."""
    in_container: bool
    """Whether there may be processes that the driver does not list here."""
    words: Mapping[str, Mapping[str, Word]]
    """By kernel and GPU, what kernels say themselves."""
    elsewhere: int
    """Number of this server's kernels that have no process here."""


def gpu_usage(
    reading: Reading, origin: Origin, people: People, means: tuple[MeanUtilization, ...]
) -> GpuUsage:
    """Who holds the memory of the GPU of ``reading``."""
    if origin.recorded:
        return GpuUsage(reading.uuid, (), reading.memory_used, RECORDED, means)
    if reading.lost_since is not None or reading.silent_since is not None:
        reason = reading.missing.get("memory_used", "the GPU does not answer")
        return GpuUsage(reading.uuid, (), None, _sentence(reason), means)
    said = {kernel: gpus[reading.uuid] for kernel, gpus in people.words.items() if reading.uuid in gpus}
    if reading.processes is None or not people.match:
        return _by_words(reading, said, means)
    return _by_driver(reading, reading.processes, people, said, means)


def _by_driver(
    reading: Reading,
    listed: Sequence[Process],
    people: People,
    said: Mapping[str, Word],
    means: tuple[MeanUtilization, ...],
) -> GpuUsage:
    groups: dict[tuple[Owner, int | None], list[Process]] = {}
    for process in listed:
        owner = people.owner(process.pid)
        # Others are told one by one.
        key = (owner, process.pid if owner == Owner(None, None) else None)
        groups.setdefault(key, []).append(process)
    holdings = [
        _holding(owner, found, people, said.get(owner.kernel) if owner.kernel else None)
        for (owner, _), found in groups.items()
    ]
    rest = _rest(reading, holdings)
    reasons = []
    if any(process.memory is None for process in listed):
        reasons.append(_UNSAID)
        reasons += [_BY_TORCH_WHERE_UNSAID] if any(one.source == "torch" for one in holdings) else []
        unknown = {one.kernel for one in holdings if one.memory is None}
        invalid = any(word.invalid and kernel in unknown for kernel, word in said.items())
        reasons += [_INVALID] if invalid else []
    elif people.in_container and rest:
        reasons.append(_OUTSIDE)
    if people.elsewhere and any(owner == Owner(None, None) for owner, _ in groups):
        reasons.append(_of_others(people.elsewhere))
    return _usage(reading, holdings, rest, reasons, means)


def _holding(owner: Owner, found: Sequence[Process], people: People, word: Word | None) -> Holding:
    unsaid = {process.pid for process in found if process.memory is None}
    said = sum(process.memory for process in found if process.memory is not None)
    # Torch's count is that of the kernel's own process, and says nothing of its children.
    own = people.kernels.get(owner.kernel) if owner.kernel is not None else None
    counted = word.reserved if word is not None and own in unsaid else None
    by_torch = counted is not None
    memory = None if unsaid and counted is None else said + (counted or 0)
    # What is shown of a terminal is the largest of what runs in it.
    first = max(found, key=lambda process: process.memory or 0)
    identity = UNKNOWN if owner.kernel is not None else people.identity(first)
    return Holding(
        kernel=owner.kernel,
        terminal=owner.terminal,
        pid=first.pid if len(found) == 1 else None,
        user=identity.user if owner.terminal is None else None,
        program=identity.program,
        arguments=identity.arguments,
        memory=memory,
        source="torch" if by_torch else "driver",
    )


def _by_words(reading: Reading, said: Mapping[str, Word], means: tuple[MeanUtilization, ...]) -> GpuUsage:
    holdings = [
        Holding(kernel, None, None, None, None, None, word.reserved, "torch")
        for kernel, word in said.items()
        if word.context or word.reserved or word.invalid
    ]
    if reading.processes is None:
        why = reading.missing.get("processes")
        reason = "The driver does not list this GPU's processes" + (f": {why}." if why else ".")
    else:
        reason = _FOREIGN
    reasons = [reason, _BY_TORCH if holdings else _BY_LOADING]
    reasons += [_INVALID] if any(word.invalid for word in said.values()) else []
    return _usage(reading, holdings, _rest(reading, holdings), reasons, means)


def _rest(reading: Reading, holdings: Sequence[Holding]) -> int | None:
    """Bytes in use that belong to none of them; None where that can't be told."""
    used, held = reading.memory_used, [one.memory for one in holdings]
    if used is None or None in held:
        return None
    # Memory and processes are read one after the other.
    return max(0, used - sum(size for size in held if size is not None))


def _usage(
    reading: Reading,
    holdings: Sequence[Holding],
    rest: int | None,
    reasons: Sequence[str],
    means: tuple[MeanUtilization, ...],
) -> GpuUsage:
    why = reading.missing.get("memory_used")
    if reading.memory_used is None and why is not None:
        reasons = [f"How much is in use is not known: {why}.", *reasons]
    in_order = sorted(
        holdings,
        key=lambda one: (-1 if one.memory is None else one.memory, one.kernel or one.terminal or ""),
        reverse=True,
    )
    return GpuUsage(reading.uuid, tuple(in_order), rest, " ".join(reasons) or None, means)


def _of_others(kernels: int) -> str:
    if kernels == 1:
        return "One kernel of this server runs elsewhere: what it holds can't be told from what others hold."
    return (
        f"{kernels} kernels of this server run elsewhere: what they hold can't be told from what others hold."
    )


def _sentence(reason: str) -> str:
    return f"{reason[0].upper()}{reason[1:]}."
