"""Web servers in this process, such as a stand-in for a Prometheus that misbehaves."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Respond = Callable[[BaseHTTPRequestHandler, dict[str, str]], None]
"""Write the response to a request. The second argument is the request's form."""


class LocalServer:
    """A web server whose requests a thread handles."""

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        address: tuple[str, int] = ("127.0.0.1", 0),
        certificate: Path | None = None,
    ) -> None:
        server = ThreadingHTTPServer(address, handler)
        server.daemon_threads = True
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        self.host = f"{address[0]}:{server.server_port}"
        self.url = f"{scheme}://{self.host}"
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the server. Requests that are still being answered are abandoned."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class WebServer(LocalServer):
    """A web server on a free port of 127.0.0.1 that calls ``respond`` for each POST request."""

    def __init__(self, respond: Respond, certificate: Path | None = None) -> None:
        self.respond = respond
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        """Path, headers and form of each request."""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                owner.requests.append((self.path, dict(self.headers), form))
                owner.respond(self, form)

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(Handler, certificate=certificate)


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    """Send a whole response."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def write_certificate(path: Path) -> Path:
    """Write a new key and its self-signed certificate for 127.0.0.1 to a PEM file; return the path."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
