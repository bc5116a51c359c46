"""A GRU layer that trains faster on a CPU, see `recurrence`."""

from __future__ import annotations

import functools
import types
from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.layers import recurrence


@tf.keras.utils.register_keras_serializable(package="tff_drift")
class GRU(recurrence.CompiledLayer, tf.keras.layers.GRU):
    """`tf.keras.layers.GRU` with the same weights and results, trained faster.

    Cho et al. (2014), https://arxiv.org/abs/1406.1078, with the reset gate behind the
    matrix product, as Keras and cuDNN have it:

    ```
    (a_t, s_t, v_t) = x_t W + b;   (a'_t, s'_t, v'_t) = h_{t-1} R + b'
    z_t = σ(a_t + a'_t);   r_t = σ(s_t + s'_t);   n_t = tanh(v_t + r_t v'_t)
    h_t = z_t h_{t-1} + (1 - z_t) n_t
    ```

    A drop-in: it takes the arguments of Keras' layer, its weights have the same names,
    shapes and order, and the results agree to the tolerance of floating-point sums.
    Masks work as in Keras: a masked time step leaves h as it is. Where it has no faster
    way the layer does what Keras does: with `reset_after=False`, dropout, states given
    or returned, other activations than the default ones, `go_backwards`, `unroll`,
    `stateful`, `time_major` or `zero_output_for_mask`. Second derivatives, which UGA
    takes, are written out, too; derivatives beyond them need
    `tff_drift.layers.uncompiled`.

    Args:
      units: The size of h.
      *args: As for `tf.keras.layers.GRU`, which checks them.
      **kwargs: As for `tf.keras.layers.GRU`, which checks them.

    Raises:
      TypeError: If `units` is not an integer.
      ValueError: If `units` is not positive.
    """

    has = types.MappingProxyType({"reset_after": True})

    def recurrence(self) -> recurrence.Recurrence:
        """Returns the passes over the time steps."""
        return _GRU


class _Trace(NamedTuple):
    """The intermediate values of all time steps, of shape `[time, batch, units]`.

    Attributes:
      z, r: The gates, after σ.
      v: v', what the reset gate multiplies.
      n: The new content, after tanh.
      h: The outputs.
    """

    z: tf.Tensor
    r: tf.Tensor
    v: tf.Tensor
    n: tf.Tensor
    h: tf.Tensor


def _forward(
    counts: tf.Tensor | None, x: tf.Tensor, w: tf.Tensor, r: tf.Tensor, b: tf.Tensor
) -> _Trace:
    units = r.shape[0]
    blocks = tf.split(r, 3, axis=1)
    from_inputs = recurrence.per_step(recurrence.product(x, w) + b[0])
    counting = None if counts is None else recurrence.per_step(counts)

    def step(t: tf.Tensor, h_before: tf.Tensor) -> Any:
        given = from_inputs.read(t)
        recurrent = recurrence.times_blocks(h_before, blocks) + b[1]
        gates = tf.sigmoid(given[:, : 2 * units] + recurrent[:, : 2 * units])
        z, r = tf.split(gates, 2, axis=1)
        v = recurrent[:, 2 * units :]
        n = tf.tanh(given[:, 2 * units :] + r * v)
        h = z * h_before + (1 - z) * n
        if counting is not None:
            h = tf.where(counting.read(t) > 0, h, h_before)
        return (h,), (gates, v, n, h)

    zero = tf.zeros([tf.shape(x)[1], units], x.dtype)
    widths = (2 * units, units, units, units)
    gates, *others = recurrence.over_steps(x, step, (zero,), widths)
    z, r = tf.split(gates, 2, axis=2)
    return _Trace(z, r, *others)


