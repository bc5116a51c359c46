"""The driver on a process in NumPy."""

import os

import numpy as np
import pytest
import tensorflow_federated as tff
from absl import logging

from tests import models, tiers
from tests.simulation import fakes
from tff_drift import algorithms, execution, simulation
from tff_drift.simulation import (
    ClientDatasets,
    OutputDir,
    OutputDirError,
    read_rows,
    run_training,
    without_timing,
)
from tff_drift.simulation.callbacks import Callback, PeriodicEvaluation, TensorBoard
from tff_drift.simulation.records.run_directory import RunDirectory


@pytest.fixture
def train():
    return fakes.client_datasets(epochs=2)


@pytest.fixture
def warnings(monkeypatch):
    logged = []
    monkeypatch.setattr(
        logging, "warning", lambda message, *values: logged.append(message % values)
    )
    return logged


def _rows(result):
    return [without_timing(row) for row in result.rows]


def _norm(weights):
    return {"norm": np.linalg.norm(weights.trainable[0])}


def _run(
    process,
    train,
    rounds=7,
    *,
    output_dir=None,
    evaluation=_norm,
    rounds_per_evaluation=3,
    rounds_per_checkpoint=2,
    configuration=None,
    callbacks=(),
    **options,
):
    if output_dir is not None:
        output_dir = OutputDir(output_dir, rounds_per_checkpoint, configuration or {})
    periodic = PeriodicEvaluation(
        evaluation, rounds_per_evaluation=rounds_per_evaluation
    )
    return run_training(
        process,
        train,
        rounds=rounds,
        callbacks=[periodic, *callbacks],
        output_dir=output_dir,
        **{"cohort_size": 3, "seed": 1, **options},
    )


class _Kill(BaseException):
    """Stops the driver as abruptly as Python code can."""


def test_rows_say_what_happened(train):
    process = fakes.AveragingProcess()
    result = _run(process, train)
    assert process.rounds_run == [1, 2, 3, 4, 5, 6, 7]
    assert [row["round"] for row in result.rows] == list(range(8))
    # Evaluated at first, in every third round, and at last.
    assert [row["round"] for row in result.rows if "test_norm" in row] == [0, 3, 6, 7]
    assert list(result.rows[1]) == [
        "round",
        "train_accuracy",
        "train_loss",
        "train_num_examples",
        "aggregator/clipping_norm",
        "seconds",
        "cohort_size",
        "bytes_down",
        "bytes_up",
        "total_examples",
        "total_bytes",
        "catastrophic_failure",
        "non_finite",
    ]
    assert result.rows[1]["aggregator/clipping_norm"] == 0.1


def test_examples_and_traffic_are_counted(train):
    sampling = simulation.build_uniform_sampling(train.client_ids, 3, 1)
    result = _run(fakes.AveragingProcess(), train)
    sizes = [
        sum(train.num_examples(client_id) for client_id in sampling(round_number))
        for round_number in range(7)
    ]
    # Two epochs, and 8 bytes that train down, these and a weight of 4 bytes up.
    assert result.totals.examples == 2 * sum(sizes)
    assert result.totals.bytes_down == 7 * 3 * 8
    assert result.totals.bytes_up == 7 * 3 * 12
    assert result.rows[2]["total_examples"] == 2 * sum(sizes[:2])
    assert result.rows[2]["total_bytes"] == 2 * 3 * 20
    assert result.totals.rounds == 7
    assert result.totals.seconds == sum(row.get("seconds", 0) for row in result.rows)


def test_examples_are_counted_without_the_metric(train):
    class Process(fakes.AveragingProcess):
        def next(self, state, client_data):
            output = super().next(state, client_data)
            del output.metrics["client_work"]["train"]["num_examples"]
            return output

    with_metric = _run(fakes.AveragingProcess(), train)
    without = _run(Process(), train)
    assert without.totals.examples == with_metric.totals.examples


