"""The doctor's section in the panel. The checks run when the section is expanded, and failed checks show a
fix."""

from __future__ import annotations

import json
from collections.abc import Callable

from helpers_diagnosis import COMMAND, fake_doctor_route, healthy, kernel_cell, unhealthy, without_gpu
from helpers_lab import Lab, Notebook
from helpers_panel import NOTICE, PANEL, open_part, show, wait_for_text

Open = Callable[..., Notebook]
DOCTOR = f"{PANEL} .jp-gpuwidget-doctor"
SUMMARY = f"{DOCTOR} > summary"
ENVIRONMENT = f"{DOCTOR} .jp-gpuwidget-doctor-environment:not([hidden])"
CHECK = f"{ENVIRONMENT} .jp-gpuwidget-doctor-check"
RUN_CHECKS = f"{DOCTOR} .jp-gpuwidget-doctor-run"
BUTTON = f"{PANEL} [data-jp-item-name=doctor]"


def texts(notebook: Notebook, selector: str) -> list[str]:
    """Return the text of each matching element as one line."""
    found: list[str] = notebook.page.eval_on_selector_all(
        selector, "nodes => nodes.map(node => node.innerText.replace(/\\s+/g, ' ').trim())"
    )
    return found


def open_doctor(
    open_notebook: Open, kernel: dict[str, object], server: object, status: int = 200
) -> Notebook:
    """Open a notebook with fake diagnoses of its kernel and the server, and expand the doctor's section."""
    notebook = open_notebook(["%load_ext gpuwidget", kernel_cell(kernel)])
    show(notebook, 300)
    fake_doctor_route(notebook, (status, server))
    for cell in (0, 1):
        notebook.run_to_the_end(cell)
    notebook.page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    open_part(notebook, "health")
    notebook.page.wait_for_selector(CHECK)
    return notebook


def test_the_doctors_button(open_notebook: Open) -> None:
    """Before the user clicks the doctor's button in the panel's header, no checks run, and the panel has no
    section of the doctor. The click opens the section and runs the checks; the button then has the color of
    the worst status and names it. A second click closes the section."""
    notebook = open_notebook(["1"])
    requested = fake_doctor_route(notebook, (200, healthy()))
    show(notebook, 300)
    wait_for_text(notebook, NOTICE, "gpuwidget is not loaded in this kernel.")
    page = notebook.page
    assert page.is_hidden(SUMMARY)
    assert page.get_attribute(f"{BUTTON} [title]", "title") == "GPU Doctor: not run"
    assert requested == []
    page.click(BUTTON)
    wait_for_text(notebook, SUMMARY, "no problems")
    page.wait_for_selector(f"{PANEL}[data-doctor=ok]")
    page.wait_for_selector(f"{BUTTON} [title='GPU Doctor: no problems']")
    page.wait_for_selector(CHECK)  # The section's contents may load after the results.
    assert texts(notebook, f"{ENVIRONMENT} .jp-gpuwidget-doctor-summary") == [
        "No problems: all checks passed, from PyTorch to the GPU.",
        "gpuwidget is not running in this kernel.",
    ]
    page.click(BUTTON)
    assert page.is_hidden(SUMMARY)
    page.click(BUTTON)
    assert page.is_visible(SUMMARY)
    assert len(requested) == 1
    page.click(RUN_CHECKS)
    notebook.wait_for(lambda: len(requested) == 2)


