"""Checks of the libraries that come with torch: the CUDA runtime, cuDNN and NCCL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from gpuwidget.diagnostics import messages_libraries as messages
from gpuwidget.diagnostics import messages_packages
from gpuwidget.diagnostics.cuda_versions import format_cudnn_version, has_tf32
from gpuwidget.diagnostics.file_issues import file_issues
from gpuwidget.diagnostics.fixes import (
    missing_library,
    missing_library_fix,
    reinstall_libraries,
    replace_package,
)
from gpuwidget.diagnostics.issues import build_check, skipped_check
from gpuwidget.diagnostics.probe_results import ProbeResults
from gpuwidget.model.diagnosis import Check, Fix, Issue
from gpuwidget.model.translation import translatable

CUDA = ("cuda", translatable("CUDA runtime"))
CUDNN = ("cudnn", "cuDNN")
NCCL = ("nccl", "NCCL")

_CUDA_LIBRARIES = (
    "libcudart",
    "libcublasLt",
    "libcublas",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparseLt",
    "libcusparse",
    "libcupti",
    "libnvrtc",
    "libnvJitLink",
    "libnvToolsExt",
    "libnvshmem_host",
    "libcufile",
)


def check_cuda(results: ProbeResults) -> Check:
    """Check that the loaded CUDA libraries are the ones that come with torch."""
    cuda = results.cuda
    evidence: dict[str, str | None] = {
        "libraries": _mapped_files(results, *_CUDA_LIBRARIES),
        "packages": ", ".join(results.package("nvidia-cuda", "nvidia-cublas", "cuda-", "cudatoolkit")),
        "CUDA toolkit (nvcc)": results.machine.nvcc or "none (not needed)",
    }
    missing = missing_library(results)
    if missing is not None and missing.partition(".")[0].startswith(_CUDA_LIBRARIES):
        issue = messages.MISSING(library=missing, fix=missing_library_fix(missing, results))
        return build_check(
            CUDA,
            translatable("{missing} missing", missing=missing),
            [issue, *file_issues(results, "cuda")],
            evidence,
        )
    if results.packages.torch is None and not results.torch.get("imported"):
        return skipped_check(CUDA, translatable("comes with PyTorch"), evidence)
    if cuda is None:
        return skipped_check(CUDA, translatable("none in this build of PyTorch"), evidence)
    issues = [
        *file_issues(results, "cuda"),
        *_shadowed_issues(results, _CUDA_LIBRARIES),
        *_shared_file_issues(results),
        *_variable_issues(results),
    ]
    return build_check(CUDA, cuda, issues, evidence)


def _shadowed_issues(results: ProbeResults, libraries: tuple[str, ...]) -> list[Issue]:
    """Return an issue if LD_LIBRARY_PATH overrides a library that comes with torch.

    There is no issue if torch does not use pip's NVIDIA packages, as in NVIDIA's containers: such a build is
    meant to use the system's libraries.
    """
    if not results.package("nvidia-"):
        return []
    for library in libraries:
        for path in results.mapped(library):
            folder = str(PurePosixPath(path).parent)
            entry = results.in_library_path(folder)
            if entry is None or path in results.machine.same_as_torchs:
                continue
            if not _belongs_to_torch(folder, results):
                file = PurePosixPath(path).name
                fix = messages_packages.REMOVE_FROM_LIBRARY_PATH(folder=entry)
                spelling = None if entry.rstrip("/") == folder else entry
                return [
                    messages.OVERRIDDEN(
                        file=file, folder=folder, entry=entry, fix=fix, shown={"spelling": spelling}
                    )
                ]
    return []


def _variable_issues(results: ProbeResults) -> list[Issue]:
    """Return the issues of environment variables that make CUDA slower or change its results."""
    issues = []
    if results.variables.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        issues.append(messages.LAUNCH_BLOCKING())
    override = results.variables.get("NVIDIA_TF32_OVERRIDE")
    capabilities = results.capabilities
    if override and (not capabilities or any(map(has_tf32, capabilities))):
        template = messages.TF32_OFF if override.strip() == "0" else messages.TF32_OVERRIDE
        issues.append(template(value=override))
    return issues


def _second_cudnn_issues(results: ProbeResults) -> list[Issue]:
    """Return an issue if LD_LIBRARY_PATH has a second cuDNN: torch's own cuDNN might later load parts of the
    second one."""
    if not results.package("nvidia-cudnn"):
        return []
    for folder, name in results.on_library_path("libcudnn").items():
        if not _belongs_to_torch(folder, results) and not _same_as_torchs(folder, results):
            fix = messages_packages.REMOVE_FROM_LIBRARY_PATH(folder=folder)
            return [messages.SECOND_CUDNN(folder=folder, file=name, fix=fix)]
    return []


def _same_as_torchs(folder: str, results: ProbeResults) -> bool:
    """Return whether all files of cuDNN in this folder of LD_LIBRARY_PATH are the same builds as torch's
    own."""
    names = [name for name in results.machine.libraries[folder] if name.startswith("libcudnn")]
    return all(str(PurePosixPath(folder) / name) in results.machine.same_as_torchs for name in names)


def _belongs_to_torch(folder: str, results: ProbeResults) -> bool:
    """Return whether the folder was installed with torch, even if a symbolic link gives it another path."""
    files = results.packages.torch
    known = (results.torch.get("file"), files.real if files is not None else None)
    sites = {PurePosixPath(file).parents[1] for file in known if isinstance(file, str)}
    entry = results.in_library_path(folder)
    # For each folder in LD_LIBRARY_PATH, the first entry in ``real_folders`` has the real path of the folder
    # itself. Further entries have the folders to which links in this folder lead.
    real = next((name for name, of in results.machine.real_folders.items() if of == folder), None)
    return any(sites & {*PurePosixPath(name).parents} for name in (folder, entry, real) if name)


def _mapped_files(results: ProbeResults, *libraries: str) -> str:
    return ", ".join(dict.fromkeys(path for library in libraries for path in results.mapped(library)))


# -- cuDNN and NCCL --------------------------------------------------------------------------------------


def check_cudnn(results: ProbeResults) -> Check:
    """Check that cuDNN is installed only once and enabled, and that all its parts have the same version."""
    torch = results.torch
    versions = _installed_copies(results, "cudnn")
    evidence = {
        "libraries": _mapped_files(results, "libcudnn"),
        "packages": ", ".join(versions),
        "built with": torch.get("cudnn_compiled"),
    }
    missing = missing_library(results)
    if missing is not None and missing.startswith("libcudnn"):
        issue = messages.MISSING(library=missing, fix=missing_library_fix(missing, results))
        return build_check(
            CUDNN,
            translatable("{missing} missing", missing=missing),
            [issue, *file_issues(results, "cudnn")],
            evidence,
        )
    if not torch.get("imported") or results.cuda is None:
        return _check_files(CUDNN, results, evidence)
    error, number = torch.get("cudnn_error"), torch.get("cudnn")
    issues = file_issues(results, "cudnn")
    if error:
        fix = reinstall_libraries(results, "libcudnn")
        issues.append(messages.CUDNN_FAILS(error=str(error).splitlines()[0], fix=fix))
    elif number is None and "cudnn" in torch:
        issues.append(messages.TORCH_WITHOUT_CUDNN(fix=reinstall_libraries(results, "libcudnn")))
    if torch.get("cudnn_enabled") is False or results.notebook.cudnn_off:
        issues.append(messages.CUDNN_OFF())
    issues += _shadowed_issues(results, ("libcudnn",)) or _second_cudnn_issues(results)
    issues += _mixed_issues(results, "cudnn")
    issues += _duplicate_issues(results, "cudnn")
    unknown = translatable("not found") if "cudnn" in torch else translatable("not checked")
    found = format_cudnn_version(number) if isinstance(number, int) else unknown
    return build_check(CUDNN, found, issues, evidence)


def check_nccl(results: ProbeResults) -> Check:
    """Check NCCL, the library for communication between GPUs."""
    torch = results.torch
    versions = _installed_copies(results, "nccl")
    evidence = {"libraries": _mapped_files(results, "libnccl"), "packages": ", ".join(versions)}
    missing = missing_library(results)
    if missing is not None and missing.startswith("libnccl"):
        issue = messages.MISSING(library=missing, fix=missing_library_fix(missing, results))
        return build_check(
            NCCL,
            translatable("{missing} missing", missing=missing),
            [issue, *file_issues(results, "nccl")],
            evidence,
        )
    if not torch.get("imported") or results.cuda is None:
        return _check_files(NCCL, results, evidence)
    if torch.get("nccl") is None:
        return skipped_check(
            NCCL, translatable("none in this build of PyTorch (needed only for several GPUs)"), evidence
        )
    issues = [
        *file_issues(results, "nccl"),
        *_shadowed_issues(results, ("libnccl",)),
        *_mixed_issues(results, "nccl"),
        *_duplicate_issues(results, "nccl"),
    ]
    issues += (
        messages.NCCL_SWITCH(variable=name, shown={"feature": feature})
        for name, feature in messages.NCCL_SWITCHES.items()
        if results.variables.get(name, "0") not in ("", "0")
    )
    return build_check(NCCL, str(torch["nccl"]), issues, evidence)


def _check_files(
    id_and_title: tuple[str, str], results: ProbeResults, evidence: Mapping[str, str | None]
) -> Check:
    """Check the installed files of a library that can't be tested, because torch was not imported."""
    issues = file_issues(results, id_and_title[0]) if results.cuda is not None else []
    if not issues:
        return skipped_check(id_and_title, translatable("comes with PyTorch for CUDA"), evidence)
    return build_check(id_and_title, translatable("not checked"), issues, evidence)