def test_result_holds_state_and_deployed_model(train):
    process = fakes.AveragingProcess()
    result = _run(process, train)
    assert result.model_weights is result.state.global_model_weights
    assert result.rows[-1]["test_norm"] == pytest.approx(
        np.linalg.norm(result.model_weights.trainable[0])
    )


def test_nothing_is_written_without_output_dir(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _run(fakes.AveragingProcess(), train)
    assert os.listdir(tmp_path) == []


def test_sampling_replaces_uniform_sampling(train):
    asked = []

    def sampling(round_number):
        asked.append(round_number)
        return train.client_ids[: round_number + 1]

    result = _run(
        fakes.AveragingProcess(), train, rounds=3, cohort_size=None, sampling=sampling
    )
    assert asked == [0, 1, 2]
    assert [row.get("cohort_size") for row in result.rows] == [None, 1, 2, 3]


def test_sampling_may_return_an_array_of_numpy(train):
    context = _RoundRunner()
    with tff.framework.get_context_stack().install(context):
        _run(
            fakes.AveragingProcess(),
            train,
            rounds=1,
            cohort_size=None,
            sampling=lambda _: np.asarray(train.client_ids[:2]),
        )
    (cohort,) = context.cohorts
    assert cohort.clients == list(train.client_ids[:2])
    assert {type(client) for client in cohort.clients} == {str}


class _RoundRunner(execution.RoundRunner, tff.framework.SyncContext):
    """A context that notes the cohorts whose rounds it runs."""

    def __init__(self):
        self.cohorts = []
        self._context = execution.create_local_execution_context()

    def invoke(self, comp, arg):
        return self._context.invoke(comp, arg)

    def run_round(self, process, server_state, cohort):
        self.cohorts.append(cohort)
        return cohort.run(process, server_state, cohort.datasets())


def test_the_context_is_told_who_trains_now_and_next(train):
    context = _RoundRunner()
    with tff.framework.get_context_stack().install(context):
        _run(fakes.AveragingProcess(), train, rounds=4)
    sampling = simulation.build_uniform_sampling(train.client_ids, 3, seed=1)
    expected = [sampling(round_number) for round_number in range(4)]
    assert [each.round_number for each in context.cohorts] == [0, 1, 2, 3]
    assert [each.clients for each in context.cohorts] == expected
    assert [each.next_clients for each in context.cohorts] == [*expected[1:], ()]
    assert all(each.data.client_ids == train.client_ids for each in context.cohorts)


@pytest.mark.parametrize("is_own", [False, True])
def test_a_sampling_that_may_look_back_is_not_asked_ahead(train, is_own):
    asked, trained = [], []

    def size(round_number):
        # What a sampling that learns from the rounds before would see.
        asked.append((round_number, len(trained)))
        return 3

    sampling = simulation.build_uniform_sampling(train.client_ids, size)
    if is_own:
        sampling = lambda number: train.client_ids[: size(number)]  # noqa: E731

    class Rounds(Callback):
        def after_round(self, round_number, state, row):
            trained.append(round_number)

    _run(
        fakes.AveragingProcess(),
        train,
        rounds=3,
        cohort_size=None,
        sampling=sampling,
        callbacks=[Rounds()],
    )
    assert asked == [(0, 0), (1, 1), (2, 2)]


def test_failures_are_recorded_and_reported(train, warnings):
    process = fakes.AveragingProcess(accuracies={4: 0.25, 5: 0.2, 6: 0.09})
    result = _run(process, train)
    assert [(f.round, f.kind) for f in result.failures] == [
        (4, "catastrophic_failure"),
        (6, "catastrophic_failure"),
    ]
    assert warnings == [
        "Round 4: the training accuracy fell to half or less.",
        "Round 6: the training accuracy fell to half or less.",
    ]


@pytest.mark.filterwarnings("ignore:.* encountered in")
def test_diverging_model_is_recorded_and_reported_once(train, warnings):
    result = _run(fakes.AveragingProcess(learning_rate=1e15), train)
    rounds = {f.round for f in result.failures if f.kind == "non_finite"}
    assert rounds
    assert rounds == set(range(min(rounds), 8))
    assert [line for line in warnings if "not finite" in line] == [
        f"Round {min(rounds)}: the training loss or the model is not finite."
    ]


def test_process_and_data_of_another_type_are_errors(train):
    with pytest.raises(TypeError, match=r"process must be a .* found 3, which has no"):
        run_training(3, train, rounds=1, cohort_size=1)
    with pytest.raises(TypeError, match=r"train must be a .* found \[1\]"):
        run_training(fakes.AveragingProcess(), [1], rounds=1, cohort_size=1)


@pytest.mark.parametrize("rounds_per_checkpoint", tiers.first([1], [1, 3, 100]))
def test_kills_at_every_step_change_nothing(train, tmp_path, rounds_per_checkpoint):
    def run(folder, process):
        return _run(
            process,
            train,
            output_dir=tmp_path / folder,
            rounds_per_checkpoint=rounds_per_checkpoint,
            evaluation=lambda weights: {"sum": weights.trainable[0].sum()},
        )

    # All runs begin with the weights that the first one drew.
    initial = fakes.AveragingProcess().initialize()

    def process(kill_at=None):
        process = fakes.AveragingProcess()
        process.initialize = lambda: initial

        def before_round(round_number):
            if round_number == kill_at:
                raise _Kill

        process.before_round = before_round
        return process

    expected = run("whole", process())
    for kill_at in (0, 1, 4, 4, 5, 6):
        with pytest.raises(_Kill):
            run("killed", process(kill_at))
    found = run("killed", process())
    assert _rows(found) == _rows(expected)
    assert fakes.weight_bytes(found.state) == fakes.weight_bytes(expected.state)
    assert [
        without_timing(row) for row in read_rows(tmp_path / "killed" / "metrics.csv")[1]
    ] == _rows(expected)


def test_kill_in_the_first_round_keeps_the_initial_weights(train, tmp_path):
    process = fakes.AveragingProcess()
    seen = []

    def evaluation(weights):
        seen.append(weights.trainable[0].tolist())
        return {}

    def kill(round_number):
        raise _Kill

    process.before_round = kill
    with pytest.raises(_Kill):
        _run(process, train, output_dir=tmp_path, evaluation=evaluation)
    process.before_round = seen.append
    result = _run(process, train, rounds=1, output_dir=tmp_path, evaluation=evaluation)
    # The first round began from the weights that the killed run had drawn.
    [client_data] = [
        [
            train.training_data(client_id, 0)
            for client_id in simulation.build_uniform_sampling(train.client_ids, 3, 1)(
                0
            )
        ]
    ]
    state = fakes.AveragingProcess().initialize()
    state.global_model_weights.trainable[0] = np.array(seen[0], np.float32)
    expected = fakes.AveragingProcess().next(state, client_data).state
    assert fakes.weight_bytes(result.state) == fakes.weight_bytes(expected)


def _entries(folder):
    """What changes if anything in a folder is created, removed or written."""
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (folder, *folder.rglob("*"))
    }


