import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_drift import optimizers


def _halved_later(round_number):
    return 1.0 if round_number < 10 else 0.5


# A schedule, a round and the factor by hand.
_VALUES = [
    (optimizers.constant(), 0, 1.0),
    (optimizers.constant(), 1000, 1.0),
    # Stairs: 0.1 after every 500 rounds.
    (optimizers.exponential(0.1, 500), 0, 1.0),
    (optimizers.exponential(0.1, 500), 499, 1.0),
    (optimizers.exponential(0.1, 500), 500, 0.1),
    (optimizers.exponential(0.1, 500), 999, 0.1),
    (optimizers.exponential(0.1, 500), 1000, 0.01),
    (optimizers.exponential(0.1, 500), 1500, 0.001),
    # Continuous: 0.25 ^ (1 / 2) = 0.5.
    (optimizers.exponential(0.25, 2, staircase=False), 1, 0.5),
    (optimizers.exponential(0.25, 2, staircase=False), 3, 0.125),
    (optimizers.exponential(1.0, 3), 100, 1.0),
    (optimizers.per_round_factor(0.998), 0, 1.0),
    (optimizers.per_round_factor(0.998), 1, 0.998),
    (optimizers.per_round_factor(0.998), 2, 0.996004),
    (optimizers.per_round_factor(0.998), 5000, math.exp(5000 * math.log(0.998))),
    (optimizers.per_round_factor(0.5), 3, 0.125),
    (optimizers.inverse_sqrt(), 0, 1.0),
    (optimizers.inverse_sqrt(), 3, 0.5),
    (optimizers.inverse_sqrt(), 99, 0.1),
    (optimizers.inverse_sqrt(100), 0, 1.0),
    (optimizers.inverse_sqrt(100), 300, 0.5),
    (optimizers.warm_up(), 0, 0.0),
    (optimizers.warm_up(), 50, 0.5),
    (optimizers.warm_up(), 99, 0.99),
    (optimizers.warm_up(), 100, 1.0),
    (optimizers.warm_up(), 5000, 1.0),
    (optimizers.warm_up(4, start=0.5), 0, 0.5),
    (optimizers.warm_up(4, start=0.5), 1, 0.625),
    (optimizers.warm_up(4, start=0.5), 4, 1.0),
    (optimizers.warm_up(0), 0, 1.0),
    # 800 / 50 = 16, and its root is 4.
    (optimizers.cohort_scaling(800, 50), 0, 4.0),
    (optimizers.cohort_scaling(800, 50), 77, 4.0),
    (optimizers.cohort_scaling(800, 50, "linear"), 0, 16.0),
    (optimizers.cohort_scaling(50, 50), 3, 1.0),
    (optimizers.cohort_scaling(50, 200), 3, 0.5),
    # Section 5.1: from the unscaled rate.
    (optimizers.cohort_scaling(800, 50, warm_up_rounds=100), 0, 1.0),
    (optimizers.cohort_scaling(800, 50, warm_up_rounds=100), 50, 2.5),
    (optimizers.cohort_scaling(800, 50, warm_up_rounds=100), 100, 4.0),
    (optimizers.cohort_scaling(800, 50, "linear", 100), 50, 8.5),
    # Appendix B.7: from 0.
    (optimizers.cohort_scaling(800, 50, "sqrt", 100, "zero"), 0, 0.0),
    (optimizers.cohort_scaling(800, 50, "sqrt", 100, "zero"), 50, 2.0),
    (optimizers.cohort_scaling(800, 50, "sqrt", 100, "zero"), 100, 4.0),
    (optimizers.cohort_scaling(800, 50, "linear", 100, "zero"), 25, 4.0),
    (optimizers.cohort_scaling(800, 50, warm_up_from="zero"), 0, 4.0),
    (optimizers.product(), 7, 1.0),
    (optimizers.product(optimizers.warm_up(10), lambda r: 3.0), 5, 1.5),
    (optimizers.as_schedule(_halved_later), 9, 1.0),
    (optimizers.as_schedule(_halved_later), 10, 0.5),
    (optimizers.as_schedule(lambda r: 2), 3, 2.0),
]


@pytest.mark.parametrize(("schedule", "round_number", "expected"), _VALUES)
def test_values(schedule, round_number, expected):
    factor = schedule(round_number)
    assert factor.dtype == tf.float32
    assert factor.shape == []
    np.testing.assert_allclose(factor, expected, rtol=3e-7)