class _Factors(NamedTuple):
    """By what dh_t is multiplied, all of shape `[time, batch, units]`.

    And so, as all is linear in it, the changes of h_{t-1} R on their way to h_t.

    Attributes:
      z, r, n: For the gradients of the arguments of z, r and n.
      v: For that of v'.
      h: For that of h_{t-1} by the direct way; it also lets masked steps pass.
    """

    z: tf.Tensor
    r: tf.Tensor
    n: tf.Tensor
    v: tf.Tensor
    h: tf.Tensor

    def of_recurrent(self) -> tf.TensorArray:
        """Returns those of z, r and v' side by side, by time step."""
        return recurrence.per_step(tf.stack([self.z, self.r, self.v], axis=2))

    def gradients(self, dh: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the gradients of x W + b and of h R + b'."""
        of_gates = [dh * self.z, dh * self.r]
        return (
            tf.concat([*of_gates, dh * self.n], axis=2),
            tf.concat([*of_gates, dh * self.v], axis=2),
        )


def _factors(
    counts: tf.Tensor | None, h_before: tf.Tensor, *trace: tf.Tensor
) -> _Factors:
    z, r, v, n, _ = trace
    one = tf.ones([], n.dtype) if counts is None else counts
    of_n = one * (1 - z) * (1 - n * n)
    return _Factors(
        z=one * (h_before - n) * z * (1 - z),
        r=of_n * v * r * (1 - r),
        n=of_n,
        v=of_n * r,
        h=one * z + (1 - one),
    )


def _back(given: tf.Tensor, factors: _Factors, r: tf.Tensor) -> tf.Tensor:
    """Returns dh for all time steps, `given` being what is added to it at each."""
    units = r.shape[0]
    blocks = [tf.transpose(block) for block in tf.split(r, 3, axis=1)]
    of_recurrent, direct = factors.of_recurrent(), recurrence.per_step(factors.h)
    givens = recurrence.per_step(given)

    def step(t: tf.Tensor, dh: tf.Tensor) -> Any:
        dh = dh + givens.read(t)
        d_recurrent = tf.reshape(
            dh[:, tf.newaxis] * of_recurrent.read(t), [-1, 3 * units]
        )
        parts = tf.split(d_recurrent, 3, axis=1)
        dh_before = dh * direct.read(t) + recurrence.sum_of_products(parts, blocks)
        return (dh_before,), (dh,)

    zero = tf.zeros_like(given[0])
    (dh,) = recurrence.over_steps(given, step, (zero,), (units,), back=True)
    return dh


def _backward(
    counts: tf.Tensor | None,
    upstream: tf.Tensor,
    x: tf.Tensor,
    w: tf.Tensor,
    r: tf.Tensor,
    b: tf.Tensor,
    *trace: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    del b
    h_before = recurrence.before(trace[-1])
    factors = _factors(counts, h_before, *trace)
    d_given, d_recurrent = factors.gradients(_back(upstream, factors, r))
    return (
        recurrence.transposed_product(d_given, w),
        recurrence.summed_product(x, d_given),
        recurrence.summed_product(h_before, d_recurrent),
        _of_biases(d_given, d_recurrent),
    )


def _of_biases(d_given: tf.Tensor, d_recurrent: tf.Tensor) -> tf.Tensor:
    return tf.stack([tf.reduce_sum(d, axis=[0, 1]) for d in (d_given, d_recurrent)])


def _tangents(
    counts: tf.Tensor | None,
    upstream: tf.Tensor,
    x: tf.Tensor,
    w: tf.Tensor,
    r: tf.Tensor,
    b: tf.Tensor,
    *others: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    del b
    trace, (x_dot, w_dot, r_dot, b_dot) = others[:5], others[5:]
    z, reset, v, n, h = trace
    h_before = recurrence.before(h)
    factors = _factors(counts, h_before, *trace)

    given_dot = recurrence.product(x_dot, w) + recurrence.product(x, w_dot) + b_dot[0]
    # Of the change of h R + b', what does not come from h.
    recurrent_dot = recurrence.product(h_before, r_dot) + b_dot[1]
    h_dot = _along(given_dot, recurrent_dot, factors, r)
    h_before_dot = recurrence.before(h_dot)
    recurrent_dot += recurrence.product(h_before_dot, r)
    given_z, given_r, given_n = tf.split(given_dot, 3, axis=2)
    recurrent_z, recurrent_r, v_dot = tf.split(recurrent_dot, 3, axis=2)
    z_dot = z * (1 - z) * (given_z + recurrent_z)
    reset_dot = reset * (1 - reset) * (given_r + recurrent_r)
    n_dot = (1 - n * n) * (given_n + reset_dot * v + reset * v_dot)
    factors_dot = _Factors(
        *recurrence.changes(
            functools.partial(_factors, counts),
            (h_before, *trace),
            (h_before_dot, z_dot, reset_dot, v_dot, n_dot, h_dot),
        )
    )

    dh = _back(upstream, factors, r)
    d_given, d_recurrent = factors.gradients(dh)
    given_more, recurrent_more = factors_dot.gradients(dh)
    dh_before_dot = (
        dh * factors_dot.h
        + recurrence.transposed_product(recurrent_more, r)
        + recurrence.transposed_product(d_recurrent, r_dot)
    )
    dh_dot = _back(recurrence.after(dh_before_dot), factors, r)
    d_given_dot, d_recurrent_dot = factors.gradients(dh_dot)
    d_given_dot += given_more
    d_recurrent_dot += recurrent_more
    return (
        h_dot,
        recurrence.transposed_product(d_given_dot, w)
        + recurrence.transposed_product(d_given, w_dot),
        recurrence.summed_product(x_dot, d_given)
        + recurrence.summed_product(x, d_given_dot),
        recurrence.summed_product(h_before_dot, d_recurrent)
        + recurrence.summed_product(h_before, d_recurrent_dot),
        _of_biases(d_given_dot, d_recurrent_dot),
    )


def _along(
    given_dot: tf.Tensor, recurrent_dot: tf.Tensor, factors: _Factors, r: tf.Tensor
) -> tf.Tensor:
    """Returns the change of h for all time steps, which are linear in it."""
    units = r.shape[0]
    blocks = tf.split(r, 3, axis=1)
    given_z, given_r, given_n = tf.split(given_dot, 3, axis=2)
    of_z, of_r, of_v = tf.split(recurrent_dot, 3, axis=2)
    apart = recurrence.per_step(
        factors.z * (given_z + of_z)
        + factors.r * (given_r + of_r)
        + factors.v * of_v
        + factors.n * given_n
    )
    of_recurrent, direct = factors.of_recurrent(), recurrence.per_step(factors.h)

    def step(t: tf.Tensor, h_dot: tf.Tensor) -> Any:
        recurrent = tf.reshape(recurrence.times_blocks(h_dot, blocks), [-1, 3, units])
        h_dot = (
            apart.read(t)
            + direct.read(t) * h_dot
            + tf.reduce_sum(of_recurrent.read(t) * recurrent, axis=1)
        )
        return (h_dot,), (h_dot,)

    zero = tf.zeros_like(given_n[0])
    (h_dot,) = recurrence.over_steps(given_n, step, (zero,), (units,))
    return h_dot


_GRU = recurrence.Recurrence(_forward, _backward, _tangents)
