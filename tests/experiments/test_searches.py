"""Searches of sweeps: which points are tried next, and which are given up."""

import concurrent.futures
import json
import math
import pathlib
import shutil
import statistics
import threading
import types

import pandas as pd
import pytest
from optuna.storages import journal

from experiments.flags import errors
from experiments.reports import sweeps as report
from experiments.training import comparison
from experiments.training import sweeps as training
from experiments.training.search import JOURNAL_FILE, Search, _open_journal, mend
from tests.experiments import made_up_runs, programs


def opened(folder, *words):
    """Opens the search of a sweep in a folder."""
    folder.mkdir(exist_ok=True)
    return Search(programs.sweep(*words, f"--output_dir={folder}"))


def drive(search, goodness=lambda point: 0.0, points=1000):
    """Asks for points and tells how good they are, as if they had been trained."""
    for _ in range(points):
        asked = search.ask()
        if asked is None:
            break
        search.tell(asked, goodness(asked.point))
    return search.points()


RANGES = ("client_learning_rate=log:0.01:1:2", "batch_size=5,10")


def test_random_points_are_of_the_ranges_and_always_the_same(tmp_path):
    words = (*RANGES, "--points=40")
    points = drive(opened(tmp_path / "whole", *words))
    assert len(points) == 40
    rates = [point["client_learning_rate"] for point in points]
    assert len(set(rates)) > 30
    assert 0.01 <= min(rates) < max(rates) <= 1
    # Half of a logarithmic range lies below its geometric mean.
    assert 10 <= sum(rate < 0.1 for rate in rates) <= 30
    assert {point["batch_size"] for point in points} == {5, 10}
    # Interrupted after eleven, with fewer asked for at first.
    drive(opened(tmp_path / "parts", *RANGES, "--points=30"), points=11)
    drive(opened(tmp_path / "parts", *RANGES, "--points=30"))
    assert drive(opened(tmp_path / "parts", *words)) == points


def test_random_points_of_lists_are_all_different(tmp_path):
    words = ("client_learning_rate=0.1,0.2,0.3,0.5", "batch_size=5,10,20")
    points = drive(opened(tmp_path / "whole", *words, "--points=12"))
    pairs = [tuple(point.values()) for point in points]
    every = [(rate, size) for rate in (0.1, 0.2, 0.3, 0.5) for size in (5, 10, 20)]
    assert sorted(pairs) == every != pairs
    drive(opened(tmp_path / "parts", *words, "--points=4"), points=3)
    drive(opened(tmp_path / "parts", *words, "--points=4"))
    assert drive(opened(tmp_path / "parts", *words, "--points=4")) == points[:4]
    assert drive(opened(tmp_path / "parts", *words, "--points=12")) == points


def test_a_random_search_whose_points_came_again_goes_on(tmp_path):
    words = ("tau=0.1,1,10", "--algorithm=fed_adam", "--sampler=random")
    search = opened(tmp_path / "out", *words, "--points=2")
    # As such searches were once: two draws, of one point.
    for _ in range(2):
        search._study.enqueue_trial({"tau": 1.0})
        search._study.tell(search._study.ask(search._space), 0.5)
    search = opened(tmp_path / "out", *words, "--points=2")
    assert search.ask() is None
    assert search.points() == [{"tau": 1.0}]
    points = drive(opened(tmp_path / "out", *words, "--points=3"))
    assert len(points) == 2
    assert points[0] == {"tau": 1.0}


def test_tpe_learns_from_the_points_before(tmp_path):
    words = ("client_learning_rate=log:0.0001:1:2", "--sampler=tpe", "--points=40")

    def distance(point):
        return abs(math.log10(point["client_learning_rate"]) + 1)

    def accuracy(point):
        # Beyond 0.3, training diverges.
        return math.nan if point["client_learning_rate"] > 0.3 else 1 - distance(point)

    points = drive(opened(tmp_path / "out", *words), accuracy)
    # The first ten are at random; a few of the others explore.
    at_random = statistics.median(map(distance, points[:10]))
    assert statistics.median(map(distance, points[10:])) < at_random / 2
    again = opened(tmp_path / "again", *words)
    drive(again, accuracy, points=17)
    assert drive(opened(tmp_path / "again", *words), accuracy) == points


