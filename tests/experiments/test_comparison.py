"""The files of a comparison, judged against the metrics of its runs."""

import json
import math
import shutil

import matplotlib.image
import pandas as pd
import pytest

from experiments import analysis
from experiments.reports import results
from experiments.reports.comparison import describe, tabulate
from tests import tiers
from tests.experiments import programs

pytestmark = pytest.mark.no_smoke

ALGORITHMS = ("fed_avg", "fed_adam")
SEEDS = (5, 6)


def metrics(comparison, algorithm, seed):
    path = comparison.folder / algorithm / f"seed_{seed}" / "metrics.csv"
    return pd.read_csv(path)


def last_values(comparison, algorithm, column):
    return pd.Series(
        [
            metrics(comparison, algorithm, seed)[column].dropna().iloc[-1]
            for seed in SEEDS
        ]
    )


def test_every_run_has_its_files(comparison):
    for algorithm in ALGORITHMS:
        for seed in SEEDS:
            folder = comparison.folder / algorithm / f"seed_{seed}"
            names = {path.name for path in folder.iterdir()}
            assert names == {
                "checkpoint.npz",
                "config.json",
                "curves.png",
                "metrics.csv",
                "summary.json",
                "tensorboard",
            }
            assert list((folder / "tensorboard").glob("events.out.tfevents.*"))


def test_the_comparison_has_its_files(comparison):
    names = {path.name for path in comparison.folder.iterdir()}
    assert names == {
        "config.json",
        "curves.png",
        "fed_adam",
        "fed_avg",
        "summary.json",
        "table.csv",
        "table.md",
    }


def test_output_is_quiet_without_a_terminal(comparison):
    assert comparison.outcome.stderr.splitlines() == [
        "[1/4] fed_avg, seed 5",
        "[2/4] fed_adam, seed 5",
        "[3/4] fed_avg, seed 6",
        "[4/4] fed_adam, seed 6",
    ]
    assert "\x1b" not in comparison.outcome.stdout
    assert f"Files in {comparison.folder}: " in comparison.outcome.stdout
    assert comparison.outcome.lacking_files() == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_table_equals_the_metrics(comparison, algorithm):
    table = pd.read_csv(comparison.folder / "table.csv").set_index("algorithm")
    row = table.loc[algorithm]
    accuracy = last_values(comparison, algorithm, "test_accuracy")
    loss = last_values(comparison, algorithm, "test_loss")
    best = [
        metrics(comparison, algorithm, seed)["test_accuracy"].max() for seed in SEEDS
    ]
    assert row["seeds"] == 2
    assert row["accuracy"] == pytest.approx(accuracy.mean())
    # The standard deviation of a sample of two.
    assert row["accuracy_sd"] == pytest.approx(
        abs(accuracy[0] - accuracy[1]) / 2**0.5, abs=1e-9
    )
    assert row["loss"] == pytest.approx(loss.mean())
    assert row["loss_sd"] == pytest.approx(loss.std())
    assert row["best_accuracy"] == pytest.approx(sum(best) / 2)
    for percent in (5, 50, 95):
        column = f"accuracy_client_p{percent}"
        values = last_values(comparison, algorithm, f"test_{column}")
        assert row[column] == pytest.approx(values.mean())
    sums = {"examples": "train_num_examples", "bytes": ("bytes_down", "bytes_up")}
    for column, parts in sums.items():
        totals = [
            metrics(comparison, algorithm, seed)[list(parts)].sum().sum()
            if isinstance(parts, tuple)
            else metrics(comparison, algorithm, seed)[parts].sum()
            for seed in SEEDS
        ]
        assert row[column] == sum(totals) / 2
    assert row["failures"] == 0


def test_readable_tables_show_the_numbers(comparison):
    table = pd.read_csv(comparison.folder / "table.csv").set_index("algorithm")
    markdown = (comparison.folder / "table.md").read_text()
    for algorithm, row in table.iterrows():
        accuracy = f"{100 * row['accuracy']:.2f} ± {100 * row['accuracy_sd']:.2f} %"
        assert f"| {algorithm} | {accuracy} |" in markdown
        assert accuracy in comparison.outcome.stdout
    assert markdown.startswith(
        "digits, 4 of 8 clients per round, 3 rounds, seeds 5, 6 (mean ± standard "
        "deviation).\n"
    )


