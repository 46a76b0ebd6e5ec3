"""The texts of all advice: one function per rule returns the rule's text and fix.

The rule's name is the message id, ``sure`` selects the wording, and the rule's evidence contains the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwidget.measure.notes import gpu_name, gpu_number
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport
from gpuwidget.pytorch.torch_variables import Loader, Model
from gpuwidget.sources.throttle_reasons import POWER_BRAKE

_MAX_SOURCE = 60
"""Maximum number of characters of a source line that is quoted in a sentence."""


class Text(NamedTuple):
    """The sentences of one piece of advice."""

    text: str
    """What the rule observed, with figures."""
    fix: str
    """What the user should do."""


# -- parts of sentences ------------------------------------------------------------------------------------


def gpu_names(gpus: Sequence[GpuReport]) -> str:
    """Return the GPUs' names as a list in prose: ``GPU 0``, ``GPUs 0 and 2`` or ``GPUs 0, 1 and 2``."""
    if len(gpus) == 1:
        return gpu_name(gpus[0])
    numbers = [gpu_number(gpu) for gpu in gpus]
    return f"GPUs {', '.join(numbers[:-1])} and {numbers[-1]}"


def shortened(source: str) -> str:
    """Return a source line, shortened so that it can be quoted in a sentence."""
    line = " ".join(source.split())
    return line if len(line) <= _MAX_SOURCE else f"{line[: _MAX_SOURCE - 1].rstrip()}…"


def _verb(gpus: Sequence[GpuReport], singular: str, plural: str) -> str:
    return singular if len(gpus) == 1 else plural


def _power(gpus: Sequence[GpuReport]) -> str | None:
    """Return the mean power and mean limit of ``gpus`` as ``165 of 700 W``.

    Return None if no GPU reports its power or no GPU reports its limit.
    """
    drawn = [gpu.power_w.mean for gpu in gpus if gpu.power_w is not None]
    limits = [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None]
    if not drawn or not limits:
        return None
    return units.power_of(sum(drawn) / len(drawn), sum(limits) / len(limits))


def _ranks(ranks: Sequence[int]) -> str:
    if not ranks:
        return ""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def _small_percent(percent: float | None) -> str:
    return "?" if percent is None else f"{percent:.1f}" if percent < 1 else f"{percent:.0f}"


# -- the text and fix of each rule -------------------------------------------------------------------------


def unattributed(text: str) -> str:
    """Return ``text`` with a remark that another process may have done the work."""
    return f"{text} Whose work that is can't be told here."


def steady_part(text: str, seconds: float, run_s: float) -> str:
    """Return ``text`` with a remark that its figures cover only a part of the run."""
    return f"{text} (Figures of the {seconds:.0f} of {run_s:.0f} s without start-up and shutdown.)"


def throttled(gpus: Sequence[GpuReport], seconds: float, run_s: float, reasons: Sequence[str]) -> Text:
    """Return the text for GPUs whose clock was throttled for ``seconds``."""
    hot = any(reason != POWER_BRAKE for reason in reasons)
    return Text(
        f"{gpu_names(gpus)} ran at a lower clock for {seconds:.0f} of {run_s:.0f} s: {', '.join(reasons)}.",
        "Let the administrator see to its cooling (air flow, fans, neighbours at full load); until then the "
        "driver lowers its clock."
        if hot
        else "Let the administrator see to its power supply: it told the GPU to slow down.",
    )


def model_on_cpu(model: Model, cpu: float, *, cuda_initialized: bool) -> Text:
    """Return the text for a model that computed on the CPU."""
    return Text(
        f"{model.name} ({model.type}, {units.memory(model.on_cpu)} of parameters and buffers) is on the CPU, "
        f"which was {cpu:.0f} % of a core busy, and "
        f"{'no GPU did anything' if cuda_initialized else 'CUDA was not even started'}.",
        f"{model.name}.to('cuda'), and each batch too.",
    )