def test_a_point_in_training_is_not_forgotten(tmp_path):
    words = ("tau=0.1,1,10", "--algorithm=fed_adam")
    search = opened(tmp_path / "out", *words)
    search.tell(search.ask(), 0.5)
    lost = search.ask()
    # The program is killed here.
    search = opened(tmp_path / "out", *words)
    assert search.unfinished() == [lost]
    search.tell(lost, 0.6)
    assert search.unfinished() == []
    assert drive(search) == [{"tau": 0.1}, {"tau": 1.0}, {"tau": 10.0}]


def test_a_grid_may_grow(tmp_path):
    drive(opened(tmp_path / "out", "tau=0.1,1", "--algorithm=fed_adam"))
    points = drive(opened(tmp_path / "out", "tau=0.01,0.1,1", "--algorithm=fed_adam"))
    assert points == [{"tau": 0.01}, {"tau": 0.1}, {"tau": 1.0}]


def test_more_seeds_are_trained_at_the_points_that_are_done(tmp_path):
    words = ("tau=0.1,1", "--algorithm=fed_adam")
    drive(opened(tmp_path / "out", *words, "--seeds=1"))
    search = opened(tmp_path / "out", *words, "--seeds=1,2")
    asked = [search.ask(), search.ask(), search.ask()]
    assert [each and each.point for each in asked] == [{"tau": 0.1}, {"tau": 1.0}, None]


def test_a_journal_with_half_a_line_at_its_end_goes_on(tmp_path):
    words = ("tau=0.1,1", "--algorithm=fed_adam")
    drive(opened(tmp_path / "out", *words), points=1)
    path = tmp_path / "out" / JOURNAL_FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 4')
    mend(path)
    assert path.read_bytes() == whole
    assert len(drive(opened(tmp_path / "out", *words))) == 2


def test_a_lock_that_a_kill_left_behind_is_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Seconds, of which Optuna waits thirty.
    wait = journal.JournalFileOpenLock.__init__
    monkeypatch.setattr(wait, "__defaults__", (3,))
    words = ("tau=0.1,1", "--algorithm=fed_adam")
    folder = pathlib.Path("out")
    opened(folder, *words)
    _open_journal(folder / JOURNAL_FILE)._backend._lock.acquire()
    # The program is killed here.
    again = threading.Thread(target=opened, args=(folder, *words), daemon=True)
    again.start()
    again.join(60)
    assert not again.is_alive()


def test_what_is_worse_than_the_median_is_pruned(tmp_path):
    words = (*RANGES, "--points=9", "--prune")
    search = opened(tmp_path / "out", *words)
    for accuracy in (0.5, 0.6, 0.7, 0.8):
        asked = search.ask()
        trial = search.reporter(asked).open()
        trial.report(accuracy / 2, 1)
        assert not trial.should_prune()
        search.tell(asked, accuracy)
    for accuracy, is_pruned in ((0.31, True), (0.34, False)):
        trial = search.reporter(search.ask()).open()
        trial.report(accuracy, 1)
        assert trial.should_prune() == is_pruned


def test_a_search_that_goes_on_knows_its_first_round(tmp_path):
    watch = training._watch(tmp_path, None, "test_accuracy", 0)
    stopped = []
    rows = [{"round": 0}, {"train_loss": 1.0}, {"train_loss": 60.0}]
    watch.before_training(types.SimpleNamespace(rows=rows, stop=stopped.append))
    watch.after_round(3, None, {"train_loss": 150.0})
    assert watch.reason == "diverged: the training loss rose from 1 to 150"
    assert stopped == [watch.reason]