def test_the_sentence_above_a_table_is_true_of_all_its_runs():
    def result(*words, **summary):
        return results.Result(programs.resolve(*words, "--seed=1"), [], summary)

    runs = [
        result("--algorithm=central", "--rounds=20", clients_per_round=1, clients=1),
        result("--clients_per_round=5", "--rounds=60", clients_per_round=5, clients=50),
        result("--clients_per_round=9", "--rounds=60", clients_per_round=9, clients=50),
    ]
    assert describe(runs) == (
        "digits, 5 or 9 of 50 clients per round, 20 or 60 rounds, seed 1"
    )
    assert describe(runs[:1]) == "digits, 1 of 1 clients per round, 20 rounds, seed 1"


def test_methods_without_a_rate_of_the_servers_have_a_table():
    row = {f"test_accuracy_client_p{percent}": 0.5 for percent in (5, 50, 95)}
    row.update(round=1, test_accuracy=0.5, test_loss=1.0)
    row.update(total_examples=10, total_bytes=10)
    row.update(train_num_batches=2, cohort_size=1)
    totals = {"seconds": 1.0, "seconds_evaluation": 1.0}
    summary = {"best": {}, "totals": totals, "failures": []}
    runs = [
        results.Result(programs.resolve("--algorithm=adabest", seed), [row], summary)
        for seed in ("--seed=1", "--seed=2")
    ]
    (table,) = tabulate(runs).to_dict(orient="records")
    assert table["seeds"] == 2
    assert math.isnan(table["server_learning_rate"])


def test_rounds_without_a_finite_update_are_failures():
    test = {f"test_accuracy_client_p{percent}": 0.5 for percent in (5, 50, 95)}
    test.update(test_accuracy=0.5, test_loss=1.0)
    totals = {"total_examples": 10, "total_bytes": 10}
    rejected = {"cohort_size": 3, "client_work/rejected_clients": 3}
    rows = [
        {"round": 0, **test},
        {"round": 1, **totals, **rejected, "non_finite": 1},
        {"round": 2, **totals, **rejected},
        {"round": 3, **totals, **rejected, "client_work/rejected_clients": 2},
    ]
    totals = {"seconds": 1.0, "seconds_evaluation": 1.0}
    failures = [{"round": 1, "kind": "non_finite"}]
    summary = {"best": {}, "totals": totals, "failures": failures}
    run = results.Result(programs.resolve("--seed=1"), rows, summary)
    assert list(tabulate([run])["failures"]) == [2]


def test_work_beyond_sgd_is_that_of_the_steps_taken():
    def work(algorithm, *words):
        words = (f"--algorithm={algorithm}", *words)
        run = programs.resolve(*words)
        # Four clients, of which two take three steps and two take five; then two.
        rows = [
            {"round": 0, "test_accuracy": 0.1},
            {"train_num_batches": 16, "cohort_size": 4},
            {"train_num_batches": 8, "cohort_size": 2},
        ]
        return results.arithmetic(run, rows)

    assert work("fed_adam") is None
    known = work("adabest")
    assert known["local_steps"] == 4
    assert known["client"] == {"sums": 5, "products": 1}
    # Three clients in a mean round.
    assert known["server"] == {"sums": 5, "products": 1}
    nothing = {"sums": 0, "products": 0}
    assert work("fed_avg")["client"] == nothing