def test_the_section_opens_at_its_head(open_notebook: Open) -> None:
    """When all results have arrived, the head of the opened section is at the top of the panel, with its
    whole summary. The sentence that the kernel's and the server's diagnoses share is shown once."""
    notebook = open_notebook(["%load_ext gpuwidget", kernel_cell(unhealthy())])
    show(notebook, 240)
    fake_doctor_route(notebook, (200, unhealthy("server")))
    for cell in (0, 1):
        notebook.run_to_the_end(cell)
    page = notebook.page
    page.wait_for_selector(f"{PANEL} .jp-gpuwidget-device-watch:enabled")
    page.click(BUTTON)
    wait_for_text(notebook, SUMMARY, "1 problem: PyTorch")
    page.wait_for_selector(f"{RUN_CHECKS}:enabled")
    place = page.eval_on_selector(
        SUMMARY,
        "head => head.getBoundingClientRect().top"
        " - head.closest('.jp-gpuwidget-panel-scroll').getBoundingClientRect().top",
    )
    assert abs(place) <= 1
    cut = "node => node.scrollWidth > node.clientWidth"
    assert not page.eval_on_selector(f"{SUMMARY} .jp-gpuwidget-section-summary", cut)
    sentences = texts(notebook, f"{ENVIRONMENT} .jp-gpuwidget-doctor-summary")
    assert sentences == [unhealthy()["summary"], "", ""]


def test_a_machine_without_a_gpu(open_notebook: Open) -> None:
    """Without an NVIDIA GPU, the section is neutral, not green, and says what to do if one was expected. All
    skipped checks are one line, which expands to the reason of each."""
    notebook = open_notebook(["1"])
    fake_doctor_route(notebook, (200, without_gpu()))
    show(notebook, 300)
    notebook.page.click(BUTTON)
    wait_for_text(notebook, SUMMARY, "no NVIDIA GPU")
    notebook.page.wait_for_selector(CHECK)
    assert notebook.page.get_attribute(DOCTOR, "data-status") == "skipped"
    assert texts(notebook, f"{ENVIRONMENT} .jp-gpuwidget-doctor-summary")[0] == without_gpu()["summary"]
    assert texts(notebook, f"{CHECK}-head") == [
        "✓ PyTorch 2.13.0+cpu, built for the CPU only OK",
        "✓ Shared memory 251.6 GiB OK",
        "✓ gpuwidget 0.1.0 OK",
        "\N{EN DASH} 8 checks this machine has no NVIDIA GPU skipped",
    ]
    notebook.page.locator(CHECK).last.locator("summary").first.click()
    notebook.page.locator(CHECK).last.get_by_text("Raw data").click()
    names = texts(notebook, f"{CHECK}:last-child dt")
    assert names[:2] == ["CUDA runtime", "cuDNN"]
    assert len(names) == 8


def test_checks_without_a_result(open_notebook: Open) -> None:
    """The section's header counts warnings without the checks that have no result. If there are only such
    checks, it names them."""
    warned = unhealthy("server")
    for name in ("links", "problems"):
        warned[name] = [one for one in warned[name] if one["status"] != "broken"]
    unknown = {
        **warned,
        **{
            name: [one for one in warned[name] if one["status"] != "warning"]
            for name in ("links", "problems")
        },
    }
    notebook = open_notebook(["1"])
    fake_doctor_route(notebook, (200, warned), (200, unknown))
    show(notebook, 300)
    notebook.page.click(BUTTON)
    wait_for_text(notebook, SUMMARY, "1 warning: Shared memory")
    notebook.page.wait_for_selector(f"{RUN_CHECKS}:enabled")
    notebook.page.click(RUN_CHECKS)
    wait_for_text(notebook, SUMMARY, "no result: GPU")
    assert texts(notebook, SUMMARY) == ["Doctor ? no result: GPU"]