def test_a_run_is_given_up_before_its_summary_says_that_it_has_ended(tmp_path):
    sweep = programs.sweep("tau=1", "--algorithm=fed_adam", f"--output_dir={tmp_path}")
    (run,) = sweep.runs(next(sweep.grid()))
    run.folder.mkdir(parents=True)
    watch = training._watch(run.folder, None, "test_accuracy", 0)
    watch.before_training(types.SimpleNamespace(rows=[], stop=lambda reason: None))
    watch.after_round(1, None, {"train_loss": math.nan})
    # The program may be killed from here on.
    assert training.given_up([run]) == "diverged"
    assert training.is_done(run)


def test_a_round_with_a_test_column_of_another_callback_prunes_nothing(tmp_path):
    told = []
    trial = types.SimpleNamespace(
        report=lambda value, step: told.append((value, step)),
        should_prune=lambda: False,
    )
    watch = training._watch(tmp_path, trial, "test_accuracy", 10)
    watch.before_training(types.SimpleNamespace(rows=[], rounds=3))
    watch.after_evaluation(1, None, {"test_mine": 1.0})
    watch.after_evaluation(2, None, {"test_mine": 2.0, "test_accuracy": 0.5})
    assert told == [(0.5, 12)]


def test_the_initial_model_does_not_count(tmp_path):
    sweep = programs.sweep(
        "tau=0.1", "--algorithm=fed_adam", "--seeds=1", "--rounds=1",
        f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    (point,) = sweep.grid()
    (run,) = sweep.runs(point)
    made_up_runs.write(run.folder, [0.1, 0.5], seed=1)
    assert report.headline([run], lambda runs: "") == pytest.approx(0.5)


def test_a_search_needs_clients_to_hold_out(tmp_path):
    words = (
        "client_learning_rate=0.1", "--task=quadratic", "--rounds=1",
        "--clients_per_round=1", f"--output_dir={tmp_path}",
    )  # fmt: skip
    for num_clients, held_out in ((2, 1), (3, 1)):
        sweep = programs.sweep(*words, f"--num_clients={num_clients}")
        (run,) = sweep.runs(next(sweep.grid()))
        clients = training.load_held_out(run)
        assert len(clients.test) == held_out
        assert len(clients.train) == num_clients - held_out
    sweep = programs.sweep(*words, "--num_clients=1")
    (run,) = sweep.runs(next(sweep.grid()))
    with pytest.raises(errors.UserError, match="holds clients out, but task quadratic"):
        training.load_held_out(run)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--task=own_data", "--data=FOLDER/absent.csv"], "data: there is no file"),
        (
            ["--task=own_data", "--data=FOLDER/own.csv", "--label=diagnosis"],
            "has no column 'diagnosis'",
        ),
        (["--task=emnist_character", "--cache_dir=FOLDER"], "which does not exist"),
    ],
)
def test_data_that_cannot_be_had_is_the_users_mistake(tmp_path, words, message):
    (tmp_path / "own.csv").write_text("client,x,label\na,1,0\nb,2,1\n")
    words = [word.replace("FOLDER", str(tmp_path)) for word in words]
    sweep = programs.sweep("client_learning_rate=0.1", *words, "--rounds=1")
    with pytest.raises(errors.UserError, match=message):
        training.train(sweep.runs(next(sweep.grid())))


