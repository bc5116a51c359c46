"""A page of results, of runs made up by hand."""

import html.parser
import json
import re
import subprocess
import sys

import pandas as pd
import pytest

from experiments.analysis import finished, folders
from experiments.reports import page, page_limits, report
from tests.experiments import made_up_runs, programs
from tests.forks.programs import PATIENCE

NASTY = "<script>alert('x')</script> & a|b *c* `d` [e](f)"


class Reader(html.parser.HTMLParser):
    """The tables, headings, terms and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.texts, self.names = {}, [], []
        self.addresses, self.alternatives = [], []
        self._caption, self._row, self._cell = "", [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        attributes = dict(attrs)
        self.addresses += [
            attributes[each] for each in ("src", "href") if each in attributes
        ]
        self.alternatives += [attributes["alt"]] if "alt" in attributes else []
        if tag == "tr":
            self._row = []
        if tag in ("caption", "th", "td", "li", "dd", "h1", "h2", "p", "title"):
            self._cell = ""

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data

    def handle_endtag(self, tag):
        if tag == "caption":
            self._caption = self._cell
            self.tables.setdefault(self._caption, [])
        elif tag in ("th", "td"):
            self._row.append(self._cell)
        elif tag == "tr":
            self.tables[self._caption].append(self._row)
        elif tag in ("li", "dd", "h1", "h2", "p", "title"):
            self.texts.append(" ".join(self._cell.split()))


def markdown_tables(text):
    """The tables of a page in Markdown, by what stands above them."""
    tables = {}
    for title, rows in re.findall(r"\*\*(.+)\*\*\n\n((?:\|.+\n)+)", text):
        lines = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in rows.splitlines()]
        tables[plain(title)] = [[plain(cell) for cell in line] for line in lines]
        rule = tables[plain(title)].pop(1)
        assert all(re.fullmatch(r":--|--:", cell) for cell in rule)
    return tables


def plain(text):
    return re.sub(r"\\(.)", r"\1", text)


def comparison(folder, names=("fed_avg", "fed_adam"), flags=None, **settings):
    """Two methods with two seeds each, in the files of a comparison."""
    curves = ([0.1, 0.5, 0.8], [0.1, 0.3, 0.6]), ([0.1, 0.2, 0.5], [0.1, 0.2, 0.7])
    runs = []
    for name, algorithm, of_method in zip(
        names, ("fed_avg", "fed_adam"), curves, strict=True
    ):
        rate = {"server_learning_rate": 1.0 if algorithm == "fed_avg" else 0.01}
        for seed, accuracies in enumerate(of_method, start=1):
            own = {"algorithm": algorithm, "seed": seed, **rate, **settings}
            path = folder / name / f"seed_{seed}"
            made_up_runs.write(path, accuracies, **own)
            content = json.loads((path / "config.json").read_text())
            runs.append({"folder": f"{name}/seed_{seed}", **content["configuration"]})
    config = {"format": "tff_drift comparison", "flags": flags or {}, "runs": runs}
    (folder / "config.json").write_text(json.dumps(config))
    summary = {
        "clients": 50,
        "totals": {"seconds": 90.0, "seconds_evaluation": 5.0},
        "versions": {"python": "3.11.7", "tensorflow": "2.14.1"},
        "machine": {"processor": "Abacus", "processors": 2, "ram": 8e9},
        "git_revision": "abc123-dirty",
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def written(folder, *sources, **flags):
    path = report.write(sources, folder, **flags)
    return Reader(path.read_text()), path.with_suffix(".md").read_text()


LOCAL = {"scale": "local"}
END = "Mean of the last round: mean ± sd over seeds."


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A comparison that is not to be changed."""
    return comparison(tmp_path_factory.mktemp("made") / "study", flags=LOCAL)


@pytest.fixture(scope="module")
def whole(study):
    """The page of it, as HTML that is read and as Markdown."""
    return written(study.parent / "out", study, thresholds=(0.6,))


