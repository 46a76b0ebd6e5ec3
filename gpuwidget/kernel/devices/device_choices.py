"""List the torch devices of this kernel, each with its GPU and the holders of its memory.

This module does not initialize CUDA. Until the user's code initializes CUDA, the GPU of ``cuda:N`` is derived
from the driver's list of GPUs and the environment variables, if these are sufficient.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

from gpuwidget import pytorch
from gpuwidget.measure.device_order import NO_ORDER, CudaOrder, find_order, unlike_expected
from gpuwidget.measure.process_memory import Attribution
from gpuwidget.model.clock import SYSTEM_CLOCK, Clock
from gpuwidget.model.errors import OptionError
from gpuwidget.model.gpu_process import Process
from gpuwidget.model.kernel_state import CandidateGpu, DeviceChoice, DeviceOrder, KernelGpu
from gpuwidget.model.readings import Reading
from gpuwidget.model.samples import Gpu, Sample, is_unopened
from gpuwidget.model.torch_state import cuda_index, same_gpu
from gpuwidget.model.translation import Text, capitalized, joined, translatable
from gpuwidget.sampler import Sampler, Subscription
from gpuwidget.system import processes
from gpuwidget.system.memory_owners import ProcessGroup, by_owner, group_of, memory_of
from gpuwidget.system.processes import Identity

CPU = DeviceChoice("cpu", None, None, None, None, None, None, False, (), ())
THIS_NOTEBOOK = translatable("this notebook")

_MAX_AGE_S = 10.0
_DEFAULT_TIMEOUT_S = 0.02
_MAX_HOLDERS = 8

UNKNOWN_ORDER = DeviceOrder(None, ())


@dataclass(frozen=True, slots=True)
class DeviceChoices:
    """The devices that can be torch's default device."""

    devices: tuple[DeviceChoice, ...]
    unavailable: str | None
    """Why there is no CUDA device; None if there is one or may be one."""
    complete: bool
    """Whether all devices are listed: False while the number of CUDA devices is unknown."""
    order: DeviceOrder = UNKNOWN_ORDER


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """The bytes that each process holds on one GPU."""

    own: int | None
    """The bytes of this process without its children; None if the driver does not report them."""
    others: tuple[tuple[str, int], ...]
    """Names and bytes of this process's children and of other processes, the largest first. The names come
    from :meth:`ProcessGroup.label`, so they may be saved in an output.

    Processes whose memory is unknown are left out."""
    reason: str | None
    """Why the shares are unknown."""


