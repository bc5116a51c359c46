"""An LSTM layer that trains faster on a CPU, see `recurrence`."""

from __future__ import annotations

import functools
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
    `unroll`, `stateful`, `time_major` or `zero_output_for_mask`. Second derivatives,
    which UGA takes, are written out, too; derivatives beyond them need
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
    """The intermediate values of all time steps, of shape `[time, batch, units]`.

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
    from_inputs = recurrence.per_step(recurrence.product(x, w) + b)
    counting = None if counts is None else recurrence.per_step(counts)
    zero = tf.zeros([tf.shape(x)[1], units], x.dtype)

    def step(t: tf.Tensor, h_before: tf.Tensor, c_before: tf.Tensor) -> Any:
        z = from_inputs.read(t) + recurrence.times_blocks(h_before, blocks)
        z_gates, z_content = tf.split(z, [3 * units, units], axis=1)
        ifo, g = tf.sigmoid(z_gates), tf.tanh(z_content)
        i, f, o = tf.split(ifo, 3, axis=1)
        c = f * c_before + i * g
        h = o * tf.tanh(c)
        if counting is not None:
            here = counting.read(t) > 0
            c, h = tf.where(here, c, c_before), tf.where(here, h, h_before)
        return (h, c), (ifo, g, c, h)

    widths = (3 * units, units, units, units)
    gates, *others = recurrence.over_steps(x, step, (zero, zero), widths)
    i, f, o = tf.split(gates, 3, axis=2)
    return _Trace(i, f, o, *others)


class _Factors(NamedTuple):
    """By what dh_t and dc_t are multiplied, all of shape `[time, batch, units]`.

    And so, as all is linear in it, the changes of h_{t-1} R on their way to c_t and
    h_t.

    Attributes:
      i, f, g: dc, for the gradients of the arguments of i, f and g.
      o: dh, for that of o.
      h: dh, for its part in dc.
      c: dc, for that of c_{t-1}.
    """

    i: tf.Tensor
    f: tf.Tensor
    g: tf.Tensor
    o: tf.Tensor
    h: tf.Tensor
    c: tf.Tensor

    def of_cell(self) -> tf.TensorArray:
        """Returns those of i, f and g side by side, by time step."""
        return recurrence.per_step(tf.stack([self.i, self.f, self.g], axis=2))

    def gradients(self, dh: tf.Tensor, dc: tf.Tensor) -> tf.Tensor:
        """Returns the gradients of x W + h R + b."""
        parts = dc * self.i, dc * self.f, dc * self.g, dh * self.o
        return tf.concat(parts, axis=2)


def _factors(
    counts: tf.Tensor | None, c_before: tf.Tensor, *trace: tf.Tensor
) -> _Factors:
    i, f, o, g, c, _ = trace
    one = tf.ones([], c.dtype) if counts is None else counts
    tanh_c = tf.tanh(c)
    return _Factors(
        i=g * i * (1 - i),
        f=c_before * f * (1 - f),
        g=i * (1 - g * g),
        o=one * tanh_c * o * (1 - o),
        h=one * o * (1 - tanh_c * tanh_c),
        c=f,
    )


def _back(
    counts: tf.Tensor | None,
    h_given: tf.Tensor,
    c_given: tf.Tensor | None,
    factors: _Factors,
    r: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns dz, dh and dc for all time steps.

    Args:
      counts: Which time steps count, or `None`.
      h_given: What is added to dh at each.
      c_given: What is added to dc, or `None`.
      factors: By what dh and dc are multiplied.
      r: The recurrent weights.

    Returns:
      The gradients of x W + h R + b, of h and of c.
    """
    units = r.shape[0]
    blocks = [tf.transpose(block) for block in tf.split(r, 4, axis=1)]
    of_cell = factors.of_cell()
    of_o, of_h, of_c, h_givens = map(
        recurrence.per_step, (factors.o, factors.h, factors.c, h_given)
    )
    c_givens = None if c_given is None else recurrence.per_step(c_given)
    counting = None if counts is None else recurrence.per_step(counts)

    def step(t: tf.Tensor, dh: tf.Tensor, dc: tf.Tensor) -> Any:
        dh = dh + h_givens.read(t)
        if c_givens is not None:
            dc = dc + c_givens.read(t)
        here = None if counting is None else counting.read(t)
        dc_new = (dc if here is None else here * dc) + dh * of_h.read(t)
        d_ifg = tf.reshape(dc_new[:, tf.newaxis] * of_cell.read(t), [-1, 3 * units])
        dz = tf.concat([d_ifg, dh * of_o.read(t)], axis=1)
        dh_before = recurrence.sum_of_products(tf.split(dz, 4, axis=1), blocks)
        dc_before = dc_new * of_c.read(t)
        if here is not None:
            dh_before += (1 - here) * dh
            dc_before += (1 - here) * dc
        # XLA drops those that a caller has no use for.
        return (dh_before, dc_before), (dz, dh, dc_new)

    zero, widths = tf.zeros_like(h_given[0]), (4 * units, units, units)
    dz, dh, dc = recurrence.over_steps(h_given, step, (zero, zero), widths, back=True)
    return dz, dh, dc


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
    c_before, h_before = map(recurrence.before, trace[-2:])
    factors = _factors(counts, c_before, *trace)
    dz, _, _ = _back(counts, upstream, None, factors, r)
    return (
        recurrence.transposed_product(dz, w),
        recurrence.summed_product(x, dz),
        recurrence.summed_product(h_before, dz),
        tf.reduce_sum(dz, axis=[0, 1]),
    )


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
    trace, (x_dot, w_dot, r_dot, b_dot) = others[:6], others[6:]
    i, f, o, g, c, h = trace
    c_before, h_before = map(recurrence.before, (c, h))
    factors = _factors(counts, c_before, *trace)

    # Of the change of x W + h R + b, what does not come from h.
    z_dot = (
        recurrence.product(x_dot, w)
        + recurrence.product(x, w_dot)
        + recurrence.product(h_before, r_dot)
        + b_dot
    )
    h_dot, c_dot = _along(counts, z_dot, factors, r)
    c_before_dot, h_before_dot = map(recurrence.before, (c_dot, h_dot))
    z_dot += recurrence.product(h_before_dot, r)
    of_i, of_f, of_g, of_o = tf.split(z_dot, 4, axis=2)
    trace_dot = (
        i * (1 - i) * of_i,
        f * (1 - f) * of_f,
        o * (1 - o) * of_o,
        (1 - g * g) * of_g,
        c_dot,
        h_dot,
    )
    factors_dot = _Factors(
        *recurrence.changes(
            functools.partial(_factors, counts),
            (c_before, *trace),
            (c_before_dot, *trace_dot),
        )
    )

    dz, dh, dc = _back(counts, upstream, None, factors, r)
    dz_more = factors_dot.gradients(dh, dc)
    dh_before_dot = recurrence.transposed_product(
        dz_more, r
    ) + recurrence.transposed_product(dz, r_dot)
    dz_dot, _, _ = _back(
        counts,
        recurrence.after(dh_before_dot),
        recurrence.after(dc * factors_dot.c) + dh * factors_dot.h,
        factors,
        r,
    )
    dz_dot += dz_more
    return (
        h_dot,
        recurrence.transposed_product(dz_dot, w)
        + recurrence.transposed_product(dz, w_dot),
        recurrence.summed_product(x_dot, dz) + recurrence.summed_product(x, dz_dot),
        recurrence.summed_product(h_before_dot, dz)
        + recurrence.summed_product(h_before, dz_dot),
        tf.reduce_sum(dz_dot, axis=[0, 1]),
    )


