"""An LSTM layer that trains faster on a CPU.

Training on the small batches of clients, Keras' layer spends its time on the many
small operations of every time step, most of them made by differentiating a loop.
Here the gradient is written out, as it stands in the textbooks, so that what does not
depend on the previous time step is done for all time steps at once: the products with
the inputs, and all gradients of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


@tf.keras.utils.register_keras_serializable(package="tff_drift")
class LSTM(tf.keras.layers.LSTM):
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
    `unroll`, `stateful` or `time_major`. Second derivatives, which UGA takes, are
    supported.

    Args:
      units: The size of h and c.
      **kwargs: As for `tf.keras.layers.LSTM`.
    """

    def call(
        self,
        inputs: tf.Tensor,
        mask: Any = None,
        training: Any = None,
        initial_state: Any = None,
    ) -> tf.Tensor:
        """Runs the layer over sequences, of shape `[batch, time, features]`."""
        if initial_state is not None or not self._is_plain():
            return super().call(
                inputs, mask=mask, training=training, initial_state=initial_state
            )
        outputs = _run_lstm(
            inputs, mask, self.cell.kernel, self.cell.recurrent_kernel, self.cell.bias
        )
        return outputs if self.return_sequences else outputs[:, -1]

    def _is_plain(self) -> bool:
        config = self.get_config()
        return (
            config["activation"] == "tanh"
            and config["recurrent_activation"] == "sigmoid"
            and config["use_bias"]
            and not any(
                config[name]
                for name in (
                    "dropout",
                    "recurrent_dropout",
                    "go_backwards",
                    "return_state",
                    "stateful",
                    "time_major",
                    "unroll",
                )
            )
        )


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


