"""What is told of finished runs, worked by hand."""

import json
import math
import os
import pathlib
import subprocess
import sys

import pandas as pd
import pytest

from experiments import analysis
from experiments.analysis import figures
from experiments.flags import analyses, declarations
from experiments.reports import analysis as report
from experiments.reports import texts
from tests.experiments import made_up_runs, programs
from tests.forks.programs import PATIENCE
from tests.simulation import fakes
from tff_drift import simulation

NAN = math.nan


def by_name(values):
    """Values of runs, by the last part of their folders' names."""
    return {os.path.basename(run): value for run, value in values.items()}


def test_reading(runs, tmp_path):
    assert list(by_name(runs.settings["seed"]).items()) == [
        ("a1", 1), ("a2", 2), ("b1", 1), ("b2", 2),
    ]  # fmt: skip
    first = runs.rounds[runs.rounds["run"] == str(tmp_path / "a1")]
    assert list(first["round"]) == [0, 1, 2, 3, 4]
    assert list(first["total_examples"]) == [0, 100, 200, 300, 400]
    assert list(first["total_seconds"]) == [0, 2, 4, 6, 8]
    assert analysis.headline(runs) == "test_accuracy"
    assert list(analysis.labels(runs)) == ["fed_avg"] * 2 + ["fed_adam"] * 2


def test_runs_come_in_the_order_of_the_numbers_in_their_names(tmp_path):
    names = ["rate=0.03,clients=5", "rate=0.1,clients=5", "rate=0.1,clients=20"]
    for seed, name in enumerate(reversed(names)):
        made_up_runs.write(tmp_path / name, [0.1, 0.2], seed=seed)
    found = analysis.read(tmp_path)
    paths = [str(tmp_path / name) for name in names]
    assert list(found.settings.index) == paths
    assert list(dict.fromkeys(found.rounds["run"])) == paths


def test_a_folder_that_is_named_twice_counts_once(runs, tmp_path):
    again = analysis.read(tmp_path / "a1", tmp_path)
    assert list(again.settings.index) == list(runs.settings.index)
    assert len(again.rounds) == len(runs.rounds)


def test_a_seed_that_was_trained_twice_counts_once(run_command, no_figures, tmp_path):
    made_up_runs.write(tmp_path / "compare" / "seed_1", [0.1, 0.4])
    made_up_runs.write(tmp_path / "compare" / "seed_2", [0.1, 0.8], seed=2)
    made_up_runs.write(tmp_path / "train", [0.1, 0.4])
    runs = analysis.read(tmp_path)
    assert runs.repeated == (str(tmp_path / "train"),)
    values = analysis.last_mean(runs, ["test_accuracy"])
    table = analysis.over_seeds(values, analysis.labels(runs))
    assert table["seeds"]["fed_avg"] == 2
    # Of a sample of 0.4 and 0.8.
    assert table["test_accuracy_sd"]["fed_avg"] == pytest.approx(0.08**0.5)
    outcome = run_command("analyze", tmp_path, f"--output_dir={tmp_path / 'told'}")
    assert f"Left out, settings and seed of another: {tmp_path / 'train'}" in (
        outcome.stderr
    )


def test_to_thresholds(runs):
    found = analysis.to_thresholds(runs, "test_accuracy", [0.1, 0.6, 0.7])
    assert by_name(found[0.1]) == {"a1": 0, "a2": 0, "b1": 0, "b2": 0}
    assert by_name(found[0.7]) == pytest.approx(
        {"a1": 2, "a2": 3, "b1": NAN, "b2": 4}, nan_ok=True
    )
    assert by_name(found[0.6]) == pytest.approx(
        {"a1": 2, "a2": 3, "b1": NAN, "b2": 4}, nan_ok=True
    )


@pytest.mark.parametrize(
    ("axis", "expected"), [("examples", 300), ("bytes", 3000), ("seconds", 6.0)]
)
def test_what_it_took_to_a_threshold(runs, axis, expected):
    found = analysis.to_thresholds(runs, "test_accuracy", [0.7], axis)
    assert by_name(found[0.7])["a2"] == expected


def test_a_loss_is_reached_from_above(runs):
    found = analysis.to_thresholds(runs, "test_loss", [0.5])
    assert by_name(found[0.5]) == {"a1": 1, "a2": 2, "b1": 4, "b2": 4}