_SYNC_FIXES = {
    "print": "Print it every so many steps: to show a tensor, Python waits for the GPU and copies it.",
    "synchronize": "Leave it out of the loop: the GPU does its work in order without it.",
    "nonzero": "Masks that choose by value make Python wait for their size: torch.where keeps it on the GPU.",
}


def sync_points(where: str, call: str, share: float, utilization: float, *, sure: bool) -> Text:
    """Return the text for code at ``where`` that waits for the GPU in ``call``."""
    return Text(
        f"{where[0].upper()}{where[1:]} {'waits' if sure else 'looks as if it waited'} for the GPU "
        f"({call}, {share:.0f} % of the time), so that no work is queued for it: {utilization:.0f} % busy "
        "over the run.",
        _SYNC_FIXES.get(
            call, "Keep the value on the GPU (.detach()) and read it every so many steps, or once at the end."
        ),
    )


def _small_kernels_fix(*, torch: bool) -> str:
    fewer = (
        "torch.compile(mode='reduce-overhead'), CUDA graphs, fused optimizers (fused=True)"
        if torch
        else "kernels fused by your library's compiler, CUDA graphs"
    )
    return f"Give each launch more work (a larger batch), or launch less: {fewer}."


def small_kernels(
    gpus: Sequence[GpuReport], utilization: float | None, sm: float | None, *, torch: bool
) -> Text:
    """Return the text for GPUs whose hardware counters show that kernels are too small."""
    return Text(
        f"{gpu_names(gpus)} ran kernels {utilization:.0f} % of the time, which kept only "
        f"{_small_percent(sm)} % of the multiprocessors at work: they are too small, and launching them "
        "takes the time.",
        _small_kernels_fix(torch=torch),
    )


def small_kernels_likely(gpus: Sequence[GpuReport], utilization: float | None, *, torch: bool) -> Text:
    """Return the text for GPUs whose utilization and power suggest that kernels are too small."""
    return Text(
        f"{gpu_names(gpus)} {_verb(gpus, 'was', 'were')} steadily {utilization:.0f} % busy and drew "
        f"{_power(gpus)}, hardly more than at rest: that looks like kernels that are too small (no hardware "
        "counters here to tell).",
        _small_kernels_fix(torch=torch),
    )


def tensor_cores_idle(
    gpus: Sequence[GpuReport], fp32: float | None, tensor: float | None, *, torch: bool, tf32: bool | None
) -> Text:
    """Return the text for GPUs that compute in float32.

    ``tf32`` is torch's TF32 setting for matrix products, or None if it is unknown.
    """
    off = " TF32 is off for matrix products." if tf32 is False else ""
    if not torch:
        method = "bfloat16, or TF32 for float32 products, as your library has it"
    else:
        faster = "" if tf32 else ", or torch.set_float32_matmul_precision('high') for TF32"
        method = f"torch.autocast('cuda', dtype=torch.bfloat16) around the forward pass{faster}"
    return Text(
        f"{gpu_names(gpus)} computed in float32 ({fp32:.0f} % of those pipes) with the tensor cores at "
        f"{tensor:.0f} %.{off}",
        f"If this is matrix work: {method}.",
    )


def _memory_bound_fix(*, torch: bool) -> str:
    compile_text = " (torch.compile)" if torch else ""
    return (
        f"Read and write less: fuse element-wise steps{compile_text}, use bfloat16 tensors, avoid copies and "
        "temporary results. More arithmetic per byte costs nothing now."
    )


def memory_bound(gpus: Sequence[GpuReport], dram: float | None, *, torch: bool) -> Text:
    """Return the text for GPUs whose hardware counters show that memory bandwidth is the limit."""
    return Text(
        f"{gpu_names(gpus)} used {dram:.0f} % of the memory bandwidth, and of the tensor cores next to "
        "nothing: memory is the limit.",
        _memory_bound_fix(torch=torch),
    )


