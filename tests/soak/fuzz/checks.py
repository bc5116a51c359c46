"""Operations that check what they are given, some of which fail for some clients.

Each takes what those of `functions` take. A check that fails has to fail the round, in
every mode.
"""

import tensorflow as tf


def asserted(x, y, model, count):
    tf.debugging.assert_less(tf.reduce_max(tf.abs(model["s"])), 1e6)
    return tf.debugging.check_numerics(x, "x")


def asserted_few(x, y, model, count):
    """Fails for clients of many examples, who are in some cohorts."""
    check = tf.debugging.assert_less(count, 6, "too many")
    # Without a function around it, operations are ordered by hand.
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(x)


@tf.function
def _only_check(count):
    tf.debugging.assert_less(count, 6, "too many")


def asserted_in_a_function(x, y, model, count):
    _only_check(count)
    return x


@tf.function
def _check_in_a_branch(x, count):
    if tf.reduce_sum(x) > 0:
        tf.debugging.Assert(count < 6, [count])


def asserted_in_a_branch(x, y, model, count):
    _check_in_a_branch(x, count)
    return x * 0.5


def asserted_in_a_loop(x, y, model, count):
    def step(k, now):
        tf.debugging.assert_less(k, 4, "too long")
        return k + 1, now * 0.5

    return tf.while_loop(
        lambda k, _: k < count,
        step,
        (0, x),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
    )[1]


def asserted_labels(x, y, model, count):
    """Fails where a label is -1, which some clients have."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(y)]):
        return x + tf.one_hot(y, 4)


def finite_logarithm(x, y, model, count):
    left = tf.cast(5 - count, tf.float32)
    return x + tf.debugging.check_numerics(tf.math.log(left), "too many") * 0.1


def cond_without_else(x, y, model, count):
    """A branch that only looks, as those who debug write it."""
    tf.cond(
        tf.size(x) > 40,
        lambda: tf.debugging.assert_less(count, 1000),
        lambda: tf.no_op(),
    )
    return tf.tanh(x)
