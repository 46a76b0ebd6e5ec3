"""The scripts of the dashboard, the cluster view and the doctor, which a page loads when these are opened."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from helpers_cluster import CLUSTER_OPTION, FakeCluster, cluster
from helpers_diagnosis import fake_doctor_route, healthy
from helpers_lab import Lab, Notebook
from helpers_panel import PANEL, saved_workspace, show
from playwright.sync_api import BrowserContext, Page

DASHBOARD = "#jp-gpuwidget-dashboard"
WALL = "#jp-gpuwidget-cluster"
SECTION = f"{PANEL} .jp-gpuwidget-cluster-section"
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
DOCTORS_BUTTON = f"{PANEL} [data-jp-item-name=doctor]"
CHECK = f"{DOCTOR} .jp-gpuwidget-doctor-check"
FAILED = ".jp-gpuwidget-not-loaded"
FAILURE = "Couldn\N{RIGHT SINGLE QUOTATION MARK}t load this view from the Jupyter server."
SCRIPTS = "**/jupyterlab-gpuwidget/static/*.js*"


@pytest.fixture(scope="module")
def cluster_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Start a JupyterLab whose administrator has configured a Prometheus."""
    lab = Lab(tmp_path_factory.mktemp("parts"), "none", options=[CLUSTER_OPTION])
    try:
        lab.wait_until_ready()
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def opened(cluster_lab: Lab, browser: BrowserContext) -> Iterator[Notebook]:
    """Open a page in which the cluster has two nodes."""
    fake = FakeCluster(cluster(2))
    path = cluster_lab.write("parts.ipynb", ["1"])
    notebook = cluster_lab.open(browser, path, kernel=False, width=1366, height=768, prepare=fake.install)
    yield notebook
    notebook.close()


def loaded_parts(page: Page) -> list[str]:
    """Return the names of this extension's parts that the page has loaded. Only parts have a name.

    The journal is left out, which every page loads some time after its start.
    """
    urls = page.evaluate("() => performance.getEntriesByType('resource').map(({ name }) => name)")
    names = re.findall(r"/jupyterlab-gpuwidget/static/(\w+)\.\w+\.js", "\n".join(urls))
    return sorted({name for name in names if not name.isdigit()} - {"remoteEntry", "journal"})


def lose_server(page: Page) -> None:
    """Let the page's requests for scripts fail, as if the server had stopped."""
    page.route(SCRIPTS, lambda route: route.abort())


def retry(page: Page, place: str) -> None:
    """Check the only line that says that something in ``place`` could not be loaded, and try again: once in
    vain, and once after the server is back."""
    page.wait_for_selector(f"{place} {FAILED}:has-text('{FAILURE}')")
    page.click(f"{place} button:text-is('Try again')")
    page.wait_for_selector(f"{place} {FAILED}:has-text('{FAILURE}')")
    assert page.locator(f"{place} {FAILED}").count() == 1
    page.unroute(SCRIPTS)
    page.focus(f"{place} button:text-is('Try again')")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{place} {FAILED}", state="detached")


def test_parts_are_loaded_when_opened(opened: Notebook) -> None:
    """A page loads the scripts of the dashboard, the cluster and the doctor only when they are opened."""
    page = opened.page
    fake_doctor_route(opened, (200, healthy()))
    show(opened)
    page.wait_for_selector(SECTION)
    assert loaded_parts(page) == []
    opened.script("await app.commands.execute('gpuwidget:open-dashboard');")
    page.wait_for_selector(f"{DASHBOARD} [role=toolbar]", state="attached")
    assert loaded_parts(page) == ["dashboard"]
    page.click(f"{SECTION} summary")
    page.wait_for_selector(f"{SECTION} table tbody tr")
    assert loaded_parts(page) == ["cluster", "dashboard"]
    page.click(DOCTORS_BUTTON)
    page.wait_for_selector(CHECK)
    assert loaded_parts(page) == ["cluster", "dashboard", "doctor"]