def memory_bound_likely(gpus: Sequence[GpuReport], used: float | None, *, torch: bool) -> Text:
    """Return the text for GPUs whose memory utilization suggests that memory bandwidth is the limit."""
    return Text(
        f"{gpu_names(gpus)} read or wrote device memory {used:.0f} % of the time: that looks as if memory "
        "were the limit (no hardware counters here to tell).",
        _memory_bound_fix(torch=torch),
    )


def copies(
    gpus: Sequence[GpuReport],
    rate: float,
    sm: float | None,
    utilization: float | None,
    line: tuple[str, float] | None,
) -> Text:
    """Return the text for GPUs whose hardware counters show that they mostly copy.

    ``line`` has the line that copies and its percent of the time, if known.
    """
    where = "" if line is None else f" ({line[0]}: {line[1]:.0f} % of the time)"
    return Text(
        f"{gpu_names(gpus)} moved {units.memory(rate)}/s and computed with {sm:.0f} % of the "
        f"multiprocessors, at a utilization of {utilization:.0f} %: the time goes to copies{where}.",
        "Keep tensors on the GPU between steps; move whole batches, once, from pinned memory "
        "(pin_memory=True, .to(device, non_blocking=True)).",
    )


def copies_likely(gpus: Sequence[GpuReport], utilization: float | None) -> Text:
    """Return the text for GPUs whose utilization and power suggest that they copy or wait."""
    return Text(
        f"{gpu_names(gpus)} {_verb(gpus, 'reads', 'read')} {utilization:.0f} % busy but drew "
        f"{_power(gpus)}, hardly more than at rest: that looks like copies, or waiting, rather than "
        "computing (no hardware counters here to tell).",
        "See whether tensors go back and forth (.cpu(), .to(…)) in the loop, or whether the code waits "
        "for another GPU.",
    )


def cudnn_off(model: Model) -> Text:
    """Return the text for a model with layers that would use cuDNN, which is off."""
    return Text(
        f"cuDNN is off (torch.backends.cudnn.enabled), and {model.name} ({model.type}) has convolutions or "
        "recurrent layers on the GPU.",
        "torch.backends.cudnn.enabled = True, unless it was switched off for a reason.",
    )


def cudnn_benchmark(share: float, where: str, gpu: str, drops: int) -> Text:
    """Return the text for a run in which cuDNN's benchmark mode seems to search again for each new shape."""
    return Text(
        f"{share:.0f} % of the time went to convolutions ({where}), and memory of {gpu} was "
        f"given back {drops} times in the second half of the run: that looks as if cuDNN, whose benchmark "
        "mode is on, searched anew for each new shape.",
        "torch.backends.cudnn.benchmark = False, or inputs of few sizes (pad or crop them).",
    )


def fragmentation(
    gpu: GpuReport, unused: int, reserved: int | None, allocated: int | None, retries: int
) -> Text:
    """Return the text for fragmented torch memory: segments with tensors have ``unused`` free bytes."""
    times = "once" if retries == 1 else f"{retries} times"
    return Text(
        f"torch held at least {units.memory(unused)} of {gpu_name(gpu)} that no tensor used and that it "
        f"could not give back ({units.memory(reserved)} reserved, {units.memory(allocated)} allocated at "
        f"most), although it flushed its cache {times} to find room.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment before the kernel "
        "starts: the pieces then fit again. Batches of one size help too.",
    )


def growing_memory(
    gpu: GpuReport, ends: Sequence[int], growth: float, runs_left: int | None, *, attributed: bool
) -> Text:
    """Return the text for code that leaves ``growth`` more bytes in use after each run."""
    series = f" {units.ARROW} ".join(units.memory(end) for end in ends)
    whose = "" if attributed else "; whose memory it is can't be told here"
    full = f"; {runs_left} more such runs fill it" if runs_left is not None else ""
    return Text(
        f"Each run of this code left {units.memory(growth)} more on {gpu_name(gpu)}: {series}{whose}{full}.",
        "See what keeps it: a list that collects losses or outputs with their graphs (use .item() or "
        ".detach()), results in Out, tensors under new names.",
    )