def test_cohorts_to_try_are_of_clients_that_are_left(tmp_path, monkeypatch):
    words = ("--task=quadratic", "--rounds=1", f"--output_dir={tmp_path / 'out'}")
    trained = []
    monkeypatch.setattr(training, "_train", lambda run, *rest: trained.append(run))
    (tmp_path / "out").mkdir()
    # Of ten clients two are held out, of twenty four.
    for axes in (
        ["clients_per_round=8,9"],
        ["clients_per_round=lin:1:9:9", "client_learning_rate=0.1,0.2"],
        ["clients_per_round=8,9", "num_clients=20,10"],
    ):
        sweep = programs.sweep(*axes, *words)
        with pytest.raises(
            errors.UserError, match=r"--clients_per_round is 9, but .* only 8 clients"
        ):
            training.run(sweep, InThisProcess())
    assert not trained
    for axes in (
        ["clients_per_round=4,8"],
        ["clients_per_round=8,16", "num_clients=20,30"],
    ):
        for run in training.largest_cohorts(programs.sweep(*axes, *words)):
            training.check_cohort(run)
    sweep = programs.sweep("client_learning_rate=0.1,0.2", *words)
    assert training.largest_cohorts(sweep) == []


@pytest.mark.conformance
def test_tpe_with_pruning_from_words_to_its_files(run_command, tmp_path):
    folder = tmp_path / "out"
    words = (
        "sweep", "client_learning_rate=log:0.00001:0.01:2", "--sampler=tpe", "--prune",
        "--task=quadratic", "--rounds=6", "--num_clients=5", "--clients_per_round=2",
        "--rounds_per_evaluation=1", "--processes=1", f"--output_dir={folder}",
    )  # fmt: skip
    outcome = run_command(*words, "--points=5")
    assert outcome.status == 0, outcome.stderr
    outcome = run_command(*words, "--points=9")
    assert outcome.status == 0, outcome.stderr
    assert "9 runs, 5 done before" in outcome.stderr
    assert outcome.stderr.count("seed 0: ") == 4
    table = pd.read_csv(folder / "points.csv", keep_default_na=False)
    assert len(table) == 9
    # Sixty steps of such rates do not reach the optimum: the largest comes nearest.
    best = json.loads((folder / "best.json").read_text())["flags"]
    assert best["client_learning_rate"] == max(
        float(each.name.split("=")[1]) for each in folder.glob("client_*")
    )
    pruned = [each.parents[1].name for each in folder.rglob("pruned.json")]
    assert len(pruned) == list(table["given_up"]).count("pruned") > 0
    kept = table[table["given_up"] == ""]["client_learning_rate"]
    assert max(float(each.split("=")[1]) for each in pruned) < kept.max()


def test_a_journal_is_that_of_the_runs_beside_it(sweep):
    def training_of():
        opened = types.SimpleNamespace(executor=None, size=1)
        return training._Training(sweep, search, opened)

    search = Search(sweep)
    # A point counts by the mean over its seeds: see the fixture.
    for value in (0.6, 0.7, 0.9):
        search.tell(search.ask(), value)
    assert training_of()._lost() == []
    # Of a point whose runs were deleted, they are trained again.
    (first, _), *_ = search.told()
    shutil.rmtree(sweep.runs(first.point)[0].folder)
    assert training_of()._lost() == [first]
    search.tell(first, 0.6)
    assert [value for _, value in search.told()] == [0.6, 0.7, 0.9]
    other = sweep.runs({"tau": 10.0})[0].folder
    shutil.rmtree(other)
    made_up_runs.write(other, [0.1, 0.1, 0.2, 0.2, 0.2], seed=1)
    with pytest.raises(
        errors.UserError,
        match=r"0.9 of tau=10, .* come to 0.55: .* another search",
    ):
        training_of()._lost()


def test_a_finished_run_that_was_damaged_is_named(sweep):
    training.run(sweep, InThisProcess())
    path = sweep.runs({"tau": 1.0})[1].folder / "metrics.csv"
    path.write_text("no table")
    with pytest.raises(errors.UserError, match=r"metrics.csv' is damaged.* Remove '"):
        training.run(sweep, InThisProcess())


@pytest.mark.parametrize("line", ["no JSON", "{}", "3"])
def test_a_damaged_journal_is_named(sweep, line):
    path = sweep.folder / JOURNAL_FILE
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(errors.UserError, match=r"optuna.log' is damaged. Remove it"):
        training.run(sweep, types.SimpleNamespace(executor=None, size=1))


