"""Searches over flags: what is asked for, how points count, one that is run."""

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

from experiments.flags import errors, settings, sweeps, tuned_settings
from experiments.flags.placement import Placement
from experiments.presets import requests
from experiments.presets.preset import Study, Variant
from experiments.reports import sweeps as report
from experiments.training import comparison, studies
from experiments.training import sweeps as training
from experiments.training.search import JOURNAL_FILE, Search, _open_journal, mend
from tests.experiments import made_up_runs, programs


def request(*words):
    return sweeps.request(programs.parse("sweep", *words))


def values(word):
    (axis,) = request(word, "--algorithm=fed_adam").axes
    return axis.values


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("tau=0.1,0.01", (0.1, 0.01)),
        ("tau=log:0.001:10:5", (0.001, 0.01, 0.1, 1.0, 10.0)),
        ("client_learning_rate=lin:0.1:0.5:3", (0.1, 0.3, 0.5)),
        ("clients_per_round=log:1:8:4", (1, 2, 4, 8)),
        ("rounds=lin:1:2:5", (1, 2)),
        ("weighting=uniform,num_examples", ("uniform", "num_examples")),
        ("adaptive_clipping=true,false", (True, False)),
        ("gradient_clipping_norm=none,1", (None, 1.0)),
    ],
)
def test_axes(word, expected):
    assert values(word) == expected
    assert list(map(type, values(word))) == list(map(type, expected))


def test_a_grid_has_every_point_with_every_seed():
    sweep = request(
        "tau=0.1,1", "beta_1=0,0.5", "--algorithm=fed_adam", "--seeds=3,4",
        "--output_dir=out", "--rounds=7",
    )  # fmt: skip
    points = list(sweep.grid())
    assert points == [
        {"tau": 0.1, "beta_1": 0.0},
        {"tau": 0.1, "beta_1": 0.5},
        {"tau": 1.0, "beta_1": 0.0},
        {"tau": 1.0, "beta_1": 0.5},
    ]
    run = sweep.runs(points[1])[1]
    assert run.configuration["tau"] == 0.1
    assert run.configuration["beta_1"] == 0.5
    assert (run.seed, run.rounds, run.algorithm) == (4, 7, "fed_adam")
    assert str(run.folder) == "out/tau=0.1,beta_1=0.5/seed_4"


def test_on_ray_each_run_is_one_of_a_machine_of_its_own():
    words = ("tau=0.1,1", "--algorithm=fed_adam", "--output_dir=out")
    sweep = request(*words, "--execution=ray", "--ray_address=auto", "--processes=3")
    assert sweep.placement == Placement(3, on_ray=True, ray_address="auto")
    here = request(*words)
    assert here.placement == Placement()
    for point in here.grid():
        (one,), (other,) = sweep.runs(point), here.runs(point)
        assert one.configuration == other.configuration
        assert one.circumstances == other.circumstances
    with pytest.raises(errors.UserError, match="--ray_address has no meaning"):
        request(*words, "--ray_address=auto")
    with pytest.raises(errors.UserError, match="--execution cannot be swept"):
        request("execution=local,ray")
    with pytest.raises(errors.UserError, match="ray_actors"):
        request(*words, "--execution=ray", "--ray_actors=2")


@pytest.mark.parametrize(
    "axis", ["client_learning_rate=0.12345678,0.12345679", "initial_weights=a/b,a_b"]
)
def test_points_that_are_written_nearly_alike_have_folders_of_their_own(axis):
    sweep = request(axis, "--seeds=1")
    runs = [sweep.runs(point)[0] for point in sweep.grid()]
    assert len({run.folder for run in runs}) == 2
    assert {run.folder.parent.parent for run in runs} == {sweep.folder}
    assert len({run.label for run in runs}) == 2


def test_algorithms_are_an_axis_too():
    sweep = request("algorithm=fed_avg,scaffold")
    runs = [sweep.runs(point)[0] for point in sweep.grid()]
    assert [run.algorithm for run in runs] == ["fed_avg", "scaffold"]


