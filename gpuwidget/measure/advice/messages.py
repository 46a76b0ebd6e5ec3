"""The texts of all advice: one function per rule returns the rule's text and fix.

The rule's name is the message id, ``sure`` selects the wording, and the rule's evidence contains the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwidget.measure.notes import gpu_name, gpu_number
from gpuwidget.model import units
from gpuwidget.model.report import GpuReport
from gpuwidget.model.translation import capitalized, counted, joined, translatable
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
    return translatable("GPUs {numbers} and {last}", numbers=", ".join(numbers[:-1]), last=numbers[-1])


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
    return translatable("ranks {ranks} and {last}", ranks=", ".join(map(str, ranks[:-1])), last=ranks[-1])


def _small_percent(percent: float | None) -> str:
    return "?" if percent is None else f"{percent:.1f}" if percent < 1 else f"{percent:.0f}"


# -- the text and fix of each rule -------------------------------------------------------------------------


def unattributed(text: str) -> str:
    """Return ``text`` with a remark that another process may have done the work."""
    return joined([text, translatable("Couldn't tell which process did that work.")], " ")


def steady_part(text: str, seconds: float, run_s: float) -> str:
    """Return ``text`` with a remark that its figures cover only a part of the run."""
    remark = translatable(
        "(Measured over {seconds:.0f} of {run_s:.0f} s, without start-up and shutdown.)",
        seconds=seconds,
        run_s=run_s,
    )
    return joined([text, remark], " ")


def throttled(gpus: Sequence[GpuReport], seconds: float, run_s: float, reasons: Sequence[str]) -> Text:
    """Return the text for GPUs whose clock was throttled for ``seconds``."""
    hot = any(reason != POWER_BRAKE for reason in reasons)
    return Text(
        translatable(
            "{gpus} {en_verb} throttled ({reasons}). This lasted {seconds:.0f} of {run_s:.0f} s.",
            gpus=gpu_names(gpus),
            en_verb=_verb(gpus, "was", "were"),
            seconds=seconds,
            run_s=run_s,
            reasons=joined(reasons),
        ),
        translatable(
            "Ask the administrator to check the cooling (air flow, fans, neighbors at full load). Until "
            "then, the driver lowers the clock."
        )
        if hot
        else translatable("Ask the administrator to check the power supply, which asked for a lower clock."),
    )


def model_on_cpu(model: Model, cpu: float, *, cuda_initialized: bool) -> Text:
    """Return the text for a model that computed on the CPU."""
    where = translatable(
        "{name} is on the CPU. Its class is {type}, with {on_cpu} of parameters and buffers.",
        name=model.name,
        type=model.type,
        on_cpu=units.memory(model.on_cpu),
    )
    used = (
        translatable("This process used {cpu:.0f} % of a core, and no GPU did any work.", cpu=cpu)
        if cuda_initialized
        else translatable("This process used {cpu:.0f} % of a core, and CUDA was not started.", cpu=cpu)
    )
    return Text(
        joined([where, used], " "),
        translatable("{name}.to('cuda'), and the same for each batch.", name=model.name),
    )


_SYNC_FIXES = {
    "print": translatable(
        "Print the tensor only every N steps: to print it, Python waits for the GPU and copies the values."
    ),
    "synchronize": translatable("Remove this call from the loop: the GPU does its work in order without it."),
    "nonzero": translatable(
        "nonzero() and indexing with a boolean mask make Python wait for the size of the result. "
        "torch.where(mask, a, b) does not wait, because its size is known."
    ),
}


def sync_points(where: str, call: str, share: float, utilization: float, *, sure: bool) -> Text:
    """Return the text for code at ``where`` that waits for the GPU in ``call``."""
    waits = (
        translatable(
            "{where} waits for the GPU. {share:.0f} % of the time goes to {call}, and no work is queued "
            "meanwhile.",
            where=capitalized(where),
            call=call,
            share=share,
        )
        if sure
        else translatable(
            "{where} probably waits for the GPU. {share:.0f} % of the time goes to {call}, and no work is "
            "queued meanwhile.",
            where=capitalized(where),
            call=call,
            share=share,
        )
    )
    busy = translatable("The GPU was {utilization:.0f} % busy over the run.", utilization=utilization)
    return Text(
        joined([waits, busy], " "),
        _SYNC_FIXES.get(
            call,
            translatable(
                "Keep the value on the GPU (.detach()), and read it every N steps or once at the end."
            ),
        ),
    )


def _small_kernels_fix(*, torch: bool) -> str:
    fewer = (
        translatable("torch.compile(mode='reduce-overhead'), CUDA graphs, fused optimizers (fused=True)")
        if torch
        else translatable("kernels fused by your library's compiler, CUDA graphs")
    )
    return translatable(
        "Give each launch more work (a larger batch), or launch fewer kernels: {fewer}.", fewer=fewer
    )


def small_kernels(
    gpus: Sequence[GpuReport], utilization: float | None, sm: float | None, *, torch: bool
) -> Text:
    """Return the text for GPUs whose hardware counters show that kernels are too small."""
    return Text(
        translatable(
            "The kernels are too small. {gpus} ran kernels {utilization:.0f} % of the time, but they kept "
            "only {sm} % of the multiprocessors busy. The time goes to launching them.",
            gpus=gpu_names(gpus),
            utilization=utilization,
            sm=_small_percent(sm),
        ),
        _small_kernels_fix(torch=torch),
    )


def small_kernels_likely(gpus: Sequence[GpuReport], utilization: float | None, *, torch: bool) -> Text:
    """Return the text for GPUs whose utilization and power suggest that kernels are too small."""
    return Text(
        translatable(
            "The kernels are probably too small. {gpus} {en_verb} steadily {utilization:.0f} % busy but "
            "drew {power}, hardly more than when idle. There are no hardware counters to confirm it.",
            gpus=gpu_names(gpus),
            en_verb=_verb(gpus, "was", "were"),
            utilization=utilization,
            power=_power(gpus),
        ),
        _small_kernels_fix(torch=torch),
    )


def tensor_cores_idle(
    gpus: Sequence[GpuReport], fp32: float | None, tensor: float | None, *, torch: bool, tf32: bool | None
) -> Text:
    """Return the text for GPUs that compute in float32.

    ``tf32`` is torch's TF32 setting for matrix products, or None if it is unknown.
    """
    text = translatable(
        "The tensor cores were hardly used. {gpus} computed in float32 ({fp32:.0f} % of the float32 pipes, "
        "{tensor:.0f} % of the tensor cores).",
        gpus=gpu_names(gpus),
        fp32=fp32,
        tensor=tensor,
    )
    if tf32 is False:
        text = joined([text, translatable("TF32 is off for matrix products.")], " ")
    if not torch:
        fix = translatable(
            "If most of the work is matrix products: bfloat16, or TF32 for float32 products, with your "
            "library's options."
        )
    elif tf32:
        fix = translatable(
            "If most of the work is matrix products: torch.autocast('cuda', dtype=torch.bfloat16) around the "
            "forward pass."
        )
    else:
        fix = translatable(
            "If most of the work is matrix products: torch.autocast('cuda', dtype=torch.bfloat16) around the "
            "forward pass, or torch.set_float32_matmul_precision('high') for TF32."
        )
    return Text(text, fix)


def _memory_bound_fix(*, torch: bool) -> str:
    if torch:
        return translatable(
            "Read and write less: fuse element-wise steps (torch.compile), use bfloat16 tensors, avoid "
            "copies and temporary results. More arithmetic per byte would take no extra time."
        )
    return translatable(
        "Read and write less: fuse element-wise steps, use bfloat16 tensors, avoid copies and temporary "
        "results. More arithmetic per byte would take no extra time."
    )


def memory_bound(gpus: Sequence[GpuReport], dram: float | None, *, torch: bool) -> Text:
    """Return the text for GPUs whose hardware counters show that memory bandwidth is the limit."""
    return Text(
        translatable(
            "Memory bandwidth is the limit. {gpus} used {dram:.0f} % of it, and hardly any of the tensor "
            "cores.",
            gpus=gpu_names(gpus),
            dram=dram,
        ),
        _memory_bound_fix(torch=torch),
    )


def memory_bound_likely(gpus: Sequence[GpuReport], used: float | None, *, torch: bool) -> Text:
    """Return the text for GPUs whose memory utilization suggests that memory bandwidth is the limit."""
    return Text(
        translatable(
            "Memory bandwidth is probably the limit. {gpus} read or wrote device memory {used:.0f} % of the "
            "time. There are no hardware counters to confirm it.",
            gpus=gpu_names(gpus),
            used=used,
        ),
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
    text = translatable(
        "The time goes to copies. {gpus} transferred {rate}/s and kept {sm:.0f} % of the multiprocessors "
        "busy, at a utilization of {utilization:.0f} %.",
        gpus=gpu_names(gpus),
        rate=units.memory(rate),
        sm=sm,
        utilization=utilization,
    )
    if line is not None:
        where, share = line
        taken = translatable("{where} took {share:.0f} % of the time.", where=capitalized(where), share=share)
        text = joined([text, taken], " ")
    return Text(
        text,
        translatable(
            "Keep tensors on the GPU between steps; move whole batches, once, from pinned memory "
            "(pin_memory=True, .to(device, non_blocking=True))."
        ),
    )


def copies_likely(gpus: Sequence[GpuReport], utilization: float | None) -> Text:
    """Return the text for GPUs whose utilization and power suggest that they copy or wait."""
    return Text(
        translatable(
            "The time probably goes to copies or waiting. {gpus} {en_verb} {utilization:.0f} % busy but "
            "drew {power}, hardly more than when idle. There are no hardware counters to confirm it.",
            gpus=gpu_names(gpus),
            en_verb=_verb(gpus, "was", "were"),
            utilization=utilization,
            power=_power(gpus),
        ),
        translatable(
            "Check whether tensors go back and forth (.cpu(), .to(…)) in the loop, or whether "
            "the code waits for another GPU."
        ),
    )


def cudnn_off(model: Model) -> Text:
    """Return the text for a model with layers that would use cuDNN, which is off."""
    return Text(
        translatable(
            "cuDNN is off. {name} ({type}) has convolutions or recurrent layers on the GPU.",
            name=model.name,
            type=model.type,
        ),
        translatable("torch.backends.cudnn.enabled = True, unless it was switched off for a reason."),
    )


def cudnn_benchmark(share: float, where: str, gpu: str, drops: int) -> Text:
    """Return the text for a run in which cuDNN's benchmark mode seems to search again for each new shape."""
    return Text(
        translatable(
            "cuDNN probably searched again for each new input shape. Its benchmark mode is on, {share:.0f} "
            "% of the time went to convolutions ({where}), and memory of {gpu} was freed {drops} times in "
            "the second half of the run.",
            share=share,
            where=where,
            gpu=gpu,
            drops=drops,
        ),
        translatable("torch.backends.cudnn.benchmark = False, or inputs of few sizes (pad or crop them)."),
    )