def _along(
    counts: tf.Tensor | None, z_dot: tf.Tensor, factors: _Factors, r: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the changes of h and c for all time steps, which are linear in them."""
    units = r.shape[0]
    blocks = tf.split(r, 4, axis=1)
    given, of_cell = recurrence.per_step(z_dot), factors.of_cell()
    of_o, of_h, of_c = map(recurrence.per_step, (factors.o, factors.h, factors.c))
    counting = None if counts is None else recurrence.per_step(counts)

    def step(t: tf.Tensor, h_dot: tf.Tensor, c_dot: tf.Tensor) -> Any:
        z = given.read(t) + recurrence.times_blocks(h_dot, blocks)
        ifg = tf.reshape(z[:, : 3 * units], [-1, 3, units])
        c_new = tf.reduce_sum(of_cell.read(t) * ifg, axis=1) + of_c.read(t) * c_dot
        h_new = of_o.read(t) * z[:, 3 * units :] + of_h.read(t) * c_new
        if counting is not None:
            here = counting.read(t) > 0
            c_new = tf.where(here, c_new, c_dot)
            h_new = tf.where(here, h_new, h_dot)
        return (h_new, c_new), (h_new, c_new)

    zero = tf.zeros_like(factors.c[0])
    h_dot, c_dot = recurrence.over_steps(z_dot, step, (zero, zero), (units, units))
    return h_dot, c_dot


def _gates_first(weights: tf.Tensor) -> tf.Tensor:
    """Brings the columns from Keras' order i, f, g, o into i, f, o, g."""
    i, f, g, o = tf.split(weights, 4, axis=-1)
    return tf.concat([i, f, o, g], axis=-1)


_LSTM = recurrence.Recurrence(_forward, _backward, _tangents)