def test_simulated_time_is_summed(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.2, 0.3])
    frame = pd.read_csv(tmp_path / "a" / "metrics.csv")
    frame["simulated_seconds"] = [NAN, 5.0, 7.5]
    frame.to_csv(tmp_path / "a" / "metrics.csv", index=False)
    found = analysis.to_thresholds(
        analysis.read(tmp_path), "test_accuracy", [0.3], "simulated_seconds"
    )
    assert list(found[0.3]) == [12.5]


def test_mean_of_the_last_rounds(runs):
    found = analysis.last_mean(runs, ["test_accuracy"], last=2)["test_accuracy"]
    assert by_name(found) == pytest.approx(
        {"a1": 0.7, "a2": 0.65, "b1": 0.45, "b2": 0.5}
    )


def test_what_the_last_rounds_are_called_is_true_of_the_runs(runs, tmp_path):
    assert analysis.last_rounds(runs) == "the last round"
    assert analysis.last_rounds(runs, last=4) == "the last 4 rounds"
    # There are no more.
    assert analysis.last_rounds(runs, last=100) == "the last 4 rounds"
    figure = figures.draw_train_and_test(runs, "train_accuracy", "test_accuracy", 100)
    assert figure.axes[0].get_ylabel() == "mean of the last 4 rounds"
    made_up_runs.write(tmp_path / "short", [0.1, 0.5, 0.8], algorithm="fed_yogi")
    shorter = analysis.read(tmp_path)
    assert analysis.last_rounds(shorter, last=2) == "the last 2 rounds"
    assert analysis.last_rounds(shorter, last=3) == (
        "the last 3 rounds (all of shorter runs)"
    )


def test_a_table_of_more_rounds_than_there_are_says_how_many(
    run_command, no_figures, tmp_path
):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8])
    words = ("--last=100", f"--output_dir={tmp_path / 'told'}")
    outcome = run_command("analyze", tmp_path / "a", *words)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.startswith("Mean of the last 2 rounds: mean")
    table = (tmp_path / "told" / "table.md").read_text()
    assert table.startswith("Mean of the last 2 rounds: mean")


def test_the_initial_model_is_among_the_last_rounds_only_where_it_is_alone(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8])
    made_up_runs.write(tmp_path / "b", [0.1, 0.5, 0.8], seed=2)
    frame = pd.read_csv(tmp_path / "b" / "metrics.csv")
    frame.loc[[1, 2], [name for name in frame if name.startswith("test_")]] = NAN
    frame.to_csv(tmp_path / "b" / "metrics.csv", index=False)
    columns = ["test_accuracy", "train_accuracy"]
    found = analysis.last_mean(analysis.read(tmp_path), columns, last=100)
    assert by_name(found["test_accuracy"]) == pytest.approx({"a": 0.65, "b": 0.1})
    assert by_name(found["train_accuracy"]) == pytest.approx({"a": 0.75, "b": 0.75})


def test_means_and_deviations_over_seeds(runs):
    columns = ["test_accuracy", "test_accuracy_client_p5"]
    values = analysis.last_mean(runs, columns)
    table = analysis.over_seeds(values, analysis.labels(runs))
    assert list(table.index) == ["fed_avg", "fed_adam"]
    row = table.loc["fed_avg"]
    assert row["seeds"] == 2
    assert row["test_accuracy"] == pytest.approx(0.7)
    assert row["test_accuracy_sd"] == pytest.approx(0.2 / math.sqrt(2))
    assert row["test_accuracy_client_p5"] == pytest.approx(0.035)
    assert row["test_accuracy_client_p5_sd"] == pytest.approx(0.01 / math.sqrt(2))


@pytest.mark.filterwarnings("error")
def test_infinities_and_equal_numbers_over_seeds():
    values = pd.DataFrame(
        {"loss": [1.0, math.inf, 3.0], "rate": [0.1, 0.1, 0.1], "size": [2, 2, 2]}
    )
    labels = pd.Series(["a", "a", "a"])
    row = analysis.over_seeds(values, labels).loc["a"]
    assert row["loss"] == math.inf
    assert math.isnan(row["loss_sd"])
    # Their sum over three is 0.10000000000000002.
    assert row["rate"] == 0.1
    assert row["size"] == 2
    assert row["size_sd"] == 0