@pytest.mark.parametrize(
    "file", [training.PRUNED_FILE, training.DIVERGED_FILE], ids=str
)
def test_a_search_goes_on_after_a_point_that_was_given_up_on_its_way(sweep, file):
    search = Search(sweep)
    for point, value in zip(sweep.grid(), (0.6, 0.7, math.nan), strict=True):
        asked = search.ask()
        assert asked.point == point
        search.reporter(asked).open().report(0.4, 1)
        search.tell(asked, value)
    for run in sweep.runs({"tau": 10.0}):
        (run.folder / file).write_text("{}")
    pool = types.SimpleNamespace(executor=None, size=1)
    assert training._Training(sweep, Search(sweep), pool)._lost() == []


class InThisProcess(concurrent.futures.Executor):
    """Runs what is submitted at once, as a pool of one process."""

    size = 1

    @property
    def executor(self):
        return self

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        future.set_result(function(*arguments))
        return future


def test_seeds_that_are_added_to_points_that_were_given_up(tmp_path, monkeypatch):
    ends = {0.1: ["", "", ""], 1.0: ["diverged", "", ""], 10.0: ["diverged", "pruned"]}

    def train(run, trial, start):
        end = ends[run.configuration["tau"]][run.seed - 1]
        made_up_runs.write(run.folder, [0.1, 0.5], seed=run.seed)
        if end:
            (run.folder / f"{end}.json").write_text("{}")
        return end

    monkeypatch.setattr(training, "_train", train)
    for seeds, expected in {
        "1": {0.1: (0, ""), 1.0: (1, "diverged"), 10.0: (1, "diverged")},
        "1,2": {0.1: (0, ""), 1.0: (1, "diverged"), 10.0: (1, "pruned")},
        "1,2,3": {0.1: (0, ""), 1.0: (1, "diverged"), 10.0: (1, "pruned")},
    }.items():
        sweep = programs.sweep(
            "tau=0.1,1,10", "--algorithm=fed_adam", f"--seeds={seeds}", "--rounds=1",
            "--prune", f"--output_dir={tmp_path / 'out'}",
        )  # fmt: skip
        report.write_protocol(sweep)
        table = score_of(sweep, training.run(sweep, InThisProcess()))
        found = {row["tau"]: (row["diverged"], row["given_up"]) for row in table}
        assert found == expected
    # Of a point that is pruned no more seeds are trained.
    assert {run.folder.exists() for run in sweep.runs({"tau": 10.0})} == {True, False}
    assert all(run.folder.exists() for run in sweep.runs({"tau": 1.0}))


def score_of(sweep, points):
    """Returns the rows of the table of a search that is through."""
    return report.score(sweep, points, training.given_up).to_dict(orient="records")


def test_links_lead_no_search_out_of_its_folder(tmp_path):
    (tmp_path / "precious").write_text("precious")
    folder, words = tmp_path / "out", ("tau=0.1,1", "--algorithm=fed_adam")
    folder.mkdir()
    (folder / JOURNAL_FILE).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="not a regular file"):
        opened(folder, *words)
    with pytest.raises(OSError, match="not a regular file"):
        mend(folder / JOURNAL_FILE)
    (folder / JOURNAL_FILE).unlink()
    search = opened(folder, *words)
    (folder / "tau=0.1").symlink_to(tmp_path)
    sweep = programs.sweep(*words, f"--output_dir={folder}")
    pool = types.SimpleNamespace(executor=None, size=1)
    with pytest.raises(errors.UserError, match="link leads out of"):
        training._Training(sweep, search, pool).run()
    assert (tmp_path / "precious").read_text() == "precious"
    with pytest.raises(errors.UserError, match="link leads out of"):
        comparison.check_folder(folder, {}, sweep.runs({"tau": 0.1}))
