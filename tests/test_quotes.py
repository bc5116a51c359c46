"""What documents quote from results is what the results say."""

import math
import pathlib
import re
import sys

import pandas as pd
import pytest

pytestmark = pytest.mark.documents

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import quotes  # noqa: E402

DOCUMENTS = quotes.documents()


@pytest.mark.parametrize(
    "path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_documents_quote_what_the_results_say(path):
    text = path.read_text()
    assert quotes.renewed(text) == text, "make quotes"
    assert quotes.unquoted(text) == [], "say where it is from: docs/site/quotes.py"
    assert quotes.misplaced(text) == []


def test_enough_is_quoted():
    quoted = {str(path.relative_to(ROOT)): path.read_text() for path in DOCUMENTS}
    counts = {name: text.count("<!-- ") for name, text in quoted.items()}
    assert counts["docs/choosing.md"] >= 20
    assert counts["experiments/results/drift_comparison/README.md"] >= 20


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    table = {
        "algorithm": ["fed_avg", "fed_adam"],
        "accuracy": [0.81234, math.nan],
        "accuracy_sd": [0.00456, math.nan],
        "bytes": [12345.6, 20.0],
        "tiny": [8.84e-7, 2.0],
        "rounds": [60, 60],
    }
    pd.DataFrame(table).to_csv(folder / "table.csv", index=False)
    metrics = {
        "method": ["a", "a", "a", "a"],
        "seed": [1, 1, 2, 2],
        "round": [0, 1, 0, 1],
        "loss": [3.0, 1.0, 5.0, 2.0],
    }
    pd.DataFrame(metrics).to_csv(folder / "metrics.csv.gz", index=False)
    return tmp_path


@pytest.mark.parametrize(
    ("written", "comment", "expected"),
    [
        ("1.0 ± 1.00 %", "study fed_avg accuracy", "81.2 ± 0.46 %"),
        ("1.00", "study fed_avg accuracy%", "81.23"),
        ("**1.000**", "study fed_avg accuracy", "**0.812**"),
        ("(1 %)", "study/table.csv fed_avg accuracy", "(81 %)"),
        ("1", "study algorithm=fed_avg,rounds=60 bytes", "12346"),
        ("1,000", "study fed_avg bytes", "12,346"),
        ("1.0e-01", "study fed_avg tiny", "8.8e-07"),
        ("1", "study fed_adam accuracy", "> 60"),
        ("1.0", "study fed_avg-fed_adam tiny", "-2.0"),
        ("1.00", "study fed_adam/fed_avg rounds", "1.00"),
        ("9", "study/metrics.csv.gz a loss@first", "4"),
        ("9.0 ± 1.00", "study/metrics.csv.gz a loss@last", "1.5 ± 0.71"),
        ("9, 9", "study/metrics.csv.gz a loss@max", "3, 5"),
        ("9.0", "study/metrics.csv.gz a loss@1", "1.5"),
    ],
)
def test_a_figure_is_written_anew_in_its_form(results, written, comment, expected):
    text = f"We see {written}<!-- {comment} -->."
    assert quotes.renewed(text, results) == f"We see {expected}<!-- {comment} -->."


def test_a_comment_of_two_words_has_the_source_of_the_one_before(results):
    text = "1.0<!-- study fed_avg accuracy% --> and 1<!-- fed_avg bytes -->"
    expected = "81.2<!-- study fed_avg accuracy% --> and 12346<!-- fed_avg bytes -->"
    assert quotes.renewed(text, results) == expected


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("study nobody accuracy", "no row 'nobody'"),
        ("study fed_avg loss", "no column 'loss'"),
        ("study rounds=60 accuracy", "2 rows"),
        ("elsewhere fed_avg accuracy", "elsewhere"),
        ("fed_avg", "'1<!-- fed_avg -->'"),
    ],
)
def test_what_there_is_not_cannot_be_quoted(results, comment, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        quotes.renewed(f"1<!-- {comment} -->", results)


def test_figures_without_a_source_are_found():
    text = "1.0 ± 0.1 % and 2.0 ± 0.1<!-- paper --> and <!-- study a b -->"
    assert quotes.unquoted(text) == ["1.0 ± 0.1"]
    assert quotes.misplaced(text) == ["<!-- study a b -->"]


@pytest.fixture(name="races")
def fixture_races(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import diagnosed_races

    return diagnosed_races


def test_the_page_of_diagnoses_has_the_table_of_races(races):
    table = races.table()
    kept = len(list(races.KEPT.glob("*.json")))
    rows, lines = table.split("\n\n")
    assert (rows.count("\n"), lines.count("*   ")) == (1 + kept, kept)
    assert (races.RESULTS / "races.md").read_text("utf-8") == table
    assert table in (ROOT / "docs" / "diagnosis.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("places", "right"),
    [
        ({"scaffold": "first", "fed_avg": "behind", "fed_adam": "behind"}, "yes"),
        ({"scaffold": "first", "fed_avg": "tie"}, "a tie"),
        ({"fed_avg": "first", "scaffold": "tie", "fed_adam": "behind"}, "a tie"),
        ({"fed_avg": "first", "scaffold": "behind"}, "no"),
        ({"fed_avg": "first"}, "not raced: it names no method"),
    ],
)
def test_a_diagnosis_is_right_where_a_method_that_it_names_is_ahead(
    races, places, right
):
    assert races.verdict(places) == right