def opened(folder, *words):
    """Opens the search of a sweep in a folder."""
    folder.mkdir(exist_ok=True)
    return Search(request(*words, f"--output_dir={folder}"))


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rouns=1"], "unknown flag 'rouns'. Did you mean rounds?"),
        (["tau"], "'tau' must be FLAG=VALUES, as client_learning_rate=0.1,0.3"),
        (["seed=1,2"], "--seed cannot be swept."),
        (["output_dir=a,b"], "--output_dir cannot be swept."),
        (["tau=0.1", "tau=1"], "--tau is given more than once."),
        (["rounds=1,2", "--rounds=3"], "--rounds is given more than once."),
        (["tau=-1,1"], "--tau must be a finite number greater than 0, found '-1'."),
        (["tau=log:0:1:3"], "with LOW below HIGH, above 0, and COUNT at least 2."),
        (["tau=log:1:0.1:3"], "'tau=log:1:0.1:3' must be tau=log:LOW:HIGH:COUNT"),
        (["tau=lin:0.1:1"], "'tau=lin:0.1:1' must be tau=lin:LOW:HIGH:COUNT"),
        (["momentum=0.1"], "--momentum is not an option of fed_adam, which has"),
        (["tau=1", "--points=0"], "--points must be an integer of at least 1"),
        (["tau=lin:0.1:1:1000000000"], "'tau=lin:0.1:1:1000000000': COUNT must be at"),
        (
            ["tau=log:0.1:1:500", "beta_1=lin:0:0.9:500"],
            "250,000 points are more than 10,000. Ask for fewer, by a COUNT",
        ),
        (["tau=1", "--points=100000"], "100,000 points are more than 10,000."),
        (["tau=1", "--sampler=tpe"], "--sampler=tpe needs --points, the number to"),
        (["tau=1", "--sampler=grid", "--points=1"], "--points has no meaning for"),
        (["tau=1", "--sampler=tpa"], "Known are grid, random, tpe."),
        (["tau=lin:-1:1:2", "--points=3"], "--tau must be a finite number greater"),
        (["task=digits,quadratic"], "--task cannot be swept."),
        (["cohort_doubling_at=3,5"], "--cohort_doubling_at cannot be swept."),
        (
            ["server_warm_up_rounds=log:0.1:5:3", "--points=3"],
            "'server_warm_up_rounds=log:0.1:5:3': LOW must be at least 1, for integers",
        ),
    ],
)
def test_mistakes(words, message):
    with pytest.raises(errors.UserError) as caught:
        request(*words, "--algorithm=fed_adam")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def sweep(tmp_path):
    """A sweep of three points with two seeds each, all of whose runs are made up."""
    sweep = request(
        "tau=0.1,1,10", "--algorithm=fed_adam", "--seeds=1,2", "--rounds=4",
        f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    ends = {0.1: (0.5, 0.7), 1.0: (0.8, 0.6), 10.0: (0.9, 0.9)}
    for point in sweep.grid():
        for run, end in zip(sweep.runs(point), ends[point["tau"]], strict=True):
            made_up_runs.write(run.folder, [0.1, 0.1, end, end, end], seed=run.seed)
    return sweep


def given_up(runs):
    lost = [run for run in runs if run.configuration["tau"] == 10 and run.seed == 2]
    return "diverged" if lost else ""


def score(sweep, given_up=given_up):
    return report.score(sweep, list(sweep.grid()), given_up)


def write(sweep, given_up=given_up):
    return report.write(sweep, list(sweep.grid()), given_up)


def test_points_count_by_their_last_evaluations_and_diverged_ones_last(sweep):
    table = score(sweep)
    assert list(table["tau"]) == [1.0, 0.1, 10.0]
    assert list(table["accuracy"]) == pytest.approx([0.7, 0.6, math.nan], nan_ok=True)
    assert table["accuracy_sd"][0] == pytest.approx(0.2 / math.sqrt(2))
    assert list(table["loss"]) == pytest.approx([0.3, 0.4, math.nan], nan_ok=True)
    assert list(table["diverged"]) == [0, 0, 1]
    assert list(table["given_up"]) == ["", "", "diverged"]
    (_, best, last) = (sweep.runs(point) for point in sweep.grid())
    assert report.headline(best, given_up) == pytest.approx(0.7)
    assert math.isnan(report.headline(last, given_up))


def test_a_pruned_point_comes_last_whatever_its_seeds_reached(sweep):
    def pruned(runs):
        return "pruned" if any(run.configuration["tau"] == 1 for run in runs) else ""

    table = score(sweep, pruned)
    assert list(table["tau"]) == [10.0, 0.1, 1.0]
    assert list(table["given_up"]) == ["", "", "pruned"]
    assert math.isnan(table["accuracy"][2])


def test_the_best_point_is_a_file_for_other_commands(sweep, capsys):
    write(sweep)
    path = sweep.folder / report.BEST
    assert json.loads(path.read_text())["flags"] == {"tau": 1.0}
    assert f"Best: tau=1. To use it: --settings={path}" in capsys.readouterr().out
    assert list(pd.read_csv(sweep.folder / "points.csv")["tau"]) == [1, 0.1, 10]
    run = settings.resolve({"settings": (str(path),), "rounds": 9})
    assert (run.task, run.algorithm, run.rounds) == ("digits", "fed_adam", 9)
    assert run.configuration["tau"] == 1.0
    assert "settings" not in run.configuration
    run = settings.resolve({"settings": (str(path),), "tau": 3.0})
    assert run.configuration["tau"] == 3.0
    runs = settings.resolve_comparison(
        {"settings": (str(path),), "algorithms": ("fed_avg", "fed_adam"), "seeds": (1,)}
    )
    assert "tau" not in runs[0].configuration
    assert runs[1].configuration["tau"] == 1.0
    asked = requests.request("drift_comparison", {"settings": (str(path),)})
    study = Study(
        "part", {"task": "digits"}, [Variant("mine", "fed_adam", {"tau": 0.5})]
    )
    run = studies.run_settings(asked, study, study.variants[0], 1)
    assert run.configuration["tau"] == 1.0


def test_a_comparison_is_on_the_task_of_the_settings(tmp_path):
    paths = []
    for algorithm, task in (("scaffold", "quadratic"), ("fed_avg", "digits")):
        found = tuned_settings.content(task, algorithm, {"client_learning_rate": 0.05})
        paths.append(tmp_path / f"{algorithm}.json")
        paths[-1].write_text(json.dumps(found))
    words = {"settings": (str(paths[0]),), "algorithms": ("scaffold",), "seeds": (1,)}
    (run,) = settings.resolve_comparison(words)
    assert (run.task, run.configuration["client_learning_rate"]) == ("quadratic", 0.05)
    (run,) = settings.resolve_comparison({**words, "task": "digits"})
    assert run.task == "digits"
    both = {"settings": tuple(map(str, paths)), "algorithms": ("scaffold", "fed_avg")}
    with pytest.raises(errors.UserError, match="several tasks, digits and quadratic"):
        settings.resolve_comparison({**both, "seeds": (1,)})


def test_settings_that_fit_nothing(sweep, tmp_path, capsys):
    write(sweep)
    path = str(sweep.folder / report.BEST)
    other = tmp_path / "other.json"
    other.write_text("{}")
    bad = tmp_path / "bad.json"
    content = tuned_settings.content("digits", "fed_avg", {"tau": 1.0})
    bad.write_text(json.dumps(content))
    for given, message in (
        (
            {"settings": (path,), "algorithm": "fed_avg"},
            "is for fed_adam, not for fed_",
        ),
        ({"settings": (str(other),)}, "is not a file of `tff-drift sweep`"),
        ({"settings": ("absent",)}, "No such file or directory: 'absent'"),
        (
            {"settings": (str(bad),)},
            "--tau is not an option of fed_avg, which has none.",
        ),
        ({"settings": (path, path)}, "--settings must name one file for one run."),
    ):
        with pytest.raises(errors.UserError) as caught:
            settings.resolve(given)
        assert message in str(caught.value)


def test_when_every_point_diverged(sweep, capsys):
    with pytest.raises(errors.UserError, match=r"every point of .* diverged"):
        write(sweep, lambda runs: "diverged")
    assert not (sweep.folder / report.BEST).exists()


def test_a_heat_map_is_drawn_of_two_axes(tmp_path):
    sweep = request(
        "tau=0.1,1", "beta_1=0,0.5", "--algorithm=fed_adam", "--rounds=1",
        f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    for point, end in zip(sweep.grid(), (0.1, 0.2, 0.3, 0.4), strict=True):
        made_up_runs.write(sweep.runs(point)[0].folder, [0.1, end])
    write(sweep, lambda runs: "")
    picture = (sweep.folder / report.HEAT_MAP).read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_a_flag_that_is_none_is_called_so(tmp_path, monkeypatch):
    sweep = request(
        "gradient_clipping_norm=none,1", "local_steps=none,5", "--rounds=1",
        f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    for point, end in zip(sweep.grid(), (0.1, 0.2, 0.3, 0.4), strict=True):
        made_up_runs.write(sweep.runs(point)[0].folder, [0.1, end])
    drawn = []
    draw = report.analysis.draw_heat_map
    monkeypatch.setattr(
        report.analysis,
        "draw_heat_map",
        lambda table, *rest: drawn.append(table) or draw(table, *rest),
    )
    write(sweep, lambda runs: "")
    rows = (sweep.folder / "points.md").read_text().splitlines()[4:]
    cells = [tuple(cell.strip() for cell in row.split("|")[1:4]) for row in rows]
    assert cells == [
        ("1", "5", "40.00 %"),
        ("1", "none", "30.00 %"),
        ("none", "5", "20.00 %"),
        ("none", "none", "10.00 %"),
    ]
    (table,) = drawn
    assert table.loc[5, "none"] == 0.2
    assert table.loc["none", 1.0] == 0.3


def test_the_loss_that_is_trained_on_is_beside_the_loss_that_is_measured(tmp_path):
    sweep = request(
        "loss=sum,mean", "--task=stackoverflow_tag", "--rounds=1", "--synthetic",
        "--server_learning_rate=1", f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    for point, end in zip(sweep.grid(), (0.1, 0.2), strict=True):
        (run,) = sweep.runs(point)
        made_up_runs.write(run.folder, [0.1, end], task="stackoverflow_tag")
        path = run.folder / "metrics.csv"
        path.write_text(path.read_text().replace("accuracy", "recall_at_5"))
    table = score(sweep, lambda runs: "")
    assert list(table["loss_flag"]) == ["mean", "sum"]
    assert list(table["loss"]) == pytest.approx([0.8, 0.9])


def test_a_folder_of_another_sweep_is_refused(tmp_path):
    words = ("--algorithm=fed_adam", f"--output_dir={tmp_path / 'out'}")
    report.write_protocol(request("tau=1,2", *words))
    report.write_protocol(request("tau=1,2,3", *words, "--seeds=1,2"))
    # Data may be moved, and a run be tracked from some day on.
    report.write_protocol(request("tau=1", *words, "--cache_dir=x", "--track=mlflow"))
    for other in (("beta_1=0.1",), ("tau=1", "--rounds=3"), ("tau=1", "--prune")):
        with pytest.raises(errors.UserError, match="something other than this sweep"):
            report.write_protocol(request(*other, *words))


@pytest.mark.parametrize(
    ("loss", "row", "expected"),
    [
        (1.0, {}, ""),
        (200.0, {}, ""),
        (201.0, {}, "diverged: the training loss rose from 2 to 201"),
        (math.nan, {}, "diverged: the training loss is nan"),
        (math.inf, {}, "diverged: the training loss is inf"),
        (1.0, {"cohort_size": 4, "client_work/rejected_clients": 3}, ""),
        (
            1.0,
            {"cohort_size": 4, "client_work/rejected_clients": 4},
            "diverged: no client's update is finite",
        ),
    ],
)
def test_what_counts_as_diverged(loss, row, expected):
    assert training.divergence(loss, 2.0, row) == expected


def test_a_search_that_goes_on_knows_its_first_round(tmp_path):
    watch = training._watch(tmp_path, None, "test_accuracy", 0)
    stopped = []
    rows = [{"round": 0}, {"train_loss": 1.0}, {"train_loss": 60.0}]
    watch.before_training(types.SimpleNamespace(rows=rows, stop=stopped.append))
    watch.after_round(3, None, {"train_loss": 150.0})
    assert watch.reason == "diverged: the training loss rose from 1 to 150"
    assert stopped == [watch.reason]


def test_a_run_is_given_up_before_its_summary_says_that_it_has_ended(tmp_path):
    sweep = request("tau=1", "--algorithm=fed_adam", f"--output_dir={tmp_path}")
    (run,) = sweep.runs(next(sweep.grid()))
    run.folder.mkdir(parents=True)
    watch = training._watch(run.folder, None, "test_accuracy", 0)
    watch.before_training(types.SimpleNamespace(rows=[], stop=lambda reason: None))
    watch.after_round(1, None, {"train_loss": math.nan})
    # The program may be killed from here on.
    assert training.given_up([run]) == "diverged"
    assert training.is_done(run)


def test_the_initial_model_does_not_count(tmp_path):
    sweep = request(
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
        sweep = request(*words, f"--num_clients={num_clients}")
        (run,) = sweep.runs(next(sweep.grid()))
        clients = training.load_held_out(run)
        assert len(clients.test) == held_out
        assert len(clients.train) == num_clients - held_out
    sweep = request(*words, "--num_clients=1")
    (run,) = sweep.runs(next(sweep.grid()))
    with pytest.raises(errors.UserError, match="holds clients out, but task quadratic"):
        training.load_held_out(run)


@pytest.mark.conformance
def test_a_sweep_from_words_to_its_files(run_command, tmp_path):
    folder = tmp_path / "out"
    words = (
        "sweep", "server_learning_rate=1,1e8", "--task=quadratic",
        "--rounds=3", "--num_clients=5", "--clients_per_round=2",
        "--processes=2", f"--output_dir={folder}",
    )  # fmt: skip
    outcome = run_command(*words)
    assert outcome.status == 0, outcome.stderr
    assert "server_learning_rate=1e+08, seed 0: diverged: " in outcome.stderr
    table = pd.read_csv(folder / "points.csv")
    assert list(table["server_learning_rate"]) == [1, 1e8]
    assert list(table["diverged"]) == [0, 1]
    config = json.loads(
        (folder / "server_learning_rate=1" / "seed_0" / "config.json").read_text()
    )["configuration"]
    assert config["held_out_fraction"] == 0.2
    again = run_command(*words)
    assert again.status == 0, again.stderr
    assert "2 runs, 2 done before" in again.stderr
    assert "seed 0: done" not in again.stderr


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
        sweep = request(
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
    sweep = request(*words, f"--output_dir={folder}")
    pool = types.SimpleNamespace(executor=None, size=1)
    with pytest.raises(errors.UserError, match="link leads out of"):
        training._Training(sweep, search, pool).run()
    assert (tmp_path / "precious").read_text() == "precious"
    with pytest.raises(errors.UserError, match="link leads out of"):
        comparison.check_folder(folder, sweep.runs({"tau": 0.1}))