def test_integers_and_traced_tensors_give_equal_factors():
    schedules = {id(schedule): schedule for schedule, _, _ in _VALUES}.values()
    rounds = [0, 1, 7, 99, 100, 501, 4999]

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def traced(round_number):
        return tf.stack([schedule(round_number) for schedule in schedules])

    for round_number in rounds:
        np.testing.assert_array_equal(
            traced(round_number), [schedule(round_number) for schedule in schedules]
        )


def test_a_factor_that_stops_being_finite_is_named_in_its_round():
    schedule = optimizers.as_schedule(lambda r: 1 / (3 - r), "server_rate_schedule")
    np.testing.assert_allclose(schedule(1), 0.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="server_rate_schedule"):
        schedule(3)


def test_a_factor_that_falls_below_zero_is_named_in_its_round():
    schedule = optimizers.as_schedule(lambda r: 1 - r / 2, "client_rate_schedule")
    assert [float(schedule(number)) for number in range(3)] == [1.0, 0.5, 0.0]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="client_rate_schedule must be finite and"
    ):
        schedule(3)


def test_one_is_built_inside_a_computation():
    @tff.tensorflow.computation(np.float32)
    def initialize(rate):
        optimizer = optimizers.build_scheduled(
            optimizers.build_adam(rate), optimizers.exponential(0.5, 2)
        )
        return optimizer.initialize(tf.TensorSpec([2]))

    assert initialize(0.25)["optimizer"]["learning_rate"] == 0.25


def _looked_up(round_number):
    return [0.5, 0.25][round_number]


def _of_two_arguments(round_number, other):
    return other


_OUTSIDE = tf.constant(0.5)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (0.1, TypeError, "schedule must be a function"),
        (_looked_up, ValueError, "_looked_up.*fails"),
        (_of_two_arguments, ValueError, "_of_two_arguments.*fails"),
        (lambda r: None, ValueError, "to a finite number.*fails"),
        (lambda r: tf.ones([2]), ValueError, r"returns the shape \(2,\)"),
        (lambda r: float("nan"), ValueError, "finite number"),
        (lambda r: 1.0 / tf.cast(r, tf.float32), ValueError, "finite number"),
        (lambda r: -1.0, ValueError, "at least 0"),
        (lambda r: _OUTSIDE, ValueError, "made outside"),
    ],
)
def test_bad_functions(function, error, message):
    with pytest.raises(error, match=message):
        optimizers.as_schedule(function)
    with pytest.raises(error, match=message.replace("schedule must", "schedules must")):
        optimizers.product(optimizers.constant(), function)


@pytest.mark.parametrize(
    ("build", "arguments", "error", "message"),
    [
        (optimizers.exponential, (0.0, 5), ValueError, "decay_rate"),
        (optimizers.exponential, (10.0, 5), ValueError, "decay_rate"),
        (optimizers.exponential, (math.nan, 5), ValueError, "decay_rate"),
        (optimizers.exponential, (0.1, 0), ValueError, "decay_rounds"),
        (optimizers.exponential, (0.1, 1.5), TypeError, "decay_rounds"),
        (optimizers.per_round_factor, (-0.1,), ValueError, "factor"),
        (optimizers.per_round_factor, ("0.9",), TypeError, "factor"),
        (optimizers.inverse_sqrt, (0,), ValueError, "decay_rounds"),
        (optimizers.warm_up, (-1,), ValueError, "rounds"),
        (optimizers.warm_up, (10, 1.5), ValueError, "start"),
        (optimizers.cohort_scaling, (0, 50), ValueError, "cohort_size"),
        (optimizers.cohort_scaling, (50, 0), ValueError, "reference_cohort_size"),
        (optimizers.cohort_scaling, (50, 50, "cubic"), ValueError, "rule.*'sqrt'"),
        (optimizers.cohort_scaling, (5, 5, "sqrt", -1), ValueError, "warm_up_rounds"),
        (
            optimizers.cohort_scaling,
            (5, 5, "sqrt", 1, "one"),
            ValueError,
            "warm_up_from.*'zero'",
        ),
    ],
)
def test_bad_arguments(build, arguments, error, message):
    with pytest.raises(error, match=message):
        build(*arguments)