def test_summary_of_a_run(comparison):
    path = comparison.folder / "fed_adam" / "seed_6" / "summary.json"
    summary = json.loads(path.read_text())
    frame = metrics(comparison, "fed_adam", 6)
    assert summary["seeds"] == {"task": 6, "sampling": 6}
    assert summary["final"]["round"] == 3
    last_accuracy = frame["test_accuracy"].iloc[-1]
    assert summary["final"]["test_accuracy"] == last_accuracy
    best = frame["test_loss"].idxmin()
    assert summary["best"]["test_loss"] == {
        "round": frame["round"][best],
        "value": frame["test_loss"][best],
    }
    # Its arithmetic is in no paper's table.
    assert summary["arithmetic"] is None
    totals = summary["totals"]
    assert totals["examples"] == frame["train_num_examples"].sum()
    assert totals["bytes_down"] == frame["bytes_down"].sum()
    assert totals["seconds"] == pytest.approx(frame["seconds"].sum())
    assert summary["failures"] == []
    assert {"python", "tff_drift", "tensorflow_federated"} <= set(summary["versions"])
    assert "git_revision" in summary
    assert summary["machine"]["processors"] >= 1
    assert summary["machine"]["processor"]


def test_summary_of_the_comparison(comparison):
    summary = json.loads((comparison.folder / "summary.json").read_text())
    assert summary["algorithms"] == list(ALGORITHMS)
    assert summary["seeds"] == list(SEEDS)
    runs = {(run["algorithm"], run["seed"]): run for run in summary["runs"]}
    assert len(runs) == 4
    examples = 0
    for (algorithm, seed), run in runs.items():
        frame = metrics(comparison, algorithm, seed)
        last_accuracy = frame["test_accuracy"].iloc[-1]
        assert run["final"]["test_accuracy"] == last_accuracy
        examples += frame["train_num_examples"].sum()
    assert summary["totals"]["examples"] == examples


def test_flags_are_in_config_json(comparison):
    config = json.loads((comparison.folder / "config.json").read_text())
    for word in programs.COMPARE_FLAGS:
        name, _, text = word.removeprefix("--").partition("=")
        value = config["flags"][name]
        if text:
            shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            assert shown == text
        else:
            assert value is True
    of_run = comparison.config("fed_adam", 5)
    configuration = of_run["configuration"]
    assert configuration["tau"] == 0.01
    assert configuration["num_clients"] == 8
    assert configuration["adaptive_clipping"] is True
    assert configuration["clipping_quantile"] == 0.8
    assert of_run["circumstances"]["tensorboard"] is True
    assert "tau" not in comparison.config("fed_avg", 5)["configuration"]


def test_settings_reach_the_processes(comparison):
    frame = metrics(comparison, "fed_adam", 5)
    # Clipping starts at norm 1 and measures; so do the cohort measurements.
    assert frame["aggregator/clipping_norm"].dropna().iloc[0] == 1.0
    assert frame["aggregator/mean_pairwise_cosine"].between(-1, 1).sum() == 3
    assert set(frame["cohort_size"].dropna()) == {4}
    assert list(frame["round"][frame["test_loss"].notna()]) == [0, 2, 3]


def test_figures(comparison):
    figures = [comparison.folder / "curves.png"]
    figures += sorted(comparison.folder.glob("*/*/curves.png"))
    assert len(figures) == 5
    for path in figures:
        picture = matplotlib.image.imread(path)
        assert picture.shape[:2] == (750, 1500)
        # Not blank: ink of several colours on white.
        assert len({tuple(pixel) for row in picture[::10] for pixel in row[::10]}) > 5


@pytest.fixture
def copied(comparison, tmp_path):
    """A copy of the comparison, and the words of it that FedAvg takes."""
    folder = tmp_path / "copy"
    shutil.copytree(comparison.folder, folder)
    dropped = ("--rounds=", "--algorithms=", "--tau=")
    words = [word for word in programs.COMPARE_FLAGS if not word.startswith(dropped)]
    return folder, words


