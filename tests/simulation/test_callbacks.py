"""How callbacks take part in a run."""

import json
import os

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.simulation import fakes
from tff_drift import compat
from tff_drift.simulation import OutputDir, read_rows, run_training, without_timing
from tff_drift.simulation.callbacks import (
    Callback,
    FailureWatch,
    FinalEvaluation,
    PeriodicEvaluation,
    Progress,
)
from tff_drift.simulation.records import metrics
from tff_drift.simulation.records.checkpoint import load_checkpoint


class Witness(Callback):
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def before_training(self, run):
        self.run = run
        self.told.append(("before_training", run.rounds_completed, run.rounds))

    def after_round(self, round_number, state, row):
        self.told.append(("after_round", round_number, sorted(row)))

    def after_evaluation(self, round_number, state, row):
        self.told.append(("after_evaluation", round_number, row["test_norm"]))

    def after_row(self, row):
        self.told.append(("after_row", row["round"]))

    def after_training(self, result):
        self.told.append(("after_training", result and result.totals.rounds))


class WeightSum(Callback):
    """Adds a column."""

    def after_round(self, round_number, state, row):
        return {"weights/sum": state.global_model_weights.trainable[0].sum()}


def run(*callbacks, rounds=4, process=None, **options):
    return run_training(
        process or fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=rounds,
        cohort_size=3,
        callbacks=callbacks,
        **options,
    )


def evaluation(every=2):
    def norm(weights):
        return {"norm": float(np.linalg.norm(weights.trainable[0]))}

    return PeriodicEvaluation(norm, rounds_per_evaluation=every)


def test_moments_and_their_order():
    witness = Witness()
    result = run(evaluation(), witness, rounds=3)
    names = [(name, value) for name, value, *_ in witness.told]
    assert names == [
        ("before_training", 0),
        ("after_row", 0),
        ("after_round", 1),
        ("after_row", 1),
        ("after_round", 2),
        ("after_evaluation", 2),
        ("after_row", 2),
        ("after_round", 3),
        ("after_evaluation", 3),
        ("after_row", 3),
        ("after_training", 3),
    ]
    # What callbacks before it have given is in the row.
    [*_, columns] = next(
        told for told in witness.told if told[:2] == ("after_round", 2)
    )
    assert "test_norm" in columns
    assert witness.run.rounds_completed == 3
    assert witness.run.state is result.state


def test_columns_are_kept_and_a_resumed_run_has_the_same(tmp_path):
    initial = fakes.AveragingProcess().initialize()

    def process():
        process = fakes.AveragingProcess()
        process.initialize = lambda: initial
        return process

    expected = run(WeightSum(), process=process(), output_dir=tmp_path / "whole")
    for rounds in (1, 3, 4):
        found = run(
            WeightSum(), process=process(), rounds=rounds, output_dir=tmp_path / "parts"
        )
    rows = [list(map(without_timing, result.rows)) for result in (found, expected)]
    assert rows[0] == rows[1]
    assert all("weights/sum" in row for row in rows[0])
    _, written = read_rows(tmp_path / "parts" / "metrics.csv")
    assert list(map(without_timing, written)) == rows[1]


@pytest.mark.parametrize("moment", ["before_training", "after_round", "after_row"])
def test_an_exception_leaves_nothing_half_written(tmp_path, moment):
    class Broken(Callback):
        pass

    def fail(*arguments):
        if moment == "before_training" or arguments[1:] or arguments[0]["round"] == 3:
            raise ArithmeticError("broken")

    def fail_in_round(round_number, state, row):
        if round_number == 3:
            raise ArithmeticError("broken")

    broken, witness = Broken(), Witness()
    setattr(broken, moment, fail_in_round if moment == "after_round" else fail)
    output = OutputDir(tmp_path, rounds_per_checkpoint=2)
    with pytest.raises(ArithmeticError):
        run(witness, broken, output_dir=output)
    assert witness.told[-1] == ("after_training", None)
    process = fakes.AveragingProcess()
    result = run(process=process, output_dir=output)
    assert [row["round"] for row in result.rows] == [1, 2, 3, 4]
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_a_callback_stops_a_run_and_the_next_goes_on(tmp_path):
    class Stop(Witness):
        def after_round(self, round_number, state, row):
            if round_number == 2:
                self.run.stop("enough")

    first = run(Stop(), output_dir=tmp_path)
    assert first.stop_reason == "enough"
    assert first.totals.rounds == 2
    process = fakes.AveragingProcess()
    second = run(process=process, output_dir=tmp_path)
    assert process.rounds_run == [3, 4]
    assert second.stop_reason is None


def test_settings_of_callbacks_are_compared(tmp_path):
    run(evaluation(every=2), output_dir=tmp_path)
    with pytest.raises(ValueError, match="rounds_per_evaluation was 2 and is now 1"):
        run(evaluation(every=1), output_dir=tmp_path)
    with pytest.raises(ValueError, match='accuracy_metric was "accuracy"'):
        run(evaluation(every=2), FailureWatch("recall"), output_dir=tmp_path)


