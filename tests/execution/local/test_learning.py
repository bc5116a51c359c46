"""Learning processes and evaluations of TFF and of this library."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import methods, models, tiers
from tests.execution.local.support import assert_same, call, containers
from tff_drift import algorithms, layers

learn = tff.learning
DATA = models.datasets(models.client_arrays([10, 7, 3], seed=3))
SGD = learn.optimizers.build_sgdm(0.1)
ADAM = learn.optimizers.build_adam(0.05)
MODEL = models.softmax_regression
FUNCTIONAL = models.functional_softmax_regression
ITERATOR = learn.LoopImplementation.DATASET_ITERATOR


def _with_dropout():
    return models.from_keras(
        models.keras_softmax_regression(
            tf.keras.layers.Dense(
                8, "tanh", kernel_initializer=tf.keras.initializers.GlorotUniform(3)
            ),
            layers.Dropout(0.4),
        )
    )


def _recon_model():
    inputs = tf.keras.layers.Input([models.NUM_FEATURES])
    local = tf.keras.layers.Dense(
        5, kernel_initializer=tf.keras.initializers.GlorotUniform(1)
    )
    last = tf.keras.layers.Dense(
        models.NUM_CLASSES, kernel_initializer=tf.keras.initializers.GlorotUniform(2)
    )
    keras_model = tf.keras.Model(inputs, last(local(inputs)))
    return learn.models.ReconstructionModel.from_keras_model_and_layers(
        keras_model=keras_model,
        global_layers=[last],
        local_layers=[local],
        input_spec=models.INPUT_SPEC,
    )


def _recon_loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _recon_metrics():
    return [tf.keras.metrics.SparseCategoricalAccuracy()]


def _mime_lite_schedule():
    return learn.algorithms.build_mime_lite_with_optimizer_schedule(
        MODEL,
        lambda r: 0.1 / tf.cast(r + 1, tf.float32),
        learn.optimizers.build_adagrad(0.1),
    )


# TFF's own.
STOCK = {
    "weighted_fed_avg": lambda: learn.algorithms.build_weighted_fed_avg(MODEL, SGD),
    "fed_avg_iterator": lambda: learn.algorithms.build_weighted_fed_avg(
        MODEL, ADAM, ADAM, loop_implementation=ITERATOR
    ),
    "fed_avg_functional": lambda: learn.algorithms.build_weighted_fed_avg(
        FUNCTIONAL(), ADAM
    ),
    "unweighted_fed_avg": lambda: learn.algorithms.build_unweighted_fed_avg(
        MODEL, SGD, model_aggregator=learn.robust_aggregator(weighted=False)
    ),
    "fed_avg_schedule": lambda: (
        learn.algorithms.build_weighted_fed_avg_with_optimizer_schedule(
            MODEL,
            lambda r: 0.1 / tf.cast(r + 1, tf.float32),
            learn.optimizers.build_sgdm,
        )
    ),
    "fed_prox": lambda: learn.algorithms.build_weighted_fed_prox(MODEL, 0.5, SGD),
    "mime_lite": lambda: learn.algorithms.build_weighted_mime_lite(
        MODEL, learn.optimizers.build_sgdm(0.1, 0.9)
    ),
    "mime_lite_schedule": _mime_lite_schedule,
    "fed_sgd": lambda: learn.algorithms.build_fed_sgd(MODEL, ADAM),
    "fed_sgd_functional": lambda: learn.algorithms.build_fed_sgd(FUNCTIONAL()),
    "fed_recon": lambda: learn.algorithms.build_fed_recon(
        _recon_model, loss_fn=_recon_loss, metrics_fn=_recon_metrics
    ),
    "fed_eval": lambda: learn.algorithms.build_fed_eval(MODEL),
    "fed_recon_eval": lambda: learn.algorithms.build_fed_recon_eval(
        _recon_model, loss_fn=_recon_loss, metrics_fn=_recon_metrics
    ),
}
# Of which the others are varieties, as a client sees them.
FIRST = ("weighted_fed_avg",)
# Of this library's, what the rows of methods do not say.
OURS = {
    "dropout": lambda: algorithms.build_fed_avg(_with_dropout, 0.3),
    "functional": lambda: algorithms.build_fed_avg(FUNCTIONAL(), 0.3),
    "iterator": lambda: algorithms.build_fed_avg(
        MODEL, 0.3, loop_implementation=ITERATOR
    ),
}


def assert_rounds_agree(process, data, contexts, native, rounds=2, **tolerance):
    """Runs some rounds everywhere, each from the native context's state."""
    state = call(native, process.initialize)
    for _ in range(rounds):
        expected = call(native, process.next, state, data)
        for context in contexts.values():
            output = call(context, process.next, state, data)
            assert_same(output, expected, **tolerance)
            assert containers(output) == containers(expected)
        state = expected.state


