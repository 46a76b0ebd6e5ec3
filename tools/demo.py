"""``make demo``: start JupyterLab on this machine and open the quickstart notebook.

The demo shows this machine's NVIDIA GPUs or, if there are none, a recording of four H200s. The source is
chosen before the server starts, so that the server and every kernel use the same one. If the user has set
GPUWIDGET_SOURCE, that source is used.
"""

from __future__ import annotations

import html
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import nbformat
from jupyter_server.serverapp import list_running_servers
from jupyterlab_server.workspaces_handler import WorkspacesManager
from nbformat.sign import NotebookNotary

from gpuwidget.sources import SOURCE_VARIABLE, open_source
from gpuwidget.sources.replay import START_VARIABLE, TRAINING_S

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
QUICKSTART = "quickstart.ipynb"
PANEL = "jp-gpuwidget-panel"
SIGNATURES = Path(sys.prefix) / "demo_signatures.db"
"""The database with the demo's signatures of notebooks. It is separate from the user's database, so that
signing a notebook for the demo does not make other servers trust it."""
WORKSPACES = Path(sys.prefix) / "demo_workspaces"
"""The folder that stores the demo's layout. It is separate from the folder of the user's layouts."""
LOG = Path(sys.prefix) / "demo.log"
"""The file with JupyterLab's output."""
_LAYOUT = {
    "right": {"collapsed": False, "visible": True, "current": PANEL, "widgets": [PANEL]},
    "relativeSizes": [0, 0.72, 0.28],
}
_READY_S = 120.0
_END_S = 10
"""A terminated server is killed if it has not shut down its kernels and exited after this many seconds."""


def choose_source(environment: Mapping[str, str]) -> tuple[str, str]:
    """Return the source that the demo uses, and a sentence about it for the user."""
    chosen = environment.get(SOURCE_VARIABLE, "")
    if chosen:
        return chosen, f"{SOURCE_VARIABLE} is {chosen}."
    source = open_source("nvml")
    try:
        found = source.open()
    finally:
        source.close()
    if found.gpus:
        names = ", ".join(f"{gpu.index} {gpu.name}" for gpu in found.gpus if gpu.mig_parent is None)
        return "nvml", f"This machine's GPUs: {names}."
    return "replay", f"{found.origin.reason} The demo shows a recording of four H200s instead, not live GPUs."