def test_a_comparison_on_one_page(study, whole):
    found, _ = whole
    header, first, second = found.tables[END]
    assert header[:4] == ["runs", "seeds", "test_accuracy", "test_loss"]
    assert first[:4] == ["fed_avg", "2", "70.00 ± 14.14 %", "0.3 ± 0.14"]
    assert second[:3] == ["fed_adam", "2", "60.00 ± 14.14 %"]
    assert any("p5 to p95 are percentiles" in text for text in found.texts)
    reached = found.tables[
        "To reach a test_accuracy for the first time: mean ± sd over seeds."
    ]
    assert reached[1] == ["fed_avg", "2", "2 ± 0", "100 %"]
    assert reached[2] == ["fed_adam", "2", "-", "50 %"]
    assert found.tables["What differs"] == [
        ["runs", "algorithm", "server_learning_rate"],
        ["fed_avg", "fed_avg", "1"],
        ["fed_adam", "fed_adam", "0.01"],
    ]
    assert ["rounds", "2"] in found.tables["The same for all runs"]
    for text in (
        str(study),
        "python 3.11.7, tensorflow 2.14.1",
        "Abacus, 2 processors, 8 GB of RAM",
        "1 min 30 s of training and 5 s of evaluation, all runs together",
        "50 for training, 4 of them per round",
        "2 seeds: differences within one or two standard deviations may be chance.",
        "The code was not exactly that of the revision: files had been changed.",
    ):
        assert text in found.texts
    assert any(text.startswith("The scale is local") for text in found.texts)


def test_the_html_page_needs_no_other_file_and_runs_no_code(study, whole):
    found, markdown = whole
    assert len(found.addresses) == len(found.alternatives) == 4
    assert all(
        each.startswith("data:image/svg+xml;base64,") for each in found.addresses
    )
    assert "test_accuracy by round: fed_avg, fed_adam" in found.alternatives
    assert "script" not in found.names
    figures = re.findall(r"^!\[.+\]\((.+)\)$", markdown, re.MULTILINE)
    assert len(figures) == 4
    for name in figures:
        assert (study.parent / "out" / name).read_bytes().startswith(b"<?xml")


def test_markdown_has_the_tables_of_html(study, whole):
    found, markdown = whole
    tables = markdown_tables(markdown)
    assert tables == found.tables
    assert len(tables) == 4
    assert markdown.startswith(f"# {study}\n".replace("_", r"\_"))


def test_names_are_no_markup(tmp_path):
    study = comparison(
        tmp_path / "study", (NASTY.replace("/", ":"), "plain"), note=NASTY
    )
    found, markdown = written(tmp_path / "out", study, title=NASTY)
    assert "script" not in found.names
    assert NASTY in found.texts
    assert ["note", NASTY] in found.tables["The same for all runs"]
    assert found.tables[END][1][0] == NASTY.replace("/", ":")
    assert markdown_tables(markdown) == found.tables
    assert "<script" not in markdown.replace(r"\<script", "")


def test_the_page_is_the_same_each_time(study, whole, tmp_path):
    again = report.write([study], tmp_path, thresholds=(0.6,))
    assert again.read_bytes() == (study.parent / "out" / "report.html").read_bytes()


def test_figures_of_an_earlier_page_do_not_stay(tmp_path):
    made_up_runs.write(tmp_path / "more" / "1", [0.1, 0.5], norms=[1.0], cosine=0.5)
    made_up_runs.write(tmp_path / "less" / "1", [0.1, 0.2])
    written(tmp_path / "told", tmp_path / "more")
    figures = tmp_path / "told" / "report_figures"
    assert (figures / "1_cosines.svg").exists()
    (figures / "notes.svg").write_text("mine")
    _, text = written(tmp_path / "told", tmp_path / "less")
    shown = set(re.findall(r"report_figures/([^)]+)", text))
    assert shown
    assert {path.name for path in figures.iterdir()} == {*shown, "notes.svg"}


def test_runs_are_read_from_the_table_that_is_kept_of_them(
    study, whole, no_figures, tmp_path
):
    runs = finished.gather(folders.runs_below(study))
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("config.json", "summary.json"):
        (kept / name).write_text((study / name).read_text())
    parts = runs.rounds["run"].str.rsplit("/", n=2, expand=True)
    table = runs.rounds[["round", "test_accuracy", "test_loss"]]
    table.insert(0, "method", parts[1])
    table.insert(1, "seed", parts[2].str.removeprefix("seed_").astype(int))
    table.to_csv(kept / "metrics.csv.gz", index=False)
    found, _ = written(tmp_path / "b", kept)
    assert [row[:4] for row in found.tables[END]] == [
        row[:4] for row in whole[0].tables[END]
    ]
    # One that has not come to its last round is left out, and named.
    table[(table["method"] != "fed_adam") | (table["round"] < 2)].to_csv(
        kept / "metrics.csv.gz", index=False
    )
    found, _ = written(tmp_path / "c", kept)
    assert [row[0] for row in found.tables[END]] == ["runs", "fed_avg"]
    assert any(str(kept / "fed_adam" / "seed_2") in text for text in found.texts)