def test_finished_run_returns_the_same_without_training(train, tmp_path):
    first = _run(fakes.AveragingProcess(), train, output_dir=tmp_path)
    written = _entries(tmp_path)
    process = fakes.AveragingProcess()
    again = _run(process, train, output_dir=tmp_path)
    assert process.rounds_run == []
    assert again.rows == first.rows
    assert again.totals == first.totals
    assert fakes.weight_bytes(again.state) == fakes.weight_bytes(first.state)
    # Nothing is written, so that the folder may be read-only.
    assert _entries(tmp_path) == written


def test_finished_run_can_be_extended(train, tmp_path):
    initial = fakes.AveragingProcess().initialize()

    def process():
        process = fakes.AveragingProcess()
        process.initialize = lambda: initial
        return process

    _run(process(), train, rounds=6, output_dir=tmp_path)
    extended = _run(process(), train, rounds=9, output_dir=tmp_path)
    expected = _run(process(), train, rounds=9)
    assert _rows(extended) == _rows(expected)
    assert fakes.weight_bytes(extended.state) == fakes.weight_bytes(expected.state)


def test_fewer_rounds_than_completed_is_an_error(train, tmp_path):
    _run(fakes.AveragingProcess(), train, output_dir=tmp_path)
    with pytest.raises(ValueError, match=r"rounds is 5, .* has completed 7"):
        _run(fakes.AveragingProcess(), train, rounds=5, output_dir=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cohort_size": 2}, "cohort_size was 3 and is now 2"),
        ({"seed": 2}, "seed was 1 and is now 2"),
        ({"rounds_per_evaluation": 1}, "rounds_per_evaluation was 3 and is now 1"),
        ({"configuration": {"task": "b"}}, 'task was "a" and is now "b"'),
    ],
)
def test_changed_argument_is_named(train, tmp_path, options, message):
    options = {"output_dir": tmp_path, "configuration": {"task": "a"}, **options}
    _run(
        fakes.AveragingProcess(),
        train,
        output_dir=tmp_path,
        configuration={"task": "a"},
    )
    with pytest.raises(OutputDirError, match=message):
        _run(fakes.AveragingProcess(), train, **options)


