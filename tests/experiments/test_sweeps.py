"""Sweeps over flags: what is asked for, how points count, what is written of them."""

import json
import math

import pandas as pd
import pytest

from experiments import main
from experiments.flags import errors, settings, sweeps, tuned_settings
from experiments.flags.placement import Placement
from experiments.presets import requests
from experiments.presets.preset import Study, Variant
from experiments.reports import sweeps as report
from experiments.training import studies
from experiments.training import sweeps as training
from tests.experiments import made_up_runs, programs


def values(word):
    (axis,) = programs.sweep(word, "--algorithm=fed_adam").axes
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
    sweep = programs.sweep(
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
    sweep = programs.sweep(
        *words, "--execution=ray", "--ray_address=auto", "--processes=3"
    )
    assert sweep.placement == Placement(3, on_ray=True, ray_address="auto")
    here = programs.sweep(*words)
    assert here.placement == Placement()
    for point in here.grid():
        (one,), (other,) = sweep.runs(point), here.runs(point)
        assert one.configuration == other.configuration
        assert one.circumstances == other.circumstances
    with pytest.raises(errors.UserError, match="--ray_address has no meaning"):
        programs.sweep(*words, "--ray_address=auto")
    with pytest.raises(errors.UserError, match="--execution cannot be swept"):
        programs.sweep("execution=local,ray")
    with pytest.raises(errors.UserError, match="ray_actors"):
        programs.sweep(*words, "--execution=ray", "--ray_actors=2")


@pytest.mark.parametrize(
    "axis", ["client_learning_rate=0.12345678,0.12345679", "initial_weights=a/b,a_b"]
)
def test_points_that_are_written_nearly_alike_have_folders_of_their_own(axis):
    sweep = programs.sweep(axis, "--seeds=1")
    runs = [sweep.runs(point)[0] for point in sweep.grid()]
    assert len({run.folder for run in runs}) == 2
    assert {run.folder.parent.parent for run in runs} == {sweep.folder}
    assert len({run.label for run in runs}) == 2


def test_algorithms_are_an_axis_too():
    sweep = programs.sweep("algorithm=fed_avg,scaffold")
    runs = [sweep.runs(point)[0] for point in sweep.grid()]
    assert [run.algorithm for run in runs] == ["fed_avg", "scaffold"]


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
        (
            ["tau=0.1,1", "beta_1=0,0.5", "--points=5"],
            "--points=5 is more than the 4 points of the lists. Ask for at",
        ),
        (["tau=1", "--points=2", "--sampler=tpe"], "--points=2 is more than the 1 po"),
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
        programs.sweep(*words, "--algorithm=fed_adam")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize("command", ["train", "compare"])
def test_settings_that_are_taken_to_another_task_are_told(command, tmp_path, capsys):
    path = tmp_path / "best.json"
    found = tuned_settings.content("quadratic", "fed_avg", {"local_steps": 5})
    path.write_text(json.dumps(found))
    words = [command, f"--settings={path}", "--rounds=1"]
    told = f"--settings: {str(path)!r} was found on quadratic; --task=digits runs with"
    for task, expected in (
        ([], False),
        (["--task=quadratic"], False),
        (["--task=digits"], True),
    ):
        main._understood([*words, *task])
        assert (told in capsys.readouterr().err) == expected


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


def test_a_reader_that_leaves_early_gets_the_best_point(sweep):
    with pytest.raises(BrokenPipeError), programs.closed_output():
        write(sweep)
    best = json.loads((sweep.folder / "best.json").read_text())
    assert best["flags"] == {"tau": 1.0}


def test_points_that_came_again_are_told(sweep, capsys):
    def told(points, *words):
        again = programs.sweep(
            "tau=0.1,1,10", "--algorithm=fed_adam", "--seeds=1,2", "--rounds=4",
            f"--output_dir={sweep.folder}", *words,
        )  # fmt: skip
        report.write(again, points, given_up)
        return capsys.readouterr().out.partition("\n")[0]

    points = list(sweep.grid())
    by_tpe = "--sampler=tpe", "--points=3"
    for usual in (told(points), told(points, *by_tpe)):
        assert "fed_adam on digits, clients held out, 2 seed(s), cohorts of" in usual
    assert "2 seed(s), 2 different points of 3: the others came again, cohorts of" in (
        told(points[:2], *by_tpe)
    )


def test_a_heat_map_is_drawn_of_two_axes(tmp_path):
    sweep = programs.sweep(
        "tau=0.1,1", "beta_1=0,0.5", "--algorithm=fed_adam", "--rounds=1",
        f"--output_dir={tmp_path / 'out'}",
    )  # fmt: skip
    for point, end in zip(sweep.grid(), (0.1, 0.2, 0.3, 0.4), strict=True):
        made_up_runs.write(sweep.runs(point)[0].folder, [0.1, end])
    write(sweep, lambda runs: "")
    picture = (sweep.folder / report.HEAT_MAP).read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_files_of_a_search_before_are_not_left(tmp_path):
    words = ("tau=0.1,1", "beta_1=0,0.5", "--algorithm=fed_adam", "--rounds=1")
    sweep = programs.sweep(*words, f"--output_dir={tmp_path / 'out'}")
    for point, end in zip(sweep.grid(), (0.1, 0.2, 0.3, 0.4), strict=True):
        made_up_runs.write(sweep.runs(point)[0].folder, [0.1, end])
    write(sweep, lambda runs: "")
    paths = [sweep.folder / name for name in (report.HEAT_MAP, report.BEST)]
    assert all(path.exists() for path in paths)
    # Of points chosen at random there is no map, and of none that counts no best one.
    random = programs.sweep(
        *words, "--sampler=random", "--points=4", f"--output_dir={sweep.folder}"
    )
    with pytest.raises(errors.UserError, match=r"every point of .* diverged"):
        report.write(random, list(sweep.grid()), lambda runs: "diverged")
    assert not any(path.exists() for path in paths)


def test_a_flag_that_is_none_is_called_so(tmp_path, monkeypatch):
    sweep = programs.sweep(
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
    sweep = programs.sweep(
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
    report.write_protocol(programs.sweep("tau=1,2", *words))
    report.write_protocol(programs.sweep("tau=1,2,3", *words, "--seeds=1,2"))
    # Data may be moved, and a run be tracked from some day on.
    report.write_protocol(
        programs.sweep("tau=1", *words, "--cache_dir=x", "--track=mlflow")
    )
    for other, told in (
        (("beta_1=0.1",), "what is swept was tau and is now beta_1"),
        (("tau=1", "--rounds=3"), "--rounds was not given and is now 3"),
        (("tau=1", "--prune"), "--prune was not given and is now true"),
        (("tau=1", "--beta_1=0.5"), "--beta_1 was not given and is now 0.5"),
    ):
        with pytest.raises(errors.UserError) as caught:
            report.write_protocol(programs.sweep(*other, *words))
        assert f"holds another sweep: {told}. Ask for the same" in str(caught.value)


@pytest.fixture
def protocol(tmp_path, monkeypatch):
    """Writes what a sweep says with flags of files, from a folder of its own."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.py").touch()
    monkeypatch.chdir(tmp_path / "here")

    def write(**flags):
        axes = [sweeps.axis("tau", (1.0, 2.0))]
        output_dir = {"output_dir": str(tmp_path / "out")}
        fixed = {"algorithm": "fed_adam", **flags, **output_dir}
        report.write_protocol(sweeps.build(axes, fixed, (1,)))

    return write


def test_a_sweep_goes_on_with_its_plugin_spelled_otherwise(
    protocol, tmp_path, monkeypatch
):
    protocol(plugin=("mine.py",))
    for path in ("./mine.py", "../here/mine.py", str(tmp_path / "here" / "mine.py")):
        protocol(plugin=(path,))
    protocol(plugin=("mine.py",))
    monkeypatch.chdir(tmp_path)
    protocol(plugin=("here/mine.py",))
    # Both are there, and they are two.
    for other in (("there/mine.py",), ("others.py",), ("here/mine.py", "there.py"), ()):
        with pytest.raises(errors.UserError, match=r"--plugin was here/mine\.py and"):
            protocol(plugin=other)


def test_a_sweep_goes_on_with_settings_that_say_the_same(
    protocol, tmp_path, monkeypatch
):
    def find(path, rate):
        flags = {"client_learning_rate": rate, "tau": 3.0}
        content = tuned_settings.content("digits", "fed_adam", flags)
        (tmp_path / path).write_text(json.dumps(content))

    find("here/best.json", 0.1)
    find("there/found.json", 0.1)
    find("there/other.json", 0.2)
    protocol(settings=("best.json",))
    said = json.loads((tmp_path / "out" / report.PROTOCOL).read_text())
    # What is swept is not found there.
    assert said.pop("found") == {"task": "digits", "client_learning_rate": 0.1}
    protocol(settings=("../there/found.json",))
    find("here/best.json", 0.3)
    told = "client_learning_rate of --settings was 0.1 and is now 0.3"
    with pytest.raises(errors.UserError, match=told):
        protocol(settings=("best.json",))
    with pytest.raises(errors.UserError, match=r"found\.json and is now not given"):
        protocol()
    # An earlier version wrote the path alone.
    said["flags"]["settings"] = ["../there/found.json"]
    (tmp_path / "out" / report.PROTOCOL).write_text(json.dumps(said))
    with pytest.raises(
        errors.UserError, match=r"--settings was .*found\.json and is now \.\./there/o"
    ):
        protocol(settings=("../there/other.json",))
    monkeypatch.chdir(tmp_path / "there")
    protocol(settings=("found.json",))


@pytest.mark.parametrize("content", [None, "{}", "[]", '{"format": "tff_drift run"}'])
def test_a_folder_of_no_sweep_is_refused(content, tmp_path):
    (tmp_path / "mine.txt").touch()
    if content is not None:
        (tmp_path / report.PROTOCOL).write_text(content)
    with pytest.raises(errors.UserError, match=r"no sweep of tff-drift: mine\.txt"):
        report.write_protocol(programs.sweep("rounds=1", f"--output_dir={tmp_path}"))


def test_what_a_kill_left_of_the_first_file_is_replaced(tmp_path):
    (tmp_path / ".sweep.json.tmp").touch()
    report.write_protocol(programs.sweep("rounds=1", f"--output_dir={tmp_path}"))
    assert [each.name for each in tmp_path.iterdir()] == ["sweep.json"]


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


def test_cohorts_of_fewer_clients_than_asked_for_are_told(tmp_path, capsys):
    for asked, told in (
        (10, ", cohorts of 4 rather than 10: no more clients"),
        (4, ""),
    ):
        folder = tmp_path / str(asked)
        sweep = programs.sweep(
            "tau=0.1,1", "--algorithm=fed_adam", "--rounds=1",
            f"--clients_per_round={asked}", f"--output_dir={folder}",
        )  # fmt: skip
        for point in sweep.grid():
            made_up_runs.write(sweep.runs(point)[0].folder, [0.1, 0.2])
        write(sweep, lambda runs: "")
        first, *_ = (folder / "points.md").read_text().splitlines()
        start = "fed_adam on digits, clients held out, 1 seed(s)"
        assert first.startswith(start + told)
        assert told or first == start
        assert first in capsys.readouterr().out


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
    assert outcome.lacking_files() == []
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
