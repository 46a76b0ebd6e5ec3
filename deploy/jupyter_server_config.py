"""Jupyter's configuration in the container of deploy/Dockerfile (docs/admin/deployments.md).

Environment variables: JUPYTER_TOKEN_FILE (a file) or JUPYTER_TOKEN has the token of the server, and
JUPYTER_BASE_URL its base URL. GPUWIDGET_METRICS_TOKEN_FILE is the path of a file with the token for
Prometheus, and GPUWIDGET_PROMETHEUS_URL the address of a Prometheus for the cluster view. With JupyterHub,
the Hub sets the server's address, base URL and login, and the notebooks are in the home folder, which is the
user's volume.
"""

import os
from pathlib import Path

c = get_config()  # noqa: F821 (Jupyter defines it)

# Behind a reverse proxy, the host in a request is the one in the browser's address.
c.ServerApp.allow_remote_access = True
if "JUPYTERHUB_SERVICE_PREFIX" in os.environ:
    c.ServerApp.root_dir = os.path.expanduser("~")
    # GPU work counts as activity, so that the Hub's culler does not end a training without output.
    c.GpuWidget.gpu_activity = True
else:
    c.ServerApp.root_dir = "/workspace"
    c.ServerApp.ip = "0.0.0.0"
    c.ServerApp.port = 8888
    c.ServerApp.port_retries = 0
    c.ServerApp.base_url = os.environ.get("JUPYTER_BASE_URL", "/")
    if "JUPYTER_TOKEN_FILE" in os.environ:
        # Jupyter reads the file too, but does not remove a line break at its end.
        c.IdentityProvider.token = Path(os.environ["JUPYTER_TOKEN_FILE"]).read_text().strip()

c.GpuWidget.metrics_token_file = os.environ.get("GPUWIDGET_METRICS_TOKEN_FILE", "")
c.GpuWidget.prometheus_url = os.environ.get("GPUWIDGET_PROMETHEUS_URL", "")
c.GpuWidget.gpu_hours = True
