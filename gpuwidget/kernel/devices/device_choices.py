"""Which devices can be chosen in this kernel, each with the GPU behind it and who is on that.

Nothing here starts CUDA: before the user's code has, which GPU ``cuda:N`` will be is told from the driver's
list and the environment, as far as that can be told.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwidget.measure.gpu_selection import cuda_order
from gpuwidget.measure.process_memory import Attribution
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.command_line import full_command
from gpuwidget.model.errors import OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.kernel_state import DeviceChoice, KernelGpu
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Sample
from gpuwidget.pytorch import cuda_state
from gpuwidget.pytorch.device_switch import cuda_index
from gpuwidget.sampler import Sampler, Subscription
from gpuwidget.system.processes import Identity, OwnProcessTree, in_host_pid_namespace, notebook_of, own_user

CPU = DeviceChoice("cpu", None, None, None, None, None, None, ())
THIS_NOTEBOOK = "this notebook"

_TOO_OLD_S = 10.0
_FIRST_WAIT_S = 0.02
_MOST_HOLDERS = 8


@dataclass(frozen=True, slots=True)
class Choices:
    """The devices that can be chosen."""

    devices: tuple[DeviceChoice, ...]
    unavailable: str | None
    """Why there is nothing to choose."""
    complete: bool
    """Whether no other device exists: False where the CUDA devices can't be counted yet."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Who holds how many bytes of one GPU."""

    own: int | None
    """This process alone; None where it holds none."""
    others: tuple[tuple[str, int], ...]
    """Its children and other processes, by what a saved output calls them, the largest first; those whose
    memory is known."""
    reason: str | None
    """Why nobody can say."""


