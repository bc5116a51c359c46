"""Data, models and runs that are long to print are not printed at length.

Long arguments are tried with all others that are bad, see `bad_values.LONG_VALUES`.
"""

import collections
import json

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tests.reliability import bad_values
from tests.simulation import fakes
from tests.soak import program
from tff_drift import (
    aggregators,
    algorithms,
    client_states,
    compat,
    models,
    optimizers,
    simulation,
)
from tff_drift.simulation import ClientDatasets
from tff_drift.simulation.callbacks import Callback, EarlyStopping

_LONG = "long " * 1000 + "end"
# Of weights whose types are long together.
_NUM_WEIGHTS, _SHAPE = 40, (1,) * 8
_COLUMNS = {f"column {k}": np.zeros((4, 2), np.float32) for k in range(500)}
_PAIR = (np.zeros((4, 2), np.float32), np.zeros(4, np.int32))
_FRAME = pd.DataFrame({"o": ["a"] * 4 + [_LONG] * 4, "f": 1.5, "l": [0, 1] * 4})
_WIDE = pd.DataFrame({**{name: [0.5] * 8 for name in _COLUMNS}, "o": ["a", "b"] * 4})
_STATE = {f"variate {k}": np.zeros(2, np.float32) for k in range(300)}


def _arrays(examples, client_id=_LONG, **options):
    return ClientDatasets.from_arrays({client_id: examples}, batch_size=2, **options)


def _read_all(clients, **options):
    datasets = ClientDatasets(list(clients), clients.get, batch_size=2, **options)
    return [datasets.examples(client_id) for client_id in clients]


def _from_frame(frame=_FRAME, **options):
    return tasks.from_frame(frame, **{"client_id": "o", "label": "l", **options})