def test_changed_data_or_hyperparameter_is_named(train, tmp_path):
    _run(fakes.AveragingProcess(), train, output_dir=tmp_path)
    with pytest.raises(OutputDirError, match=r"train.batch_size was 2 and is now 4"):
        _run(fakes.AveragingProcess(), train.replace(batch_size=4), output_dir=tmp_path)
    with pytest.raises(OutputDirError, match=r"train.clients was 6 and is now 4"):
        _run(
            fakes.AveragingProcess(),
            train.subset(train.client_ids[:4]),
            output_dir=tmp_path,
        )
    with pytest.raises(
        OutputDirError, match=r"client_work/rate was 0.5 and is now 0.1"
    ):
        _run(fakes.AveragingProcess(learning_rate=0.1), train, output_dir=tmp_path)


def test_another_model_is_an_error(train, tmp_path):
    _run(fakes.AveragingProcess(), train, output_dir=tmp_path)
    with pytest.raises(
        simulation.CheckpointError, match="trainable/0' of server_state has shape"
    ):
        _run(fakes.AveragingProcess(num_features=3), train, output_dir=tmp_path)


def test_interrupt_keeps_every_completed_round(train, tmp_path, warnings):
    process = fakes.AveragingProcess()

    def interrupt(round_number):
        if round_number == 5:
            raise KeyboardInterrupt

    process.before_round = interrupt
    with pytest.raises(KeyboardInterrupt):
        _run(process, train, output_dir=tmp_path, rounds_per_checkpoint=100)
    assert warnings == [
        "Interrupted. Start the same run again to continue after round 5 from "
        f"{tmp_path}."
    ]
    process.before_round = lambda round_number: None
    process.rounds_run.clear()
    _run(process, train, output_dir=tmp_path, rounds_per_checkpoint=100)
    assert process.rounds_run == [6, 7]


def test_an_interrupt_after_a_row_is_kept_costs_that_round_alone(
    train, tmp_path, monkeypatch
):
    add = RunDirectory.add

    def add_and_interrupt(self, row):
        add(self, row)
        # Round 2 has a checkpoint, round 3 has none yet.
        if row["round"] == 4:
            raise KeyboardInterrupt

    expected = _run(fakes.AveragingProcess(), train, output_dir=tmp_path / "whole")
    folder = tmp_path / "interrupted"
    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "add", add_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            _run(fakes.AveragingProcess(), train, output_dir=folder)
    process = fakes.AveragingProcess()
    result = _run(process, train, output_dir=folder)
    assert process.rounds_run == [4, 5, 6, 7]
    numbers = [row["round"] for row in result.rows]
    assert numbers == [row["round"] for row in expected.rows]