class Observer:
    """Looks at the GPUs for a view that asks now and then; nothing samples in between."""

    def __init__(self, sampler: Sampler, clock: Clock = SYSTEM_CLOCK) -> None:
        self._sampler = sampler
        self._clock = clock
        self._looking: Subscription | None = None
        self._attribution: Attribution | None = None
        self._family = OwnProcessTree(clock)

    def look(self, timeout_s: float = _FIRST_WAIT_S) -> Sample | None:
        """What the driver says now; where it takes longer than ``timeout_s``, what it last said.

        None where that is too old or nothing: then ask again later, it is under way.
        """
        latest = self._sampler.latest
        subscription = self._sampler.subscribe()
        # While the driver is silent nothing ends it: one that waits is enough, however often is asked.
        before, self._looking = self._looking, subscription
        if before is not None:
            before.close()
        self._sampler.wait_until_open(timeout_s)
        now = self._sampler.read_now(timeout_s)
        if now is not None:
            subscription.close()
            return now
        subscription.on_sample = lambda sample: subscription.close()
        young = latest is not None and self._clock.time() - latest.time <= _TOO_OLD_S
        return latest if young else None

    def choices(self, sample: Sample | None, *, live: bool = False) -> Choices:
        """What can be chosen, as of ``sample``; ``live`` names holders, for a view that no notebook saves."""
        reason = _unavailable(sample)
        if reason is not None:
            return Choices((CPU,) if _installed() else (), reason, complete=True)
        uuids = _cuda_uuids(sample)
        if uuids is None:
            return Choices((CPU,), None, complete=False)
        found = [self._choice(f"cuda:{number}", uuid, sample, live) for number, uuid in enumerate(uuids)]
        return Choices((CPU, *found), None, complete=True)

    def gpus(self, sample: Sample | None) -> tuple[KernelGpu, ...]:
        """What this kernel has on each GPU of ``sample``."""
        if sample is None:
            return ()
        if self._attribution is None:
            self._attribution = Attribution(sample.origin)
        devices = cuda_state.devices()
        contexts = cuda_state.devices_with_context()
        counters = cuda_state.counters()
        names = [(f"cuda:{number}", uuid) for number, uuid in enumerate(_cuda_uuids(sample) or ())]
        if self._attribution.wants_proof:
            for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
                if any(device.index in contexts for device in devices if _same(gpu, device.uuid)):
                    self._attribution.confirm(reading)
        found = []
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
            device = next((device for device in devices if _same(gpu, device.uuid)), None)
            holding = self._attribution.holding(gpu, reading)
            context = holding.present or (device is not None and device.index in contexts)
            # Before CUDA is up the environment tells which is which.
            name = next((name for name, uuid in names if uuid is not None and _same(gpu, uuid)), None)
            counted = counters.get(device.index) if device is not None else None
            reserved = counted.reserved if counted is not None else None
            found.append(KernelGpu(gpu.uuid, name, holding.memory, reserved, context))
        return tuple(found)

    def shares(self, gpu: Gpu, reading: Reading) -> Shares:
        """Who holds how much of ``gpu``, as of a sample that :meth:`gpus` has seen."""
        assert self._attribution is not None
        holding = self._attribution.holding(gpu, reading)
        if holding.reason is not None:
            return Shares(None, (), holding.reason)
        own = next((one.memory for one in reading.processes or () if one.pid == self._family.pid), None)
        groups: dict[ProcessGroup, list[int]] = {}
        for process in reading.processes or ():
            if process.pid == self._family.pid or process.memory is None:
                continue
            ours = self._family.contains(process.pid)
            group = ProcessGroup("child", process.program) if ours else _group(process)
            groups.setdefault(group, []).append(process.memory)
        others = [(group.label(len(sizes)), sum(sizes)) for group, sizes in groups.items()]
        return Shares(own, tuple(sorted(others, key=lambda other: -other[1])), None)

    def _choice(self, device: str, uuid: str | None, sample: Sample | None, live: bool) -> DeviceChoice:
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True) if sample is not None else ():
            if uuid is not None and _same(gpu, uuid):
                return DeviceChoice(
                    device=device,
                    uuid=gpu.uuid,
                    index=gpu.index,
                    name=gpu.name,
                    compute_capability=gpu.compute_capability,
                    memory_total=gpu.memory_total,
                    memory_free=free_memory(gpu, reading),
                    holders=self._holder_names(reading, live),
                )
        return DeviceChoice(device, None, None, None, None, None, None, ())

    def _holder_names(self, reading: Reading, live: bool) -> tuple[str, ...]:
        listed = reading.processes or ()
        if live:
            names = [THIS_NOTEBOOK if self._is_ours(process) else _live_name(process) for process in listed]
        else:
            names = [name for name, _ in self.holders(reading)]
        # This notebook and its children are one holder.
        return tuple(dict.fromkeys(sorted(names, key=lambda name: name != THIS_NOTEBOOK)))[:_MOST_HOLDERS]

    def holders(self, reading: Reading) -> list[tuple[str, int | None]]:
        """Return who has a context on a GPU, as a saved output calls them, with their bytes together.

        This notebook and its children are one holder. The bytes are None of those whose size is unknown.
        """
        groups: dict[tuple[ProcessGroup | None, bool], list[int]] = {}
        for process in reading.processes or ():
            group = None if self._is_ours(process) else _group(process)
            groups.setdefault((group, process.memory is not None), []).append(process.memory or 0)
        return [
            (THIS_NOTEBOOK if group is None else group.label(len(sizes)), sum(sizes) if known else None)
            for (group, known), sizes in groups.items()
        ]

    def _is_ours(self, process: Process) -> bool:
        return in_host_pid_namespace() and self._family.contains(process.pid)


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """Processes that a saved output does not tell apart.

    A notebook is shared with people who may not see this machine's processes, so what is saved in it contains
    no arguments, no names of users and notebooks, and not even the programs of other users.
    """

    relation: Literal["child", "notebook", "same user", "other user", "unknown"]
    """Whose they are: this process's descendants, those of another notebook of the same user, other processes
    of the same user, those of another user, or of an unknown one."""
    program: str | None = None
    """Of descendants and of the same user's processes, where readable."""
    pid: int | None = None
    """Of a process whose user is unknown."""

    def label(self, number: int = 1) -> str:
        """Return what a saved output calls ``number`` of them."""
        one, several = _LABELS[self.relation]
        words = one if number == 1 else several.format(number)
        if self.pid is not None:
            words += f" ({self.pid})"
        return words if self.program is None else f"{words}: {self.program}"


