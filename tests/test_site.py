"""The site has a place for everything: names, methods, documents, links."""

import os
import pathlib
import re
import sys

import pandas as pd
import pytest

import tff_drift
from tff_drift import from_source

pytestmark = pytest.mark.documents

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

griffe = pytest.importorskip("griffe")

import docstrings  # noqa: E402
import figures  # noqa: E402
import method_pages  # noqa: E402
import public_names  # noqa: E402
import reference  # noqa: E402
import result_tables  # noqa: E402
import signatures  # noqa: E402

METHODS = from_source.read()
DOCUMENTS = sorted(
    path
    for pattern in (
        *("*.md", "docs/*.md", "docs/results/*.md", "docs/tutorials/*.md"),
        *("experiments/results/**/README.md", "tasks/*.md"),
    )
    for path in ROOT.glob(pattern)
)
LOG = sorted((ROOT / figures.RESULTS).rglob("README.md"))
NOTES = sorted((ROOT / "docs" / "methods" / "notes").glob("*.md"))


def test_every_package_has_a_page():
    packages = {f"tff_drift.{name}" for name in tff_drift.__all__} | {"tasks"}
    assert packages <= set(public_names.PACKAGES)
    for package in public_names.PACKAGES:
        assert f"]({package}.md)" in reference.index()


@pytest.mark.parametrize("package", public_names.PACKAGES)
def test_every_public_name_is_documented_on_the_page_of_its_package(package):
    names = public_names.public_names(package)
    assert names
    undocumented = [each.name for each in names if not each.doc.strip()]
    assert undocumented == [], "a value is documented by a comment above it"
    page = reference.page(package)
    for each in names:
        assert re.search(rf"^:+{{py:{each.kind}}} {each.name}\b", page, re.MULTILINE)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page(name):
    page = method_pages.page(METHODS[name])
    assert "\n## The builder\n" in page
    assert METHODS[name].url in page
    assert f"({name}.md)" in method_pages.index()


@pytest.mark.parametrize("notes", NOTES, ids=lambda path: path.stem)
def test_the_page_of_a_method_with_notes_has_what_its_row_cannot_say(notes):
    page = method_pages.page(METHODS[notes.stem])
    for heading in (
        "## Update rule",
        "## When to use it",
        "## When not",
        "## What the tests prove",
    ):
        assert f"\n{heading}\n" in page
    # What it does and when to take it come before what it costs.
    summary = notes.read_text().split("\n\n")[1]
    first = [page.index(each) for each in (summary, "## When to use it", "## When not")]
    assert [*first, page.index("| at a glance |")] == sorted(
        [*first, page.index("| at a glance |")]
    )
    assert "$$" in page
    for path in re.findall(r"`(tests/[\w/.]+)`", page):
        assert (ROOT / path).exists(), f"{notes.name} names {path}"


def test_there_are_no_notes_on_methods_that_are_not_there():
    assert NOTES
    assert {path.stem for path in NOTES} <= set(METHODS)


def test_costs_are_told_in_words():
    assert method_pages.cost(METHODS["scaffold"].client_cost, "K") == (
        "(2K + 3)n sums, 2n products"
    )
    assert method_pages.cost(METHODS["fed_avg"].client_cost, "K") == (
        "no sums, no products"
    )
    assert method_pages.cost(None, "K") == "not counted"


def test_docstrings_become_markdown():
    doc = (
        "Does `this` and `other`.\n\nSee https://example.org.\n\n"
        "Args:\n  x: What it is,\n    in two lines.\n\nReturns:\n  A `number`."
    )
    assert docstrings.to_markdown(
        doc, {"this": "p.this", "p.other": "p.other"}, "p"
    ) == (
        "Does {py:obj}`this <p.this>` and {py:obj}`other <p.other>`.\n\n"
        "See <https://example.org>.\n\n"
        "**Arguments**\n\n*   `x`: What it is,\n    in two lines.\n\n"
        "**Returns**\n\nA `number`."
    )