def _mixed_issues(results: ProbeResults, library: messages.Library) -> list[Issue]:
    """Return an issue if parts of one library were loaded from several folders: they may be incompatible.

    A part outside torch's folders is compatible if it is the same build as torch's own.
    """
    parents = {path: str(PurePosixPath(path).parent) for path in results.mapped(f"lib{library}")}
    others = {
        folder
        for path, folder in parents.items()
        if path not in results.machine.same_as_torchs and not _belongs_to_torch(folder, results)
    }
    folders = sorted(others | {folder for folder in parents.values() if _belongs_to_torch(folder, results)})
    if len(folders) < 2:
        return []
    on_path = [entry for folder in sorted(others) if (entry := results.in_library_path(folder)) is not None]
    fix = (
        messages_packages.REMOVE_FROM_LIBRARY_PATH(folder=on_path[0])
        if on_path
        else _keep_one_fix(results, library)
    )
    return [
        messages.MIXED(
            library=library,
            folders=tuple(folders),
            fix=fix,
            shown={"library": messages.NAMES[library], "number": len(folders)},
        )
    ]


def _installed_copies(results: ProbeResults, library: str) -> list[str]:
    """Return the packages that contain the library: pip's packages for all CUDA versions, and the first of
    conda's packages."""
    pip = re.compile(rf"nvidia-{library}(-cu\d+)?")
    from_conda = [package for package in results.packages.cuda if package.name in (library, f"lib{library}")]
    found = [package for package in results.packages.cuda if pip.fullmatch(package.name)] + from_conda[:1]
    return [f"{package.name} {package.version} ({package.by})" for package in found]