@pytest.mark.parametrize("width", [80, 200])
def test_a_terminal_gets_what_it_has_room_for(width, tmp_path, monkeypatch, capsys):
    for seed in (1, 2):
        made_up_runs.write(tmp_path / f"a{seed}", [0.1, 0.5, 0.8], seed=seed)
    monkeypatch.setattr(texts, "terminal_width", lambda: width)
    monkeypatch.setattr(report, "figures", lambda *rest: ())
    words = [str(tmp_path), "--thresholds=0.4,0.7", f"--output_dir={tmp_path / 'told'}"]
    report.write(analyses.request(programs.parse("analyze", *words)))
    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.startswith(" fed_avg ")]
    # No cell is folded: a row of each table is one line.
    assert len(rows) == 2
    assert printed.count("%") == "".join(rows).count("%")
    assert max(map(len, rows)) <= width
    assert ("p95" in printed) == (width == 200)
    assert ("bytes to 0.7" in printed) == (width == 200)
    assert "round to 0.7" in printed
    written = (tmp_path / "told" / "table.md").read_text()
    assert "p95" in written
    assert "bytes to 0.7" in (tmp_path / "told" / "thresholds.md").read_text()


def test_what_broke_down_does_not_drop_out(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8])
    made_up_runs.write(tmp_path / "b", [0.1, 0.5, 0.8], [2, 1, NAN], seed=2)
    runs = analysis.read(tmp_path)
    values = analysis.last_mean(runs, ["test_loss", "test_accuracy"], last=2)
    assert by_name(values["test_loss"]) == pytest.approx(
        {"a": (0.5 + 0.2) / 2, "b": NAN}, nan_ok=True
    )
    table = analysis.over_seeds(values, analysis.labels(runs))
    assert math.isnan(table["test_loss"]["fed_avg"])
    assert table["test_accuracy"]["fed_avg"] == pytest.approx(0.65)
    curve = analysis.curves(runs, "test_loss", "round", analysis.labels(runs))
    assert list(curve["mean"]) == pytest.approx([(0.9 + 2) / 2, 0.75, NAN], nan_ok=True)


def test_a_seed_that_broke_down_at_once_leaves_no_mean_of_the_others(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8], [2, 1, 1], norms=[3.0, 4.0])
    made_up_runs.write(
        tmp_path / "b", [0.1, 0.5, 0.8], [NAN] * 3, norms=[NAN] * 2, seed=2
    )
    made_up_runs.write(tmp_path / "c", [0.1, 0.5, 0.8], [2, 1, 1], algorithm="scaffold")
    runs = analysis.read(tmp_path)
    labels = analysis.labels(runs)
    curve = analysis.curves(runs, "test_loss", "round", labels).set_index("label")
    assert curve["mean"]["fed_avg"].isna().all()
    assert list(curve["mean"]["scaffold"]) == [2, 1, 1]
    norms = analysis.predicted_norms(runs)
    assert norms["measured"].isna().all()
    assert set(norms["label"]) == {"fed_avg"}


def test_rounds_without_an_evaluation_are_no_breakdown(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8])
    frame = pd.read_csv(tmp_path / "a" / "metrics.csv")
    tested = [name for name in frame if name.startswith("test_")]
    frame.loc[1, tested] = NAN
    frame.to_csv(tmp_path / "a" / "metrics.csv", index=False)
    runs = analysis.read(tmp_path)
    found = analysis.last_mean(runs, ["test_accuracy", "train_accuracy"], last=2)
    assert list(found["test_accuracy"]) == pytest.approx([0.8])
    assert list(found["train_accuracy"]) == pytest.approx([(0.6 + 0.9) / 2])
    assert list(analysis.to_thresholds(runs, "test_accuracy", [0.4])[0.4]) == [2]


def test_what_only_evaluations_measure_is_read_there(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8, 0.9])
    frame = pd.read_csv(tmp_path / "a" / "metrics.csv")
    frame.loc[[1, 2], [name for name in frame if name.startswith("test_")]] = NAN
    frame["mismatch"] = [NAN, NAN, NAN, 2.0]
    frame.to_csv(tmp_path / "a" / "metrics.csv", index=False)
    runs = analysis.read(tmp_path)
    found = analysis.last_mean(runs, ["mismatch"], last=3)
    assert list(found["mismatch"]) == [2.0]