def fragmentation(
    gpu: GpuReport, unused: int, reserved: int | None, allocated: int | None, retries: int
) -> Text:
    """Return the text for fragmented torch memory: segments with tensors have ``unused`` free bytes."""
    times = counted(retries, "once", "{number} times")
    return Text(
        translatable(
            "torch's memory is fragmented. torch held at least {unused} on {gpu} that no tensor used "
            "({reserved} reserved, at most {allocated} allocated), and could not free it, although it "
            "flushed its cache {times} to find memory.",
            unused=units.memory(unused),
            gpu=gpu_name(gpu),
            reserved=units.memory(reserved),
            allocated=units.memory(allocated),
            times=times,
        ),
        translatable(
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment before "
            "the kernel starts: torch can then use the free pieces together. Batches of one "
            "size help too."
        ),
    )


def growing_memory(
    gpu: GpuReport, ends: Sequence[int], growth: float, runs_left: int | None, *, attributed: bool
) -> Text:
    """Return the text for code that leaves ``growth`` more bytes in use after each run."""
    series = f" {units.ARROW} ".join(units.memory(end) for end in ends)
    sentences = [
        translatable(
            "Each run of this code left {growth} more on {gpu}: {series}.",
            growth=units.memory(growth),
            gpu=gpu_name(gpu),
            series=series,
        )
    ]
    if not attributed:
        sentences.append(translatable("Couldn't tell which process holds it."))
    if runs_left is not None:
        sentences.append(
            translatable("The GPU is full after {runs_left} more such runs.", runs_left=runs_left)
        )
    return Text(
        joined(sentences, " "),
        translatable(
            "Find out what holds this memory: a list that collects losses or outputs with their graphs (use "
            ".item() or .detach()), results in Out, tensors under new names."
        ),
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
    gpus, late_gpu, wait = gpu_names(waiting), gpu_name(late), _verb(waiting, "waits", "wait")
    late_with_ranks = translatable("{gpu} ({ranks})", gpu=late_gpu, ranks=ranks) if ranks else late_gpu
    who = ranks or translatable("the process of {gpu}", gpu=late_gpu)
    sentences = [
        translatable("{gpus} {en_wait} for {late}.", gpus=gpus, en_wait=wait, late=late_with_ranks)
        if sure
        else translatable(
            "{gpus} probably {en_wait} for {late}.", gpus=gpus, en_wait=wait, late=late_with_ranks
        )
    ]
    share = utilization - late_utilization
    if share > 0:
        sentences.append(translatable("The waiting takes about {share:.0f} % of the time.", share=share))
    sentences += [
        translatable(
            "{late} was {late_utilization:.0f} % busy.", late=late_gpu, late_utilization=late_utilization
        ),
        translatable(
            "Waiting in a collective operation counts as busy, so the utilization of {gpus} is "
            "{utilization:.0f} %, at {power}.",
            gpus=gpus,
            utilization=utilization,
            power=_power(waiting),
        )
        if sm is None
        else translatable(
            "Waiting in a collective operation counts as busy, so the utilization of {gpus} is "
            "{utilization:.0f} %, at {sm:.0f} % of the multiprocessors and {power}.",
            gpus=gpus,
            utilization=utilization,
            sm=sm,
            power=_power(waiting),
        ),
    ]
    return Text(
        joined(sentences, " "),
        translatable(
            "Find out what {who} {en_do} longer than the others: data loading, a larger "
            "share of the work, logging or checkpoints on one rank, a slower or hotter GPU.",
            who=who,
            en_do="do" if len(late_ranks) > 1 else "does",
        ),
    )


def idle_gpus(
    idle: Sequence[GpuReport], busy: Sequence[GpuReport], held: int, utilization: float | None
) -> Text:
    """Return the text for a process that holds memory on GPUs that did nothing."""
    return Text(
        translatable(
            "{gpus} did no work. This process holds {held} there, while {busy} {en_verb} {utilization:.0f} "
            "% busy.",
            held=units.memory(held),
            gpus=gpu_names(idle),
            busy=gpu_names(busy),
            en_verb=_verb(busy, "was", "were"),
            utilization=utilization,
        ),
        translatable(
            "If all of them should work, give each its part (DistributedDataParallel, device "
            "maps). Otherwise, free the memory on them."
        ),
    )


def slower_gpu(
    working: GpuReport, idle: GpuReport, compute: float | None, memory: float | None, *, visible: bool
) -> Text:
    """Return the text for a process that computed on ``working`` while the faster GPU ``idle`` did nothing.

    ``compute`` and ``memory`` are the ratios of the peak float32 rates and of the memory bandwidths.
    ``visible`` is whether torch can use ``idle``.
    """
    text = translatable(
        "The faster GPU did no work. {working} was {utilization:.0f} % busy, but {idle} has {compute:.1f} "
        "times the peak float32 rate and {memory:.1f} times the memory bandwidth.",
        working=_gpu_with_device(working),
        utilization=working.utilization.mean if working.utilization is not None else 0.0,
        idle=_gpu_with_device(idle),
        compute=compute,
        memory=memory,
    )
    if visible:
        fix = translatable(
            "If you meant the faster GPU: %gpu device {device}, or .to('{device}').", device=idle.torch_device
        )
    else:
        fix = translatable(
            "CUDA_VISIBLE_DEVICES hides the faster GPU. The numbers in this variable are CUDA's, which may "
            "differ from nvidia-smi's. Use the GPU's UUID (CUDA_VISIBLE_DEVICES={uuid}), or set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID too, and restart the kernel.",
            uuid=idle.uuid,
        )
    return Text(text, fix)


def _gpu_with_device(gpu: GpuReport) -> str:
    """Return a GPU with its model and device: ``GPU 1 (GeForce RTX 4090, cuda:0)``."""
    device = "" if gpu.torch_device is None else f", {gpu.torch_device}"
    return f"{gpu_name(gpu)} ({gpu.name.removeprefix('NVIDIA ')}{device})"


def unused_contexts(gpus: Sequence[GpuReport], held: int | None, lines: Sequence[str]) -> Text:
    """Return the text for CUDA contexts on GPUs that the run did not use.

    ``lines`` are the lines that first selected these GPUs, as far as they are known.
    """
    sentences = [
        translatable(
            "{gpus} {en_have} a CUDA context but {en_verb} not used. This run opened {en_contexts}.",
            gpus=gpu_names(gpus),
            en_have=_verb(gpus, "has", "have"),
            en_verb=_verb(gpus, "was", "were"),
            en_contexts=_verb(gpus, "the context", "the contexts"),
        )
    ]
    if lines:
        sentences.append(translatable("First selected in {lines}.", lines=joined(lines)))
    if held is not None:
        sentences.append(
            translatable(
                "{en_holds} {size} until the kernel restarts.",
                en_holds=_verb(gpus, "The context holds", "The contexts hold"),
                size=units.memory(held),
            )
        )
    return Text(
        joined(sentences, " "),
        translatable(
            "To read GPU memory, use gpuwidget.sample(), which creates no CUDA context. Use "
            "CUDA_VISIBLE_DEVICES to hide GPUs that the notebook does not need."
        ),
    )


def device_switches(switches: int, rate: float, line: str | None) -> Text:
    """Return the text for code that switched the current CUDA device ``switches`` times."""
    text = translatable(
        "The current CUDA device was switched {switches:,} times ({rate:.0f} per second).",
        switches=switches,
        rate=rate,
    )
    if line is not None:
        often = translatable("{line} did so most often.", line=capitalized(line))
        text = joined([text, often], " ")
    return Text(
        text,
        translatable(
            "Give tensors and streams their device (device='cuda:1'), and do all work on one device before "
            "the next switch."
        ),
    )


def input_pipeline(loading: str, busy: float | None, utilization: float, *, sure: bool) -> str:
    """Return the text for a run whose stack samples show that the code spent its time loading data.

    ``loading`` is the result of :func:`loading_in` or :func:`loading_mostly_in`. ``busy`` is the percentage
    of the loading time in which the GPU had work from this process; ``utilization`` that of the whole run.
    """
    waits = (
        translatable("The GPU waits for its data.")
        if sure
        else translatable("The GPU probably waits for its data.")
    )
    activity = (
        translatable("Meanwhile, the GPU was {busy:.0f} % busy.", busy=busy)
        if busy is not None
        else translatable("On average, the GPU was {utilization:.0f} % busy.", utilization=utilization)
    )
    return joined([waits, loading, activity], " ")


def loading_in(share: float, where: str) -> str:
    """Describe the only place that loads data, which took ``share`` percent of the run."""
    return translatable("{share:.0f} % of the time went to {where}.", share=share, where=where)


def loading_mostly_in(share: float, most: float, where: str) -> str:
    """Describe several places that load data, which together took ``share`` percent of the run.

    ``where`` is the place that took the most time: ``most`` percent of the run.
    """
    return translatable(
        "Loading took {share:.0f} % of the time, and {where} alone took {most:.0f} %.",
        share=share,
        where=where,
        most=most,
    )


def input_pipeline_likely(gpus: Sequence[GpuReport], bursts: float, utilization: float | None) -> str:
    """Return the text for GPUs that worked in bursts and may have waited for data in between."""
    return translatable(
        "The input pipeline probably can't keep up. {gpus} worked in bursts ({bursts:.1f} per second), "
        "{utilization:.0f} % of the time in total, at {power}.",
        gpus=gpu_names(gpus),
        bursts=bursts,
        utilization=utilization,
        power=_power(gpus),
    )


def feed_the_gpu(cores: int | None) -> str:
    """Return the fix for a slow input pipeline whose loader is unknown."""
    if cores is None:
        return translatable(
            "Check the code that feeds the GPU. For a DataLoader: num_workers, pin_memory=True, "
            "prefetch_factor=4."
        )
    return translatable(
        "Check the code that feeds the GPU. For a DataLoader: num_workers (up to {cores}, the cores that "
        "this process may use), pin_memory=True, prefetch_factor=4.",
        cores=cores,
    )


def _loader_settings(loader: Loader) -> str:
    return translatable(
        "{name} has `num_workers={num_workers}, pin_memory={pin_memory}`",
        name=loader.name,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
    )


def cheaper_items(loader: Loader, cores: int) -> str:
    """Return the fix for a loader that already has one worker per CPU core."""
    return translatable(
        "{settings}: this process may use {cores} cores, so more workers don't help. Make each "
        "item cheaper: store the items already decoded or smaller, and do the other transforms on the GPU.",
        settings=_loader_settings(loader),
        cores=cores,
    )


def loader_settings(loader: Loader, workers: int | None, shared_memory_free: int | None) -> str:
    """Return the fix that suggests better settings for a loader.

    ``workers`` is the number of workers to try, or None if the number of CPU cores is unknown.
    ``shared_memory_free`` is the number of free bytes in /dev/shm if they are scarce, and otherwise None.
    """
    changes = [f"num_workers={workers}" if workers is not None else translatable("more workers")]
    changes += ["pin_memory=True"] if not loader.pin_memory else []
    changes += ["persistent_workers=True"] if not loader.persistent_workers else []
    changes += ["prefetch_factor=4"] if loader.num_workers and (loader.prefetch_factor or 2) <= 2 else []
    text = translatable(
        "{settings} now. Try {changes}.",
        settings=_loader_settings(loader),
        changes=joined(changes),
    )
    if shared_memory_free is not None:
        more = translatable(
            "Workers pass batches through /dev/shm, which has only {free} free: free or enlarge it first "
            "(in a container: --shm-size).",
            free=units.memory(shared_memory_free),
        )
        return joined([text, more], " ")
    return text