def _duplicate_issues(results: ProbeResults, library: messages.Library) -> list[Issue]:
    """Return an issue if the library is installed several times: the order of folders on the search path
    decides which copy is loaded."""
    versions = _installed_copies(results, library)
    if len(versions) < 2:
        return []
    return [
        messages.COPIES(
            library=library,
            packages=tuple(versions),
            fix=_keep_one_fix(results, library),
            shown={"library": messages.NAMES[library], "number": len(versions)},
        )
    ]


def _keep_one_fix(results: ProbeResults, library: messages.Library) -> Fix:
    """Return the fix that keeps only the package of the library that torch requires."""
    pattern = re.compile(rf"nvidia-{library}(-cu\d+)?")
    by_pip = [package.name for package in results.packages.cuda if pattern.fullmatch(package.name)]
    required = [name for name in by_pip if name in results.packages.required]
    not_required = [name for name in by_pip if name not in required]
    if len(required) == 1 and not_required:
        return replace_package(results, not_required[0], required[0])
    if len(required) == 1:
        return messages.KEEP_REQUIRED_COPY(package=required[0])
    return messages.KEEP_ORIGINAL_COPY(library=library, shown={"library": messages.NAMES[library]})


def _shared_file_issues(results: ProbeResults) -> list[Issue]:
    """Return issues of libraries that are installed for two CUDA versions, with the same files in one
    folder."""
    found = []
    for names in results.shared:
        required = [name for name in names if name in results.packages.required]
        not_required = [name for name in names if name not in required]
        checked_separately = names[0].startswith(("nvidia-cudnn", "nvidia-nccl"))
        if len(required) == 1 and not_required and not checked_separately:
            fix = replace_package(results, not_required[0], required[0])
            found.append(messages.SHARED_FILES(packages=tuple(names), required=required[0], fix=fix))
    return found
