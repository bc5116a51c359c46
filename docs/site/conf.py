"""Sphinx's configuration: `make docs`.

The top of the repository is the source folder, so that documents link to each other as
they do for a reader of the files.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import docstrings  # noqa: E402
import method_pages  # noqa: E402
import notebooks  # noqa: E402
import public_names  # noqa: E402
import reference  # noqa: E402
import result_tables  # noqa: E402

import tff_drift  # noqa: E402
from tff_drift import from_source  # noqa: E402

project = "tff_drift"
author = "The tff_drift authors"
copyright = "The tff_drift authors, Apache 2.0"
version = release = tff_drift.__version__

root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/**.ipynb",
    "benchmarks/RESULTS.md",
    "experiments/results/**.md",
    "tasks/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "build", "bazel-*", "docs/methods/notes"]

extensions = ["myst_nb", "breaks", "mathml", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # Notebooks are kept with their outputs.
nb_merge_streams = True
highlight_language = "none"
python_maximum_signature_line_length = 70
add_module_names = False
copybutton_prompt_text = ">>> "

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"tff_drift {release}"
html_static_path = ["static"]
html_extra_path = ["extra"]
html_css_files = ["site.css"]
html_show_sphinx = False
MEASUREMENTS = "benchmarks/RESULTS"  # The log of all of them.
# Pages of wide tables, which have the room of their list of contents.
WIDE = ("docs/presets", "docs/coverage", "docs/published_code")
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}


def write_pages(*_: object) -> None:
    """Writes the pages that are made of rows and docstrings."""
    pages = {
        "docs/api/index.md": reference.index(),
        "docs/methods/index.md": method_pages.index(),
    }
    for package in public_names.PACKAGES:
        pages[f"docs/api/{package}.md"] = reference.page(package)
    for method in from_source.read().values():
        pages[f"docs/methods/{method.name}.md"] = method_pages.page(method)
    for name, text in pages.items():
        path = ROOT / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for folder in ("docs/api", "docs/methods"):
        for path in (ROOT / folder).glob("*.md"):
            if str(path.relative_to(ROOT)) not in pages:
                path.unlink()  # Of a name that was public once.


def add_heading(_: object, page: str, source: list[str]) -> None:
    """Gives the tables that runs wrote a heading.

    They and the logs are reached by links, from the page of their folder or the nearest
    one above; no menu has them.
    """
    *folders, name = page.split("/")
    if folders[:2] != ["experiments", "results"] and page != MEASUREMENTS:
        return
    if name == "README" or page == MEASUREMENTS:
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"
        if page != MEASUREMENTS:
            source[0] += result_tables.links(ROOT.joinpath(*folders))
    else:
        title = f"{', '.join(folders[2:])}: {name}".replace("_", " ")
        back = "../" * len(folders[2:]) + "README.md"
        up = "../" * len(folders)
        source[0] = (
            f"---\norphan: true\n---\n\n# {title}\n\n"
            f"One of the tables of [what was run here]({back}); "
            f"[what columns say]({up}docs/command_line.md#the-columns-of-tables).\n\n"
            f":::{{container}} wide\n{source[0]}\n:::\n"
        )


def add_links(_: object, page: str, source: list[str]) -> None:
    """Gives the tutorials the links of their scripts, and documents those of names.

    Links to the notes on a method become links to its page.
    """
    source[0] = method_pages.with_links(source[0])
    script = (ROOT / page).with_suffix(".py")
    if script.parent == notebooks.TUTORIALS and script.exists():
        source[0] = notebooks.with_links(source[0], script.read_text("utf-8"))
    elif page.rpartition("/")[0] == "docs":
        source[0] = docstrings.with_links(source[0], public_names.addresses())
    if page in WIDE:
        source[0] = (
            f'---\nhide-toc: true\n---\n\n{source[0]}\n\n<div class="wide"></div>\n'
        )


def setup(app: Any) -> None:
    """Has the pages written before Sphinx looks for pages."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", add_heading)
    app.connect("source-read", add_links)
