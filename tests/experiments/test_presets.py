"""Presets, from the words of the command to the files of their studies."""

import dataclasses
import functools
import json
import pathlib

import pandas as pd
import pytest

from experiments.analysis.studies import METRICS_FILE
from experiments.flags import errors
from experiments.flags.placement import Placement
from experiments.presets import requests
from experiments.presets.catalogue import PRESETS
from experiments.presets.preset import (
    SCALES,
    Output,
    Preset,
    Scale,
    Search,
    Study,
    Variant,
    crossed,
)
from experiments.reports import outputs
from experiments.training import comparison, model_norm, searches, studies, verification
from experiments.training import sweeps as training
from tests.experiments import made_up_runs, programs
from tests.experiments.programs import parse


@pytest.fixture
def request_for(tmp_path):
    def build(*words, name="drift_comparison", folder=tmp_path / "out"):
        words = [*words, "--processes=1", f"--output_dir={folder}"]
        return requests.request(name, parse("preset", "NAME", *words))

    return build


STUDY = Study(
    "part",
    {
        "task": "quadratic",
        "num_clients": 5,
        "clients_per_round": 2,
        "rounds": 2,
        "rounds_per_evaluation": 1,
    },
    [
        Variant("plain", "fed_avg"),
        Variant("strong", "fed_dyn", {"fed_dyn_mu": 0.5}),
    ],
    columns={"finalizer/model_norm": "norm"},
)


PARTS = [
    (preset, scale, study)
    for preset in PRESETS.values()
    for scale in SCALES
    for study in preset.scale(scale).studies
]


def test_what_was_found_on_one_task_is_for_its_parts_alone(request_for):
    found = pathlib.Path(__file__).with_name("best.json")
    asked = request_for(f"--settings={found}")
    rates = {
        study.part: studies.flags_of(asked, study, variant).get("client_learning_rate")
        for study in asked.studies
        for variant in study.variants
        if variant.algorithm == "fed_avg"
    }
    of_digits = {part for part, rate in rates.items() if rate == 0.7}
    assert of_digits == {"digits_low", "digits_full"}
    with pytest.raises(errors.UserError, match="task digits, not for shakespeare_ch"):
        request_for(f"--settings={found}", "--parts=shakespeare_low")


@pytest.mark.parametrize(
    ("preset", "scale", "study"),
    PARTS,
    ids=[f"{preset.name}-{scale}-{study.part}" for preset, scale, study in PARTS],
)
def test_every_part_asks_for_runs_that_exist(request_for, preset, scale, study):
    asked = request_for(f"--scale={scale}", f"--parts={study.part}", name=preset.name)
    assert asked.studies == [study]
    grids = {} if study.search is None else study.search.grids
    labels = [variant.label for variant in study.variants]
    assert len(set(labels)) == len(labels)
    assert set(grids) <= set(labels)
    folders = set()
    for variant in study.variants:
        # The ends of what a search tries.
        grid = grids.get(variant.label, {})
        for place in (0, -1) if grid else (0,):
            point = {flag: values[place] for flag, values in grid.items()}
            flags = {**variant.flags, **point}
            at_point = dataclasses.replace(variant, flags=flags)
            run = studies.run_settings(asked, study, at_point, 7)
            assert run.label == variant.label
            folders.add(run.folder)
            for flag, value in {**study.flags, **flags}.items():
                if flag != "protocol":
                    assert run.configuration[flag] == value
    # Runs whose folders were one would be taken for one another.
    assert len(folders) == len(labels)
    assert all(each.parent.parent == asked.folder / study.part for each in folders)
    names = [output.name for output in study.outputs]
    assert len(set(names)) == len(names)
    for output in study.outputs:
        assert output.kind in {**outputs.TABLES, **outputs.FIGURES}


def test_a_preset_has_parts_at_both_scales_and_says_what_they_take():
    for preset in PRESETS.values():
        for scale in map(preset.scale, SCALES):
            assert len(set(scale.parts)) == len(scale.parts) > 0
            assert scale.hours > 0
            assert scale.gigabytes > 0


