"""The base of recurrent layers: compiled passes over the time steps.

Training on the small batches of clients, Keras' layers spend their time on the many
small operations of every time step, most of them made by differentiating a loop. Here
the gradient is written out, so that what does not depend on the previous time step is
done for all time steps at once, and so is the gradient of the gradient; XLA makes one
program of each pass.

XLA compiles a program for every shape, which takes a good part of a second. So rows of
zeros fill a batch up to one of a few sizes, and only where the number of time steps is
known as the layer is built is anything compiled.
"""

from __future__ import annotations

import contextlib
import contextvars
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tff_drift import checks

# Up to which number of rows batches are filled up to multiples of what.
_UNITS = ((24, 4), (64, 8))
_LARGE_UNIT = 32
_COMPILES = contextvars.ContextVar("compiles", default=True)
# The options of the layers that recurrences have.
_PLAIN = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "use_bias": True,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
    "go_backwards": False,
    "return_state": False,
    "stateful": False,
    "time_major": False,
    "unroll": False,
}


class Recurrence:
    """A recurrent layer as passes over the time steps, there and back.

    In all, `x` are the inputs `[time, batch, features]`, and `counts` is a column
    `[time, batch, 1]`, 1 where a step counts and 0 where it is masked, or `None`.

    Args:
      forward: `(counts, x, *weights) -> trace`, a tuple of what the time steps
        computed, of which the last is the output h, `[time, batch, units]`.
      backward: `(counts, upstream, x, *weights, *trace) -> gradients`, of the inputs
        and of the weights, `upstream` being that of h.
      tangents: `(counts, upstream, x, *weights, *trace, *directions) -> changes`, by
        which h and the gradients change as the inputs and the weights change in the
        directions. As the gradients are derivatives themselves, and second ones are
        symmetric, it takes the gradient of all that `backward` returns.
    """

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        tangents: Callable[..., Any],
    ) -> None:
        self._passes = forward, backward
        self._compiled = (
            # The layer's derivative is `backward`; of the trace none is taken.
            _compiled(forward, lambda *_: ()),
            _compiled(backward, _compiled(tangents, _refuse)),
        )

    def __call__(
        self, inputs: tf.Tensor, mask: Any, weights: Sequence[tf.Variable]
    ) -> tf.Tensor:
        """Returns h for all time steps, `[batch, time, units]`.

        Args:
          inputs: Of shape `[batch, time, features]`.
          mask: Of shape `[batch, time]`, true where a step counts; `None` if all do.
          weights: The layer's weights.
        """
        compiles = inputs.shape[1] is not None and _COMPILES.get()
        forward, backward = self._compiled if compiles else self._passes
        counts = None if mask is None else tf.cast(mask, inputs.dtype)[..., tf.newaxis]

        @tf.custom_gradient
        def layer(
            x: tf.Tensor, *weights: tf.Tensor
        ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, ...]]]:
            num_rows = tf.shape(x)[0]
            fill = _filling(num_rows) if compiles else 0

            def by_time(tensor: tf.Tensor | None) -> tf.Tensor | None:
                if tensor is None:
                    return None
                return _swapped(tf.pad(tensor, [[0, fill], [0, 0], [0, 0]]))

            here, x = by_time(counts), by_time(x)
            trace = forward(here, x, *weights)

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
                of_x, *of_weights = backward(
                    here, by_time(upstream), x, *weights, *trace
                )
                return _swapped(of_x)[:num_rows], *of_weights

            return _swapped(trace[-1])[:num_rows], gradient

        return layer(inputs, *map(tf.convert_to_tensor, weights))


class CompiledLayer:
    """A mixin for layers that have a `Recurrence`; it precedes Keras' class.

    Where the layer has options that the recurrence does not know, Keras' own runs.
    """

    # The options that the recurrence has, beyond those below.
    has: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(self, units: int, *args: Any, **kwargs: Any) -> None:
        checks.check_integer("units", units)
        keras: Any = super()
        keras.__init__(units, *args, **kwargs)

    def recurrence(self) -> Recurrence:
        """Returns the passes over the time steps."""
        raise NotImplementedError

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        """Builds the layer as it was saved.

        Args:
          config: What `get_build_config` returned.
        """
        # Keras 2.14 knows none but its own recurrent layers.
        layer: Any = self
        layer.build(tuple(config["input_shape"]))

    def call(
        self,
        inputs: tf.Tensor,
        mask: Any = None,
        training: Any = None,
        initial_state: Any = None,
    ) -> tf.Tensor:
        """Runs the layer over sequences, of shape `[batch, time, features]`."""
        layer: Any = self
        config = layer.get_config()
        known = {**_PLAIN, **self.has}
        if (
            initial_state is not None
            # Of a functional model the states come behind the sequences.
            or isinstance(inputs, (list, tuple, tf.RaggedTensor))
            # Keras has it in `config` only where it is true.
            or layer.zero_output_for_mask
            or any(config[key] != known[key] for key in known)
        ):
            keras: Any = super()
            return keras.call(
                inputs, mask=mask, training=training, initial_state=initial_state
            )
        cell = layer.cell
        weights = cell.kernel, cell.recurrent_kernel, cell.bias
        outputs = self.recurrence()(inputs, mask, weights)
        return outputs if layer.return_sequences else outputs[:, -1]


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Leaves recurrent layers that are called in it uncompiled.

    So they can be differentiated more than twice. It is a context manager, for the
    place where a model is called, or traced.

    Yields:
      Nothing.
    """
    token = _COMPILES.set(False)
    try:
        yield
    finally:
        _COMPILES.reset(token)


def _compiled(
    function: Callable[..., Any], derivative: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a function `(counts, *inputs)`, compiled, with a derivative.

    Args:
      function: What is compiled.
      derivative: `(counts, *inputs, *upstream)` returns the gradients of the first
        inputs; none reach the others.
    """
    program = tf.function(function, jit_compile=True)

    def run(counts: Any, *inputs: tf.Tensor) -> Any:
        # Of the graph that the call is in, where that of a second derivative finds
        # them: a pass back is in another graph than the pass there.
        counts = None if counts is None else tf.identity(counts)
        inputs = tuple(map(tf.identity, inputs))

        @tf.custom_gradient
        def of_inputs(*inputs: tf.Tensor) -> Any:
            def gradient(*upstream: tf.Tensor) -> Any:
                gradients = derivative(counts, *inputs, *upstream)
                return *gradients, *[None] * (len(inputs) - len(gradients))

            # Seen by a tape within a tape, the call would be differentiated too.
            return program(counts, *map(tf.stop_gradient, inputs)), gradient

        return of_inputs(*inputs)

    return run


