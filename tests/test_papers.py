"""What the papers claim, the verdicts on it, and the pages that are made of them."""

import csv
import dataclasses
import functools
import json
import pathlib
import re
import shlex
import shutil
import sys

import pytest

from experiments.presets.catalogue import PRESETS

pytestmark = pytest.mark.documents

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import claims  # noqa: E402
import lookups  # noqa: E402
import paper_pages  # noqa: E402
import presets_table  # noqa: E402

PAPERS = claims.read_all()
CLAIMS = [
    pytest.param(claim, id=f"{paper.name}-{claim.id}")
    for paper in PAPERS
    for claim in paper.claims
]
PAGES = ["docs/results.md", *(f"docs/results/{paper.name}.md" for paper in PAPERS)]
# Made when they are looked at: the tests of the tiers are collected without.
pages = functools.cache(paper_pages.pages)


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_look_up_finds_a_figure(claim):
    assert re.search(r"\d", claims.written(claim))
    assert claim.figures
    for figure in claim.figures:
        assert figure.paper or re.search(r"\d", claims.written(figure))


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_verdict_is_that_of_the_rule(claim):
    assert claim.verdict in claims.VERDICTS
    assert claim.verdict == claims.ruling(claim)
    if not claim.rule:
        assert claim.note, "say why"
        assert claim.needs, "say what would decide"


@pytest.mark.parametrize("claim", CLAIMS)
def test_scale_and_seeds_are_those_of_the_runs(claim):
    assert claim.seeds == claims.seeds(claim)
    scale = claims.scale(claim)
    if scale is not None and claim.scale != "theory":
        assert claim.scale == scale


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_command_of_a_claim_is_of_parts_that_there_are(claim):
    if not claim.preset:
        pytest.skip("its commands are in the log")
    parts, preset = claim.parts.split(), PRESETS[claim.preset]
    shown = paper_pages.command(claim)
    scales = re.findall(r"--scale=(\w+)", shown) or ["local"]
    assert {each.part for each in preset.scale(scales[0]).studies} >= {*parts}
    if claim.needs:
        assert preset.study("paper", claim.needs_part)
    folders = [each.split("/")[-1] for each in claim.folders if "/" in each]
    assert set(folders) >= set(parts) or claim.folders[0] == "fedopt_shakespeare"


