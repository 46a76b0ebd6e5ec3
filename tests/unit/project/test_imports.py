"""Tests of which packages `import gpuwidget` loads, which modules import which packages, and in which order
gpuwidget's packages may import each other."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import gpuwidget

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent
PACKAGE = ROOT / "gpuwidget"

HOMES = {
    "__init__.py": {"IPython"},
    "dask/worker_plugin.py": {"distributed"},
    "diagnostics/packages.py": {"packaging"},
    "diagnostics/torch_probe.py": {"numpy", "torch"},  # in the doctor's probe process
    "kernel/live/dashboard_widgets.py": {"ipywidgets"},
    "kernel/live/live_chart.py": {"bqplot", "ipywidgets"},
    "kernel/live/chart_layout.py": {"numpy"},
    "kernel/load_from_panel.py": {"pynvml"},
    "kernel/magics.py": {"IPython"},
    "kernel/cells/skip_cell.py": {"IPython"},
    "model/flat_metrics.py": {"pandas"},
    "cli/jupyter_config.py": {"jupyter_core"},
    "journal/folder.py": {"jupyter_core"},
    "ranks/rank_socket.py": {"jupyter_core"},
    "system/processes.py": {"psutil"},
    "server/__init__.py": {"jupyter_server", "tornado"},
    "server/prometheus.py": {"prometheus_client"},
    "server/client_limits.py": {"tornado"},
    "server/handlers.py": {"jupyter_server", "tornado"},
    "server/history_chunks.py": {"numpy"},
    "server/history_encoding.py": {"numpy"},
    "server/history_metrics.py": {"numpy"},
    "server/history_query.py": {"numpy", "tornado"},
    "server/hourly_rollup.py": {"numpy"},
    "server/kernel_inventory.py": {"jupyter_client"},
    "server/settings.py": {"traitlets"},
    "server/stream_handler.py": {"jupyter_server", "tornado"},
    "sources/nvml.py": {"pynvml"},
    "sources/nvml_diagnostics.py": {"pynvml"},
}
"""Third-party packages that each module imports, including imports inside functions and imports for
annotations."""

HEAVY = {
    *(
        "IPython",
        "bqplot",
        "ipykernel",
        "ipywidgets",
        "jupyter_server",
        "numpy",
        "pandas",
        "prometheus_client",
    ),
    *("psutil", "pynvml", "torch", "tornado", "traitlets", "zmq"),
}


def imported_by(path: Path) -> set[str]:
    """Return the third-party packages that a module imports, by an import statement or by import_module()."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names.update(str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant))
    packages = {name.partition(".")[0] for name in names}
    return packages - sys.stdlib_module_names - {"gpuwidget"}


def loaded_after(statement: str) -> set[str]:
    """Return the top-level modules that a new interpreter has loaded after it ran ``statement``."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def test_importing_loads_no_other_package() -> None:
    """``import gpuwidget`` loads only gpuwidget itself and the standard library."""
    added = loaded_after("import gpuwidget") - loaded_after("pass")
    assert added - sys.stdlib_module_names == {"gpuwidget"}
    assert added & HEAVY == set()


def test_each_third_party_package_is_imported_in_one_place() -> None:
    """Each module imports exactly the third-party packages that HOMES lists for it, including imports inside
    functions."""
    found = {
        path.relative_to(PACKAGE).as_posix(): packages
        for path in sorted(PACKAGE.rglob("*.py"))
        if (packages := imported_by(path))
    }
    assert found == HOMES


def test_imports_follow_the_layers() -> None:
    """Every package of gpuwidget imports only from lower layers, and there are no import cycles."""
    program = "import sys, importlinter.cli as c; sys.exit(c.lint_imports(is_debug_mode=True))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout if done.returncode else "", done.stderr) == (0, "", "")


def test_public_names() -> None:
    """The public names of gpuwidget are exactly those in its documentation."""
    documented = {
        "__version__",
        "compare",
        "dashboard",
        "devices",
        "doctor",
        "holders",
        "load_ipython_extension",
        "mark",
        "rank",
        "reports",
        "sample",
        "set_device",
        "unload_ipython_extension",
        "watch",
    }
    assert set(gpuwidget.__all__) == documented
    assert set(dir(gpuwidget)) == documented
    assert {name for name in documented if getattr(gpuwidget, name, None) is None} == set()


def test_every_test_states_its_promise() -> None:
    """Every test has a docstring, which states what users can rely on."""
    silent = [
        f"{path.relative_to(TESTS)}: {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
        and ast.get_docstring(node) is None
    ]
    assert silent == []