def test_a_metric_named_as_a_column_of_the_driver_is_refused(train, tmp_path):
    class Process(fakes.AveragingProcess):
        def next(self, state, client_data):
            output = super().next(state, client_data)
            output.metrics["round"] = np.int32(7)
            return output

    with pytest.raises(ValueError, match="metric 'round', but 'round' is a column"):
        _run(Process(), train, output_dir=tmp_path)
    assert [row["round"] for row in read_rows(tmp_path / "metrics.csv")[1]] == [0]


def test_an_error_costs_no_completed_round(train, tmp_path):
    process = fakes.AveragingProcess()

    def fail(round_number):
        if round_number == 5:
            raise RuntimeError("a worker is gone")

    process.before_round = fail
    with pytest.raises(RuntimeError, match="a worker is gone"):
        _run(process, train, output_dir=tmp_path, rounds_per_checkpoint=100)
    again = fakes.AveragingProcess()
    _run(again, train, output_dir=tmp_path, rounds_per_checkpoint=100)
    assert again.rounds_run == [6, 7]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rounds": 0}, ValueError, "rounds must be at least 1"),
        ({"cohort_size": 7}, ValueError, "cohort_size is 7, but there are only 6"),
        (
            {"cohort_size": None},
            TypeError,
            "cohort_size must be an integer, found None",
        ),
        ({"cohort_size": "a"}, TypeError, "cohort_size must be an integer, found 'a'"),
        (
            {"cohort_size": simulation.doubling_cohorts(1, [2])},
            TypeError,
            r"cohort_size must be .* found doubling_cohorts\(.*"
            r"Give sampling=build_uniform_sampling\(train.client_ids, cohort_size, ",
        ),
        ({"seed": None}, TypeError, "seed must be an integer, found None"),
        ({"sampling": 3}, TypeError, "sampling must be a function"),
        ({"output_dir": "a\0b"}, ValueError, "output_dir must be a path"),
        ({"output_dir": 3}, TypeError, "output_dir must be a path, found 3"),
        ({"evaluation": 3}, TypeError, "evaluation must be a function"),
        ({"client_states": 3}, ValueError, "keep no states"),
        ({"rounds_per_evaluation": 0}, ValueError, "rounds_per_evaluation must be"),
        ({"rounds_per_checkpoint": 1.5}, TypeError, "rounds_per_checkpoint must be"),
        (
            {"callbacks": [TensorBoard()], "output_dir": None},
            ValueError,
            "output_dir is None",
        ),
        ({"configuration": {"rate": len}}, TypeError, "must be a JSON value"),
    ],
)
def test_bad_arguments_are_errors_before_training(
    train, tmp_path, options, error, message
):
    process = fakes.AveragingProcess()
    options = {"output_dir": tmp_path, **options}
    with pytest.raises(error, match=message):
        _run(process, train, **options)
    assert process.rounds_run == []
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("method", ["uga", "fed_share"])
def test_epochs_that_the_clients_do_not_hold_are_refused(method):
    clients = {f"client_{k}": each for k, each in enumerate(models.client_arrays([4]))}
    train = ClientDatasets.from_arrays(clients, batch_size=2, epochs=3)
    build = {
        "uga": lambda epochs: algorithms.build_uga(
            models.softmax_regression, 0.1, 1.0, local_epochs=epochs
        ),
        "fed_share": lambda epochs: algorithms.build_fed_share(
            models.softmax_regression,
            0.1,
            models.datasets(models.client_arrays([4]))[0],
            local_epochs=epochs,
        ),
    }[method]
    message = (
        r"process was built with local_epochs=2, but train has epochs=3: give it "
        r"train\.replace\(epochs=2\), or build the process with local_epochs=3\."
    )
    with pytest.raises(ValueError, match=message):
        run_training(build(2), train, rounds=1, cohort_size=1)
    for process, clients in ((build(2), train.replace(epochs=2)), (build(3), train)):
        result = run_training(process, clients, rounds=1, cohort_size=1)
        assert result.totals.rounds == 1