def server_environment(environment: Mapping[str, str], source: str, token: str, now: float) -> dict[str, str]:
    """Return the server's environment variables at ``now`` (epoch seconds).

    With them, kernels use this Python even if the user has installed other kernels.
    """
    made = {name: value for name, value in environment.items() if name != "JUPYTER_PATH"}
    # The packaged recording starts where the GPUs train.
    made.setdefault(START_VARIABLE, str(now - TRAINING_S))
    # The token is passed in the environment because other users can read a command line.
    return {**made, SOURCE_VARIABLE: source, "JUPYTER_TOKEN": token, "JUPYTER_PREFER_ENV_PATH": "1"}


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that the system chose at random among the free ones.

    Jupyter looks for a free port too, but all servers begin with the same one, and listen only later. Of two
    demos that start at the same moment, one would fail, and could print the URL of the other one.
    """
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
    return port


def server_command() -> list[str]:
    """Return the command that starts JupyterLab. At each start, it has another port."""
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={free_port()}"),
        *(f"--ServerApp.root_dir={NOTEBOOKS}", f"--LabApp.default_url=/lab/tree/{QUICKSTART}"),
        f"--LabApp.workspaces_dir={WORKSPACES}",
        *(f"--NotebookNotary.db_file={SIGNATURES}", "--ServerApp.log_level=WARN"),
    ]
    # Jupyter refuses to run as root without this option; the server listens on 127.0.0.1 only.
    return [*command, "--allow-root"] if os.name == "posix" and os.geteuid() == 0 else command


def trust_quickstart() -> None:
    """Sign the quickstart notebook. In unsigned notebooks, JupyterLab strips the drawings from cards."""
    notary = NotebookNotary(db_file=str(SIGNATURES))
    notary.sign(nbformat.read(NOTEBOOKS / QUICKSTART, nbformat.current_nbformat))


def open_panel(folder: Path = WORKSPACES) -> None:
    """Write a layout with an open GPU panel for the first demo. Later demos keep the layout that the user
    left."""
    workspaces = WorkspacesManager(str(folder))
    if not workspaces.list_workspaces():
        layout = {"data": {"layout-restorer:data": _LAYOUT}, "metadata": {"id": "default"}}
        workspaces.save("default", json.dumps(layout))


def has_browser(environment: Mapping[str, str]) -> bool:
    """Return whether this machine can open a browser window."""
    if sys.platform.startswith("linux") and not (
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def write_redirect(folder: Path, url: str) -> Path:
    """Write a page that redirects to ``url`` and that only its owner can read; return its path.

    The browser's command line contains this path instead of ``url``, because other users can read a command
    line.
    """
    page = folder / "open.html"
    target = html.escape(url)
    with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(
            '<!DOCTYPE html>\n<meta charset="utf-8">\n<title>Opening JupyterLab</title>\n'
            f'<meta http-equiv="refresh" content="0;url={target}">\n<a href="{target}">Open JupyterLab</a>\n'
        )
    return page


def wait_until_ready(server: subprocess.Popen[bytes]) -> str:
    """Wait until the server responds, and return its URL, which ends with a slash.

    Raises SystemExit if it exits first or does not respond in time. The URL is the one that the server itself
    reports: at a port that was free a moment ago, another user's server may answer.
    """
    deadline = time.monotonic() + _READY_S
    while server.poll() is None and time.monotonic() < deadline:
        # The server does not respond yet, or the file in which a server reports its URL is half written.
        with suppress(OSError, ValueError):
            for running in list_running_servers():
                url: str = running["url"]
                if running["pid"] == server.pid:
                    urllib.request.urlopen(f"{url}api", timeout=5).close()
                    return url
        time.sleep(0.2)
    server.terminate()
    raise SystemExit(f"JupyterLab did not start. Its output is in {LOG}.")


def end_on_signals(server: subprocess.Popen[bytes]) -> None:
    """On Ctrl-C, SIGTERM and SIGHUP, terminate the server, and kill it if it does not exit in time.

    The server must sometimes be killed: if a page is open, a terminated server may shut down its kernels and
    then wait forever for AnyIO threads.
    """

    def terminate(*_: object) -> None:
        server.terminate()
        signal.alarm(_END_S)

    def kill(*_: object) -> None:
        server.kill()
        raise SystemExit(0)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, terminate)
    signal.signal(signal.SIGALRM, kill)


def main() -> int:
    """Run the demo until the server ends; return its exit status."""
    source, sentence = choose_source(os.environ)
    token = secrets.token_hex(16)
    environment = server_environment(os.environ, source, token, time.time())
    trust_quickstart()
    open_panel()
    with (
        LOG.open("w") as log,
        # The folder is not in /tmp, because a browser that is installed as a snap can't read /tmp.
        tempfile.TemporaryDirectory(prefix="demo_browser_", dir=sys.prefix) as folder,
        # The server runs in a new session, which Ctrl-C in the terminal does not interrupt, and is ended by
        # SIGTERM. On Ctrl-C, Jupyter would ask for confirmation on a thread that its signal handler starts
        # and that can hang.
        subprocess.Popen(
            server_command(), env=environment, start_new_session=True, stdout=log, stderr=log
        ) as server,
    ):
        end_on_signals(server)
        url = f"{wait_until_ready(server)}lab/tree/{QUICKSTART}?token={token}"
        print(f"\n{sentence}\n\n    {url}\n\nJupyterLab's log: {LOG}\nCtrl-C ends it.", flush=True)
        if has_browser(os.environ):
            webbrowser.open(write_redirect(Path(folder), url).as_uri())
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