def straggler(
    waiting: Sequence[GpuReport],
    late: GpuReport,
    late_ranks: Sequence[int],
    late_utilization: float,
    utilization: float,
    sm: float | None,
    *,
    sure: bool,
) -> Text:
    """Return the text for the GPUs in ``waiting``, which wait for ``late``, the GPU of ``late_ranks``.

    ``late_ranks`` is empty if the ranks are unknown.
    """
    ranks = _ranks(late_ranks)
    where = f"{gpu_name(late)} ({ranks}, " if ranks else f"{gpu_name(late)} ("
    who = ranks or f"the process of {gpu_name(late)}"
    share = utilization - late_utilization
    wait = _verb(waiting, "waits", "wait") if sure else _verb(waiting, "seems to wait", "seem to wait")
    part = f" for about {share:.0f} % of the time" if share > 0 else ""
    at = "" if sm is None else f"{sm:.0f} % of the multiprocessors and "
    it, reads = ("it", "reads") if len(waiting) == 1 else ("they", "read")
    return Text(
        f"{gpu_names(waiting)} {wait} for {where}{late_utilization:.0f} % busy){part}: {it} {reads} "
        f"{utilization:.0f} % busy at {at}{_power(waiting)}, because a collective operation keeps "
        f"{'it' if len(waiting) == 1 else 'them'} busy meanwhile.",
        f"Find out what {who} {'do' if len(late_ranks) > 1 else 'does'} longer than the others: data "
        "loading, a larger share of the work, logging or checkpoints on one rank, a slower or hotter GPU.",
    )


def idle_gpus(
    idle: Sequence[GpuReport], busy: Sequence[GpuReport], held: int, utilization: float | None
) -> Text:
    """Return the text for a process that holds memory on GPUs that did nothing."""
    return Text(
        f"This process holds {units.memory(held)} on {gpu_names(idle)}, which did nothing, while "
        f"{gpu_names(busy)} {_verb(busy, 'was', 'were')} {utilization:.0f} % busy.",
        "If the work was meant for all of them, see that each gets its part (DistributedDataParallel, device "
        "maps); else free what they hold.",
    )


def slower_gpu(
    working: GpuReport, idle: GpuReport, compute: float | None, memory: float | None, *, visible: bool
) -> Text:
    """Return the text for a process that computed on ``working`` while the faster GPU ``idle`` did nothing.

    ``compute`` and ``memory`` are the ratios of the peak float32 rates and of the memory bandwidths.
    ``visible`` is whether torch can use ``idle``.
    """
    busy = working.utilization.mean if working.utilization is not None else 0.0
    text = (
        f"{_gpu_with_device(working)} was {busy:.0f} % busy, while the faster {_gpu_with_device(idle)} did "
        f"nothing: it has {compute:.1f} times the peak float32 rate and {memory:.1f} times the memory "
        "bandwidth."
    )
    if visible:
        device = idle.torch_device
        return Text(text, f"If you meant the faster one: %gpu device {device}, or .to('{device}').")
    return Text(
        text,
        "CUDA_VISIBLE_DEVICES hides it: its numbers count in CUDA's order, which may not be nvidia-smi's. "
        f"List the GPU's UUID (CUDA_VISIBLE_DEVICES={idle.uuid}) or set CUDA_DEVICE_ORDER=PCI_BUS_ID too, "
        "and restart the kernel.",
    )


def _gpu_with_device(gpu: GpuReport) -> str:
    """Return a GPU with its model and device: ``GPU 1 (GeForce RTX 4090, cuda:0)``."""
    device = "" if gpu.torch_device is None else f", {gpu.torch_device}"
    return f"{gpu_name(gpu)} ({gpu.name.removeprefix('NVIDIA ')}{device})"