@pytest.mark.no_smoke
@pytest.mark.parametrize("name", tiers.first(FIRST, list(STOCK)))
def test_processes_of_tff(name, contexts, native):
    assert_rounds_agree(STOCK[name](), DATA, contexts, native, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", tiers.first([], list(OURS)))
def test_processes_of_this_library(name, contexts, native):
    assert_rounds_agree(OURS[name](), DATA, contexts, native, 1, rtol=1e-5, atol=1e-6)


@methods.every_client_program
def test_every_method_of_this_library(method, options, contexts, native):
    process = methods.drive(method, options).process
    data = [client.dataset() for client in methods.CLIENTS.values()]
    if isinstance(process, algorithms.StatefulLearningProcess):
        data = [_with_state(process, *client) for client in enumerate(data)]
    assert_rounds_agree(process, data, contexts, native, 1, rtol=1e-5, atol=1e-5)


def _with_state(process, index, dataset):
    """Returns a client's data, with a state that differs from client to client."""
    return collections.OrderedDict(
        examples=dataset,
        state=tf.nest.map_structure(
            lambda array: array + np.asarray(index, array.dtype),
            process.initial_client_state,
        ),
        index=index,
    )


def test_k_means(contexts, native):
    process = learn.algorithms.build_fed_kmeans(2, (3,), random_seed=(1, 2))
    data = [
        tf.data.Dataset.from_tensor_slices(features)
        for features, _ in models.client_arrays([10, 7, 3], seed=3)
    ]
    assert_rounds_agree(process, data, contexts, native, rtol=1e-5)


def test_initialize_and_the_process_functions(local, native):
    process = algorithms.build_fed_adam(MODEL, 0.3, 0.1)
    state = call(native, process.initialize)
    ours = call(local, process.initialize)
    assert_same(ours, state)
    assert containers(ours) == containers(state)
    hparams = call(local, process.get_hparams, state)
    assert_same(hparams, call(native, process.get_hparams, state))
    hparams["finalizer"]["learning_rate"] = 0.25
    changed = call(local, process.set_hparams, state, hparams)
    assert_same(changed, call(native, process.set_hparams, state, hparams))
    weights = call(local, process.get_model_weights, changed)
    assert_same(weights, call(native, process.get_model_weights, changed))
    assert containers(weights) == containers(
        call(native, process.get_model_weights, changed)
    )


@pytest.mark.conformance
def test_a_cohort_whose_size_changes_and_an_empty_one(fast, native):
    process = models.fed_avg()
    state = call(native, process.initialize)
    for cohort in (DATA[:1], DATA * 3, []):
        expected = call(native, process.next, state, cohort)
        output = call(fast, process.next, state, cohort)
        assert_same(output, expected, rtol=1e-5, atol=1e-6)


def test_datasets_given_as_lists_of_batches(fast):
    process = models.fed_avg()
    state = call(fast, process.initialize)
    lists = [[tuple(b.numpy() for b in batch) for batch in ds] for ds in DATA]
    assert_same(
        call(fast, process.next, state, lists), call(fast, process.next, state, DATA)
    )


@pytest.mark.conformance
def test_a_personalization_evaluation(fast, native):
    def evaluate(model, dataset):
        def add(state, batch):
            output = model.forward_pass(batch, training=False)
            return state + output.loss * tf.cast(output.num_examples, tf.float32)

        return collections.OrderedDict(total=dataset.batch(3).reduce(0.0, add))

    def personalize(model, train, test):
        return collections.OrderedDict(
            train=evaluate(model, train), test=evaluate(model, test)
        )

    evaluation = learn.algorithms.build_personalization_eval_computation(
        MODEL, collections.OrderedDict(same=lambda: personalize), evaluate
    )
    process = models.fed_avg()
    state = call(native, process.initialize)
    weights = call(native, process.get_model_weights, state)
    data = [
        collections.OrderedDict(train_data=ds.unbatch(), test_data=ds.unbatch().take(2))
        for ds in DATA
    ]
    result = call(fast, evaluation, weights, data)
    expected = call(native, evaluation, weights, data)

    def in_order(metrics):
        return sorted(np.asarray(metrics["baseline_metrics"]["total"]))

    np.testing.assert_allclose(in_order(result), in_order(expected), rtol=1e-5)
