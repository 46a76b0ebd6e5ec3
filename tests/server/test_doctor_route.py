"""``POST gpuwidget/api/doctor`` diagnoses the server's Python environment.
The checks never run twice at the same time."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeClock
from helpers_doctor import results
from helpers_server import Server

import gpuwidget.server
from gpuwidget.diagnostics import isolated_run
from gpuwidget.diagnostics.run_checks import diagnose
from gpuwidget.model.diagnosis import Diagnosis
from gpuwidget.model.errors import DoctorError
from gpuwidget.model.to_json import to_json
from gpuwidget.server.cached_diagnosis import CachedDiagnosis
from tools import translation

FOUND = diagnose(results(place="server"))


class FakeChecks:
    """Fake checks that replace the doctor's.
    They count their runs, and a run ends only when the test allows it."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.fails = False

    def __call__(self) -> Diagnosis:
        self.count += 1
        assert self.may_end.wait(20.0)
        if self.fails:
            raise DoctorError("The doctor could not check this environment (100 % of it).")
        return FOUND


@pytest.fixture
def fake_checks(monkeypatch: pytest.MonkeyPatch) -> FakeChecks:
    """Make the server run fake checks, which the test controls, instead of the doctor's checks."""
    made = FakeChecks()
    monkeypatch.setattr(
        gpuwidget.server, "CachedDiagnosis", lambda clock: CachedDiagnosis(clock, made), raising=True
    )
    return made


async def test_the_reply_is_the_diagnosis(fake_checks: FakeChecks, server: Server) -> None:
    """The route returns the whole diagnosis as JSON.
    It returns a cached diagnosis for a few seconds; after that, it runs the checks again."""
    assert await server.post("doctor") == (200, to_json(FOUND))
    assert await server.post("doctor") == (200, to_json(FOUND))
    assert fake_checks.count == 1
    assert server.clock is not None
    server.clock.advance(10.0)
    assert (await server.post("doctor"))[0] == 200
    assert fake_checks.count == 2


async def test_the_texts_in_the_pages_language(fake_checks: FakeChecks, server: Server) -> None:
    """With the page's locale, the reply also has the translation of each text. The diagnosis stays English,
    and pages with different languages share one run of the checks."""
    translation.main(["--compile"])
    status, chinese = await server.post("doctor", locale="zh-CN")
    assert (status, chinese["texts"]["Shared memory"]) == (200, "共享内存")
    assert chinese["texts"][FOUND.summary] == "没有问题：从 PyTorch 到 GPU 的所有检查均已通过。"
    assert {**chinese, "texts": {}} == {**to_json(FOUND), "texts": {}}
    assert await server.post("doctor", locale="en") == (200, {**to_json(FOUND), "texts": {}})
    assert await server.post("doctor", locale="../../etc") == (200, {**to_json(FOUND), "texts": {}})
    assert fake_checks.count == 1


async def test_concurrent_requests_share_one_run(fake_checks: FakeChecks, server: Server) -> None:
    """If several requests arrive during a run of the checks, they share this run.
    The server also answers other requests meanwhile."""
    fake_checks.may_end.clear()
    asked = [asyncio.ensure_future(server.post("doctor")) for _ in range(3)]
    await server.until(lambda: fake_checks.count == 1)
    assert (await server.get("sample"))[0] == 200
    fake_checks.may_end.set()
    assert {status for status, _ in await asyncio.gather(*asked)} == {200}
    assert fake_checks.count == 1


async def test_a_failed_run_returns_its_reason(fake_checks: FakeChecks, server: Server) -> None:
    """If a run of the checks fails, the route returns 503 with the reason.
    The failure is not cached, so the next request runs the checks again."""
    fake_checks.fails = True
    status, answer = await server.post("doctor")
    assert (status, answer["message"]) == (
        503,
        "The doctor could not check this environment (100 % of it).",
    )
    fake_checks.fails = False
    assert (await server.post("doctor"))[0] == 200


async def test_requests_do_not_count_as_activity(fake_checks: FakeChecks, server: Server) -> None:
    """A request for a diagnosis does not count as activity, so an idle server can still be culled."""
    before = server.app.web_app.last_activity()
    assert (await server.post("doctor"))[0] == 200
    assert server.app.web_app.last_activity() == before


async def test_get_requests_are_refused(fake_checks: FakeChecks, server: Server) -> None:
    """The route refuses a GET request, because any web page can trigger one with an image or a link."""
    assert (await server.get("doctor"))[0] == 405
    assert fake_checks.count == 0


async def test_a_page_of_another_site_is_refused(
    fake_checks: FakeChecks, server: Server, jp_auth_header: dict[str, str]
) -> None:
    """A request with only the user's cookie is refused.
    The route also requires the XSRF token, which pages of other sites do not have."""
    answer = await server.fetch("api", "status")
    cookies = [one.partition(";")[0] for one in answer.headers.get_list("Set-Cookie")]
    jp_auth_header.clear()
    token = "0123456789abcdef" * 2
    jp_auth_header["Cookie"] = "; ".join([*cookies, f"_xsrf={token}"])
    assert (await server.post("doctor"))[0] == 403
    assert fake_checks.count == 0
    jp_auth_header["X-XSRFToken"] = token
    assert (await server.post("doctor"))[0] == 200


async def test_read_permission_is_not_enough(fake_checks: FakeChecks, server: Server) -> None:
    """A user with only read permission may not run the doctor, because its checks execute code."""

    async def only_read(handler: Any, user: Any, action: str, resource: str) -> bool:
        return action == "read"

    server.app.authorizer.is_authorized = only_read
    assert (await server.get("sample"))[0] == 200
    assert (await server.post("doctor"))[0] == 403
    assert fake_checks.count == 0


async def test_files_in_the_servers_folder_are_not_executed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module such as torch.py in the server's working directory is not executed by the doctor,
    since other users may be able to write to that directory."""
    ran = tmp_path / "ran"
    for name in ("torch", "pynvml", "packaging", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path}")
    status, doctor = await server.post("doctor")
    assert (status, doctor["place"]) == (200, "server")
    assert not ran.exists()
    torch = next(link for link in doctor["links"] if link["id"] == "torch")
    assert str(tmp_path) not in json.dumps(torch)


async def test_the_servers_environment_is_diagnosed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor's real checks run in a subprocess and diagnose the server's environment."""
    status, doctor = await server.post("doctor")
    assert (status, doctor["place"], len(doctor["links"])) == (200, "server", 14)


def test_the_checks_use_the_place_server(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """The route runs the doctor's checks in a subprocess.
    The place that it passes to them is ``server``, so the diagnosis is not mistaken for a kernel's."""
    asked: list[Any] = []

    def run(place: str, version: str, environment: object) -> Diagnosis:
        asked.append((place, version))
        return FOUND

    monkeypatch.setattr(isolated_run, "run_in_subprocess", run)
    diagnose_server: Callable[[], Any] = CachedDiagnosis(clock).diagnosis
    asyncio.run(diagnose_server())
    assert asked == [("server", gpuwidget.__version__)]