def _with_labels(*labels):
    return _from_frame(_FRAME.assign(l=[*labels] * (8 // len(labels))))


def _of_json(users):
    with open("leaf.json", "w") as file:
        json.dump({"user_data": users}, file)
    return tasks.from_json("leaf.json")


def _of_csv(**options):
    tf.io.gfile.makedirs("folder")
    _WIDE.drop(columns="o").to_csv("folder/ann.csv", index=False)
    return tasks.from_folder("folder", **options)


def _of_sqlite(**options):
    features = {name: array.tolist() for name, array in _COLUMNS.items()}
    features["label"] = [0] * 4
    splits = {"train": [(_LONG, features)], "test": [("b", features)]}
    tasks.write_sqlite("data.sqlite", splits, overwrite=True)
    return tasks.from_sqlite("data.sqlite", **options)


def _many_weights():
    """A linear model in parts, with metrics of long names."""
    one = program.linear_regression()
    weights = (tuple(np.full(_SHAPE, k, np.float32) for k in range(_NUM_WEIGHTS)), ())
    names = [f"metric_{k}_{'long_' * 50}" for k in range(9)]

    @tf.function
    def predict(weights, features, training=True):
        del training
        return tf.reshape(tf.add_n(list(weights[0])), []) * features[:, 0]

    return tff.learning.models.FunctionalModel(
        initial_weights=weights,
        predict_on_batch_fn=predict,
        loss_fn=one.loss,
        input_spec=one.input_spec,
        metrics_fns=(
            lambda: collections.OrderedDict((name, [tf.zeros(())]) for name in names),
            lambda state, labels, output, sample_weight=None: state,
            lambda state: collections.OrderedDict(
                (name, value[0]) for name, value in state.items()
            ),
        ),
    )


def _other_weights():
    return tff.learning.models.ModelWeights(
        [np.zeros((2, 3), np.float32)] * _NUM_WEIGHTS, []
    )


def _other_weights_type():
    return compat.to_type(
        tff.learning.models.ModelWeights([(np.float32, [2, 3])] * _NUM_WEIGHTS, [])
    )


def _other_distributor():
    return tff.learning.templates.build_broadcast_process(_other_weights_type())


def _next_of_adam():
    adam = optimizers.build_adam(0.1)
    state = adam.initialize([tf.TensorSpec([k]) for k in range(300)])
    weights = [tf.zeros([2])] * 300
    return adam.next(state, weights, weights)


class _ManyColumns(Callback):
    def after_round(self, round_number, state, row):
        return {f"test_column_{k}": k for k in range(900)}


class _LongColumn(Callback):
    def after_round(self, round_number, state, row):
        return {_LONG: [_LONG] * 900}


def _train(*callbacks, **options):
    return simulation.run_training(
        fakes.AveragingProcess(),
        fakes.client_datasets(),
        rounds=2,
        cohort_size=2,
        callbacks=callbacks,
        **options,
    )


def _folder(note):
    return simulation.OutputDir("run", configuration={"note": note, "other": note})


def _train_another():
    _train(output_dir=_folder(_LONG))
    _train(output_dir=_folder(_LONG + "!"))


def _cohort():
    ids = [f"client {k}" for k in range(10**4)]
    return simulation.Cohort(0, ids, dict.fromkeys(ids, _PAIR))


# What is done, and what its error, or the text of its result, tells among others.
_CASES = {
    "lengths": (lambda: _arrays((np.zeros(2), np.zeros(3))), "first dimensions"),
    "no examples": (lambda: _arrays(np.zeros(0)), "no examples"),
    "ragged": (lambda: _arrays(([[1], [1, 2]] * 999,)), "row 1 has the shape"),
    "objects": (lambda: _arrays(np.array([object()])), "array of object"),
    "masked": (lambda: _arrays(np.ma.array([1.0], mask=[True])), "masked"),
    "no name": (lambda: _arrays(_COLUMNS, x="a", y="b"), "names 'a'"),
    "twice": (
        lambda: ClientDatasets([_LONG, _LONG], dict, batch_size=2),
        "more than once",
    ),
    "unknown": (lambda: _arrays(_PAIR).examples(_LONG + "!"), "Unknown client_id"),
    "types": (
        lambda: _read_all({"a": _COLUMNS, _LONG: {**_COLUMNS, _LONG: np.zeros(4)}}),
        "of another type",
    ),
    "transform": (
        lambda: _read_all({_LONG: _COLUMNS}, transform=lambda *_: _LONG),
        "transform",
    ),
    "model": (
        lambda: _arrays(_COLUMNS).fitting(
            "train", program.linear_regression().input_spec
        ),
        "train has examples of",
    ),
    "frame, label": (lambda: _from_frame(_WIDE, label=_LONG), "column"),
    "frame, features": (lambda: _from_frame(features=[_LONG] * 99), "column"),
    "frame, kinds": (lambda: _with_labels(_LONG, 3), "different kinds"),
    "frame, classes": (
        lambda: _from_frame(_FRAME.assign(l=[_LONG, "b"] * 4), num_classes=3),
        "2 values",
    ),
    "frame, alike": (
        lambda: _from_frame(_FRAME.assign(o=[bad_values.LongName() for _ in _FRAME.l])),
        "may be",
    ),
    "frame, number": (
        lambda: _from_frame(_FRAME.assign(l=_LONG), target="number"),
        "expected numbers",
    ),
    "frame, not finite": (
        lambda: _from_frame(_FRAME.assign(f=[0.5] * 7 + [np.nan])),
        "finite",
    ),
    "frame, window": (
        lambda: _from_frame(_FRAME.assign(t=range(8)), time="t", window=9),
        "window is 9",
    ),
    "task": (lambda: _with_labels(_LONG, "b"), "Task 'frame'"),
    "classes": (
        lambda: _from_frame(
            pd.DataFrame({"o": "a", "f": 1.5, "l": [f"{k} {_LONG}" for k in range(60)]})
        ),
        "of 60",
    ),
    "json": (
        lambda: _of_json({_LONG: {"x": [[1], [1, 2]] * 99, "y": [0]}}),
        "row 1 has the shape",
    ),
    "json, fields": (lambda: _of_json({_LONG: dict.fromkeys(_COLUMNS)}), "'x' and 'y'"),
    "csv": (lambda: _of_csv(label=_LONG), "column"),
    "csv, features": (lambda: _of_csv(label="column 0", features=[_LONG]), "column"),
    "sqlite": (lambda: _of_sqlite(num_classes=2), "Task 'data'"),
    "sqlite, label": (lambda: _of_sqlite(num_classes=2, label=_LONG), "has the feat"),
    "task's name": (lambda: tasks.load(_LONG), "Unknown task"),
    "task's option": (lambda: tasks.load("digits", **{_LONG: 1}), "option of task"),
    "option": (
        lambda: algorithms.build_fed_avg(
            program.linear_regression(), 0.1, **{_LONG: 1}
        ),
        "unexpected keyword argument",
    ),
    "states": (
        lambda: client_states.InMemoryClientStates(_STATE).scatter([_LONG], [{"a": 1}]),
        "has the leaves",
    ),
    "aggregated type": (
        lambda: aggregators.reject_non_finite_factory().create(
            compat.to_type([(np.int32, [k]) for k in range(300)]), None
        ),
        "tensors of float16, float32 or float64",
    ),
    "optimizer": (_next_of_adam, "must match"),
    "distributor": (
        lambda: algorithms.build_fed_avg(
            _many_weights(), 0.1, model_distributor=_other_distributor()
        ),
        "model_distributor",
    ),
    "metrics": (
        lambda: simulation.build_evaluation(
            _many_weights(), program.client_datasets(), accuracy_metric=_LONG
        ),
        "accuracy_metric must be one of",
    ),
    "shapes": (
        lambda: simulation.build_evaluation(
            _many_weights(), program.client_datasets(), accuracy_metric=None
        )(_other_weights()),
        "arrays of shapes",
    ),
    "initial weights": (
        lambda: models.initial_weights_of(
            [_LONG] * _NUM_WEIGHTS,
            _other_weights_type(),
        ),
        "trainable weight 0",
    ),
    "stop": (lambda: _train(_ManyColumns(), EarlyStopping("test_a")), "watches"),
    "column": (lambda: _train(_LongColumn()), "returned"),
    "plot": (lambda: _train(_ManyColumns()).plot(_LONG), "none of the run's columns"),
    "result": (lambda: _train(_ManyColumns()), "TrainingResult of 2 rounds"),
    "configuration": (_train_another, "another configuration"),
    "folder": (lambda: _folder(_LONG), "OutputDir(path='run'"),
    "state": (
        lambda: simulation.TrainingState(1, _other_weights()),
        "TrainingState(rounds_completed=1",
    ),
    "table": (
        lambda: simulation.plot_clients(_WIDE, "loss"),
        "table has no column 'loss_before'",
    ),
    "datasets": (lambda: _arrays(_COLUMNS), "ClientDatasets of 1 clients"),
    "batches": (
        lambda: _arrays(_COLUMNS, epochs=5000).training_batches(_LONG, 0),
        "BatchesOnDemand(sizes=[2, 2",
    ),
    "cohort": (_cohort, "Cohort(round_number=0, clients=['client 0'"),
}


@pytest.mark.parametrize("name", _CASES)
def test_nothing_is_printed_at_length(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    call, told = _CASES[name]
    text = bad_values.told_of(call)
    assert told in text
    assert len(text) <= bad_values.LONGEST, text[:300]


@pytest.mark.no_smoke
def test_a_process_of_many_weights_is_told_in_short():
    process = algorithms.build_scaffold(_many_weights(), 0.1, num_clients=3)
    assert f"{_NUM_WEIGHTS} numbers in {_NUM_WEIGHTS} tensors" in repr(process)
    assert len(repr(process)) <= bad_values.LONGEST


@pytest.mark.parametrize("path", ["a/" * 2100, "a/" + "b" * 256])
def test_a_path_that_no_system_takes_is_refused(path):
    with pytest.raises(ValueError, match="no file has a name of more than 255 bytes"):
        tasks.from_folder(path)
