"""An LSTM layer that trains faster on a CPU, see `recurrence`."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tff_drift.layers import recurrence


@tf.keras.utils.register_keras_serializable(package="tff_drift")
class LSTM(recurrence.CompiledLayer, tf.keras.layers.LSTM):
    """`tf.keras.layers.LSTM` with the same weights and results, trained faster.

    Hochreiter and Schmidhuber (1997), https://doi.org/10.1162/neco.1997.9.8.1735:

    ```
    (i_t, f_t, g_t, o_t) = x_t W + h_{t-1} R + b
    c_t = σ(f_t) c_{t-1} + σ(i_t) tanh(g_t);   h_t = σ(o_t) tanh(c_t)
    ```

    A drop-in: it takes the arguments of Keras' layer, its weights have the same names,
    shapes and order, and the results agree to the tolerance of floating-point sums.
    Masks work as in Keras: a masked time step leaves h and c as they are. Where it
    has no faster way the layer does what Keras does: with dropout, states given or
    returned, other activations than the default ones, `go_backwards`,
    `unroll`, `stateful` or `time_major`. Second derivatives, which UGA takes, need
    `tff_drift.layers.uncompiled`.

    Args:
      units: The size of h and c.
      *args: As for `tf.keras.layers.LSTM`, which checks them.
      **kwargs: As for `tf.keras.layers.LSTM`, which checks them.

    Raises:
      TypeError: If `units` is not an integer.
      ValueError: If `units` is not positive.
    """

    def recurrence(self) -> recurrence.Recurrence:
        """Returns the passes over the time steps."""
        return _LSTM


class _Trace(NamedTuple):
    """What the time steps computed, all of shape `[time, batch, units]`.

    Attributes:
      i, f, o: The gates, after σ.
      g: The new content, after tanh.
      c: The cells.
      h: The outputs.
    """

    i: tf.Tensor
    f: tf.Tensor
    o: tf.Tensor
    g: tf.Tensor
    c: tf.Tensor
    h: tf.Tensor


def _forward(
    counts: tf.Tensor | None, x: tf.Tensor, w: tf.Tensor, r: tf.Tensor, b: tf.Tensor
) -> _Trace:
    units = r.shape[0]
    # Gates side by side: one σ for the three of them.
    w, r, b = map(_gates_first, (w, r, b))
    blocks = tf.split(r, 4, axis=1)
    from_inputs = recurrence.per_step(tf.einsum("tbi,ij->tbj", x, w) + b)
    counting = None if counts is None else recurrence.per_step(counts)
    zero = tf.zeros([tf.shape(x)[1], units], x.dtype)

    def step(
        t: tf.Tensor, h_before: tf.Tensor, c_before: tf.Tensor, *arrays: Any
    ) -> tuple[Any, ...]:
        z = from_inputs.read(t) + recurrence.times_blocks(h_before, blocks)
        z_gates, z_content = tf.split(z, [3 * units, units], axis=1)
        ifo, g = tf.sigmoid(z_gates), tf.tanh(z_content)
        i, f, o = tf.split(ifo, 3, axis=1)
        c = f * c_before + i * g
        h = o * tf.tanh(c)
        if counting is not None:
            here = counting.read(t) > 0
            c, h = tf.where(here, c, c_before), tf.where(here, h, h_before)
        written = (array.write(t, v) for array, v in zip(arrays, (ifo, g, c, h)))
        return (h, c, *written)

    arrays = [recurrence.array(x) for _ in range(4)]
    _, _, *arrays = recurrence.over_steps(x, step, (zero, zero, *arrays))
    gates, *others = arrays
    i, f, o = tf.split(recurrence.stack(gates, 3 * units), 3, axis=2)
    return _Trace(i, f, o, *(recurrence.stack(each, units) for each in others))


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
    i, f, o, g, c, h = trace
    tanh_c = tf.tanh(c)
    zero = tf.zeros_like(h[:1])
    c_before, h_before = (tf.concat([zero, past[:-1]], axis=0) for past in (c, h))
    one = tf.ones([], x.dtype) if counts is None else counts
    blocks = [tf.transpose(block) for block in tf.split(r, 4, axis=1)]
    # The factors by which dc becomes the gradients of the arguments of i, f and g,
    # and dh that of o.
    from_dc = recurrence.per_step(
        tf.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)], axis=2)
    )
    from_dh = recurrence.per_step(one * tanh_c * o * (1 - o))
    to_dc = recurrence.per_step(one * o * (1 - tanh_c * tanh_c))
    forget, given = recurrence.per_step(f), recurrence.per_step(upstream)
    counting = None if counts is None else recurrence.per_step(counts)

    def step(t: tf.Tensor, dh: tf.Tensor, dc: tf.Tensor, array: Any) -> tuple[Any, ...]:
        dh = dh + given.read(t)
        here = None if counting is None else counting.read(t)
        dc_new = (dc if here is None else here * dc) + dh * to_dc.read(t)
        d_ifg = tf.reshape(dc_new[:, tf.newaxis] * from_dc.read(t), [-1, 3 * units])
        dz = tf.concat([d_ifg, dh * from_dh.read(t)], axis=1)
        dh_before = recurrence.sum_of_products(tf.split(dz, 4, axis=1), blocks)
        dc_before = dc_new * forget.read(t)
        if here is not None:
            dh_before += (1 - here) * dh
            dc_before += (1 - here) * dc
        return dh_before, dc_before, array.write(t, dz)

    state = zero[0], zero[0], recurrence.array(x)
    *_, array = recurrence.over_steps(x, step, state, back=True)
    dz = recurrence.stack(array, 4 * units)
    return (
        tf.einsum("tbj,ij->tbi", dz, w),
        tf.einsum("tbi,tbj->ij", x, dz),
        tf.einsum("tbi,tbj->ij", h_before, dz),
        tf.reduce_sum(dz, axis=[0, 1]),
    )


def _gates_first(weights: tf.Tensor) -> tf.Tensor:
    """Brings the columns from Keras' order i, f, g, o into i, f, o, g."""
    i, f, g, o = tf.split(weights, 4, axis=-1)
    return tf.concat([i, f, o, g], axis=-1)


_LSTM = recurrence.Recurrence(_forward, _backward)