def unused_contexts(gpus: Sequence[GpuReport], held: int | None, lines: Sequence[str]) -> Text:
    """Return the text for CUDA contexts on GPUs that the run did not use.

    ``lines`` are the lines that first selected these GPUs, as far as they are known.
    """
    contexts = _verb(gpus, "a CUDA context", "CUDA contexts")
    where = f" (first selected in {', '.join(lines)})" if lines else ""
    holds = _verb(gpus, "It holds", "They hold")
    size = "" if held is None else f" {holds} {units.memory(held)} until the kernel restarts."
    return Text(
        f"This run opened {contexts} on {gpu_names(gpus)}{where} and did not use "
        f"{_verb(gpus, 'this GPU', 'these GPUs')}.{size}",
        "Read the memory of GPUs with gpuwidget.sample(), which opens no context, and hide GPUs that the "
        "notebook does not need with CUDA_VISIBLE_DEVICES.",
    )


def device_switches(switches: int, rate: float, line: str | None) -> Text:
    """Return the text for code that switched the current CUDA device ``switches`` times."""
    where = "" if line is None else f", most often by {line}"
    return Text(
        f"The current CUDA device was switched {switches:,} times ({rate:.0f} a second){where}.",
        "Give tensors and streams their device (device='cuda:1'), and do all work on one device before the "
        "next switch.",
    )


def input_pipeline(share: float, where: str, busy: float | None, utilization: float, *, sure: bool) -> str:
    """Return the text for a run whose stack samples show that the code spent its time loading data."""
    meanwhile = f"was {busy:.0f} % busy" if busy is not None else f"was {utilization:.0f} % busy on average"
    return (
        f"{'The GPU waits' if sure else 'It looks as if the GPU waited'} for its data: {share:.0f} % of the "
        f"time went to {where}; the GPU {meanwhile}."
    )


def loading(most: float, where: str) -> str:
    """Describe several places that load data.

    ``where`` is the place that takes the most time: ``most`` percent of the run.
    """
    return f"loading, {most:.0f} % of it in {where}"


def input_pipeline_likely(gpus: Sequence[GpuReport], bursts: float, utilization: float | None) -> str:
    """Return the text for GPUs that worked in bursts and may have waited for data in between."""
    return (
        f"{gpu_names(gpus)} worked in bursts ({bursts:.1f} a second), {utilization:.0f} % of the time in "
        f"all, at {_power(gpus)}: that looks like an input pipeline that can't keep up."
    )


def feed_the_gpu(cores: int | None) -> str:
    """Return the fix for a slow input pipeline whose loader is unknown."""
    bound = f" (up to {cores}: the cores this process may use)" if cores is not None else ""
    return f"See what feeds the GPU. A DataLoader: num_workers{bound}, pin_memory=True, prefetch_factor=4."


def _loader_settings(loader: Loader) -> str:
    return f"{loader.name} has num_workers={loader.num_workers}, pin_memory={loader.pin_memory}"


def cheaper_items(loader: Loader, cores: int) -> str:
    """Return the fix for a loader that already has one worker per CPU core."""
    return (
        f"{_loader_settings(loader)}, as many workers as this process has cores for ({cores}): more don't "
        "help. Make an item cheaper: decode less, keep it decoded, do the rest on the GPU in batches."
    )


def loader_settings(loader: Loader, workers: int | None, shared_memory_free: int | None) -> str:
    """Return the fix that suggests better settings for a loader.

    ``workers`` is the number of workers to try, or None if the number of CPU cores is unknown.
    ``shared_memory_free`` is the number of free bytes in /dev/shm if they are scarce, and otherwise None.
    """
    changes = [f"num_workers={workers}" if workers is not None else "more workers"]
    changes += ["pin_memory=True"] if not loader.pin_memory else []
    changes += ["persistent_workers=True"] if not loader.persistent_workers else []
    changes += ["prefetch_factor=4"] if loader.num_workers and (loader.prefetch_factor or 2) <= 2 else []
    text = f"{_loader_settings(loader)} now. Try {', '.join(changes)}."
    if shared_memory_free is not None:
        text += (
            f" Workers hand batches over in /dev/shm, where {units.memory(shared_memory_free)} are free: "
            "give the container more first (--shm-size)."
        )
    return text
