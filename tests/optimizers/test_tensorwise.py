import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_drift import optimizers
from tff_drift.optimizers import tensorwise

_SPECS = (tf.TensorSpec([2], tf.float32), tf.TensorSpec([], tf.float64))
_WEIGHTS = (tf.constant([1.0, 2.0]), tf.constant(3.0, tf.float64))


def test_state_holds_float32_hyperparameters_then_slots():
    state = optimizers.build_adam(1, initial_accumulator=0.25).initialize(_SPECS)
    assert list(state) == [
        "learning_rate",
        "beta_1",
        "tau",
        "beta_2",
        "first_moment",
        "second_moment",
    ]
    for name in list(state)[:4]:
        assert state[name].dtype == tf.float32
        assert state[name].shape == ()
    assert state["learning_rate"] == 1.0
    np.testing.assert_array_equal(state["first_moment"][0], [0.0, 0.0])
    np.testing.assert_array_equal(state["second_moment"][0], [0.25, 0.25])
    assert state["second_moment"][1].dtype == tf.float64


def test_a_missing_gradient_is_refused():
    optimizer = optimizers.build_adam(0.1)
    state = optimizer.initialize(_SPECS)
    with pytest.raises(ValueError, match="found None at position 1"):
        optimizer.next(state, _WEIGHTS, (tf.constant([1.0, 1.0]), None))
    with pytest.raises(ValueError, match="found None at position 0"):
        optimizers.build_normalized_sgd(0.1).next(state, _WEIGHTS, (None, None))


def test_gradients_of_another_shape_are_refused():
    optimizer = optimizers.build_adam(0.1)
    state = optimizer.initialize(_SPECS)
    with pytest.raises(ValueError, match="same shapes and dtypes"):
        optimizer.next(state, _WEIGHTS, (tf.zeros([3]), tf.zeros([], tf.float64)))


def test_a_state_of_other_weights_is_refused():
    optimizer = optimizers.build_lars(0.1)
    state = optimizer.initialize((tf.TensorSpec([5], tf.float32), _SPECS[1]))
    with pytest.raises(ValueError, match=r"'first_moment' holds.*Call initialize"):
        optimizer.next(state, _WEIGHTS, _WEIGHTS)


def test_sparse_gradients_are_those_of_the_dense_tensor():
    weights = tf.constant([[1.0], [2.0], [3.0]])
    # Row 2 is named twice: its gradients add.
    sparse = tf.IndexedSlices(
        values=tf.constant([[0.5], [1.0], [2.0]]),
        indices=tf.constant([0, 2, 2]),
        dense_shape=tf.constant([3, 1]),
    )
    dense = tf.constant([[0.5], [0.0], [3.0]])
    for optimizer in (optimizers.build_adam(0.1), optimizers.build_normalized_sgd(0.1)):
        state = optimizer.initialize(tf.TensorSpec([3, 1], tf.float32))
        _, from_sparse = optimizer.next(state, weights, sparse)
        _, from_dense = optimizer.next(state, weights, dense)
        np.testing.assert_array_equal(from_sparse, from_dense)


@pytest.mark.parametrize(
    "structure",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, [b]],
        lambda a, b: collections.OrderedDict(kernel=a, bias=b),
        lambda a, b: collections.OrderedDict(z=(a,), a=[b]),
    ],
    ids=["tuple", "nested list", "OrderedDict", "nested OrderedDict"],
)
def test_the_structure_of_the_weights_is_kept(structure):
    weights = structure(tf.constant([1.0, 2.0]), tf.constant(3.0))
    gradients = structure(tf.constant([0.0, 0.0]), tf.constant(1.0))
    optimizer = optimizers.build_lars(0.1)
    state = optimizer.initialize(
        tf.nest.map_structure(tf.type_spec_from_value, weights)
    )
    new_state, new_weights = optimizer.next(state, weights, gradients)
    tf.nest.assert_same_structure(new_weights, weights)
    tf.nest.assert_same_structure(new_state, state)
    # Only the layer whose gradient is not zero has moved.
    moved = tf.nest.map_structure(
        lambda a, b: bool(tf.reduce_any(a != b)), new_weights, weights
    )
    assert moved == structure(False, True)


def test_setting_some_hyperparameters_keeps_the_others():
    optimizer = optimizers.build_adam(0.1)
    state = optimizer.initialize(_SPECS)
    state = optimizer.set_hparams(state, {"tau": 0.5})
    hparams = optimizer.get_hparams(state)
    np.testing.assert_allclose(
        [hparams[name] for name in ("learning_rate", "beta_1", "tau", "beta_2")],
        [0.1, 0.9, 0.5, 0.99],
        rtol=1e-6,
    )


def test_setting_an_unknown_hyperparameter_is_refused():
    optimizer = optimizers.build_adam(0.1)
    state = optimizer.initialize(_SPECS)
    with pytest.raises(ValueError, match=r"beta_1.*found \['epsilon'\]"):
        optimizer.set_hparams(state, {"epsilon": 0.5})


def test_the_rate_may_be_a_tensor_of_the_computation():
    @tf.function
    def step(learning_rate):
        tensorwise.check_learning_rate(learning_rate)
        outcomes = []
        for build in (optimizers.build_adagrad, optimizers.build_normalized_sgd):
            optimizer = build(learning_rate)
            state = optimizer.initialize(tf.TensorSpec([], tf.float32))
            outcomes.append(
                optimizer.next(state, tf.constant(0.0), tf.constant(1e4))[1]
            )
        return tf.stack(outcomes)

    # Both steps have the length of the rate, Adagrad's but for tau = 1e-3.
    np.testing.assert_allclose(step(tf.constant(0.25)), [-0.25, -0.25], rtol=1e-6)


_BAD = [-0.1, float("nan"), float("inf")]


@pytest.mark.parametrize(
    ("build", "name", "values"),
    [
        *(
            (build, "learning_rate", _BAD)
            for build in (
                optimizers.build_adagrad,
                optimizers.build_adam,
                optimizers.build_yogi,
                optimizers.build_lars,
                optimizers.build_lamb,
                optimizers.build_normalized_sgd,
            )
        ),
        *(
            (build, name, values)
            for build in (
                optimizers.build_adagrad,
                optimizers.build_adam,
                optimizers.build_yogi,
                optimizers.build_lamb,
            )
            for name, values in [
                ("beta_1", [*_BAD, 1.0]),
                ("tau", [*_BAD, 0.0]),
                ("initial_accumulator", _BAD),
            ]
        ),
        *(
            (build, "beta_2", [*_BAD, 1.0])
            for build in (
                optimizers.build_adam,
                optimizers.build_yogi,
                optimizers.build_lamb,
            )
        ),
        (optimizers.build_lars, "momentum", [*_BAD, 1.0]),
        *(
            (build, name, _BAD)
            for build in (optimizers.build_lars, optimizers.build_lamb)
            for name in ("weight_decay", "epsilon")
        ),
    ],
)
def test_bad_hyperparameters_are_named(build, name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must be .*found {value}"):
            build(**{"learning_rate": 0.1, name: value})
    with pytest.raises(TypeError, match=f"^{name} must be a number, found 'x'"):
        build(**{"learning_rate": 0.1, name: "x"})