def test_a_part_of_every_paper_is_verified_in_turns():
    text = (ROOT / ".ci" / "run").read_text("utf-8")
    [turns] = re.findall(r"^verified=\(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    verified = [words.split() for words in re.findall(r'"(.+?)"', turns)]
    for preset, part in verified:
        assert PRESETS[preset].study("local", part)
        assert (lookups.RESULTS / preset / part / "metrics.csv.gz").exists()
    turns_of = {
        paper.name: {claim.preset for claim in paper.claims}
        & {name for name, _ in verified}
        for paper in PAPERS
    }
    assert all(turns_of.values())


def test_every_preset_of_a_paper_has_a_claim():
    named = {claim.preset for paper in PAPERS for claim in paper.claims} - {""}
    # Of a comparison that no paper has, nothing can be reproduced.
    of_papers = {name for name, each in PRESETS.items() if " et al. (" in each.source}
    assert named == of_papers
    assert set(PRESETS) - of_papers == {"drift_methods"}


def test_what_is_contradicted_was_tried_in_a_second_setting():
    contradicted = [
        claim
        for paper in PAPERS
        for claim in paper.claims
        if claim.verdict == "contradicted"
    ]
    assert contradicted
    assert all("the second setting" in claim.note for claim in contradicted)


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_made_of_the_claims(name):
    text = (ROOT / name).read_text("utf-8")
    assert text == pages()[name], "write it anew: make papers"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_on_a_phone(name):
    text = pages()[name]
    for line in text.splitlines():
        if line.startswith("| "):
            for cell in line.strip("| ").split(" | "):
                shown = re.sub(r"<.*?>", "", re.sub(r"\]\([^)]*\)", "]", cell))
                assert len(shown.strip("[]")) <= 60, cell
    for block in re.findall(r"```\n(.*?)```", text, re.DOTALL):
        assert all(len(line) <= 85 for line in block.splitlines())
        assert shlex.split(block.replace("\\\n", ""))[0] == "tff-drift"
    assert "<!--" not in text


def test_there_is_a_page_for_every_paper():
    assert list(pages()) == PAGES


def test_the_overview_is_short():
    assert len(pages()["docs/results.md"].encode()) <= 12_000


def test_the_table_of_presets_is_that_of_their_data():
    text = presets_table.DOCUMENT.read_text("utf-8")
    rows = presets_table.renewed(text)
    assert text == rows, "write it anew: make papers"
    assert all(f"| `{name}` | " in rows for name in PRESETS)


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results" / "study"
    folder.mkdir(parents=True)
    (folder / "table.csv").write_text(
        "algorithm,accuracy,accuracy_sd,loss,rounds\n"
        "a,0.81,0.02,0.52,60\nb,0.80,0.001,0.5,60\nc,0.70,,0.4,60\nd,,,,60\n"
    )
    (folder / "summary.json").write_text(json.dumps({"seeds": [1, 2, 3]}))
    (folder / "config.json").write_text(json.dumps({"runs": [{"rounds": 60}]}))
    return tmp_path / "results"


def claim_of(
    rule,
    verdict="confirmed",
    scale="0.5",
    paper=None,
    measure="accuracy%",
    **changed,
):
    """A claim on the figures A 81 ± 2, B 80 ± 0.1, C 70 and D, which is none.

    The loss, of one seed, is 0.52, 0.50 and 0.40.
    """
    figures = [
        claims.Figure(
            *("id", "one", name.upper(), (paper or {}).get(name.upper(), "")),
            *("study", name, measure, "0.0 ± 0.0"),
        )
        for name in "abcd"
    ]
    values = dict.fromkeys(
        (each.name for each in dataclasses.fields(claims.Claim)), ""
    ) | {
        **{"id": "id", "source": "study", "row": "a", "column": "accuracy%"},
        **{"form": "0.0 ± 0.0", "verdict": verdict, "rule": rule, "scale": scale},
        **{"paper_scale": "10 of 100 clients, 1,200 rounds", "figures": tuple(figures)},
    }
    return claims.Claim(**values | changed)


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("A, B > C", "confirmed"),
        ("A > C < B", "confirmed"),
        ("C < B; one: A > C + 8", "confirmed"),
        ("A > C + 14", "contradicted"),
        ("A > C * 1.1", "confirmed"),
        ("B >= A; A ~ B", "confirmed"),  # A's deviation is 2.
        ("A > B", "mixed"),
        ("B > A", "mixed"),
        ("A > B > C; C < B < A", "mixed"),
        ("A > B, C", "mixed"),
        ("A > C + 10", "mixed"),
        ("B < C, A", "contradicted"),  # The one is reversed, the other level.
        ("C > B; B > A", "contradicted"),
        ("B > C * 1.14", "confirmed"),  # 80 and 79.8, the deviation is 0.1.
        ("A * 10 > B * 10", "mixed"),  # 810 and 800, the deviation is 20.
        ("B ~ C", "contradicted"),
        ("A > C; C > B", "mixed"),
        ("A > 78.5", "confirmed"),
        ("A > 80.5", "mixed"),
        ("C > 69.5; C < 70.5", "mixed"),  # A point, as C has no deviation.
        ("C > 68.5; C < 71.5", "confirmed"),
        ("D < 90", "contradicted"),  # What was not reached is no figure.
    ],
)
def test_rules_are_read(results, rule, verdict):
    assert claims.ruling(claim_of(rule), results) == verdict


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ("A, B > C", "confirmed"),
        ("A ~ B; B ~ C + 0.06", "confirmed"),
        ("A > B", "mixed"),
        ("B > C * 1.2", "mixed"),
        ("C > B", "contradicted"),
    ],
)
def test_what_is_no_percentage_is_level_to_a_tenth(results, rule, verdict):
    assert claims.ruling(claim_of(rule, measure="loss"), results) == verdict


@pytest.mark.parametrize(
    ("rule", "scale", "paper", "verdict"),
    [
        ("within 1", "1", {"A": "80.5", "B": "80.9"}, "reproduced"),
        ("within 1", "0.5", {"A": "80.5"}, "confirmed"),
        ("within 1", "1", {"A": "83"}, "contradicted"),
        ("within 10 %", "1", {"A": "75"}, "confirmed"),
        ("within 10 %; A > C", "1", {"A": "70"}, "mixed"),
        ("A > C", "theory", {}, "reproduced"),
    ],
)
def test_what_is_near_the_papers_figures_is_reproduced(
    results, rule, scale, paper, verdict
):
    one = claim_of(rule, scale=scale, paper=paper)
    assert claims.ruling(one, results) == verdict


