"""Two workloads ("loads") whose GPU kernels are so short that queries of the CUDA stream miss most of them.

``python -m benchmarks.launch_bound_loads LOAD SECONDS RUNS`` prints gpuwidget's line profile of each run. For
comparison, it also prints the run's mean graphics activity, which another process measures with the GPU's
counters (GPM). The load ``text generation`` needs the package transformers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.idle_patterns import profile_figures, watch

_CELL = "until = clock() + seconds\nwhile clock() < until:\n    step()\n"
_COUNTERS_PROGRAM = """
import sys, pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1])
samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
for sample in samples:
    sys.stdin.readline()
    pynvml.nvmlGpmSampleGet(gpu, sample)
    print("taken", flush=True)
get = pynvml.c_nvmlGpmMetricsGet_t()
get.version, get.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 1
get.sample1, get.sample2 = samples
get.metrics[0].metricId = pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL
pynvml.nvmlGpmMetricsGet(get)
print(get.metrics[0].value, flush=True)
"""


@contextmanager
def graphics_activity() -> Iterator[Callable[[], float]]:
    """Measure the GPU's graphics activity with GPM, in another process.

    Yield a function that returns the mean since the start of the block, in percent.
    """
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    command = [sys.executable, "-c", _COUNTERS_PROGRAM, uuid]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def take() -> None:
            requests.write("\n")
            requests.flush()
            assert answers.readline() == "taken\n"

        def mean() -> float:
            take()
            return float(answers.readline())

        take()
        yield mean


def _text_generation() -> Callable[[], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    model: Any = GPT2LMHeadModel(GPT2Config(n_layer=8)).to("cuda", torch.bfloat16).eval()
    tokens = torch.randint(0, 50_000, (1, 16), device="cuda")
    return lambda: model.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=32, do_sample=False, pad_token_id=0
    )


def _small_kernels() -> Callable[[], object]:
    x = torch.randn(64, 64, device="cuda")
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(8))).to("cuda").eval()

    def step() -> object:
        with torch.no_grad():
            return model(x)

    return step


def measure(load: str, seconds: float) -> dict[str, Any]:
    """Watch one load for ``seconds``. Return its line profile, the mean activity from the GPU's counters, and
    the mean utilization."""
    step = {"text generation": _text_generation, "small kernels": _small_kernels}[load]()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    namespace = {"clock": time.perf_counter, "seconds": seconds, "step": step}
    with graphics_activity() as activity:
        report = watch(_CELL, namespace)
        counters = activity()
    (gpu,) = (gpu for gpu in report.gpus if gpu.torch_device == "cuda:0")
    utilization = None if gpu.utilization is None else gpu.utilization.mean
    return {**profile_figures(report), "counters": counters, "utilization": utilization}


def main() -> None:
    """Run the measurements named on the command line, and print the results as JSON."""
    load, seconds, runs = sys.argv[1:]
    print(json.dumps({"runs": [measure(load, float(seconds)) for _ in range(int(runs))]}))


if __name__ == "__main__":
    main()