def test_a_run_that_was_stopped_early_has_results(tmp_path):
    made_up_runs.write(tmp_path / "a", [0.1, 0.5, 0.8], rounds=12)
    summary = {"rounds": 12, "clients": 50, "stop_reason": "it was enough"}
    (tmp_path / "a" / "summary.json").write_text(json.dumps(summary))
    found = analysis.last_mean(analysis.read(tmp_path), ["test_accuracy"], last=2)
    assert list(found["test_accuracy"]) == pytest.approx([0.65])


def test_the_rate_of_failed_trials(tmp_path):
    for seed in (1, 2, 3):
        failures = (2, 3) if seed == 2 else ()
        made_up_runs.write(
            tmp_path / str(seed), [0.1] * 5, seed=seed, failures=failures
        )
    runs = analysis.read(tmp_path)
    assert by_name(analysis.failed(runs)) == {"1": 0, "2": 1, "3": 0}
    table = analysis.over_seeds(analysis.failed(runs).to_frame(), analysis.labels(runs))
    assert table["failed"]["fed_avg"] == pytest.approx(1 / 3)


def test_a_round_without_a_finite_update_is_a_failure(tmp_path):
    made_up_runs.write(tmp_path / "1", [0.1] * 3)
    # Three of four clients were rejected in the other round.
    made_up_runs.write(tmp_path / "2", [0.1] * 3, seed=2, rejected=(2,))
    made_up_runs.write(tmp_path / "3", [0.1] * 3, seed=3, rejected=(7,))
    assert by_name(analysis.failed(analysis.read(tmp_path))) == {"1": 0, "2": 1, "3": 0}


def test_labels_tell_what_varies(tmp_path):
    for cohort in (2, 4):
        for seed in (1, 2):
            made_up_runs.write(
                tmp_path / f"{cohort}_{seed}",
                [0.1, 0.2],
                seed=seed,
                clients_per_round=cohort,
                tau=0.5,
            )
    runs = analysis.read(tmp_path)
    assert analysis.varying(runs) == ["clients_per_round"]
    assert set(analysis.labels(runs)) == {
        "fed_avg, clients_per_round=2",
        "fed_avg, clients_per_round=4",
    }
    assert set(analysis.labels(runs, ["tau"])) == {"tau=0.5"}
    with pytest.raises(ValueError, match="the runs have no setting 'taw'"):
        analysis.labels(runs, ["taw"])


def test_settings_that_differ_in_their_last_digits_are_not_one_label(tmp_path):
    for rate in (0.1234567, 0.1234568):
        made_up_runs.write(tmp_path / str(rate), [0.1], client_learning_rate=rate)
    runs = analysis.read(tmp_path)
    assert set(analysis.labels(runs)) == {
        "fed_avg, client_learning_rate=0.1234567",
        "fed_avg, client_learning_rate=0.1234568",
    }


def test_a_setting_that_one_run_has_and_another_has_not_tells_them_apart(tmp_path):
    made_up_runs.write(tmp_path / "skewed", [0.1, 0.5], alpha=0.03)
    made_up_runs.write(tmp_path / "iid", [0.1, 0.9], alpha=None, seed=2)
    runs = analysis.read(tmp_path)
    assert analysis.varying(runs) == ["alpha"]
    means = analysis.last_mean(runs, ["test_accuracy"])
    table = analysis.over_seeds(means, analysis.labels(runs))
    assert sorted(table["test_accuracy"]) == [0.5, 0.9]


def test_what_is_better_lower(runs):
    for column in ("test_loss", "train_loss", "test_mean_squared_error"):
        assert analysis.falls(runs, column)
    for column in ("test_accuracy", "test_accuracy_client_p5", "train_recall_at_5"):
        assert not analysis.falls(runs, column)


def test_runs_that_are_not_finished_are_left_out(runs, tmp_path):
    made_up_runs.write(tmp_path / "c1", [0.1, 0.2], rounds=5)
    again = analysis.read(tmp_path)
    assert again.unfinished == (str(tmp_path / "c1"),)
    assert len(again.settings) == 4
    with pytest.raises(ValueError, match="c1' holds no finished run"):
        analysis.read(tmp_path / "c1")