def test_the_checks_of_kernel_and_server(open_notebook: Open) -> None:
    """Each check shows a symbol, its name, its result and its status. The section's header names the broken
    check. Broken checks come first, and a result that the kernel and the server share is shown once."""
    notebook = open_doctor(open_notebook, unhealthy(), healthy())
    wait_for_text(notebook, SUMMARY, "1 problem: PyTorch")
    heads = texts(notebook, f"{ENVIRONMENT}:first-child .jp-gpuwidget-doctor-check-head")
    assert heads == ["✕ PyTorch broken", "▲ Shared memory warning", "? GPU unknown"]
    shared = texts(notebook, f"{ENVIRONMENT}:nth-child(2) .jp-gpuwidget-doctor-check-head")
    assert shared[0] == "✓ CUDA runtime 13.0 OK"
    assert shared[-1] == "\N{EN DASH} MIG and sharing MIG off skipped"
    assert len(shared) == 8
    server = texts(notebook, f"{ENVIRONMENT}:nth-child(3) .jp-gpuwidget-doctor-check-title")
    assert server == ["PyTorch", "GPU", "Shared memory"]
    expanded = f"{ENVIRONMENT}:first-child .jp-gpuwidget-doctor-check[open]"
    found = texts(notebook, f"{expanded} .jp-gpuwidget-doctor-check-result")
    assert found == ["2.13.0+cpu, built for the CPU only", "64 MiB", "not visible"]
    assert texts(notebook, f"{ENVIRONMENT} .jp-gpuwidget-doctor-title") == [
        f"Kernel of {notebook.path.name}",
        f"Kernel of {notebook.path.name} and Jupyter server",
        "Jupyter server",
    ]


def test_a_broken_check_is_expanded_with_its_fix(open_notebook: Open) -> None:
    """A broken check is expanded and shows its reason and fix, with a button that copies the fix's command.
    The evidence is collapsed.

    The evidence is shown as text, never as markup.
    """
    notebook = open_doctor(open_notebook, unhealthy(), healthy())
    broken = notebook.page.locator(f"{CHECK}[data-status=broken]")
    assert broken.get_attribute("open") is not None
    text = " ".join(broken.inner_text().split())
    assert (
        "This build of PyTorch can't use NVIDIA GPUs: it has no CUDA. Fix: Install a build with CUDA:"
    ) in text
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    assert broken.locator("code").inner_text() == COMMAND
    broken.get_by_role("button", name="Copy").click()
    assert broken.get_by_role("button").inner_text() == "Copied"
    assert notebook.page.evaluate("navigator.clipboard.readText()") == COMMAND
    assert not broken.locator(".jp-gpuwidget-doctor-evidence").is_visible()
    broken.locator(".jp-gpuwidget-doctor-evidence-head").click()
    assert "torch <b>2.13.0+cpu</b> (pip)" in broken.locator(".jp-gpuwidget-doctor-evidence").inner_text()
    assert broken.locator("dd b").count() == 0
    warned = notebook.page.locator(f"{CHECK}[data-status=warning]")
    assert "docker run --shm-size=8g …" in warned.inner_text()
    assert warned.locator("code").count() == 0  # An incomplete command has no copy button.


def test_a_check_that_follows_from_a_problem(open_notebook: Open) -> None:
    """A problem lists the checks that it affects. Such a check is collapsed, and refers to the check with the
    cause instead of repeating a fix."""
    doctor = unhealthy()
    cause, following = doctor["problems"][0], doctor["problems"].pop()
    cause["affects"] = [following["check"]]
    notebook = open_doctor(open_notebook, doctor, healthy())
    broken = notebook.page.locator(f"{CHECK}[data-status=broken]")
    assert "Also affected: GPU." in broken.inner_text()
    affected = notebook.page.locator(f"{ENVIRONMENT}:first-child .jp-gpuwidget-doctor-check").last
    assert affected.get_attribute("open") is None
    affected.locator("summary").first.click()
    assert "See: PyTorch." in affected.inner_text()


def test_the_copied_json_has_the_format_of_the_command(open_notebook: Open) -> None:
    """A button copies the diagnosis in the format of `gpuwidget doctor --json`, which `--diff` accepts."""
    notebook = open_doctor(open_notebook, unhealthy(), healthy())
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.page.locator(ENVIRONMENT).last.get_by_role("button", name="Copy as JSON").click()
    assert json.loads(notebook.page.evaluate("navigator.clipboard.readText()")) == healthy()