def test_a_dashboard_that_could_not_be_loaded(opened: Notebook) -> None:
    """If the server does not send the dashboard's scripts, its tab says so, and a button tries again. The
    dashboard then has the requested state and the focus."""
    page = opened.page
    lose_server(page)
    opened.script("await app.commands.execute('gpuwidget:open-dashboard', {state: {range: 900}});")
    opened.script("await app.commands.execute('gpuwidget:open-dashboard', {state: {range: 300}});")
    retry(page, "#gpuwidget-dashboard")
    page.wait_for_selector(f"{DASHBOARD} button[aria-pressed=true]:text-is('5 min')", state="attached")
    page.wait_for_function(f"() => document.querySelector('{DASHBOARD}').contains(document.activeElement)")


def test_a_restored_dashboard_that_could_not_be_loaded(opened: Notebook) -> None:
    """A dashboard that is restored after a reload keeps its state, even if its scripts are loaded only on the
    second try."""
    page = opened.page
    with page.expect_request(lambda request: '"range":900' in saved_workspace(request)):
        opened.script("await app.commands.execute('gpuwidget:open-dashboard', {state: {range: 900}});")
    page.route(re.compile(r"/static/dashboard\."), lambda route: route.abort())
    page.goto(page.url.replace("?reset", "?"))
    page.wait_for_selector(f"#gpuwidget-dashboard {FAILED}:has-text('{FAILURE}')")
    page.unroute_all()
    page.click("#gpuwidget-dashboard button:text-is('Try again')")
    page.wait_for_selector(f"{DASHBOARD} button[aria-pressed=true]:text-is('15 min')", state="attached")


def test_a_wall_and_a_section_that_could_not_be_loaded(opened: Notebook) -> None:
    """If the server does not send the cluster's scripts, the wall's tab and the section say so, and a button
    tries again."""
    page = opened.page
    show(opened)
    lose_server(page)
    opened.script("await app.commands.execute('gpuwidget:open-cluster');")
    page.click(f"{SECTION} summary")
    page.wait_for_selector(f"{SECTION} {FAILED}")
    retry(page, "#gpuwidget-cluster")
    page.wait_for_selector(f"{WALL} .jp-gpuwidget-cluster-cell", state="attached")
    page.click(f"{SECTION} button:text-is('Try again')")
    page.wait_for_selector(f"{SECTION} table tbody tr")


def test_a_doctor_that_could_not_be_loaded(opened: Notebook) -> None:
    """If the server does not send the doctor's scripts, the checks run nevertheless, and the section's head
    shows their result. A button tries again, and the head is then at the top of the panel."""
    page = opened.page
    page.set_viewport_size({"width": 1366, "height": 320})
    fake_doctor_route(opened, (200, healthy()))
    show(opened)
    lose_server(page)
    page.click(DOCTORS_BUTTON)
    page.wait_for_selector(f"{DOCTOR}[data-status=ok] > summary:has-text('no problems')")
    retry(page, DOCTOR)
    page.wait_for_selector(CHECK)
    place = page.eval_on_selector(
        f"{DOCTOR} > summary",
        "head => head.getBoundingClientRect().top"
        " - head.closest('.jp-gpuwidget-panel-scroll').getBoundingClientRect().top",
    )
    assert abs(place) <= 1


def test_the_doctor_of_a_restored_panel(opened: Notebook) -> None:
    """After a reload, the doctor's scripts are not loaded while the settings hide its section, even if the
    section was expanded before. They are when the button opens it again."""
    page = opened.page
    fake_doctor_route(opened, (200, healthy()))
    show(opened)
    with page.expect_request(lambda request: '"health":true' in (request.post_data or "")):
        page.click(DOCTORS_BUTTON)
    page.wait_for_selector(CHECK)
    page.goto(page.url.replace("?reset", "?"))
    page.wait_for_selector(SECTION)
    page.wait_for_selector(f"{DOCTOR}[open]", state="attached")
    assert loaded_parts(page) == []
    page.click(DOCTORS_BUTTON)
    page.wait_for_selector(CHECK)
    assert loaded_parts(page) == ["doctor"]