@pytest.mark.parametrize(
    ("task", "scale", "source", "verdict"),
    [
        ("cifar100", "0.09", "study", "not run"),
        ("cifar100", "0.1", "study", "not comparable"),
        ("digits", "0.09", "study", "not comparable"),  # It ended.
        ("cifar100", "1", "", "not run"),
    ],
)
def test_undecided_is_not_run_where_the_papers_task_stopped_early(
    results, task, scale, source, verdict
):
    runs = {"runs": [{"rounds": 60, "task": task}]}
    (results / "study" / "config.json").write_text(json.dumps(runs))
    deciding = {"preset": "fedopt_table", "needs_part": "cifar100"}
    claim = claim_of("", scale=scale, **deciding)
    without = dataclasses.replace(claim, source=source)
    assert claims.ruling(without, results) == verdict


@pytest.mark.parametrize(("task", "hours"), [("cifar100", 4 / 3), ("digits", None)])
def test_hours_are_those_of_the_papers_rounds_at_the_speed_of_the_runs(
    results, task, hours
):
    runs = {"runs": [{"rounds": 60, "task": task}]}
    (results / "study" / "config.json").write_text(json.dumps(runs))
    # 2 seconds a round, two methods, the 1,200 rounds of `claim_of`.
    summary = {"algorithms": ["a", "b"], "totals": {"seconds": 120.0, "rounds": 60}}
    (results / "study" / "summary.json").write_text(json.dumps(summary))
    claim = claim_of("", preset="fedopt_table", needs_part="cifar100")
    assert claims.hours(claim, results) == pytest.approx(hours)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("A > E", "'A > E'"), ("A", "'A'"), ("two: A > B", "two: A"), ("within 1", "id")],
)
def test_rules_that_nothing_follows_from_are_errors(results, rule, message):
    with pytest.raises(ValueError, match=message):
        claims.ruling(claim_of(rule), results)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"row": "nobody"}, "no row 'nobody'"),
        ({"column": "time"}, "no column 'time'"),
        ({"source": "elsewhere"}, "elsewhere"),
    ],
)
def test_a_wrong_look_up_is_an_error(results, changed, message):
    with pytest.raises(ValueError, match=message):
        claims.written(claim_of("A > B", **changed), results)


def test_what_the_last_round_measured_is_read_of_every_seed(results):
    finals = [("a", 1, 0.5), ("a", 2, 0.75), ("b", 1, 0.25)]
    runs = [
        {"algorithm": method, "seed": seed, "final": {"test_accuracy_client_p5": value}}
        for method, seed, value in finals
    ]
    (results / "study" / "summary.json").write_text(json.dumps({"runs": runs}))
    named = {"source": "study/summary.json", "column": "test_accuracy_client_p5%"}
    one = claim_of("", **named)
    # 0.125 times the square root of 2.
    assert claims.written(one, results) == "62.5 ± 17.7"
    assert claims.written(claim_of("", row="a-b", **named), results) == "37.5"
    assert one.folders == ("study",)
    with pytest.raises(ValueError, match=r"no column 'loss'.*client_p5"):
        claims.written(claim_of("", **named | {"column": "loss"}), results)


def test_figures_are_written_in_their_form(results):
    assert claims.written(claim_of(""), results) == "81.0 ± 2.0"
    # No deviation of one seed, and a limit in place of what was not reached.
    assert claims.written(claim_of("", row="c"), results) == "70.0"
    assert claims.written(claim_of("", row="d"), results) == "> 60"


def test_scale_and_seeds_are_read_from_the_runs(results):
    assert claims.scale(claim_of(""), results) == "0.05"
    assert claims.seeds(claim_of(""), results) == "3"


def test_a_changed_claim_changes_the_page_and_its_verdict(tmp_path):
    folder = tmp_path / "fed_opt"
    shutil.copytree(claims.PAPERS / "fed_opt", folder)
    before = claims.read(folder)
    path = folder / "claims.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    first = rows[0]
    first["claim"] = "Something else"
    first["rule"] = "FedAvg > 99"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, first.keys())
        writer.writeheader()
        writer.writerows(rows)
    after = claims.read(folder)
    assert "### Something else\n" in paper_pages.page(after)
    assert paper_pages.page(after) != paper_pages.page(before)
    assert claims.ruling(before.claims[0]) == "reproduced"
    assert claims.ruling(after.claims[0]) == "contradicted"


def test_figures_of_no_claim_are_an_error(tmp_path):
    folder = tmp_path / "fed_opt"
    shutil.copytree(claims.PAPERS / "fed_opt", folder)
    with (folder / "figures.csv").open("a", encoding="utf-8") as file:
        file.write("nothing,here,A,1,,,,\n")
    with pytest.raises(ValueError, match="nothing"):
        claims.read(folder)