def test_variants_are_crossed_with_the_values_of_a_flag():
    base = Variant("mine", "fed_adam", {"tau": 0.1})
    first, second, *others = crossed([base, "fed_avg"], "rounds", (5, 9), "_r{}")
    assert (first.label, first.algorithm) == ("mine_r5", "fed_adam")
    assert first.flags == {"tau": 0.1, "rounds": 5}
    assert second.flags == {"tau": 0.1, "rounds": 9}
    assert [each.label for each in others] == ["fed_avg_r5", "fed_avg_r9"]


def test_a_request_has_parts_in_their_order_and_a_folder_by_scale(request_for):
    request = request_for("--parts=digits_full,digits_low", "--scale=paper")
    assert request.parts == ("digits_low", "digits_full")
    assert request.seeds == (1, 2, 3)
    request = requests.request("drift_comparison", {"scale": "paper"})
    assert request.folder == pathlib.Path("results/drift_comparison/paper")
    assert request.parts == PRESETS["drift_comparison"].paper.parts


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("drift_comparision", (), "Did you mean drift_comparison?"),
        ("drift_comparison", ("--parts=digits_lo",), "Did you mean digits_low"),
    ],
)
def test_mistakes(request_for, name, words, message):
    with pytest.raises(errors.UserError, match=message):
        request_for(*words, name=name)


@pytest.mark.parametrize("part", ["sampled", "full"])
def test_the_quadratics_ask_for_runs_that_take_the_steps_they_name(request_for, part):
    request = request_for(name="scaffold_drift")
    study = PRESETS["scaffold_drift"].study("local", part)
    assert len({variant.label for variant in study.variants}) == 6
    for variant in study.variants:
        run = studies.run_settings(request, study, variant, 7)
        # All of a client's data is one batch.
        assert run.configuration["batch_size"] is None
        assert variant.label.endswith(f"_k{run.configuration['client_epochs']}")


@pytest.mark.conformance
def test_a_study_has_a_row_and_a_folder_per_variant(request_for):
    request = request_for("--seeds=3,4")
    done = studies.run_study(request, STUDY)
    folder = request.folder / "part"
    assert [(run.settings.label, run.settings.seed) for run in done] == [
        ("plain", 3),
        ("strong", 3),
        ("plain", 4),
        ("strong", 4),
    ]
    table = pd.read_csv(folder / "table.csv").set_index("algorithm")
    assert list(table.index) == ["plain", "strong"]
    config = json.loads((folder / "strong" / "seed_4" / "config.json").read_text())
    assert config["configuration"]["fed_dyn_mu"] == 0.5
    assert (folder / "curves.png").stat().st_size > 0

    # Methods with client states report it themselves; of FedAvg it is measured.
    reported = [row.get("finalizer/model_norm") for row in done[1].rows[1:]]
    assert [row[model_norm.COLUMN] for row in done[1].rows[1:]] == reported
    assert done[0].rows[-1][model_norm.COLUMN] > 0
    studies.write_metrics(request, STUDY, done)
    metrics = pd.read_csv(folder / METRICS_FILE)
    # Evaluations of the initial model and of both rounds, of four runs.
    assert len(metrics) == 4 * 3
    assert metrics[done[0].headline].notna().all()
    # FedAvg reports no norm of its model, and no method before the first round.
    measured = metrics[metrics["norm"].notna()]
    assert set(measured["method"]) == {"strong"}
    assert set(measured["round"]) == {1, 2}

    before = (folder / "strong" / "seed_4" / "metrics.csv").stat().st_mtime_ns
    studies.run_study(request, STUDY)
    after = (folder / "strong" / "seed_4" / "metrics.csv").stat().st_mtime_ns
    assert before == after


@pytest.mark.parametrize("run", [studies.run, verification.run])
def test_a_method_that_is_not_registered_is_named(request_for, monkeypatch, run):
    echo = Variant("echo", "fed_echo", {"rho": 0.2})
    study = dataclasses.replace(STUDY, variants=[*STUDY.variants, echo])
    preset = Preset("mine", "A.", "B.", *2 * [Scale([study], hours=1, gigabytes=1)])
    monkeypatch.setitem(PRESETS, "mine", preset)
    request = request_for(name="mine")
    with pytest.raises(
        errors.UserError,
        match="'mine', part 'part': the variant 'echo' asks for the algorithm 'fed_ec",
    ):
        run(request)
    assert not request.folder.exists()


