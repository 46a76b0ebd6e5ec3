"""Tests on a real GPU that gpuwidget's figures agree with torch, nvidia-smi and the driver's counters."""

from __future__ import annotations

from typing import Any

import pytest
from helpers_gpu import nvidia_smi, run_program

pytestmark = pytest.mark.gpu

MIB = 1024**2
GIB = 1024**3


def sample_now() -> Any:
    """Return a sample of the GPUs that was taken in a process that does not use them."""
    return run_program("import dataclasses, gpuwidget\nresult = dataclasses.asdict(gpuwidget.sample())")


def test_gpu_identity_matches_nvidia_smi() -> None:
    """Each GPU's index, UUID, name, PCI bus id, memory, compute capability and driver are the same as in
    nvidia-smi."""
    sample = sample_now()
    rows = nvidia_smi("index,uuid,name,pci.bus_id,memory.total,compute_cap,driver_version")
    assert [
        [
            str(gpu["index"]),
            gpu["uuid"],
            gpu["name"],
            gpu["pci_bus_id"],
            str(gpu["memory_total"] // MIB),
            gpu["compute_capability"],
            sample["origin"]["driver"],
        ]
        for gpu in sample["gpus"]
    ] == rows


def test_peak_rates_are_plausible() -> None:
    """Each GPU's peak float32 rate and memory bandwidth are known and plausible."""
    for gpu in sample_now()["gpus"]:
        assert 1e12 < gpu["peak_fp32_flops"] < 200e12
        assert 1e11 < gpu["memory_bandwidth"] < 1e13


def test_the_drivers_order_is_torchs() -> None:
    """Once torch.cuda.is_available() has initialized the driver, its list of GPUs is known, without a CUDA
    context. It is torch's list."""
    result = run_program(
        """
        import torch
        from gpuwidget.pytorch import cuda_driver
        before = cuda_driver.device_uuids()
        torch.cuda.is_available()
        driver, initialized = cuda_driver.device_uuids(), torch.cuda.is_initialized()
        contexts = [torch._C._cuda_hasPrimaryContext(i) for i in range(torch.cuda.device_count())]
        torch.cuda.init()
        uuids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]
        result = {"before": before, "driver": driver, "initialized": initialized, "contexts": contexts,
                  "torch": uuids}
        """
    )
    assert (result["before"], result["initialized"], any(result["contexts"])) == (None, False, False)
    assert result["driver"] == result["torch"]


def test_readings_match_nvidia_smi() -> None:
    """Memory, temperature, power limit and power in a sample agree with nvidia-smi."""
    rested = nvidia_smi("power.draw.instant")
    sample = sample_now()
    rows = nvidia_smi("memory.used,temperature.gpu,enforced.power.limit,power.draw.instant")
    for reading, (before,), (used, temperature, limit, power) in zip(
        sample["readings"], rested, rows, strict=True
    ):
        assert abs(reading["memory_used"] / MIB - float(used)) <= 2
        assert abs(reading["temperature_c"] - float(temperature)) <= 3
        assert reading["power_limit_w"] == pytest.approx(float(limit))
        # The power may still be falling after an earlier test, so the sample's power must be roughly between
        # two readings of nvidia-smi, one before the sample and one after it.
        low, high = sorted((float(before), float(power)))
        assert 0.8 * low <= reading["power_w"] <= 1.2 * high
        assert reading["throttle"] is not None


def test_a_tensor_of_a_millisecond_shows_in_the_peak() -> None:
    """If 4 GiB are allocated and immediately freed, the report still contains torch's exact peak."""
    result = run_program(
        """
        import torch, gpuwidget
        torch.empty(1, device="cuda")
        before = torch.cuda.memory_allocated()
        with gpuwidget.watch() as w:
            x = torch.empty(4 * 1024**3, dtype=torch.uint8, device="cuda")
            del x
        gpu = w.report.to_dict()["gpus"][0]
        result = {"gpu": gpu, "before": before, "torch": torch.cuda.max_memory_allocated()}
        """
    )
    allocated = result["gpu"]["torch"]["allocated"]
    assert allocated["start"] == allocated["end"] == result["before"]
    assert allocated["peak"] == result["torch"] == result["before"] + 4 * GIB


def test_an_older_peak_and_a_users_reset() -> None:
    """The run's peak does not include a higher peak from before the run. It includes a peak from before user
    code resets torch's counter during the run. One note mentions the earlier peak, another one the reset."""
    report = run_program(
        """
        import torch, gpuwidget
        x = torch.empty(8 * 1024**3, dtype=torch.uint8, device="cuda"); del x
        with gpuwidget.watch() as w:
            y = torch.empty(2 * 1024**3, dtype=torch.uint8, device="cuda"); del y
            torch.cuda.reset_peak_memory_stats()
            z = torch.empty(1024**3, dtype=torch.uint8, device="cuda"); del z
        result = w.report.to_dict()
        """
    )
    assert report["gpus"][0]["torch"]["allocated"]["peak"] == 2 * GIB
    assert any("was reset at the start" in note for note in report["notes"])
    assert any("so the real peak may be higher" in note for note in report["notes"])


def test_watching_opens_no_context_and_imports_no_torch() -> None:
    """If a program uses no GPU, watching it opens no CUDA context and does not import torch."""
    result = run_program(
        """
        import sys, time, gpuwidget, os
        with gpuwidget.watch() as w:
            time.sleep(1.5)
        report = w.report.to_dict()
        sample = gpuwidget.sample()
        mine = [p.pid for r in sample.readings for p in (r.processes or ()) if p.pid == os.getpid()]
        result = {"torch": "torch" in sys.modules, "mine": mine, "report": report}
        """
    )
    assert (result["torch"], result["mine"]) == (False, [])
    assert all(gpu["torch"] is None for gpu in result["report"]["gpus"])


def test_the_first_context_is_not_a_leak() -> None:
    """If CUDA starts during a run, the memory of its context counts for the GPU and the process but not for
    torch, and a note explains this."""
    report = run_program(
        """
        import torch, gpuwidget
        with gpuwidget.watch() as w:
            x = torch.empty(1024**3, dtype=torch.uint8, device="cuda")
        result = w.report.to_dict()
        """
    )
    gpu = report["gpus"][0]
    assert gpu["torch"]["allocated"] == {"start": 0, "end": GIB, "peak": GIB}
    grown = gpu["device_memory"]["end"] - gpu["device_memory"]["start"]
    assert GIB + 300 * MIB < grown < GIB + 1000 * MIB
    assert any(note.startswith("CUDA started on GPU 0 in this run") for note in report["notes"])
    if gpu["process_memory"] is not None:
        assert abs(gpu["process_memory"]["end"] - grown) <= 32 * MIB


def test_device_memory_matches_nvidia_smi() -> None:
    """The memory in use on the GPU at the end of the run agrees with nvidia-smi."""
    result = run_program(
        """
        import subprocess, torch, gpuwidget
        with gpuwidget.watch() as w:
            x = torch.empty(3 * 1024**3, dtype=torch.uint8, device="cuda")
        smi = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True).stdout.splitlines()[0]
        result = {"smi": int(smi), "gpu": w.report.to_dict()["gpus"][0]}
        """
    )
    assert abs(result["gpu"]["device_memory"]["end"] / MIB - result["smi"]) <= 2


def test_a_childs_memory_counts_for_the_process() -> None:
    """The memory of a child process is part of this process's memory. In a container, the memory is unknown
    if the driver's process ids don't match the container's, and the reason is given."""
    result = run_program(
        """
        import subprocess, sys, gpuwidget
        code = ("import torch, sys; x = torch.empty(2 * 1024**3, dtype=torch.uint8, device='cuda');"
                "print('up', flush=True); sys.stdin.read()")
        with gpuwidget.watch() as w:
            child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True)
            child.stdout.readline()
            import time; time.sleep(0.6)
        child.stdin.close(); child.wait()
        result = w.report.to_dict()
        """
    )
    memory = result["gpus"][0]["process_memory"]
    if memory is None:
        assert result["gpus"][0]["missing_ids"]["process_memory"]["id"] == "foreign-pids"
    else:
        assert memory["peak"] > 2 * GIB


def test_energy_against_the_drivers_counter() -> None:
    """The energy of a five-second run agrees with the driver's energy counter within 5 %."""
    result = run_program(
        """
        import time, torch, gpuwidget, pynvml
        pynvml.nvmlInit(); handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        for _ in range(20): a @ a
        torch.cuda.synchronize()
        before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        with gpuwidget.watch() as w:
            end = time.perf_counter() + 5
            while time.perf_counter() < end:
                for _ in range(20): a @ a
                torch.cuda.synchronize()
        after = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        result = {"gpu": w.report.to_dict()["gpus"][0], "counter_j": (after - before) / 1000}
        """
    )
    assert result["gpu"]["energy_j"] == pytest.approx(result["counter_j"], rel=0.05)


def test_utilization_and_counters_of_a_busy_and_an_idle_gpu() -> None:
    """While tensor cores work, utilization is nearly 100 %, and tensor activity is high. While the program
    sleeps, both are near 0."""
    result = run_program(
        """
        import time, torch, gpuwidget
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        a @ a; torch.cuda.synchronize()
        with gpuwidget.watch("busy") as busy:
            end = time.perf_counter() + 4
            while time.perf_counter() < end:
                for _ in range(20): a @ a
                torch.cuda.synchronize()
        time.sleep(1.5)
        with gpuwidget.watch("idle") as idle:
            time.sleep(4)
        result = [busy.report.to_dict()["gpus"][0], idle.report.to_dict()["gpus"][0]]
        """
    )
    busy, idle = result
    assert busy["utilization"]["mean"] > 95
    assert idle["utilization"]["mean"] < 2
    assert busy["sm_activity"]["mean"] > 80
    assert busy["tensor_activity"]["mean"] > 40
    assert idle["sm_activity"]["mean"] < 2
    assert busy["power_w"]["mean"] > idle["power_w"]["mean"] + 100


def test_the_gpu_drain_is_measured() -> None:
    """If the GPU still works on queued kernels when the code has ended, the report contains how long it
    continued to work."""
    result = run_program(
        """
        import time, torch, gpuwidget
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        def queue():
            for _ in range(500): a @ a
        queue(); torch.cuda.synchronize()
        began = time.perf_counter(); queue(); torch.cuda.synchronize()
        alone = time.perf_counter() - began
        with gpuwidget.watch() as w:
            queue()
        result = {"cell": w.report.to_dict()["cell"], "alone": alone}
        """
    )
    cell = result["cell"]
    assert cell["gpu_tail_s"] + cell["duration_s"] == pytest.approx(result["alone"], rel=0.1)
    assert cell["gpu_tail_s"] > cell["duration_s"]


def test_an_out_of_memory_error_is_counted() -> None:
    """An out-of-memory error during the run is counted in the report."""
    result = run_program(
        """
        import torch, gpuwidget
        torch.empty(1, device="cuda")
        w = gpuwidget.watch()
        try:
            with w:
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        result = w.report.to_dict()
        """
    )
    assert result["gpus"][0]["torch"]["ooms"] == 1
    assert (result["cell"]["status"], result["cell"]["gpu_tail_s"]) == ("error", None)


def test_watching_breaks_no_graph_capture() -> None:
    """A CUDA graph can be captured in a watched run."""
    result = run_program(
        """
        import torch, gpuwidget
        x = torch.zeros(1024, device="cuda")
        done = 0
        for _ in range(20):
            with gpuwidget.watch():
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    y = x + 1
                graph.replay()
            torch.cuda.synchronize()
            done += int(y[0].item() == 1)
        result = done
        """
    )
    assert result == 20


def test_the_command_line_shows_the_gpu() -> None:
    """The command `gpuwidget` prints the GPU's name."""
    result = run_program(
        """
        import subprocess, sys, torch
        x = torch.empty(1024**3, dtype=torch.uint8, device="cuda")
        done = subprocess.run([sys.executable, "-m", "gpuwidget"], capture_output=True, text=True)
        result = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
        """
    )
    assert (result["code"], result["err"]) == (0, "")
    assert nvidia_smi("name")[0][0].removeprefix("NVIDIA ") in result["out"]