def test_pages_link_the_first_mention_of_a_public_name():
    page = (
        "# `p.build_it`\n\nCall `build_it(x)`, then `build_it` again, as\n"
        "[`build_it`](x.md) does with `next`:\n\n```\n`build_it`\n```\n"
    )
    assert docstrings.with_links(
        page, {"build_it": "p.build_it", "next": "p.next"}
    ) == (page.replace("`build_it(x)`", "{py:obj}`build_it(x) <p.build_it>`"))


def test_the_log_is_in_pages_and_its_first_one_links_to_all_of_them():
    index, *pages = sorted(LOG, key=lambda path: len(path.parts))
    assert max(path.stat().st_size for path in LOG) <= 20_000
    linked = {(index.parent / target).resolve() for target in links(index)}
    of_folders = {path for path in pages if path.parent.parent == index.parent}
    assert of_folders <= linked
    assert len(of_folders) > 20


def test_every_table_of_a_run_is_linked_from_one_page_of_the_log():
    linked = [
        page.parent / place
        for page in LOG
        for place in re.findall(r"\]\((.*)\)", result_tables.links(page.parent))
    ]
    tables = set((ROOT / figures.RESULTS).rglob("*.md")) - set(LOG)
    assert len(linked) == len(tables) > 50
    assert set(linked) == tables


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_code_blocks_fit_their_column(document):
    text = document.read_text("utf-8")
    for block in re.findall(r"^```.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        assert [line for line in block.splitlines() if len(line) > 85] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_documents_have_no_roles_that_show_as_text_in_a_file(document):
    assert re.findall(r"\{[\w:]+\}`", document.read_text("utf-8")) == []


def test_signatures_have_names_that_readers_know():
    [clients] = [
        each
        for each in public_names.public_names("tff_drift.simulation")
        if each.name == "ClientDatasets"
    ]
    shown = signatures.constructor(clients.definition)
    assert "cache_bytes: int = 2 ** 30" in shown  # Not the name of a constant.
    aggregation = public_names.public_names("tff_drift.aggregators.wrapping")[0]
    assert signatures.signature(aggregation.definition) == (
        "(inner_factory: tff.aggregators.AggregationFactory | None, describe: "
        "Callable[[tff.templates.AggregationProcess, tff.Type, tff.Type | None], "
        "Steps]) -> tff.aggregators.AggregationFactory"
    )


@pytest.mark.parametrize("package", public_names.PACKAGES)
def test_every_argument_is_described_where_it_is_shown(package):
    for each in public_names.public_names(package):
        entry, called = reference.entry(each), each.definition
        if called.is_class:
            shown = signatures.constructor(called)
            called = signatures.initializer(called) if shown else None
        if called is None or not called.is_function:
            continue
        # What `**options` takes is told where it is listed.
        kinds = griffe.ParameterKind
        stars = (kinds.var_positional, kinds.var_keyword)
        arguments = [one for one in called.parameters if one.kind not in stars]
        names = [one.name for one in arguments if one.name != "self"]
        assert [name for name in names if f"*   `{name}`:" not in entry] == []


@pytest.mark.parametrize("package", public_names.PACKAGES)
def test_members_that_a_class_overrides_are_documented_once(package):
    for each in public_names.public_names(package):
        members = re.findall(
            r"^:+\{py:(?:method|property)\} (\w+)", reference.entry(each), re.M
        )
        assert sorted(set(members)) == sorted(members)


def test_every_figure_is_drawn_from_data_beside_it():
    kept = [*(ROOT / "docs").glob("*.png"), *(ROOT / figures.RESULTS).glob("**/*.png")]
    assert {str(path.relative_to(ROOT)) for path in kept} == figures.names(), (
        "name its data in docs/site/figures.py, so that `make figures` draws it"
    )
    for source, draw in figures.FIGURES.values():
        panel = draw(ROOT / source).axes[0]
        if (ROOT / source / "sweep.json").exists():
            assert len(panel.texts) == 25  # The points of the heat map.
        else:  # A comparison.
            assert len(panel.get_lines()) >= 2 or len(panel.patches) >= 2


def test_the_figure_of_the_readme_has_what_the_table_says():
    source, draw = figures.FIGURES["docs/demo.png"]
    lines = draw(ROOT / source).axes[0].get_lines()
    last = {line.get_label(): 100 * line.get_ydata()[-1] for line in lines}
    table = (ROOT / "docs" / "getting_started.md").read_text("utf-8")
    told = dict(re.findall(r"^\| (\w+) \| (\d+\.\d+) ± .*% ", table, re.MULTILINE))
    assert told.keys() == last.keys()
    for name, percent in told.items():
        assert last[name] == pytest.approx(float(percent), abs=0.005)


def test_the_readme_and_the_page_on_speed_have_one_source():
    measured = pd.read_csv(ROOT / "docs" / "figures" / "speed.csv").set_index(
        "workload"
    )
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \| (\S+) \| (\S+) \| (\S+) \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for name, *told in rows:
        row = measured.loc[name]
        expected = row[["tff_drift", "fedjax", "ratio"]]
        for figure, value, decimals in zip(told, expected, (3, 3, 2), strict=True):
            # The tables of measurements have four decimals.
            near = 0.6 * 10**-decimals
            assert float(figure.strip("*")) == pytest.approx(value, abs=near)


def test_the_decision_table_has_the_numbers_of_the_committed_results():
    text = (ROOT / "docs" / "choosing.md").read_text("utf-8")
    rows = re.findall(r"^\| (digits|writers), (.+?) \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for task, clients, told in rows:
        part = f"{task}_{'full' if clients.startswith('all') else 'low'}"
        table = ROOT / figures.RESULTS / "drift_comparison" / part / "table.md"
        committed = re.findall(
            r"^\| \w+ \| ([\d.]+ ± [\d.]+) % ", table.read_text("utf-8"), re.MULTILINE
        )
        values = re.sub("<!--.*?-->", "", told).split(" | ")
        assert [value.strip("*") for value in values] == committed
        best = max(committed, key=lambda value: float(value.split()[0]))
        assert [value for value in values if "*" in value] == [f"**{best}**"]


def links(path):
    text = re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"\w+:", target):
            yield target


def anchors(path):
    """The anchors of a document's headings, as GitHub and MyST make them."""
    for heading in re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower())
        yield slug.replace(" ", "-")


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, *NOTES], ids=lambda path: str(path.relative_to(ROOT))
)
def test_links_lead_somewhere(document):
    for target in links(document):
        name, _, anchor = target.partition("#")
        path = pathlib.Path(os.path.normpath(document.parent / name))
        path = path if name else document
        if path.parent == ROOT / "docs" / "api":  # The site makes them.
            assert path.stem in {"index", *public_names.PACKAGES}, target
            continue
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target


def test_links_to_notes_lead_to_pages_on_the_site():
    text = "[A](methods/notes/uga.md#b), [all](methods/notes/), `methods/notes/x.md`"
    assert method_pages.with_links(text) == (
        "[A](methods/uga.md#b), [all](methods/index.md), `methods/notes/x.md`"
    )
    above = "[A](../../docs/methods/notes/adabest.md)"
    assert method_pages.with_links(above) == "[A](../../docs/methods/adabest.md)"


@pytest.mark.parametrize("notes", NOTES, ids=lambda path: path.stem)
def test_links_of_notes_lead_somewhere_from_the_page_too(notes):
    page = method_pages.page(METHODS[notes.stem])
    for name in re.findall(r"\]\((\.\.[^)\s#]+)", page):
        assert (notes.parents[1] / name).resolve().exists(), name
