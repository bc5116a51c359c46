"""Models of Keras 3 for tasks on a user's own data."""

import keras
import numpy as np
import pandas as pd
import pytest

import tasks
from tests import keras3_models, models
from tff_drift import algorithms, simulation

pytestmark = keras3_models.needed


@pytest.mark.parametrize(
    ("labels", "outputs", "metric"),
    [([0, 1, 0, 1, 1, 0], 2, "accuracy"), ([0.5, 1.5, -1, 2, 0, 3], 1, "mae")],
)
def test_a_model_of_keras_3_is_trained_and_evaluated(labels, outputs, metric):
    frame = pd.DataFrame(
        {"owner": list("aaabbb"), "size": np.arange(6) / 6, "label": labels}
    )

    def build():
        layer = keras.layers.Dense(outputs, kernel_initializer="ones")
        return keras.Sequential([keras.Input([1]), layer])

    task = tasks.from_frame(
        frame, client_id="owner", label="label", test=frame, build_keras_model=build
    )
    assert task.accuracy_metric == metric
    result = simulation.run_training(
        algorithms.build_fed_avg(task.model_fn, 0.1),
        task.train,
        rounds=2,
        cohort_size=2,
        callbacks=[task.evaluation(rounds_per_evaluation=1)],
    )
    x = frame[["size"]].to_numpy(np.float32)
    y = np.array(labels, np.float32)
    # All outputs are alike at the start, and the first of them counts.
    expected = {"accuracy": np.mean(y == 0), "mae": np.abs(x[:, 0] - y).mean()}
    assert result.rows[0][f"test_{metric}"] == pytest.approx(expected[metric], 1e-5)
    assert result.rows[2]["test_loss"] < result.rows[0]["test_loss"]
    with pytest.raises(
        ValueError, match="build_keras_model builds a net whose outputs"
    ):
        tasks.from_frame(
            frame,
            client_id="owner",
            label="label",
            build_keras_model=lambda: keras.Sequential(
                [keras.Input([1]), keras.layers.Dense(3 - outputs, name="d")]
            ),
        )


@pytest.mark.parametrize(
    "last",
    [
        lambda: keras.layers.Reshape([2]),
        lambda: keras.layers.Dropout(0.1),
        lambda: keras.layers.Activation("linear", dtype="float64"),
    ],
)
def test_a_softmax_that_keras_does_not_see_is_refused(last):
    labels = [0, 1, 0, 1, 1, 0]
    frame = pd.DataFrame({"owner": list("aaabbb"), "size": labels, "label": labels})

    def load(*layers):
        return tasks.from_frame(
            frame,
            client_id="owner",
            label="label",
            build_keras_model=lambda: keras.Sequential(
                [
                    keras.Input([1]),
                    keras.layers.Dense(2, activation="softmax"),
                    *(layer() for layer in layers),
                ]
            ),
        )

    # The loss takes what comes before it.
    assert load().options["target"] == "class"
    with pytest.raises(ValueError, match=r"come from softmax.*Leave softmax out"):
        load(last)


@pytest.mark.parametrize("what", ["inputs", "outputs"])
def test_a_net_has_one_input_and_one_output(what):
    frame = pd.DataFrame({"owner": "a", "size": np.arange(4.0), "label": [0, 1] * 2})

    def build():
        inputs = [keras.Input([1]) for _ in range(2 if what == "inputs" else 1)]
        outputs = keras.layers.Dense(2)(inputs[-1] + inputs[0])
        several = {"a": outputs, "b": -outputs} if what == "outputs" else outputs
        return keras.Model(inputs, several)

    with pytest.raises(
        ValueError, match=f"build_keras_model .* net with 2 {what}, but"
    ):
        tasks.from_frame(
            frame, client_id="owner", label="label", build_keras_model=build
        )


def test_a_clone_of_a_compiled_model_is_trained():
    labels = [0, 1, 0, 1, 1, 0]
    frame = pd.DataFrame({"owner": list("aaabbb"), "size": labels, "label": labels})

    def load(*layers):
        dense = keras.layers.Dense(2, activation="softmax")
        pretrained = keras.Sequential([keras.Input([1]), dense, *layers])
        pretrained.compile("adam", "sparse_categorical_crossentropy")
        pretrained.set_weights([np.array([[3.0, 2.0]]), np.array([0.5, 1.0])])
        task = tasks.from_frame(
            frame,
            client_id="owner",
            label="label",
            build_keras_model=lambda: keras.models.clone_model(pretrained),
        )
        return pretrained, task

    pretrained, task = load()
    process = algorithms.build_fed_avg(task.model_fn, 1e-30)
    result = simulation.run_training(
        process, task.train, rounds=1, cohort_size=2, initial_weights=pretrained
    )
    models.assert_bit_equal(
        result.model_weights.trainable,
        [np.array([[3, 2]], np.float32), np.array([0.5, 1], np.float32)],
    )
    with pytest.raises(ValueError, match=r"come from softmax.*Leave softmax out"):
        load(keras.layers.Reshape([2]))
