"""AdaBest's protocol beside an independent reference: the dense net in NumPy.

Appendix D of Varno et al. (2022), https://arxiv.org/abs/2204.13170: SGD at 0.1, five
local epochs, batches of 45, weight decay; and what the code has that it follows,
https://github.com/alpemreacar/FedDyn: gradient and correction clipped to a norm of 10.
"""

import contextlib
import sqlite3

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from sklearn import datasets

from tests import stateful, tiers
from tests.paper import dense_net, reference
from tff_drift import algorithms

pytestmark = pytest.mark.usefixtures("local_context")
RATE, DECAY, NORM, EPOCHS = 0.1, 1e-4, 10.0, 5
CLASSES = 10


def _clients(features, labels, parts):
    """A client has one batch of at most 45 images, and passes over it five times."""
    return {
        f"client_{index}": stateful.Client(
            features[part[:45]], labels[part[:45]].astype(np.int32), 45, EPOCHS
        )
        for index, part in enumerate(parts)
    }


def _model_fn(num_features):
    layers, glorot = tf.keras.layers, tf.keras.initializers.GlorotUniform

    def model_fn():
        model = tf.keras.Sequential(
            [
                layers.Dense(
                    dense_net.UNITS[0],
                    "relu",
                    kernel_initializer=glorot(1),
                    input_shape=[num_features],
                ),
                layers.Dense(dense_net.UNITS[1], "relu", kernel_initializer=glorot(2)),
                layers.Dense(CLASSES, kernel_initializer=glorot(3)),
            ]
        )
        return tff.learning.models.from_keras_model(
            model,
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            (
                tf.TensorSpec([None, num_features], tf.float32),
                # As `stateful.Client` gives all targets.
                tf.TensorSpec([None], tf.float32),
            ),
        )

    return model_fn


def _build(builder, num_features, *args, norm=NORM, **options):
    return builder(
        _model_fn(num_features),
        RATE,
        *args,
        client_weight_decay=DECAY,
        gradient_clipping_norm=norm,
        **options,
    )


def _as_published(paper, net, start):
    paper.sgd.gradient = net.gradient
    paper.sgd.weight_decay, paper.sgd.clipping_norm = DECAY, NORM
    name = "x" if hasattr(paper, "x") else "theta"
    setattr(paper, name, start)
    if hasattr(paper, "theta_bar"):
        paper.theta_bar = start
    return name


@pytest.fixture(scope="module")
def digits():
    """30 clients of images sorted by digit: as unlike as can be."""
    data = datasets.load_digits()
    features = (data.data - data.data.mean()) / data.data.std()
    parts = np.array_split(np.argsort(data.target, kind="stable"), 30)
    return _clients(features, data.target, parts)


@pytest.mark.conformance
@pytest.mark.parametrize(
    "name",
    tiers.first(["adabest"], ["fed_avg", "scaffold", "fed_dyn", "adabest"]),
)
def test_rounds_equal_numpy(name, digits):
    features = 64
    net = dense_net.DenseNet(features, CLASSES)
    process, paper = {
        "fed_avg": lambda: (
            _build(
                algorithms.build_fed_avg, features, client_weighting=stateful.UNIFORM
            ),
            reference.FedAvg(net.dimension, RATE),
        ),
        "scaffold": lambda: (
            _build(algorithms.build_scaffold, features, 30),
            reference.Scaffold(net.dimension, digits, RATE, "II"),
        ),
        "fed_dyn": lambda: (
            _build(algorithms.build_fed_dyn, features, 30, mu=0.02),
            reference.FedDyn(net.dimension, 30, RATE, 0.02),
        ),
        "adabest": lambda: (
            _build(algorithms.build_adabest, features, mu=0.02, beta=0.96),
            reference.AdaBest(net.dimension, RATE, 0.02, 0.96),
        ),
    }[name]()
    driver = stateful.Driver(process, digits)
    start = np.asarray(driver.model, np.float64)
    attribute = _as_published(paper, net, start)
    cohorts = stateful.dealt_cohorts(list(digits), 10, 6)
    for cohort in cohorts:
        driver.round(cohort)
        paper.round(stateful.batches(digits, cohort))
    moved = getattr(paper, attribute)
    assert np.linalg.norm(moved - start) > 0.5
    np.testing.assert_allclose(driver.model, moved, atol=2e-4)


@pytest.mark.conformance
def test_scaffold_learns_letters_with_clipping_and_diverges_without(letters):
    features, labels, test_features, test_labels = letters
    rounds = 14
    order = np.random.default_rng(1).permutation(len(labels))
    clients = _clients(features, labels, np.array_split(order, 100))
    net = dense_net.DenseNet(features.shape[1], CLASSES)

    def library_accuracy(norm):
        process = _build(algorithms.build_scaffold, features.shape[1], 100, norm=norm)
        driver = stateful.Driver(process, clients)
        start = np.asarray(driver.model, np.float64)
        for _ in range(rounds):
            driver.round(list(clients))
        return start, net.accuracy(driver.model, test_features, test_labels)

    start, clipped = library_accuracy(NORM)
    _, unclipped = library_accuracy(None)
    paper = reference.Scaffold(net.dimension, clients, RATE, "II")
    _as_published(paper, net, start)
    for _ in range(rounds):
        paper.round(stateful.batches(clients, list(clients)))
    expected = net.accuracy(paper.x, test_features, test_labels)
    assert paper.sgd.largest_norm > NORM
    assert expected > 0.6
    # Seeds differ by two points at this round; float32 and float64 by less.
    assert clipped == pytest.approx(expected, abs=0.02)
    assert unclipped < 0.3


@pytest.fixture(scope="module")
def letters(real_data):
    """The letters A to J of TFF's EMNIST writers, standardised."""
    (features, labels), (test_features, test_labels) = (
        _letters(f"{real_data}/emnist_all.sqlite", part)
        for part in ("all_train", "all_test")
    )
    mean, deviation = features.mean(), features.std()
    return (
        (features - mean) / deviation,
        labels,
        (test_features - mean) / deviation,
        test_labels,
    )


def _letters(path, part):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT serialized_example_proto FROM examples WHERE split_name = ?"
            " ORDER BY client_id, rowid",
            (part,),
        ).fetchall()
    examples = tf.io.parse_example(
        [example for (example,) in found],
        {
            "label": tf.io.FixedLenFeature([], tf.int64),
            "pixels": tf.io.FixedLenFeature([784], tf.float32),
        },
    )
    # Ten digits, then capitals, then small letters.
    labels = examples["label"].numpy() - 10
    kept = (labels >= 0) & (labels % 26 < CLASSES)
    # TFF has black on white.
    return 1.0 - np.float64(examples["pixels"].numpy()[kept]), labels[kept] % 26