_LABELS = {
    "child": ("child process", "{} child processes"),
    "notebook": ("another notebook", "{} processes of other notebooks"),
    "same user": ("another process", "{} other processes"),
    "other user": ("another process of another user", "{} processes of other users"),
    "unknown": ("another process", "{} other processes"),
}


def group_of(pid: int, identity: Identity) -> ProcessGroup:
    """Return what a saved output tells of a process that is no descendant of this one."""
    if identity.user is None or own_user() is None:
        return ProcessGroup("unknown", pid=pid)
    if identity.user != own_user():
        return ProcessGroup("other user")
    if in_host_pid_namespace() and notebook_of(pid) is not None:
        return ProcessGroup("notebook")
    return ProcessGroup("same user", identity.program)


def _group(process: Process) -> ProcessGroup:
    return group_of(process.pid, Identity(process.user, process.program, process.arguments))


def _live_name(process: Process) -> str:
    """What a view that is not saved calls a process: its user, and its notebook or else its command line."""
    notebook = notebook_of(process.pid) if in_host_pid_namespace() else None
    command = full_command(process.program, process.arguments)
    known = [process.user, command if notebook is None else f"notebook {notebook}"]
    return ": ".join(word for word in known if word is not None) or f"process {process.pid}"


def check(device: str, choices: Choices, sample: Sample | None) -> None:
    """Raise OptionError, saying what is there, where ``device`` can't be chosen."""
    names = [choice.device for choice in choices.devices]
    if device in names or (not choices.complete and cuda_index(device) is not None):
        return
    if choices.unavailable is not None and (cuda_index(device) is not None or not names):
        raise OptionError(f"{device}: {choices.unavailable}")
    if device == "cuda" or device.isdigit():
        raise OptionError(
            f"{device!r} names no one device: give its number too. There are: {_list(choices)}."
        )
    raise OptionError(f"{device!r}: no such device. There are: {_list(choices)}.")


def _list(choices: Choices) -> str:
    names = []
    for choice in choices.devices:
        gpu = None if choice.index is None else f"GPU {choice.index}, {choice.name}"
        names.append(choice.device if gpu is None else f"{choice.device} ({gpu})")
    if not choices.complete:
        names.append("cuda:N (how many will be known once your code has started CUDA)")
    return ", ".join(names)


def _unavailable(sample: Sample | None) -> str | None:
    """Why no CUDA device can be chosen."""
    if not _installed():
        return "torch is not installed in this kernel's environment."
    without = cuda_state.no_cuda_build_reason()
    if without is not None:
        return f"{without[0].upper()}{without[1:]}: there is only the CPU."
    if cuda_state.cuda_initialized() or sample is None:
        return None
    if not (sample.origin.live or sample.origin.recorded) and not cuda_state.is_rocm():
        return sample.origin.reason or "No NVIDIA GPU is visible here."
    return None


def _installed() -> bool:
    if cuda_state.loaded_torch() is not None:
        return True
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):  # a module of that name that was not imported from anywhere
        return False


def _cuda_uuids(sample: Sample | None) -> Sequence[str | None] | None:
    """UUIDs in the order of CUDA's devices, None for one that can't be told; None where nobody can count."""
    if cuda_state.cuda_initialized():
        return [device.uuid for device in cuda_state.devices()]
    if sample is None or not sample.origin.live or cuda_state.is_rocm():
        return None  # a recording's GPUs are not this machine's
    order = cuda_order(sample.gpus, os.environ)
    if order is not None:
        return order
    # Which is which depends on their speed, how many there are does not.
    by_bus: Mapping[str, str] = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    counted = cuda_order(sample.gpus, by_bus)
    return None if counted is None else [None] * len(counted)


def _same(gpu: Gpu, uuid: str | None) -> bool:
    return gpu.uuid == uuid or cuda_state.same_gpu(gpu.uuid, uuid)


def free_memory(gpu: Gpu, reading: Reading) -> int | None:
    """Bytes that a process can have yet: what neither anybody nor the driver itself uses; None if unknown."""
    total, kept, used = gpu.memory_total, gpu.memory_reserved, reading.memory_used
    if total is None or kept is None or used is None or reading.lost_since is not None:
        return None
    return max(0, total - kept - used)