def test_a_study_replaces_no_files_of_others(request_for, monkeypatch, capsys):
    preset = Preset("mine", "A.", "B.", *2 * [Scale([STUDY], hours=1, gigabytes=1)])
    monkeypatch.setitem(PRESETS, "mine", preset)
    other = dataclasses.replace(preset, name="other")
    monkeypatch.setitem(PRESETS, "other", other)
    request = request_for("--seeds=3,4", name="mine")
    studies.run(request)
    assert "\npart part: quadratic, 2 of 5 clients per" in capsys.readouterr().out
    files = {p: p.read_bytes() for p in request.folder.glob("part/*") if p.is_file()}
    refused = (
        (request_for(name="other"), "of the preset other at the scale local would"),
        (request_for("--scale=paper", name="mine"), "mine at the scale paper would"),
    )
    for another, told in refused:
        with pytest.raises(errors.UserError, match=f"local, whose files .*{told}"):
            studies.run(another)
    with pytest.raises(errors.UserError, match="files a comparison of no preset would"):
        comparison.check_files(request.folder / "part", {}, {"quadratic"})
    assert {path: path.read_bytes() for path in files} == files
    capsys.readouterr()
    # The table is then of these seeds, and says so.
    studies.run(request_for("--seeds=3", name="mine"))
    told = capsys.readouterr().err
    assert "Left out, not of this command: plain/seed_4, strong/seed_4. A ta" in told


def test_a_reader_that_leaves_early_gets_all_files_of_a_part(request_for, monkeypatch):
    study = dataclasses.replace(STUDY, outputs=[Output("last", "last_rounds")])
    preset = Preset("mine", "A.", "B.", *2 * [Scale([study], hours=1, gigabytes=1)])
    monkeypatch.setitem(PRESETS, "mine", preset)
    request = request_for("--seeds=3", name="mine")
    with pytest.raises(BrokenPipeError), programs.closed_output():
        studies.run(request)
    made = {path.name for path in request.folder.glob("part/*") if path.is_file()}
    assert made >= {"table.md", "metrics.csv.gz", "last.md", "last.csv"}


@pytest.fixture
def trained(monkeypatch):
    """Replaces training by a formula; collects the points that were trained."""
    points = []

    def run(sweep, executor):
        assert executor is not None
        for point in sweep.grid():
            for each in sweep.runs(point):
                assert each.seed == searches.SEED
                if training.is_done(each):
                    continue
                points.append(point)
                rate, mu = (each.configuration[name] for name in GRIDS["strong"])
                miss = abs(rate - 0.2) + abs(mu - 0.1)
                made_up_runs.write(each.folder, [0.1] + [0.9 - miss] * each.rounds)
                if mu == 0.3:
                    (each.folder / training.DIVERGED_FILE).write_text("{}")
        return list(sweep.grid())

    monkeypatch.setattr(training, "run", run)
    return points


# 0.3 comes nearer to the best, but diverges.
GRIDS = {"strong": {"client_learning_rate": (0.1, 0.2, 0.4), "fed_dyn_mu": (0.3, 0.45)}}
SEARCHED = dataclasses.replace(
    STUDY, flags={**STUDY.flags, "task": "digits"}, search=Search(3, GRIDS)
)


def choose(request, study):
    flags_of = functools.partial(studies.flags_of, request)
    return searches.choose(study, request.folder, flags_of)


def test_a_search_is_a_sweep_that_goes_on_where_it_stopped(request_for, trained):
    request = request_for()
    chosen = choose(request, SEARCHED)
    assert chosen.flags == SEARCHED.flags
    assert chosen.variants[0] == SEARCHED.variants[0]
    assert chosen.variants[1].flags == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.45}
    assert len(trained) == 6
    folder = request.folder / "tuning" / "part" / "strong"
    best = json.loads((folder / "best.json").read_text())
    assert best["flags"] == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.45}
    assert len(pd.read_csv(folder / "points.csv")) == 6

    (folder / "client_learning_rate=0.4,fed_dyn_mu=0.45" / "seed_0").rename(
        request.folder / "elsewhere"
    )
    assert choose(request, SEARCHED) == chosen
    assert trained[6:] == [{"client_learning_rate": 0.4, "fed_dyn_mu": 0.45}]
    with pytest.raises(errors.UserError, match="holds another sweep: --"):
        choose(request, dataclasses.replace(SEARCHED, search=Search(4, GRIDS)))