def test_tables_that_a_preset_wrote_have_the_papers_figures(tmp_path):
    flags = {"preset": "uga_table", "part": "p", "scale": "local", "seeds": [1, 2]}
    study = comparison(tmp_path / "study", flags=flags)
    table = "Rounds to `x`. In parentheses: the paper.\n\n"
    table += "| method | 70 % |\n| :-- | --: |\n| fed_avg | 2 (68) |\n"
    (study / "milestones.md").write_text(table)
    (study / "table.md").write_text("| a |\n| :-- |\n| told from the runs |\n")
    for name in ("milestones", "table"):
        (study / f"{name}.csv").write_text("x\n1\n")
    (study / "README.md").write_text("No table.")
    head = b"\x89PNG\r\n\x1a\n" + bytes(8) + b"\0\0\0\x90\0\0\0\x20"
    for name in ("distances", "clients"):
        (study / f"{name}.png").write_bytes(head)
    found, _ = written(
        tmp_path / "out", study, presets={"uga_table": "Paper. https://a.org/1"}
    )
    assert found.tables["milestones"] == [["method", "70 %"], ["fed_avg", "2 (68)"]]
    assert "Rounds to x. In parentheses: the paper." in found.texts
    assert "table" not in found.tables
    assert "distances" in found.alternatives
    # Drawn of the runs.
    assert "clients" not in found.alternatives
    assert "uga_table: p" in found.texts
    command = "tff-drift preset uga_table --scale=local --parts=p --seeds=1,2"
    assert command in found.texts
    assert "https://a.org/1" in found.addresses


def test_a_sweep_is_told_by_its_points(tmp_path):
    sweep = tmp_path / "sweep"
    made_up_runs.write(sweep / "tau=0.1" / "seed_1", [0.1, 0.2])
    flags = {"task": "digits", "tau": None}
    (sweep / "sweep.json").write_text(
        json.dumps({"format": "tff_drift sweep", "axes": ["tau"], "flags": flags})
    )
    points = "fed_adam on digits\n\n| tau | accuracy |\n| :-- | --: |\n| 0.1 | 20 % |\n"
    (sweep / "points.md").write_text(points)
    (sweep / "points.csv").write_text("tau,accuracy\n0.1,0.2\n")
    found, _ = written(tmp_path / "out", sweep)
    assert found.tables["points"] == [["tau", "accuracy"], ["0.1", "20 %"]]
    assert found.tables["The same for all runs"][1:] == [["task", "digits"]]
    assert END not in found.tables
    assert any("clients that are held out" in text for text in found.texts)


def test_other_runs_are_told_task_by_task(no_figures, tmp_path):
    made_up_runs.write(tmp_path / "runs" / "a", [0.1, 0.2])
    made_up_runs.write(tmp_path / "runs" / "b", [0.1, 0.4], task="cifar10")
    found, _ = written(tmp_path / "out", tmp_path / "runs")
    assert f"{tmp_path / 'runs'}: digits" in found.texts
    assert f"{tmp_path / 'runs'}: cifar10" in found.texts
    assert [row[2] for row in found.tables[END]] == [
        "test_accuracy", "20.00 %", "test_accuracy", "40.00 %",
    ]  # fmt: skip


def limits(tmp_path, accuracies, flags=None, revisions=(), **settings):
    made_up_runs.write(tmp_path / "run", accuracies, **settings)
    runs = finished.read(tmp_path)
    labels = pd.Series("one", index=runs.settings.index)
    found = page_limits.limits(
        runs, labels, "test_accuracy", flags or {}, set(revisions)
    )
    return "\n".join(found)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "One seed: how far another would differ is not known"),
        ({"synthetic": True}, "synthetic stand-in"),
        ({"max_evaluation_clients": 50}, "at most 50 of the test clients"),
        ({"max_examples": 64}, "at most 64 of their examples"),
        ({"flags": {"scale": "local"}}, "The scale is local"),
        ({"failures": (1,)}, "broke down (training accuracy halved"),
        ({"rejected": (1,)}, "In 1 run(s) no client's update was ever finite"),
        ({"revisions": ("a", "b")}, "Not all runs are of the same revision"),
    ],
)
def test_what_a_result_does_not_show(tmp_path, settings, expected):
    plain = limits(tmp_path / "plain", [0.1, 0.2])
    found = limits(tmp_path / "with", [0.1, 0.2], **settings)
    assert expected in found
    assert (expected in plain) == (not settings)


def test_a_run_with_one_round_that_counted_is_not_of_the_initial_model(tmp_path):
    found = limits(tmp_path, [0.1, 0.1, 0.2], rejected=(1,))
    assert "broke down" in found
    assert "ever finite" not in found