def test_a_run_without_its_metrics_does_not_vanish(runs, tmp_path):
    made_up_runs.write(tmp_path / "c1", [0.1, 0.2])
    (tmp_path / "c1" / "metrics.csv").unlink()
    with pytest.raises(ValueError, match=r"c1' is damaged: .* no file metrics\.csv"):
        analysis.read(tmp_path)
    # As one that was killed in its first round.
    (tmp_path / "c1" / "summary.json").unlink()
    assert analysis.read(tmp_path).unfinished == (str(tmp_path / "c1"),)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "config.json' is damaged"),
        ("summary.json", "[]", "summary.json' is damaged: it holds no JSON object"),
        ("metrics.csv", "", "metrics.csv' is damaged"),
        ("metrics.csv", "a,b\n1,2\n", "metrics.csv' is damaged"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    made_up_runs.write(tmp_path / "a", [0.1, 0.2])
    (tmp_path / "a" / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        analysis.read(tmp_path)


def test_a_run_of_a_program_of_ones_own_is_named(tmp_path):
    folder = simulation.OutputDir(tmp_path / "mine")
    simulation.run_training(
        fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=1,
        cohort_size=1,
        output_dir=folder,
    )
    with pytest.raises(ValueError, match="mine' holds a run of another program than"):
        analysis.read(tmp_path)


def test_bad_arguments(runs):
    with pytest.raises(ValueError, match="thresholds must differ in their first six"):
        analysis.to_thresholds(runs, "test_accuracy", [0.7, 0.7000001])
    with pytest.raises(FileNotFoundError, match="'absent' is not a folder"):
        analysis.read("absent")
    with pytest.raises(ValueError, match="no run has a column 'test_acuracy'"):
        analysis.last_mean(runs, ["test_acuracy"])
    with pytest.raises(ValueError, match="axis must be one of round, examples"):
        analysis.to_thresholds(runs, "test_accuracy", [0.5], "time")
    with pytest.raises(ValueError, match="no run measured simulated_seconds"):
        analysis.to_thresholds(runs, "test_accuracy", [0.5], "simulated_seconds")
    with pytest.raises(ValueError, match="band must be one of range, sd, found 'x'"):
        analysis.draw_curves(runs, ["test_accuracy"], band="x")
    with pytest.raises(ValueError, match="task is not a number in every run"):
        analysis.draw_against(runs, "task", analysis.last_mean(runs, ["test_loss"]))


def test_the_flags_know_the_names_of_the_module():
    flags = declarations.flags_of("analyze")
    assert flags["axes"].choices == tuple(analysis.AXES)
    assert flags["bands"].choices == tuple(figures.BANDS)


# The files of runs that were evaluated on their clients.
ALWAYS = {
    "clients.png",
    "curves_bytes.png",
    "curves_examples.png",
    "curves_round.png",
    "table.csv",
    "table.md",
    "train_and_test.png",
}


def test_the_command(run_command, runs, tmp_path):
    folder = tmp_path / "told"
    outcome = run_command(
        "analyze", tmp_path, "--thresholds=0.6,0.75", f"--output_dir={folder}"
    )
    assert outcome.status == 0, outcome.stderr
    of_thresholds = {"thresholds.csv", "thresholds.md"}
    assert {path.name for path in folder.iterdir()} == ALWAYS | of_thresholds
    assert outcome.lacking_files() == []
    table = pd.read_csv(folder / "thresholds.csv").set_index("label")
    assert table["round to 0.6"]["fed_avg"] == 2.5
    assert table["reached 0.75"]["fed_avg"] == 0.5
    assert math.isnan(table["round to 0.75"]["fed_avg"])
    assert table["reached 0.6"]["fed_adam"] == 0.5
    assert "| fed_avg | 2 | 70.00 ± 14.14 % |" in (folder / "table.md").read_text()
    assert "70.00 ± 14.14 %" in outcome.stdout


def test_a_reader_that_leaves_early_gets_all_files(runs, tmp_path):
    words = "analyze", str(tmp_path), f"--output_dir={tmp_path / 'told'}"
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", *words],
        cwd=programs.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    stderr = process.stderr.read()
    assert process.wait(PATIENCE) == 0, stderr
    assert stderr == b""
    assert {path.name for path in (tmp_path / "told").iterdir()} == ALWAYS


def test_a_mean_over_methods_is_not_called_one_over_seeds(
    run_command, runs, no_figures, tmp_path
):
    folder = tmp_path / "told"
    outcome = run_command(
        "analyze", tmp_path, "--by=seed", "--thresholds=0.6", f"--output_dir={folder}"
    )
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.count("mean ± sd over runs.") == 2
    assert "over seeds" not in outcome.stdout
    table = pd.read_csv(folder / "table.csv").set_index("label")
    assert "seeds" not in table
    assert table["number"].to_dict() == {"seed=1": 2, "seed=2": 2}
    assert table["test_accuracy"].to_dict() == pytest.approx(
        {"seed=1": (0.8 + 0.5) / 2, "seed=2": (0.6 + 0.7) / 2}
    )
    assert "| seed=1 | 2 | 65.00" in (folder / "table.md").read_text()


def test_files_of_other_runs_do_not_stay(run_command, tmp_path):
    norms = {"norms": [1.0, 1.0], "cosine": 0.5}
    for cohort in (4, 8):
        folder = tmp_path / "more" / str(cohort)
        made_up_runs.write(folder, [0.1, 0.5, 0.7], clients_per_round=cohort, **norms)
        (folder / "clients.csv").write_text(
            "client,accuracy_before,accuracy_after\na,0.5,0.7\nb,0.6,0.5\n"
        )
    made_up_runs.write(tmp_path / "less", [0.1, 0.2, 0.3])
    asked = "--against=clients_per_round", "--thresholds=0.2", "--axes=round,bytes"
    told = tmp_path / "told"
    made = run_command("analyze", tmp_path / "more", *asked, f"--output_dir={told}")
    assert made.status == 0, made.stderr
    assert {
        "against_clients_per_round.png",
        "bytes_against_clients_per_round.png",
        "cosines.png",
        "curves_bytes.png",
        "norms.png",
        "personalization.csv",
        "personalization.png",
        "predicted_norms.png",
        "thresholds.md",
    } <= {path.name for path in told.iterdir()}
    (told / "notes.md").write_text("mine")
    (told / "norms.svg").write_text("mine")
    outcome = run_command(
        "analyze", tmp_path / "less", "--axes=round", f"--output_dir={told}"
    )
    assert outcome.status == 0, outcome.stderr
    assert sorted(path.name for path in told.iterdir()) == [
        "clients.png",
        "curves_round.png",
        "norms.svg",
        "notes.md",
        "table.csv",
        "table.md",
        "train_and_test.png",
    ]


def test_results_that_keep_no_examples_and_no_bytes(run_command, tmp_path):
    demo = pathlib.Path(__file__).parents[2] / "experiments" / "results" / "demo"
    outcome = run_command(
        "analyze", demo, "--thresholds=0.9", f"--output_dir={tmp_path}"
    )
    assert outcome.status == 0, outcome.stderr
    assert "Left out, not measured: examples, bytes" in outcome.stderr
    assert (tmp_path / "curves_round.png").is_file()
    header = (tmp_path / "thresholds.csv").read_text().splitlines()[0]
    assert "round to 0.9" in header
    assert "examples" not in header


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent"], "'absent' is not a folder. Name folders of"),
        (["."], "holds no finished run"),
        (["--columns=x"], "no run has a column 'x'"),
        (["--columns=test_loss,seconds"], "columns must not have seconds, of which"),
        (["--by=x"], "the runs have no setting 'x'"),
        (["--against=x"], "the runs have no setting 'x'"),
        (["--axes=rounds"], "Did you mean round?"),
        (["--thresholds=high"], "--thresholds must be a finite number, found 'high'."),
    ],
)
def test_mistakes(run_command, runs, tmp_path, words, message):
    folder = tmp_path / "told"
    (tmp_path / "empty").mkdir()
    place = tmp_path / "empty" if words == ["."] else tmp_path
    words = [str(place) if word == "." else word for word in words]
    words = words if words[0] in ("absent", str(place)) else [str(place), *words]
    outcome = run_command("analyze", *words, f"--output_dir={folder}")
    assert outcome.status == 2
    assert outcome.stderr.startswith("tff-drift: error: ")
    assert message in outcome.stderr
    assert not folder.exists()


def test_it_does_without_tensorflow(runs, tmp_path):
    program = """
import sys
from experiments import main
status = main.run(sys.argv[1:])
assert not {"tensorflow", "tensorflow_federated"} & set(sys.modules)
sys.exit(status)
"""
    process = subprocess.run(
        [
            sys.executable, "-c", program,
            "analyze", str(tmp_path), "--axes=round",
            f"--output_dir={tmp_path / 'told'}",
        ],
        cwd=programs.ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