def test_a_server_whose_checks_fail(open_notebook: Open) -> None:
    """If the server's checks cannot be run, the reason is shown, and the header does not report the server as
    healthy."""
    sentence = "The examination came to no end within 60 seconds."
    notebook = open_doctor(open_notebook, healthy("kernel"), {"message": sentence}, 503)
    wait_for_text(notebook, SUMMARY, "could not run")
    assert sentence in texts(notebook, f"{ENVIRONMENT} .jp-gpuwidget-doctor-summary")
    assert notebook.page.locator(f"{ENVIRONMENT}:has-text('Jupyter server')").locator("details").count() == 0


def test_an_older_server(open_notebook: Open) -> None:
    """If the server has no doctor route, the panel says that the server extension is not enabled or is older
    than the page."""
    notebook = open_doctor(open_notebook, healthy("kernel"), {"message": "Not Found"}, 404)
    wait_for_text(notebook, ENVIRONMENT, "not enabled or is older than this page. Restart the server.")


def test_a_real_server(open_notebook: Open) -> None:
    """A real server accepts the page's request with its XSRF token, and runs its checks."""
    notebook = open_notebook(["1"])
    show(notebook, 300)
    notebook.page.click(BUTTON)
    notebook.page.wait_for_selector(CHECK)
    titles = texts(notebook, f"{ENVIRONMENT} .jp-gpuwidget-doctor-check-title")
    assert {"PyTorch", "Shared memory", "gpuwidget"} <= set(titles)
    skipped = [int(title.split()[0]) for title in titles if title.endswith(" checks")]
    assert len(titles) - len(skipped) + sum(skipped) == 14


def test_a_restarted_kernel_has_no_diagnosis(open_notebook: Open) -> None:
    """If the kernel is restarted, its diagnosis is discarded."""
    notebook = open_doctor(open_notebook, unhealthy(), healthy())
    wait_for_text(notebook, SUMMARY, "1 problem")
    notebook.script("await panel.sessionContext.session.kernel.restart();")
    wait_for_text(notebook, ENVIRONMENT, "gpuwidget is not running in this kernel.")
    wait_for_text(notebook, SUMMARY, "no problems")
    notebook.run_to_the_end(0)
    wait_for_text(notebook, ENVIRONMENT, "Not run")


def test_the_palette_and_the_keyboard(open_notebook: Open) -> None:
    """A command in the palette opens the doctor's section and focuses it. Enter expands a check."""
    notebook = open_notebook(["1"])
    fake_doctor_route(notebook, (200, healthy()))
    notebook.script("await app.commands.execute('gpuwidget:examine');")
    notebook.page.wait_for_selector(CHECK)
    assert notebook.page.evaluate("document.activeElement.innerText").startswith("Doctor")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Enter")
    assert notebook.page.locator(CHECK).first.get_attribute("open") is not None


def test_another_notebook(open_notebook: Open, lab: Lab) -> None:
    """The doctor's button and the section's header show the diagnosis of the active notebook's kernel,
    together with the server's."""
    notebook = open_doctor(open_notebook, unhealthy(), healthy("server"))
    page = notebook.page
    page.wait_for_selector(f"{PANEL}[data-doctor=broken]")
    other = lab.write("other.ipynb", ["1"])
    notebook.script("await app.commands.execute('docmanager:open', {path: argument});", other.name)
    page.wait_for_selector(f"{PANEL}[data-doctor=ok]")
    page.wait_for_selector(f"{BUTTON} [title='GPU Doctor: no problems']")
    page.wait_for_selector(f"{DOCTOR}[data-status=ok]")
    notebook.script("app.shell.activateById(panel.id);")
    page.wait_for_selector(f"{PANEL}[data-doctor=broken]")
    page.wait_for_selector(f"{DOCTOR}[data-status=broken]")
