"""A GRU layer that trains faster on a CPU, see `recurrence`."""

from __future__ import annotations

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
    `stateful` or `time_major`. Second derivatives, which UGA takes, need
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
    """What the time steps computed, all of shape `[time, batch, units]`.

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
    from_inputs = recurrence.per_step(tf.einsum("tbi,ij->tbj", x, w) + b[0])
    counting = None if counts is None else recurrence.per_step(counts)

    def step(t: tf.Tensor, h_before: tf.Tensor, *arrays: Any) -> tuple[Any, ...]:
        given = from_inputs.read(t)
        recurrent = recurrence.times_blocks(h_before, blocks) + b[1]
        gates = tf.sigmoid(given[:, : 2 * units] + recurrent[:, : 2 * units])
        z, r = tf.split(gates, 2, axis=1)
        v = recurrent[:, 2 * units :]
        n = tf.tanh(given[:, 2 * units :] + r * v)
        h = z * h_before + (1 - z) * n
        if counting is not None:
            h = tf.where(counting.read(t) > 0, h, h_before)
        written = (
            array.write(t, each) for array, each in zip(arrays, (gates, v, n, h))
        )
        return (h, *written)

    arrays = [recurrence.array(x) for _ in range(4)]
    zero = tf.zeros([tf.shape(x)[1], units], x.dtype)
    _, *arrays = recurrence.over_steps(x, step, (zero, *arrays))
    gates, *others = arrays
    z, r = tf.split(recurrence.stack(gates, 2 * units), 2, axis=2)
    return _Trace(z, r, *(recurrence.stack(each, units) for each in others))


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
    units = r.shape[0]
    blocks = [tf.transpose(block) for block in tf.split(r, 3, axis=1)]
    z, reset, v, n, h = trace
    h_before = tf.concat([tf.zeros_like(h[:1]), h[:-1]], axis=0)
    one = tf.ones([], x.dtype) if counts is None else counts
    # The factors by which dh becomes the gradients of the arguments of z, r and n, of
    # v', and by the direct way of the h before.
    of_n = one * (1 - z) * (1 - n * n)
    of_z = one * (h_before - n) * z * (1 - z)
    of_r = of_n * v * reset * (1 - reset)
    from_dh = recurrence.per_step(tf.stack([of_z, of_r, of_n * reset], axis=2))
    direct = recurrence.per_step(one * z + (1 - one))
    given = recurrence.per_step(upstream)

    def step(t: tf.Tensor, dh: tf.Tensor, *arrays: Any) -> tuple[Any, ...]:
        dh = dh + given.read(t)
        d_recurrent = tf.reshape(dh[:, tf.newaxis] * from_dh.read(t), [-1, 3 * units])
        parts = tf.split(d_recurrent, 3, axis=1)
        dh_before = dh * direct.read(t) + recurrence.sum_of_products(parts, blocks)
        written = (
            array.write(t, each) for array, each in zip(arrays, (d_recurrent, dh))
        )
        return (dh_before, *written)

    state = tf.zeros_like(h[0]), recurrence.array(x), recurrence.array(x)
    _, of_recurrent, of_h = recurrence.over_steps(x, step, state, back=True)
    d_recurrent = recurrence.stack(of_recurrent, 3 * units)
    d_gates = d_recurrent[:, :, : 2 * units]
    d_given = tf.concat([d_gates, recurrence.stack(of_h, units) * of_n], axis=2)
    return (
        tf.einsum("tbj,ij->tbi", d_given, w),
        tf.einsum("tbi,tbj->ij", x, d_given),
        tf.einsum("tbi,tbj->ij", h_before, d_recurrent),
        tf.stack(
            [tf.reduce_sum(d, axis=[0, 1]) for d in (d_given, d_recurrent)], axis=0
        ),
    )


_GRU = recurrence.Recurrence(_forward, _backward)