def test_training_that_had_not_ended_is_named(tmp_path):
    rising = [0.05 * number for number in range(11)]
    settled = [0.5 * (number > 0) for number in range(11)]
    assert "had not ended" in limits(tmp_path / "a", rising)
    assert "had not ended" not in limits(tmp_path / "b", settled)


def test_notes_and_reports_in_the_folder_are_no_tables(no_figures, tmp_path):
    study = comparison(tmp_path / "study")
    (study / "notes.md").write_text("The best yet.")
    written(study, study)
    page, _ = written(study, study)
    assert not {"notes", "report"} & set(page.tables)
    assert END in page.tables


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", "{", "config.json' is damaged"),
        ("summary.json", "[]", "summary.json' is damaged"),
        ("extra.md", "No table.", "extra.md' is damaged: it holds no table"),
        ("norms.png", "none", "norms.png' is damaged: it is not a PNG"),
        ("fed_avg/seed_1/metrics.csv", "x,y\n1,2\n", "metrics.csv' is damaged"),
        ("fed_avg/seed_1/config.json", '{"format": "tff_drift run"}', "names no task"),
    ],
)
def test_a_damaged_file_is_named_and_nothing_written(
    run_command, tmp_path, name, text, message
):
    study = comparison(tmp_path / "study")
    (study / name).write_text(text)
    if name.endswith(".md"):
        (study / name).with_suffix(".csv").write_text("x\n1\n")
    outcome = run_command("report", study, f"--output_dir={tmp_path / 'out'}")
    assert outcome.status == 2
    assert outcome.stderr.count("\n") == 1
    assert message in outcome.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent"], "'absent' is not a folder."),
        (["EMPTY"], "holds no finished run, comparison or sweep."),
        (["TO GO"], "no finished run, comparison or sweep: 1 with rounds to go."),
        (["STUDY", "--name="], "--name must be the name of a file"),
        (
            ["STUDY", "--name=a/b"],
            "--name must be the name of a file without its folder",
        ),
        (["STUDY", "--columns=x"], "no run has a column 'x'"),
        (["STUDY", "--by=x"], "the runs have no setting 'x'"),
    ],
)
def test_mistakes(run_command, tmp_path, words, message):
    (tmp_path / "empty").mkdir()
    made_up_runs.write(tmp_path / "to go" / "run", [0.1, 0.2], rounds=9)
    comparison(tmp_path / "study")
    places = {name: tmp_path / name.lower() for name in ("EMPTY", "TO GO", "STUDY")}
    words = [places.get(word, word) for word in words]
    outcome = run_command("report", *words, f"--output_dir={tmp_path / 'out'}")
    assert outcome.status == 2
    assert message in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_a_table_is_not_replaced_by_a_page(run_command, no_figures, tmp_path):
    study = comparison(tmp_path / "study")
    (study / "table.md").write_text("theirs")
    words = ("report", study, f"--output_dir={study}")
    outcome = run_command(*words, "--name=table")
    assert outcome.status == 2
    assert outcome.stderr.count("\n") == 1
    assert "--name must be that of a page, or new, found 'table'" in outcome.stderr
    assert (study / "table.md").read_text() == "theirs"
    assert not (study / "table.html").exists()
    for _ in range(2):
        assert run_command(*words, "--name=digits").status == 0


def test_the_committed_results_have_a_page(run_command, tmp_path):
    folder = programs.ROOT / "experiments" / "results" / "demo"
    outcome = run_command(
        "report", folder, f"--output_dir={tmp_path}", "--name=demo", "--last=3"
    )
    assert outcome.status == 0, outcome.stderr
    assert f"Files in {tmp_path}: demo.html, demo.md, demo_figures" in outcome.stdout
    assert outcome.lacking_files() == []
    found = Reader((tmp_path / "demo.html").read_text())
    methods = pd.read_csv(folder / "table.csv")["algorithm"]
    last = "Mean of the last 3 rounds: mean ± sd over seeds."
    assert [row[0] for row in found.tables[last][1:]] == list(methods)


@pytest.mark.conformance
def test_it_does_without_tensorflow(tmp_path):
    made_up_runs.write(tmp_path / "run", [0.1, 0.2])
    program = f"""
import sys
from experiments.reports import report
report.write([{str(tmp_path)!r}], {str(tmp_path / "out")!r})
assert not {{"tensorflow", "tensorflow_federated"}} & set(sys.modules)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=programs.ROOT, capture_output=True,
        text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr


def test_a_page_of_nothing_is_one_too():
    found = Reader(page.as_html(page.Page("Nothing", [])))
    assert found.texts == ["Nothing", "Nothing"]
