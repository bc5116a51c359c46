"""The tutorials run, and their notebooks are what their scripts say."""

import json
import pathlib
import re
import sys

import pytest
import tensorflow_federated as tff

import tff_drift
from tff_drift import from_source

pytestmark = pytest.mark.documents

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import notebooks  # noqa: E402

SCRIPTS = notebooks.scripts()
every = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
# The quickest, run with few rounds; `make notebooks` runs all of them whole.
RUN_HERE = ("your_tff_script",)


def code_of(script):
    contents = notebooks.cells(script.read_text("utf-8"))
    return [cell.source for cell in contents if cell.kind == "code"]


@every
def test_the_notebook_has_the_cells_of_its_script(script):
    notebook = json.loads(script.with_suffix(".ipynb").read_text("utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    cells = notebooks.cells(script.read_text("utf-8"))
    expected = [tuple(notebooks.without_links(cell)) for cell in cells]
    assert found == expected, f"run it: make notebooks TUTORIALS=docs/{script.name}"
    for kind, text in found:
        assert kind == "code" or not re.search(r"\]\((?!\w+:)", text)


@every
def test_the_notebook_keeps_its_outputs(script):
    text = script.with_suffix(".ipynb").read_text("utf-8")
    cells = json.loads(text)["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", ()) for output in outputs)
    assert any(output["output_type"] == "stream" for output in outputs)
    # A megabyte is what people wait for in Colab.
    assert len(text) < 1_000_000


@every
def test_the_first_cell_installs_what_is_missing_and_imports_tff_drift(script):
    first, *_ = code_of(script)
    install, imported, _ = first.partition("\n\nimport tff_drift  # Before ")
    assert imported
    assert "import tensorflow" not in install
    wheel = f"tff_drift-{tff_drift.__version__}-py3-none-any.whl"
    assert f'"pip install -q {wheel} && tff-drift install-tff"' in install
    names = {}
    exec(install, names)
    assert names["importlib"]


@every
def test_every_tutorial_is_on_the_list(script):
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text("utf-8")
    assert f"({script.stem}.ipynb)" in index
    assert re.search(rf"^{script.stem}$", index, re.MULTILINE)


@every
def test_links_lead_somewhere(script):
    methods = from_source.read()
    for cell in notebooks.cells(script.read_text("utf-8")):
        if cell.kind == "code":
            continue
        for target in re.findall(r"\]\(([^)\s#]+)\)", cell.source):
            path = (script.parent / target).resolve()
            made = path.parent.name == "methods" and path.stem in methods
            assert made or ":" in target or path.exists(), target


def test_text_and_code_become_cells():
    script = "# %% [markdown]\n# # Title\n#\n# Text.\n\n# %%\nx = 1\n# a comment\n"
    cells = notebooks.cells(script)
    assert cells == [("markdown", "# Title\n\nText."), ("code", "x = 1\n# a comment")]


def test_notebooks_name_files_and_the_site_links_to_them():
    text = "[A](../install.md) ([B](drift.ipynb)), [C](../methods/uga.md), [D](https:d)"
    cell = notebooks.Cell("markdown", text)
    [found] = json.loads(notebooks.notebook([cell], [[]]))["cells"]
    assert "".join(found["source"]) == (
        "*A* (`docs/install.md`) (*B*, `docs/tutorials/drift.ipynb`), C, [D](https:d)"
    )
    script = "# %% [markdown]\n# " + text
    site = notebooks.with_links(notebooks.notebook([cell], [[]]), script)
    assert json.loads(site)["cells"][0]["source"] == text


def test_a_notebook_keeps_what_cells_print_and_their_last_value():
    cells = [
        notebooks.Cell("markdown", "Text"),
        notebooks.Cell("code", "print('one')\nprint('two')"),
        notebooks.Cell("code", "x = 41\nx + 1"),
    ]
    text = notebooks.notebook(cells, notebooks.run(cells))
    _, printed, value = json.loads(text)["cells"]
    assert printed["outputs"][0]["text"] == ["one\n", "two\n"]
    assert value["outputs"][0]["data"]["text/plain"] == ["42"]


def test_what_a_tutorial_needs():
    script = "# needs: numpy>=1 numpy>=99 no_such_package\n# %%\n# needs: none\n"
    lacking = list(notebooks.lacking_packages(script))
    assert lacking == ["numpy>=99", "no_such_package"]


@pytest.mark.parametrize("name", RUN_HERE)
def test_a_tutorial_runs_with_few_rounds(name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # The tutorial sets its context for the whole program: here it is the test's.
    monkeypatch.setattr(tff.framework, "set_default_context", lambda context: None)
    script = (ROOT / "docs" / "tutorials" / f"{name}.py").read_text("utf-8")
    short, count = re.subn(r"^(\w*ROUNDS) = \d+$", r"\1 = 2", script, flags=re.M)
    assert count
    context = tff_drift.execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        outputs = notebooks.run(notebooks.cells(short))
    assert any(outputs)
