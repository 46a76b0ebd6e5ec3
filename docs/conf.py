"""Sphinx's configuration of the site: ``make docs`` builds it into ``.venv/site``.

The sources' folder is the project's root, so that links between docs/, notebooks/ and CONTRIBUTING.md are the
same on the site as in the repository.
"""

from __future__ import annotations

from importlib.metadata import metadata
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Operator, Text
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

import gpuwidget

ROOT = Path(__file__).parent.parent
PAGES = (
    "docs",
    "notebooks",
    "AGENTS.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
_urls = dict(url.split(", ", 1) for url in metadata("jupyterlab-gpuwidget").get_all("Project-URL") or ())
REPOSITORY = _urls.get("Repository")
"""The project's address; None until it has one."""

project = "gpuwidget"
author = "the gpuwidget developers"
project_copyright = author
release = gpuwidget.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "notebooks/*.ipynb", *(name for name in PAGES if name.endswith(".md"))]
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in PAGES]

# The same anchors as on GitHub.
myst_heading_anchors = 6
# Notebooks are shown with the outputs that were saved on real GPUs.
nb_execution_mode = "off"
nb_merge_streams = True
# The data of a card, which is also in the output as HTML.
suppress_warnings = ["mystnb.unknown_mime_type"]
# A block without a language is not Python.
highlight_language = "none"
copybutton_exclude = ".linenos, .gp, .go"

# Classes have too many fields for a readable signature.
autodoc_class_signature = "separated"
autodoc_default_options = {"exclude-members": "__init__, __new__"}
autodoc_typehints_format = "short"
add_module_names = False
nitpick_ignore_regex = [
    # Looking up what other projects define would need a network connection.
    ("py:.*", r"(?!gpuwidget\.).*"),
    # These are not a part of the interface.
    ("py:.*", r"gpuwidget\.(kernel\.cells\.watch_api\.R|views\.chart\.Chart)"),
    ("py:.*", r"gpuwidget\.model\.(metrics\.REPORTED|samples\.without_mig_parents)"),
]

templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}
html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars: dict[str, list[str]] = {root_doc: []}
html_show_sourcelink = False
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": project},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "search_as_you_type": True,
    "footer_end": [],
    **({"github_url": REPOSITORY} if REPOSITORY else {}),
}
linkcheck_anchors_ignore_for_url = [r"https://github\.com/.*"]


class CellLexer(PythonLexer):  # type: ignore[misc]  # pygments has no types
    """Highlights Python with magics. IPython's own lexer leaves the code below ``%%gpuwatch`` black."""

    name = "Cells"
    aliases = ("python", "ipython3")
    tokens: ClassVar = {"root": [(r"^(%%?|!)(\w+)(.*\n?)", bygroups(Operator, Keyword, Text)), inherit]}


def link_folders(app: Sphinx, page: nodes.document) -> None:
    """Make links to folders lead into the repository, or replace them by their text if it has no address."""
    folder_of = Path(app.env.doc2path(app.env.docname)).parent
    for link in list(page.findall(pending_xref)):
        folder = (folder_of / link["reftarget"]).resolve()
        if link["reftype"] == "myst" and link["refdomain"] is None and folder.is_dir():
            address = f"{REPOSITORY}/tree/HEAD/{folder.relative_to(ROOT).as_posix()}"
            text = link.children
            link.replace_self(nodes.reference("", "", *text, refuri=address) if REPOSITORY else text)


def setup(app: Sphinx) -> None:
    """Let Python blocks contain magics, and links lead to folders."""
    for alias in CellLexer.aliases:
        app.add_lexer(alias, CellLexer)
    app.connect("doctree-read", link_folders)