def _run_lstm(
    inputs: tf.Tensor, mask: Any, kernel: Any, recurrent_kernel: Any, bias: Any
) -> tf.Tensor:
    """Returns h for all time steps, `[batch, time, units]`."""
    # One column, `[time, batch, 1]`: 1 where a step counts, 0 where it is masked.
    counts = None
    if mask is not None:
        counts = _by_time(tf.cast(mask, inputs.dtype)[..., tf.newaxis])

    @tf.custom_gradient
    def lstm(
        x: tf.Tensor, w: tf.Tensor, r: tf.Tensor, b: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
        trace = _forward(_by_time(x), counts, w, r, b)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return _backward(_by_time(x), counts, w, r, trace, _by_time(upstream))

        return _by_time(trace.h), gradient

    return lstm(inputs, *map(tf.convert_to_tensor, (kernel, recurrent_kernel, bias)))


def _forward(
    x: tf.Tensor, counts: tf.Tensor | None, w: tf.Tensor, r: tf.Tensor, b: tf.Tensor
) -> _Trace:
    num_steps, batch_size = tf.unstack(tf.shape(x)[:2])
    units = r.shape[0]
    # Gates side by side: one σ for the three of them.
    w, r, b = map(_gates_first, (w, r, b))
    blocks = tf.split(r, 4, axis=1)
    from_inputs = _per_step(tf.einsum("tbi,ij->tbj", x, w) + b, num_steps)
    counting = None if counts is None else _per_step(counts > 0, num_steps)
    zero = tf.zeros([batch_size, units], x.dtype)

    def step(
        t: tf.Tensor, h_before: tf.Tensor, c_before: tf.Tensor, *arrays: Any
    ) -> tuple[Any, ...]:
        z = from_inputs.read(t) + _times_blocks(h_before, blocks)
        z_gates, z_content = tf.split(z, [3 * units, units], axis=1)
        ifo, g = tf.sigmoid(z_gates), tf.tanh(z_content)
        i, f, o = tf.split(ifo, 3, axis=1)
        c = f * c_before + i * g
        h = o * tf.tanh(c)
        if counting is not None:
            here = counting.read(t)
            c, h = tf.where(here, c, c_before), tf.where(here, h, h_before)
        written = (array.write(t, v) for array, v in zip(arrays, (ifo, g, c, h)))
        return (t + 1, h, c, *written)

    arrays = [_array(num_steps, x.dtype) for _ in range(4)]
    _, _, _, gates, content, cells, outputs = tf.while_loop(
        lambda t, *_: t < num_steps, step, (0, zero, zero, *arrays)
    )
    i, f, o = tf.split(_stack(gates, 3 * units), 3, axis=2)
    return _Trace(
        i, f, o, _stack(content, units), _stack(cells, units), _stack(outputs, units)
    )


def _backward(
    x: tf.Tensor,
    counts: tf.Tensor | None,
    w: tf.Tensor,
    r: tf.Tensor,
    trace: _Trace,
    upstream: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Returns the gradients of the inputs and the weights; time comes first."""
    num_steps, batch_size = tf.unstack(tf.shape(x)[:2])
    units = r.shape[0]
    i, f, o, g, c, h = trace
    tanh_c = tf.tanh(c)
    zero = tf.zeros([1, batch_size, units], x.dtype)
    c_before, h_before = (tf.concat([zero, past[:-1]], axis=0) for past in (c, h))
    one = tf.ones([], x.dtype) if counts is None else counts
    blocks = [tf.transpose(block) for block in tf.split(r, 4, axis=1)]
    # The factors by which dc becomes the gradients of the arguments of i, f and g,
    # and dh that of o.
    from_dc = _per_step(
        tf.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)], axis=2),
        num_steps,
    )
    from_dh = _per_step(one * tanh_c * o * (1 - o), num_steps)
    to_dc = _per_step(one * o * (1 - tanh_c * tanh_c), num_steps)
    forget, given = _per_step(f, num_steps), _per_step(upstream, num_steps)
    counting = None if counts is None else _per_step(counts, num_steps)

    def step(s: tf.Tensor, dh: tf.Tensor, dc: tf.Tensor, array: Any) -> tuple[Any, ...]:
        t = num_steps - 1 - s
        dh = dh + given.read(t)
        here = None if counting is None else counting.read(t)
        dc_new = (dc if here is None else here * dc) + dh * to_dc.read(t)
        d_ifg = tf.reshape(dc_new[:, tf.newaxis] * from_dc.read(t), [-1, 3 * units])
        dz = tf.concat([d_ifg, dh * from_dh.read(t)], axis=1)
        parts = tf.split(dz, 4, axis=1)
        dh_before = tf.add_n([tf.matmul(*pair) for pair in zip(parts, blocks)])
        dc_before = dc_new * forget.read(t)
        if here is not None:
            dh_before += (1 - here) * dh
            dc_before += (1 - here) * dc
        return s + 1, dh_before, dc_before, array.write(t, dz)

    *_, array = tf.while_loop(
        lambda s, *_: s < num_steps,
        step,
        (0, zero[0], zero[0], _array(num_steps, x.dtype)),
    )
    dz = _stack(array, 4 * units)
    return (
        _by_time(tf.einsum("tbj,ij->tbi", dz, w)),
        tf.einsum("tbi,tbj->ij", x, dz),
        tf.einsum("tbi,tbj->ij", h_before, dz),
        tf.reduce_sum(dz, axis=[0, 1]),
    )


def _times_blocks(h: tf.Tensor, blocks: list[tf.Tensor]) -> tf.Tensor:
    """Returns h R, R being given as blocks of columns.

    With the few rows of a client's batch, four square products take less than half
    the time of the one with a wide matrix.
    """
    return tf.concat([tf.matmul(h, block) for block in blocks], axis=1)


def _by_time(tensor: tf.Tensor) -> tf.Tensor:
    return tf.transpose(tensor, [1, 0, 2])


def _gates_first(weights: tf.Tensor) -> tf.Tensor:
    """Brings the columns from Keras' order i, f, g, o into i, f, o, g."""
    i, f, g, o = tf.split(weights, 4, axis=-1)
    return tf.concat([i, f, o, g], axis=-1)


def _array(num_steps: tf.Tensor, dtype: tf.DType) -> tf.TensorArray:
    return tf.TensorArray(dtype, num_steps)


def _per_step(tensor: tf.Tensor, num_steps: tf.Tensor) -> tf.TensorArray:
    return _array(num_steps, tensor.dtype).unstack(tensor)


def _stack(array: tf.TensorArray, width: int) -> tf.Tensor:
    return tf.ensure_shape(array.stack(), [None, None, width])