def entries(folder):
    """What changes if anything in a folder is created, removed or written."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def test_nothing_that_is_finished_is_repeated(run_command, copied):
    folder, words = copied
    run = folder / "fed_avg" / "seed_5"
    before = entries(run)
    (folder / "fed_avg" / "seed_6" / "curves.png").unlink()
    again = run_command(
        "compare",
        *words,
        "--rounds=3",
        "--algorithms=fed_avg",
        f"--output_dir={folder}",
    )
    assert again.status == 0, again.stderr
    assert again.stderr.count(": finished before\n") == 2
    # Nothing is written, so that the folder may be read-only.
    assert entries(run) == before
    assert (folder / "fed_avg" / "seed_6" / "curves.png").stat().st_size > 0
    table = pd.read_csv(folder / "table.csv")
    assert list(table["algorithm"]) == ["fed_avg"]
    # Those of the command before are not lost.
    others = "fed_adam/seed_5, fed_adam/seed_6"
    told = (
        f"not of this command: {others}. A table of all: tff-drift analyze {folder}\n"
    )
    assert again.stderr.count(told) == 1
    again = run_command(
        "compare", *words, "--rounds=3", "--algorithms=fed_avg", "--seeds=5",
        "--callbacks=tff_drift.simulation.callbacks:Callback",
        f"--output_dir={folder}",
    )  # fmt: skip
    assert "finished before without --callbacks; for that, give" in again.stderr


@pytest.mark.conformance
def test_more_rounds_extend_and_nothing_is_repeated(run_command, comparison, copied):
    folder, words = copied
    before = metrics(comparison, "fed_avg", 5)
    outcome = run_command(
        "train",
        *[word for word in words if not word.startswith("--seeds=")],
        "--seed=5",
        "--rounds=4",
        f"--output_dir={folder / 'fed_avg' / 'seed_5'}",
    )
    assert outcome.status == 0, outcome.stderr
    assert "fed_avg on digits, seed 5: 4 rounds, 4 of 8 clients" in outcome.stdout
    after = pd.read_csv(folder / "fed_avg" / "seed_5" / "metrics.csv")
    assert list(after["round"]) == [0, 1, 2, 3, 4]
    columns = ["train_loss", "total_examples", "test_accuracy"]
    pd.testing.assert_frame_equal(after[columns][:4], before[columns])


@pytest.mark.conformance
def test_an_extension_that_was_killed_may_be_taken_back(
    run_command, comparison, tmp_path
):
    folder = tmp_path / "run"
    shutil.copytree(comparison.folder / "fed_avg" / "seed_5", folder)
    # What is there when the program is killed in round 5, before a checkpoint.
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content["configuration"]["rounds"] = content["training"]["rounds"] = 9
    path.write_text(json.dumps(content))
    rows = (folder / "metrics.csv").read_text()
    last = rows.splitlines()[-1].partition(",")[2]
    (folder / "metrics.csv").write_text(f"{rows}4,{last}\n")
    dropped = ("--algorithms=", "--seeds=", "--tau=")
    words = [word for word in programs.COMPARE_FLAGS if not word.startswith(dropped)]
    outcome = run_command("train", *words, "--seed=5", f"--output_dir={folder}")
    assert outcome.status == 0, outcome.stderr
    assert (folder / "metrics.csv").read_text() == rows
    assert json.loads(path.read_text())["configuration"]["rounds"] == 3
    assert list(analysis.read(folder).rounds["round"]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "content",
    tiers.first(["another"], ["[]", "{", "null", '{"rounds": 3}', "another"]),
)
def test_a_summary_that_is_none_is_written_anew(
    run_command, comparison, tmp_path, content
):
    folder = tmp_path / "run"
    shutil.copytree(comparison.folder / "fed_adam" / "seed_5", folder)
    before = json.loads((folder / "summary.json").read_text())
    if content == "another":  # That of a run of the same length.
        other = comparison.folder / "fed_adam" / "seed_6" / "summary.json"
        content = other.read_text()
    (folder / "summary.json").write_text(content)
    flags = [w for w in programs.COMPARE_FLAGS if not w.startswith(("--al", "--seeds"))]
    flags += ["--algorithm=fed_adam", "--seed=5", f"--output_dir={folder}"]
    outcome = run_command("train", *flags)
    assert outcome.status == 0, outcome.stderr
    after = json.loads((folder / "summary.json").read_text())
    assert (after["final"], after["best"]) == (before["final"], before["best"])