class Settled(Callback):
    """Has settings."""

    def __init__(self, **settings):
        self._settings = settings

    @property
    def settings(self):
        return self._settings


def test_two_callbacks_of_a_class_keep_their_settings_apart(tmp_path):
    run(Settled(width=1), Settled(width=2), output_dir=tmp_path)
    with pytest.raises(ValueError, match=r"Settled\.width was 1 and is now 3"):
        run(Settled(width=3), Settled(width=2), output_dir=tmp_path)
    with pytest.raises(ValueError, match=r"Settled 2\.width was 2 and is now 3"):
        run(Settled(width=1), Settled(width=3), output_dir=tmp_path)
    with pytest.raises(ValueError, match=r"Settled 2\.width was 2 and is now absent"):
        run(Settled(width=1), output_dir=tmp_path)


def weights_of(run, state):
    return run.process.get_model_weights(state)


def others_of(run, state):
    return weights_of(run, state)


class Sized:
    """What is evaluated, with settings of its own."""

    def __init__(self, size):
        self.settings = {"size": size}

    def __call__(self, run, state):
        return weights_of(run, state)


@pytest.mark.parametrize("callback", [PeriodicEvaluation, FinalEvaluation])
@pytest.mark.parametrize(
    ("model", "other", "change"),
    [
        (weights_of, others_of, 'model was "weights_of" and is now "others_of"'),
        (weights_of, None, 'model was "weights_of" and is now absent'),
        (None, Sized(1), r"model\.size was absent and is now 1"),
        (Sized(1), Sized(2), r"model\.size was 1 and is now 2"),
    ],
)
def test_another_model_to_evaluate_is_refused(tmp_path, callback, model, other, change):
    def go(model):
        return run(
            callback(lambda weights: {"norm": 1.0}, model=model),
            rounds=1,
            output_dir=tmp_path,
        )

    go(model)
    with pytest.raises(ValueError, match=change):
        go(other)
    go(model)


def test_the_usual_settings_of_evaluations_are_those_of_earlier_versions(tmp_path):
    def measure(weights):
        return {"norm": 1.0}

    assert PeriodicEvaluation(measure).settings == {"rounds_per_evaluation": 10}
    assert FinalEvaluation(measure).settings == {}
    run(FinalEvaluation(measure, prefix="a_"), output_dir=tmp_path)
    with pytest.raises(ValueError, match='prefix was "a_" and is now "b_"'):
        run(FinalEvaluation(measure, prefix="b_"), output_dir=tmp_path)


def test_settings_of_callbacks_never_hide_the_runs_own(tmp_path):
    run(Settled(seed=5), output_dir=tmp_path)
    with pytest.raises(ValueError, match=r"figuration: seed was 0 and is now 2"):
        run(Settled(seed=5), seed=2, output_dir=tmp_path)


def test_callbacks_without_settings_come_and_go(tmp_path):
    run(Settled(width=1), output_dir=tmp_path)
    again = run(Witness(), Settled(width=1), Witness(), output_dir=tmp_path)
    assert again.totals.rounds == 4


def test_settings_that_are_no_mapping_are_an_error():
    class Wrong(Callback):
        settings = 3

    with pytest.raises(TypeError, match="settings of Wrong must be a mapping"):
        run(Wrong())