def test_a_single_point_is_taken_without_a_search(request_for, trained):
    grids = {"strong": {"client_learning_rate": (0.2,), "fed_dyn_mu": (0.1,)}}
    study = dataclasses.replace(SEARCHED, search=Search(3, grids))
    chosen = choose(request_for(), study)
    assert chosen.variants[1].flags == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.1}
    assert not trained


def test_a_variant_takes_the_choice_of_another(request_for, trained):
    like = Variant("like", "fed_dyn", {"fed_dyn_mu": 0.7})
    study = dataclasses.replace(
        SEARCHED,
        variants=(*SEARCHED.variants, like),
        search=Search(3, GRIDS, {"like": ("strong", ("client_learning_rate",))}),
    )
    chosen = choose(request_for(), study)
    assert chosen.variants[2].flags == {"client_learning_rate": 0.2, "fed_dyn_mu": 0.7}
    assert len(trained) == 6


@pytest.mark.conformance
def test_runs_train_side_by_side(request_for, monkeypatch, capsys):
    trained = []

    def train(waiting, train_one, placement):
        assert placement.processes == 3
        for run in waiting:
            trained.append((run.label, run.seed))
            assert train_one(run) == ""

    monkeypatch.setattr(comparison.pool, "train", train)
    request = request_for("--seeds=5,6")
    request = dataclasses.replace(request, placement=Placement(processes=3))
    done = studies.run_study(request, STUDY)
    assert [(run.settings.label, run.settings.seed) for run in done] == trained
    assert len(trained) == 4
    # The processes have told of them.
    assert capsys.readouterr().err.count(", seed ") == 0
    studies.run_study(request, STUDY)
    assert len(trained) == 4
    assert capsys.readouterr().err.count(": finished before\n") == 4


def test_on_ray_each_run_is_one_of_a_machine_of_its_own(request_for):
    asked = request_for("--seeds=5", "--execution=ray", "--ray_address=head:6379")
    assert asked.placement == Placement(1, on_ray=True, ray_address="head:6379")
    here = request_for("--seeds=5")
    runs = [
        studies.run_settings(request, STUDY, STUDY.variants[0], 5)
        for request in (asked, here)
    ]
    assert runs[0].configuration == runs[1].configuration
    assert runs[0].circumstances == runs[1].circumstances
    with pytest.raises(errors.UserError, match="--verify trains in this process"):
        request_for("--execution=ray", "--verify")
    with pytest.raises(errors.UserError, match="--ray_address has no meaning"):
        studies.run(request_for("--ray_address=auto"))


@pytest.mark.conformance
def test_the_table_of_costs_has_the_papers_figures(request_for):
    request = request_for("--seeds=1", name="adabest_cost")
    studies.run(request)
    folder = request.folder / "digits"
    costs = pd.read_csv(folder / "cost.csv").set_index("method")
    # The weight that comes up beside the update is a 3,760th of n.
    assert costs["down"].tolist() == costs["down_paper"].tolist()
    assert costs["up"].tolist() == pytest.approx(costs["up_paper"], abs=1e-3)
    # AdaBest keeps the round that it took part in last, besides.
    assert costs["stored"].tolist() == pytest.approx([0, 1, 1, 1, 1], abs=1e-3)
    # 1,438 examples over 100 clients are two batches of ten each, five times.
    assert set(costs["local_steps"]) == {10}
    assert costs.loc["adabest", "client_sums"] == 11
    assert costs.loc["fed_dyn", "client_products"] == 11
    assert costs.loc["scaffold_m", "server_sums"] == 12
    table = (folder / "cost.md").read_text()
    assert "| adabest | 1 | 1 |" in table


def test_data_of_any_part_is_missed_before_anything_is_trained(
    request_for, tmp_path, monkeypatch
):
    monkeypatch.setattr(comparison, "run", lambda *_: pytest.fail("it trains"))
    parts = "--parts=digits_2,emnist_letters_1"
    request = request_for(parts, f"--cache_dir={tmp_path}", name="adabest_table")
    with pytest.raises(
        errors.UserError,
        match=r"fetch --task=emnist_letters` .* leaves out the part emnist_letters_1",
    ):
        studies.run(request)
    assert not request.folder.exists()
