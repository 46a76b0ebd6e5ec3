"""Run all checks: the probes run in parallel processes while this process reads files.

This process imports neither torch nor NVML's Python binding, and creates no CUDA context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwidget.diagnostics import (
    checks_condition,
    checks_driver,
    checks_gpu,
    checks_libraries,
    checks_torch,
    checks_visible_devices,
    machine,
    messages,
    packages,
)
from gpuwidget.diagnostics.issues import add_issues, without_issues
from gpuwidget.diagnostics.private_data import UserPaths, remove_private_data
from gpuwidget.diagnostics.probe_process import ProbeProcess
from gpuwidget.diagnostics.probe_results import ProbeResults, parse_nvml_result
from gpuwidget.diagnostics.problems import find_problems
from gpuwidget.diagnostics.target import Target
from gpuwidget.diagnostics.torch_copies import library_folders
from gpuwidget.diagnostics.torch_probe import LIBRARIES
from gpuwidget.diagnostics.unfinished_probes import probe_issues, unfinished_steps
from gpuwidget.model.clock import SYSTEM_CLOCK
from gpuwidget.model.diagnosis import DIAGNOSIS_SCHEMA, Check, Diagnosis, Problem

_TOOLKIT_LIBRARIES = tuple(
    name for name in LIBRARIES if name not in ("libcuda", "libtorch_cuda", "libtorch_cpu")
)
"""Libraries that must not be loaded from LD_LIBRARY_PATH. Not included are torch's own libraries and libcuda,
which are in LD_LIBRARY_PATH in some containers."""
_GPU_CHECKS = frozenset(("driver", "device_files", "gpu", "visible", "sharing", "health", "pcie", "peers"))
"""Checks with nothing to check on a machine without an NVIDIA GPU."""
_TORCH_LIBRARIES = frozenset(("cuda", "cudnn", "nccl"))
"""Checks of libraries that torch uses only for GPUs, although importing torch may need them."""
_PROBES = ("torch_probe", "cuda_probe", "nvml_probe", "files_probe")


def run_checks(target: Target) -> Diagnosis:
    """Run the checks. This takes as long as importing torch, but at most one second longer than the
    timeout."""
    environment = target.environment
    deadline = SYSTEM_CLOCK.monotonic() + target.timeout_s
    processes = [ProbeProcess(f"gpuwidget.diagnostics.{probe}", environment) for probe in _PROBES]
    try:
        installed = packages.inspect(environment.path, environment.python, environment.variables)
        own_folders = library_folders(installed.torch)
        machine_state = machine.inspect(environment.variables, target.root, _TOOLKIT_LIBRARIES, own_folders)
        torch_result, cuda_result, nvml_result, files_result = (
            process.wait(deadline) for process in processes
        )
    finally:
        for process in processes:
            process.kill(deadline)  # ends probes that still run after an interrupt or error
    results = ProbeResults(
        place=target.place,
        version=target.version,
        python=environment.python,
        variables=environment.variables,
        machine=machine_state,
        packages=installed,
        torch_result=torch_result,
        cuda_result=cuda_result,
        files_result=files_result,
        nvml_result=nvml_result,
        nvml=parse_nvml_result(nvml_result),
        timeout_s=target.timeout_s,
        notebook=target.notebook,
    )
    return diagnose(results)


def diagnose(results: ProbeResults) -> Diagnosis:
    """Build the diagnosis from the probes' results."""
    checked = (
        checks_torch.check_torch(results),
        checks_libraries.check_cuda(results),
        checks_libraries.check_cudnn(results),
        checks_libraries.check_nccl(results),
        checks_driver.check_driver(results),
        checks_driver.check_device_files(results),
        checks_gpu.check_gpu(results),
        checks_visible_devices.check_visible_devices(results),
        checks_gpu.check_sharing(results),
        checks_condition.check_health(results),
        checks_condition.check_pcie(results),
        checks_condition.check_peers(results),
        checks_condition.check_shared_memory(results),
        checks_condition.check_package(results),
    )
    more = probe_issues(results)
    links = tuple(
        _without_gpu_issues(add_issues(check, more.get(check.id, ())), results) for check in checked
    )
    unfinished, problems = unfinished_steps(results), find_problems(links)
    statuses = {check.status for check in links}
    diagnosis = Diagnosis(
        schema=DIAGNOSIS_SCHEMA,
        version=results.version,
        time=SYSTEM_CLOCK.time(),
        place=results.place,
        python=results.python,
        variables=machine.select_variables(results.variables),
        status="broken" if "broken" in statuses else "warning" if problems else "ok",
        summary=_summary(problems, {check.id: check.title for check in links}, unfinished, results),
        unfinished=unfinished,
        problems=problems,
        links=links,
    )
    return remove_private_data(diagnosis, UserPaths.find(results.variables))


def _without_gpu_issues(check: Check, results: ProbeResults) -> Check:
    """Return the check. If it only matters for a GPU, and the machine has none, it is skipped."""
    if not results.without_gpu:
        return check
    needs_gpu = _GPU_CHECKS | (_TORCH_LIBRARIES if results.torch.get("imported") else frozenset())
    return without_issues(check, messages.NO_GPU_TO_CHECK) if check.id in needs_gpu else check


def _summary(
    problems: Sequence[Problem],
    titles: Mapping[str, str],
    unfinished: tuple[str, ...],
    results: ProbeResults,
) -> str:
    broken = [problem for problem in problems if problem.status == "broken"]
    if broken:
        return messages.BROKEN(count=len(broken), titles=_titles(broken, titles), reason=broken[0].reasons[0])
    if unfinished:
        unknown = [problem for problem in problems if problem.status == "unknown"]
        first = next(iter(unknown or problems), None)
        if first is None:
            return messages.UNFINISHED_STEP(step=unfinished[0])
        return messages.UNFINISHED_CHECK(title=titles[first.check], reason=first.reasons[0])
    if problems:
        warnings = [problem for problem in problems if problem.status == "warning"]
        unknown = [problem for problem in problems if problem.status == "unknown"]
        return messages.DOUBTFUL(
            count=len(warnings) or None,
            titles=_titles(warnings, titles),
            unknown=_titles(unknown, titles) or None,
        )
    if results.without_gpu:
        return messages.no_gpu_summary(
            in_container=results.machine.container is not None,
            uses_cpu=bool(results.torch.get("imported")) and not results.torch.get("hip"),
        )
    return messages.HEALTHY()


def _titles(problems: Sequence[Problem], titles: Mapping[str, str]) -> list[str]:
    """Return the titles of the problems' checks, each once."""
    return [titles[check] for check in dict.fromkeys(problem.check for problem in problems)]
