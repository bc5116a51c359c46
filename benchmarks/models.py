"""The models and the algorithms that the benchmarks compare."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import tff_drift  # noqa: F401 (before TensorFlow Federated)

# isort: split
import small_nets
import tensorflow as tf
import tensorflow_federated as tff
from populations import (
    ADAM_RATE,
    CLASSES,
    LENGTH,
    PIXELS,
    RATE,
    SMALL_EXAMPLES,
    TAGS,
    VOCABULARY,
    WORDS,
    Work,
)

from tff_drift import algorithms, layers

# UGA diverges at larger ones.
_UGA_RATE = 0.01


def _logistic(ours: bool) -> tf.keras.Model:
    del ours  # There is no layer that differs.
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


def _dense(ours: bool) -> tf.keras.Model:
    """Two hidden layers of 100 units."""
    del ours
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
            tf.keras.layers.Dense(100, activation="relu"),
            tf.keras.layers.Dense(100, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


def _batchnorm_dense(ours: bool) -> tf.keras.Model:
    """One hidden layer of 100 units, normalized by the moments of batches."""
    del ours
    return tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
            tf.keras.layers.Dense(100),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.ReLU(),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


def _cnn(ours: bool) -> tf.keras.Model:
    """The 1.2 million parameters of Reddi et al. (2021)."""
    dropout = layers.Dropout if ours else tf.keras.layers.Dropout
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
            tf.keras.layers.Conv2D(64, 3, activation="relu"),
            tf.keras.layers.MaxPool2D(2),
            dropout(0.25),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            dropout(0.5),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


def _lstm(ours: bool) -> tf.keras.Model:
    """Two layers of 256 units on characters."""
    layer = layers.LSTM if ours else tf.keras.layers.LSTM
    return tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(VOCABULARY, 8, input_length=LENGTH),
            layer(256, return_sequences=True),
            layer(256, return_sequences=True),
            tf.keras.layers.Dense(VOCABULARY),
        ]
    )


def _gru(ours: bool) -> tf.keras.Model:
    """1,024 units on characters, the net of Yao et al. (2019)."""
    layer = layers.GRU if ours else tf.keras.layers.GRU
    return tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(VOCABULARY, 256, input_length=LENGTH),
            layer(1024, return_sequences=True),
            tf.keras.layers.Dense(VOCABULARY),
        ]
    )


def _autoencoder(ours: bool) -> tf.keras.Model:
    """The 2.8 million parameters of Reddi et al. (2021)."""
    del ours
    units = [1000, 500, 250, 30, 250, 500, 1000]
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([PIXELS]),
            *(tf.keras.layers.Dense(size, activation="sigmoid") for size in units),
            tf.keras.layers.Dense(PIXELS, activation="sigmoid"),
        ]
    )


def _words(ours: bool) -> tf.keras.Model:
    """Tags of bags of words, by a linear model."""
    del ours
    return tf.keras.Sequential(
        [tf.keras.layers.InputLayer([WORDS]), tf.keras.layers.Dense(TAGS)]
    )


_MODELS: dict[str, Callable[[bool], tf.keras.Model]] = {
    "logistic": _logistic,
    "dense": _dense,
    "batchnorm_dense": _batchnorm_dense,
    "cnn": _cnn,
    "lstm": _lstm,
    "gru": _gru,
    "autoencoder": _autoencoder,
    "words": _words,
}


def batch_spec(work: Work) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """Returns the specs of a batch's features and labels."""
    if work.sequences:
        tokens = tf.TensorSpec([None, LENGTH], tf.int32)
        return tokens, tokens
    if work.model == "autoencoder":
        pixels = tf.TensorSpec([None, PIXELS], tf.float32)
        return pixels, pixels
    if work.model == "words":
        sizes = WORDS, TAGS
        return tuple(tf.TensorSpec([None, size], tf.float32) for size in sizes)
    shape, integers = SMALL_EXAMPLES.get(work.model, ((28, 28, 1), None))
    dtype = tf.float32 if integers is None else tf.int32
    return tf.TensorSpec([None, *shape], dtype), tf.TensorSpec([None], tf.int32)