def as_before(folder):
    """Makes a run's folder one of an earlier version, with all settings in one."""
    path = folder / "checkpoint.npz"
    saved = load_checkpoint(path)
    training = dict(saved.description["training"])
    for settings in training.pop("callbacks").values():
        training.update(settings)
    for name in ("method", "sampling"):
        training.pop(name, None)
    for name in ("examples_sha256", "contents_sha256"):
        training["train"].pop(name)
    description = {**saved.description, "training": training}
    with np.load(path) as arrays:
        members = dict(arrays)
    header = json.loads(members["header"].tobytes())
    header["description"] = description
    members["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **members)
    assert load_checkpoint(path).description == description


def test_runs_of_earlier_versions_resume(tmp_path):
    expected = run(evaluation(every=2), rounds=6)
    run(evaluation(every=2), rounds=4, output_dir=tmp_path)
    as_before(tmp_path)
    with pytest.raises(ValueError, match="rounds_per_evaluation was 2 and is now 1"):
        run(evaluation(every=1), rounds=6, output_dir=tmp_path)
    resumed = run(evaluation(every=2), rounds=6, output_dir=tmp_path)
    assert resumed.totals.rounds == expected.totals.rounds == 6


def test_watch_and_progress_are_there_once():
    class Shown(Progress):
        rounds = 0

        def after_row(self, row):
            self.rounds += 1

    shown = Shown()
    result = run(shown, FailureWatch("recall"), rounds=2)
    assert shown.rounds == 2
    assert [row["non_finite"] for row in result.rows] == [0, 0]


class Rows(compat.ReleaseManager):
    def __init__(self):
        self.released = {}

    async def release(self, value, key):
        self.released[key] = dict(value)


def test_release_managers_are_given_every_row():
    manager = Rows()
    result = run(evaluation(), manager)
    assert list(manager.released) == [0, 1, 2, 3, 4]
    for row in result.rows:
        assert {"round": row["round"], **manager.released[row["round"]]} == row


def test_tff_s_csv_manager_reads_what_was_released(tmp_path):
    path = tmp_path / "rows.csv"
    manager = tff.program.CSVFileReleaseManager(path, key_fieldname="round")
    result = run(manager, rounds=2)
    _, rows = read_rows(path)
    assert rows == list(result.rows)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"seconds": 1}, ValueError, "Bad returned the column 'seconds', which"),
        ([1], TypeError, r"Bad: what it returns must be a mapping of numbers"),
        ({"best": "ann"}, TypeError, "Bad returned 'ann' for 'best'. Return a number"),
        ({"best": None}, TypeError, "Bad returned None for 'best'"),
        ({"": 1}, ValueError, "Bad returned 1 without a name. Name each column"),
        ({"m": {"table": np.ones([3, 3])}}, TypeError, r"shape \(3, 3\) for 'm/table'"),
        ({"many": np.ones(17)}, TypeError, r"an array of shape \(17,\) for 'many'"),
        (
            {"a b": 1, "a_b": 2},
            ValueError,
            "'a b' and 'a_b', which are both the column",
        ),
        ({"a": {"b": 1}, "a/b": 2}, ValueError, "'a/b' and 'a/b', which are both"),
        ({"a": list(range(10**5))}, ValueError, "Bad returned more than 1000 columns"),
        ({"a": 'x"' * 10**6}, TypeError, r"Bad returned .{190,220} for 'a'"),
    ],
)
def test_bad_columns_are_errors(columns, error, message):
    class Bad(Callback):
        def after_round(self, round_number, state, row):
            return columns

    with pytest.raises(error, match=message):
        run(Bad())


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "what evaluation returns must be a mapping of metrics by name"),
        ({"confusion": {"name": "a"}}, "returned 'a' for 'confusion/name'"),
        (
            {"confusion": np.eye(10)},
            r"evaluation returned an array of shape \(10, 10\)",
        ),
    ],
)
def test_an_evaluation_that_returns_no_metrics_is_an_error(found, message):
    with pytest.raises(TypeError, match=message):
        run(PeriodicEvaluation(lambda weights: found))


def test_times_of_several_evaluations_are_added_up(monkeypatch):
    monkeypatch.setattr(metrics, "seconds_since", lambda start: 1.25)
    one, other = (
        PeriodicEvaluation(lambda weights, name=name: {name: 1.0}) for name in "ab"
    )
    rows = run(one, other, rounds=1).rows
    assert [row["seconds_evaluation"] for row in rows] == [2.5, 2.5]
    assert (rows[0]["test_a"], rows[0]["test_b"]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="the column 'test_a', which the row has"):
        run(one, one, rounds=1)


@pytest.mark.parametrize("callback", [PeriodicEvaluation, FinalEvaluation])
@pytest.mark.parametrize("model", [0, "", {}])
def test_a_model_to_evaluate_that_is_no_function_is_an_error(callback, model):
    with pytest.raises(TypeError, match="model must be a function of a run and a"):
        callback(lambda weights: {}, model=model)


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ([len], "each of callbacks must be one of"),
        (Witness(), "callbacks must be a list"),
    ],
)
def test_what_is_no_callback_is_an_error(callbacks, message):
    with pytest.raises(TypeError, match=message):
        run_training(
            fakes.AveragingProcess(),
            fakes.client_datasets(),
            rounds=1,
            cohort_size=1,
            callbacks=callbacks,
        )


def test_rows_cannot_be_changed_by_a_callback():
    class Meddler(Callback):
        def after_round(self, round_number, state, row):
            row["train_loss"] = 0

    with pytest.raises(TypeError, match="does not support item assignment"):
        run(Meddler())


class Saved:
    """A record of one's own, which outlives the run."""

    folder = None

    def __init__(self):
        self.rows = []
        self.position = None

    def resume(self, initial_state, hyperparameters):
        return self.position

    def add(self, row):
        self.rows.append(row)

    def save(self, position):
        self.position = position

    def close(self):
        pass


def test_a_record_of_one_s_own_takes_the_place_of_a_folder():
    record = Saved()
    run(rounds=2, output_dir=record)
    assert record.position.rounds_completed == 2
    process = fakes.AveragingProcess()
    result = run(rounds=4, output_dir=record, process=process)
    assert process.rounds_run == [3, 4]
    assert [row["round"] for row in result.rows] == [1, 2, 3, 4]


def test_initial_state_takes_the_place_of_the_process_s_own(tmp_path):
    process = fakes.AveragingProcess()
    state = process.initialize()
    results = [run(initial_state=state, rounds=2) for _ in range(2)]
    assert fakes.weight_bytes(results[0].state) == fakes.weight_bytes(results[1].state)
    run(initial_state=state, rounds=2, output_dir=tmp_path)
    with pytest.raises(ValueError, match="initial_weights or initial_state "):
        run(initial_state=results[0].state, rounds=2, output_dir=tmp_path)