class GpuMonitor:
    """Reads the GPUs on request, and does not sample them between requests."""

    def __init__(self, sampler: Sampler, clock: Clock = SYSTEM_CLOCK) -> None:
        self._sampler = sampler
        self._clock = clock
        self._pending: Subscription | None = None
        self._attribution: Attribution | None = None
        self._expected: CudaOrder | None = None
        """The order that was derived from the environment before CUDA started."""

    def read(self, timeout_s: float = _DEFAULT_TIMEOUT_S) -> Sample | None:
        """Return a new sample. If the driver takes longer than ``timeout_s``, return the latest earlier one.

        Return None if there is no earlier sample or if it is more than ten seconds old. The driver is still
        read in the background, so a later call may return that reading.
        """
        latest = self._sampler.latest
        subscription = self._sampler.subscribe()
        # While the driver does not answer, the subscription stays open. Close the subscription of the
        # previous call, because one is enough.
        before, self._pending = self._pending, subscription
        if before is not None:
            before.close()
        self._sampler.wait_until_open(timeout_s)
        now = self._sampler.read_now(timeout_s)
        if now is not None:
            subscription.close()
            return now
        subscription.on_sample = lambda sample: subscription.close()
        recent = latest is not None and abs(self._clock.time() - latest.time) <= _MAX_AGE_S
        return latest if recent else None

    @property
    def has_no_thread(self) -> bool:
        """Whether there is no sample because no thread could be started."""
        return self._sampler.has_no_thread

    def device_choices(self, sample: Sample | None, *, live: bool = False) -> DeviceChoices:
        """Return the devices as of ``sample``.

        With ``live``, the holders have detailed names for the panel, whose content is not saved in the
        notebook.
        """
        reason = _unavailable(sample)
        if reason is not None:
            return DeviceChoices((CPU,) if _installed() else (), reason, complete=True)
        order = self._order(sample)
        shown = DeviceOrder(order.source, order.notes)
        if order.uuids is None:
            return DeviceChoices((CPU,), None, complete=False, order=shown)
        candidates = _candidates(sample) if None in order.uuids else ()
        found = [
            self._choice(f"cuda:{number}", uuid, sample, live, candidates)
            for number, uuid in enumerate(order.uuids)
        ]
        return DeviceChoices((CPU, *found), None, complete=True, order=shown)

    def _order(self, sample: Sample | None) -> CudaOrder:
        order = _cuda_order(sample)
        if order.source == "environment":
            self._expected = order
        return order if sample is None else unlike_expected(order, self._expected, sample.gpus)

    def kernel_gpus(self, sample: Sample | None) -> tuple[KernelGpu, ...]:
        """Return this kernel's torch device, memory and CUDA context on each GPU of ``sample``."""
        if sample is None:
            return ()
        attribution = self._attribute(sample)
        devices = pytorch.devices()
        contexts = pytorch.devices_with_context()
        counters = pytorch.allocator_counters()
        # A torch without CUDA has no cuda:N, whatever the order of the GPUs is.
        order = _cuda_order(sample) if pytorch.no_cuda_build_reason() is None else NO_ORDER
        names = [(f"cuda:{number}", uuid) for number, uuid in enumerate(order.uuids or ())]
        found = []
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
            device = next((device for device in devices if _same(gpu, device.uuid)), None)
            held = attribution.process_memory(gpu, reading)
            context = held.present or (device is not None and device.index in contexts)
            # Before CUDA is initialized, the N of ``cuda:N`` is derived from the environment.
            name = next((name for name, uuid in names if uuid is not None and _same(gpu, uuid)), None)
            cuda_gpus = counters.get(device.index) if device is not None else None
            reserved = cuda_gpus.reserved if cuda_gpus is not None else None
            found.append(KernelGpu(gpu.uuid, name, held.memory, reserved, context))
        return tuple(found)

    def memory_shares(self, sample: Sample, gpu: Gpu, reading: Reading) -> MemoryShares:
        """Return how much memory of ``gpu`` each process holds. ``reading`` is the GPU's in ``sample``."""
        attribution = self._attribute(sample)
        held = attribution.process_memory(gpu, reading)
        if held.reason is not None:
            return MemoryShares(None, (), held.reason)
        known = [process for process in reading.processes or () if process.memory is not None]
        own = next((process.memory for process in known if process.pid == os.getpid()), None)
        groups = by_owner(
            (process for process in known if process.pid != os.getpid()),
            lambda process: _group(process, attribution),
        )
        others = [
            (group.label(len(found)), sum(process.memory or 0 for process in found))
            for group, found in groups.items()
        ]
        return MemoryShares(own, tuple(sorted(others, key=lambda other: -other[1])), None)

    def _choice(
        self,
        device: str,
        uuid: str | None,
        sample: Sample | None,
        live: bool,
        candidates: tuple[CandidateGpu, ...],
    ) -> DeviceChoice:
        unknown = DeviceChoice(device, None, None, None, None, None, None, False, (), candidates)
        if sample is None or uuid is None:
            return unknown
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True):
            if _same(gpu, uuid):
                return DeviceChoice(
                    device=device,
                    uuid=gpu.uuid,
                    index=gpu.index,
                    name=gpu.name,
                    compute_capability=gpu.compute_capability,
                    memory_total=gpu.memory_total,
                    memory_free=free_memory(gpu, reading),
                    unified_memory=gpu.unified_memory,
                    holders=self._holder_names(sample, reading, live),
                    candidates=(),
                )
        return unknown

    def _holder_names(self, sample: Sample, reading: Reading, live: bool) -> tuple[str, ...]:
        """Return the names of the processes that hold memory, without duplicates, and this notebook first."""
        attribution = self._attribute(sample)
        if live:
            names = [
                THIS_NOTEBOOK if attribution.owns(process) else _live_name(process, attribution)
                for process in reading.processes or ()
            ]
        else:
            names = [name for name, _ in self.holders(sample, reading)]
        return tuple(dict.fromkeys(sorted(names, key=lambda name: name != THIS_NOTEBOOK)))[:_MAX_HOLDERS]

    def holders(self, sample: Sample, reading: Reading) -> list[tuple[str, int | None]]:
        """Return the name and the total bytes of each holder of a GPU's memory. ``reading`` is the GPU's in
        ``sample``.

        The names may be saved in an output: they reveal no user names or arguments. This notebook and its
        children are one holder. The bytes are None if the driver does not report them.
        """
        attribution = self._attribute(sample)

        def owner(process: Process) -> tuple[ProcessGroup | None, bool]:
            group = None if attribution.owns(process) else _group(process, attribution)
            return group, process.memory is not None

        return [
            (THIS_NOTEBOOK if group is None else group.label(len(found)), memory_of(found))
            for (group, _), found in by_owner(reading.processes or (), owner).items()
        ]

    def _attribute(self, sample: Sample) -> Attribution:
        if self._attribution is None:
            self._attribution = Attribution(sample.origin)
        self._attribution.update(sample.readings)
        return self._attribution


