"""The examination: probes in children side by side, the machine's files meanwhile, then link by link.

It imports neither torch nor NVML's binding, and makes no CUDA context.
"""

from __future__ import annotations

import time

from gpuwidget.diagnostics import (
    checks_condition,
    checks_driver,
    checks_gpu,
    checks_libraries,
    checks_torch,
    checks_visible_devices,
    machine,
    packages,
)
from gpuwidget.diagnostics.issues import counted, with_findings
from gpuwidget.diagnostics.probe_process import Child
from gpuwidget.diagnostics.probe_results import Facts, nvml_facts
from gpuwidget.diagnostics.target import Patient
from gpuwidget.diagnostics.torch_probe import LIBRARIES
from gpuwidget.diagnostics.unfinished_probes import problems, unfinished
from gpuwidget.model.diagnosis import SCHEMA, Doctor, Link

_TOOLKIT = tuple(name for name in LIBRARIES if name not in ("libcuda", "libtorch_cuda", "libtorch_cpu"))
"""What must not come from LD_LIBRARY_PATH. The driver's own library may: some containers have it there."""
_PROBES = ("torch_probe", "cuda_probe", "nvml_probe", "files_probe")


def examine(patient: Patient) -> Doctor:
    """Examine the environment; takes as long as importing torch, ``patience_s`` and a second at most."""
    environment = patient.environment
    deadline = time.monotonic() + patient.patience_s
    children = [Child(f"gpuwidget.diagnostics.{probe}", environment) for probe in _PROBES]
    try:
        looked = machine.look(environment.variables, patient.root, _TOOLKIT)
        installed = packages.look(environment.path)
        torch_said, cuda_said, nvml_said, files_said = (child.said(deadline) for child in children)
    finally:
        for child in children:
            child.end(deadline)  # interrupted, the others would go on
    facts = Facts(
        place=patient.place,
        version=patient.version,
        python=environment.python,
        variables=environment.variables,
        machine=looked,
        packages=installed,
        torch_said=torch_said,
        cuda_said=cuda_said,
        files_said=files_said,
        nvml_said=nvml_said,
        nvml=nvml_facts(nvml_said),
        patience_s=patient.patience_s,
        notebook=patient.notebook,
    )
    return diagnosis(facts)


def diagnosis(facts: Facts) -> Doctor:
    """What is made of the facts."""
    checked = (
        checks_torch.torch_link(facts),
        checks_libraries.cuda_link(facts),
        checks_libraries.cudnn_link(facts),
        checks_libraries.nccl_link(facts),
        checks_driver.driver_link(facts),
        checks_driver.device_files_link(facts),
        checks_gpu.gpu_link(facts),
        checks_visible_devices.visible_link(facts),
        checks_gpu.sharing_link(facts),
        checks_condition.health_link(facts),
        checks_condition.pcie_link(facts),
        checks_condition.peers_link(facts),
        checks_condition.shm_link(facts),
        checks_condition.package_link(facts),
    )
    more = problems(facts)
    links = tuple(with_findings(link, more.get(link.id, ())) for link in checked)
    incomplete = unfinished(facts)
    broken = [link for link in links if link.status == "broken"]
    doubtful = [link for link in links if link.status in ("warning", "unknown")]
    return Doctor(
        schema=SCHEMA,
        version=facts.version,
        time=time.time(),
        place=facts.place,
        python=facts.python,
        variables=machine.shown_variables(facts.variables),
        status="broken" if broken else "warning" if doubtful else "ok",
        summary=_summary(broken, doubtful, incomplete),
        unfinished=incomplete,
        links=links,
    )


def _summary(broken: list[Link], doubtful: list[Link], incomplete: tuple[str, ...]) -> str:
    if broken:
        first, count = broken[0], len(broken)
        more = (
            f" {counted(count - 1, 'other link')} {'is' if count == 2 else 'are'} broken too."
            if count > 1
            else ""
        )
        return f"Broken: {first.title}. {first.reason}{more}"
    if incomplete:
        unknown = [link for link in doubtful if link.status == "unknown"]
        told = [f"{link.title}. {link.reason}" for link in (*unknown, *doubtful)] or [f"{incomplete[0]}."]
        return f"Incomplete: {told[0]}"
    if doubtful:
        return f"Nothing is broken; {counted(len(doubtful), 'link')} to look at: {doubtful[0].title} first."
    return "All links were found, from PyTorch to the GPU."
