"""Write what users of gpuwidget see as files, to compare it between two commits.

The outputs are made in processes of their own, in a fixed environment: one process per group, two at a time.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "tests" / "golden.txt"
LANGUAGES = ("en", "zh_CN")
_DIGITS = 12
"""Hexadecimal digits of a checksum in the manifest."""

GROUPS: Mapping[str, Sequence[str]] = {
    "tests of the doctor": (
        "tests/unit/diagnostics/test_checks_condition.py",
        "tests/unit/diagnostics/test_checks_driver.py",
        "tests/unit/diagnostics/test_checks_gpu.py",
        "tests/unit/diagnostics/test_checks_torch.py",
        "tests/unit/diagnostics/test_problems.py",
        "tests/unit/diagnostics/test_visible_devices.py",
        "tests/unit/diagnostics/test_without_gpu.py",
    ),
    "tests of views": (
        "tests/unit/measure/test_advice_devices.py",
        "tests/unit/measure/test_advice_rules.py",
        "tests/unit/measure/test_out_of_memory_fixes.py",
        "tests/unit/views",
        "tests/unit/cli/test_gpu_table.py",
        "tests/server/test_prometheus_text.py",
        "tests/server/test_encoded_samples.py",
    ),
    "made": (),
}
"""Test files during which the outputs are recorded. The outputs of the last group are made by functions."""

FIXED = {
    "LANGUAGE": "en",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "COLUMNS": "100",
    "LINES": "40",
    "NO_COLOR": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "USER": "anna",
    "LOGNAME": "anna",
}
_INHERITED = ("PATH", "CC", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


def write_outputs(folder: Path) -> dict[str, str]:
    """Write all outputs into ``folder``, and return the checksum of each by its name."""
    subprocess.run([sys.executable, "-m", "tools.translation", "--compile"], cwd=ROOT, check=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(_run, group, folder.resolve(), Path(home)) for group in GROUPS]:
            done.result()
    return {
        str(path.relative_to(folder).with_suffix("")): hashlib.sha256(path.read_bytes()).hexdigest()[:_DIGITS]
        for path in sorted(folder.rglob("*.txt"))
    }


def _run(group: str, folder: Path, temporary: Path) -> None:
    home = temporary / group.replace(" ", "-")
    home.mkdir()
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {**FIXED, "HOME": str(home), "TMPDIR": str(home), "GPUWIDGET_TEST_GOLDEN": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    command = [sys.executable, "-m", "helpers_golden_made"]
    if GROUPS[group]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "helpers_golden_recorder"]
        command += ["-p", "no:cacheprovider", f"--basetemp={home / 'tests'}", *GROUPS[group]]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"The outputs of the group '{group}' can't be made:\n{done.stdout[-8000:]}")


def save(name: str, text: str) -> None:
    """Write one output, from a process that :func:`write_outputs` has started."""
    path = Path(
        os.environ["GPUWIDGET_TEST_GOLDEN"], *(re.sub(r"[^\w.,=+-]+", "-", part) for part in name.split("/"))
    )
    path = path.with_name(f"{path.name}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise FileExistsError(path)
    path.write_text(normalized(text), encoding="utf-8", errors="backslashreplace")


def normalized(text: str) -> str:
    """Replace what depends on the machine: paths and the version of gpuwidget."""
    from gpuwidget import __version__

    text = text.replace(os.environ["HOME"], "/home/anna").replace(str(ROOT), "/gpuwidget")
    text = text.replace(sys.executable, "/env/bin/python").replace(__version__, "VERSION")
    return re.sub(r"/tests/test_\w+?\d+/", "/tests/test/", text)


def read_manifest() -> dict[str, str]:
    """Return the accepted checksum of each output by its name."""
    lines = MANIFEST.read_text(encoding="utf-8").splitlines()
    return {name: checksum for checksum, name in (line.split("  ", 1) for line in lines)}


def write_manifest(checksums: Mapping[str, str]) -> None:
    """Accept these outputs."""
    lines = [f"{checksum}  {name}\n" for name, checksum in sorted(checksums.items())]
    MANIFEST.write_text("".join(lines), encoding="utf-8")


def differences(checksums: Mapping[str, str]) -> list[str]:
    """Return one line for each output that is new, missing or different from the accepted one."""
    accepted = read_manifest()
    states = {
        name: "missing" if name not in checksums else "new" if name not in accepted else "different"
        for name in sorted({*accepted, *checksums})
        if accepted.get(name) != checksums.get(name)
    }
    return [f"{state}: {name}" for name, state in states.items()]