def _group(process: Process, attribution: Attribution) -> ProcessGroup:
    if attribution.owns(process):
        return ProcessGroup("child", process.program)
    identity = Identity(process.user, process.program)
    return group_of(process.pid, identity, pids_match=attribution.pids_match)


def _live_name(process: Process, attribution: Attribution) -> str:
    """Return a process's name for the panel: its user, and its notebook or program."""
    notebook = processes.notebook_of(process.pid) if attribution.pids_match else None
    known = [process.user, process.program if notebook is None else f"notebook {notebook}"]
    unidentified = f"process {process.pid}" if process.pid else "unknown process"
    return ": ".join(word for word in known if word is not None) or unidentified


def check_device(device: str, choices: DeviceChoices) -> None:
    """Raise OptionError, which lists the devices, if ``device`` can't be the default device."""
    names = [choice.device for choice in choices.devices]
    if device in names or (not choices.complete and cuda_index(device) is not None):
        return
    if choices.unavailable is not None and (cuda_index(device) is not None or not names):
        raise OptionError(translatable("{device}: {reason}", device=device, reason=choices.unavailable))
    if device == "cuda" or device.isdigit():
        raise OptionError(
            translatable(
                "{device!r} does not name a single device. The devices:{devices}",
                device=device,
                devices=_list(choices),
            )
        )
    raise OptionError(
        translatable(
            "{device!r}: no such device. The devices:{devices}", device=device, devices=_list(choices)
        )
    )


def _list(choices: DeviceChoices) -> Text:
    lines: list[str] = []
    for choice in choices.devices:
        gpu = "" if choice.index is None else f" (GPU {choice.index}, {choice.name})"
        lines.append(f"{choice.device}{gpu}")
    if not choices.complete:
        lines.append(translatable("cuda:N: the devices are known once your code has started CUDA"))
    return joined(["", *lines], "\n  ")


def _unavailable(sample: Sample | None) -> str | None:
    """Return why there is no CUDA device; None if there is one or may be one."""
    if not _installed():
        return translatable("torch is not installed in this kernel's environment.")
    without = pytorch.no_cuda_build_reason()
    if without is not None:
        return translatable("{reason}: there is only the CPU.", reason=capitalized(without))
    if pytorch.cuda_initialized() or sample is None:
        return None
    if not (sample.origin.live or sample.origin.recorded) and not pytorch.is_rocm():
        return sample.origin.reason or translatable("No NVIDIA GPU is visible here.")
    return None


def _installed() -> bool:
    if pytorch.is_loaded():
        return True
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):  # sys.modules["torch"] is an object without a spec
        return False


def _cuda_order(sample: Sample | None) -> CudaOrder:
    """Return the order of the CUDA devices, without the GPUs of a recording."""
    if sample is not None and sample.origin.live and not pytorch.is_rocm():
        return find_order(sample.gpus, os.environ)
    # The GPUs of a recording may not be those of this machine.
    reported = pytorch.cuda_uuids()
    return NO_ORDER if reported is None else CudaOrder(reported, None)


def _candidates(sample: Sample | None) -> tuple[CandidateGpu, ...]:
    """Return the GPUs of ``sample`` that can be a CUDA device whose GPU is unknown."""
    if sample is None or not sample.origin.live or pytorch.is_rocm():
        return ()
    return tuple(
        CandidateGpu(
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            compute_capability=gpu.compute_capability,
            memory_total=gpu.memory_total,
            memory_free=free_memory(gpu, reading),
            unified_memory=gpu.unified_memory,
        )
        for gpu, reading in zip(sample.gpus, sample.readings, strict=True)
        if gpu.mig_parent is None and not is_unopened(gpu)
    )


def _same(gpu: Gpu, uuid: str | None) -> bool:
    return gpu.uuid == uuid or same_gpu(gpu.uuid, uuid)


def free_memory(gpu: Gpu, reading: Reading) -> int | None:
    """Return the bytes that processes can still allocate: all except used and driver-reserved bytes."""
    total, reserved, used = gpu.memory_total, gpu.memory_reserved, reading.memory_used
    if total is None or reserved is None or used is None or reading.lost_since is not None:
        return None
    return max(0, total - reserved - used)