def _refuse(*inputs: Any) -> Any:
    # XLA does not hand the lists of loops from one program to another.
    raise NotImplementedError(
        "A compiled recurrent layer has no derivatives beyond the second. Call the "
        "model within tff_drift.layers.uncompiled()."
    )


def _filling(num_rows: tf.Tensor) -> tf.Tensor:
    """Returns how many rows fill a batch up."""
    unit = tf.constant(_LARGE_UNIT)
    for most, smaller in reversed(_UNITS):
        unit = tf.where(num_rows <= most, smaller, unit)
    # At least one row: XLA has no use for a program of nothing.
    return tf.maximum(-(-num_rows // unit) * unit, unit) - num_rows


def _swapped(tensor: tf.Tensor) -> tf.Tensor:
    """Swaps batch and time."""
    return tf.transpose(tensor, [1, 0, 2])


def num_steps(x: tf.Tensor) -> Any:
    """Returns the number of time steps of `[time, batch, features]`."""
    return x.shape[0] or tf.shape(x)[0]


def per_step(tensor: tf.Tensor) -> tf.TensorArray:
    """Returns the parts of a tensor by time step."""
    return tf.TensorArray(tensor.dtype, num_steps(tensor)).unstack(tensor)


def over_steps(
    x: tf.Tensor,
    step: Callable[..., tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]],
    state: Sequence[tf.Tensor],
    widths: Sequence[int],
    *,
    back: bool = False,
) -> list[tf.Tensor]:
    """Runs `state, results = step(t, *state)` for every time step t.

    Args:
      x: A tensor with the time steps first, whose size is their number.
      step: The step.
      state: The state before the first step.
      widths: The width of each of the results, `[batch, width]`.
      back: Whether to begin with the last time step.

    Returns:
      The results of all time steps, `[time, batch, width]`.
    """
    count = num_steps(x)

    def body(number: tf.Tensor, state: Any, arrays: Any) -> tuple[Any, ...]:
        t = count - 1 - number if back else number
        state, results = step(t, *state)
        written = (a.write(t, each) for a, each in zip(arrays, results, strict=True))
        return number + 1, tuple(state), tuple(written)

    arrays = tuple(tf.TensorArray(x.dtype, count) for _ in widths)
    _, _, arrays = tf.while_loop(
        lambda number, *_: number < count, body, (0, tuple(state), arrays)
    )
    return [
        tf.ensure_shape(array.stack(), [None, None, width])
        for array, width in zip(arrays, widths, strict=True)
    ]


def times_blocks(h: tf.Tensor, blocks: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns h R, R being given as blocks of columns.

    With the few rows of a client's batch, square products take less than half the
    time of one with a wide matrix.
    """
    return tf.concat([tf.matmul(h, block) for block in blocks], axis=1)


def sum_of_products(
    parts: Sequence[tf.Tensor], blocks: Sequence[tf.Tensor]
) -> tf.Tensor:
    """Returns d R', with d and R given as blocks of columns, R's transposed."""
    return tf.add_n([tf.matmul(*pair) for pair in zip(parts, blocks, strict=True)])


def product(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """Returns x W for all time steps."""
    return tf.einsum("tbi,ij->tbj", x, w)


def transposed_product(d: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """Returns d W' for all time steps: from the gradient of x W, that of x."""
    return tf.einsum("tbj,ij->tbi", d, w)


def summed_product(x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Returns the sum of x' d over time steps: from the gradient of x W, that of W."""
    return tf.einsum("tbi,tbj->ij", x, d)


def before(tensor: tf.Tensor) -> tf.Tensor:
    """Returns for each time step what the one before it has; the first has zeros."""
    return tf.concat([tf.zeros_like(tensor[:1]), tensor[:-1]], axis=0)


def after(tensor: tf.Tensor) -> tf.Tensor:
    """Returns for each time step what the one after it has; the last has zeros."""
    return tf.concat([tensor[1:], tf.zeros_like(tensor[:1])], axis=0)


def changes(
    function: Callable[..., Sequence[tf.Tensor]],
    inputs: Sequence[tf.Tensor],
    directions: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """Returns how a function's results change as its inputs do."""
    with tf.autodiff.ForwardAccumulator(list(inputs), list(directions)) as forward:
        results = function(*inputs)
    return [
        forward.jvp(result, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        for result in results
    ]