def _loss(work: Work) -> tf.keras.losses.Loss:
    if work.model == "autoencoder":
        return tf.keras.losses.MeanSquaredError()
    if work.model == "words":
        return tf.keras.losses.BinaryCrossentropy(from_logits=True)
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _metrics(work: Work) -> list[tf.keras.metrics.Metric]:
    if work.model in ("autoencoder", "words"):
        return []
    return [tf.keras.metrics.SparseCategoricalAccuracy()]


def _keras_model(work: Work, ours: bool) -> tf.keras.Model:
    if work.few_classes:
        return small_nets.NETS[work.model]()
    return _MODELS[work.model](ours)


def _model_fn(work: Work, *, ours: bool) -> Callable[[], Any]:
    def model_fn() -> tff.learning.models.VariableModel:
        return tff.learning.models.from_keras_model(
            _keras_model(work, ours),
            loss=_loss(work),
            input_spec=batch_spec(work),
            metrics=_metrics(work),
        )

    return model_fn


def _tffs_fed_avg(work: Work) -> tff.learning.templates.LearningProcess:
    return tff.learning.algorithms.build_weighted_fed_avg(
        _model_fn(work, ours=False),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(RATE),
    )


def build_scaffold(
    work: Work, num_clients: int | None = None
) -> algorithms.StatefulLearningProcess:
    """Builds SCAFFOLD for a population of so many clients, by default the work's."""
    return algorithms.build_scaffold(
        _model_fn(work, ours=True), RATE, num_clients or _population_size(work)
    )


def _population_size(work: Work) -> int:
    return work.population_size or 1000


def _client_optimizer(work: Work) -> Any:
    """Returns the optimizer of a work's clients, or SGD's rate."""
    return tff.learning.optimizers.build_adam(ADAM_RATE) if work.adam else RATE


def _of_rate(build: Callable[..., Any]) -> Callable[[Work], Any]:
    """Returns a builder for a work, of a method that needs no more than a rate."""
    return lambda work: build(_model_fn(work, ours=True), _client_optimizer(work))


def _of_clients(build: Callable[..., Any]) -> Callable[[Work], Any]:
    """Likewise of a method that needs the number of all clients as well."""
    return lambda work: build(_model_fn(work, ours=True), RATE, _population_size(work))


def _with_momentum(build: Callable[..., Any]) -> Callable[[Work], Any]:
    """Likewise of a method whose optimizer is SGD with momentum."""
    optimizer = tff.learning.optimizers.build_sgdm(RATE, momentum=0.9)
    return lambda work: build(_model_fn(work, ours=True), optimizer)


def _uga(work: Work) -> tff.learning.templates.LearningProcess:
    # Of the five batches of equal clients, five epochs of one: four traced steps.
    return algorithms.build_uga(
        _model_fn(work, ours=True),
        _UGA_RATE,
        _UGA_RATE,
        local_epochs=work.epochs if work.mixed else 5,
    )


TFFS_FED_AVG, FED_AVG, UGA = "TFF's FedAvg", "build_fed_avg", "build_uga"
ALGORITHMS: dict[str, Callable[[Work], Any]] = collections.OrderedDict(
    {
        TFFS_FED_AVG: _tffs_fed_avg,
        FED_AVG: _of_rate(algorithms.build_fed_avg),
        "build_scaffold": build_scaffold,
        "build_fed_dyn": _of_clients(algorithms.build_fed_dyn),
        "build_adabest": _of_rate(algorithms.build_adabest),
        UGA: _uga,
    }
)
# The methods after the five papers, and FedAvg whose clients have momentum: measured
# where they are named.
SINCE: dict[str, Callable[[Work], Any]] = {
    "build_fed_nova": _of_rate(algorithms.build_fed_nova),
    "build_fed_exp": _of_rate(algorithms.build_fed_exp),
    "build_fed_cm": _of_rate(algorithms.build_fed_cm),
    "build_scaffold_momentum": _of_clients(algorithms.build_scaffold_momentum),
    "build_fed_dc": _of_rate(algorithms.build_fed_dc),
    "build_scaffnew": _of_clients(algorithms.build_scaffnew),
    f"{FED_AVG} with momentum": _with_momentum(algorithms.build_fed_avg),
    "build_mime_lite": _with_momentum(algorithms.build_mime_lite),
    "build_mime": _with_momentum(algorithms.build_mime),
}
