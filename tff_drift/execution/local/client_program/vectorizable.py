"""Which operations TensorFlow vectorizes exactly: the one list of them.

`tf.vectorized_map` converts a graph operation by operation, and some of its
conversions are wrong without a word: `UnsortedSegmentSum` adds what one client drops,
as it has a negative segment, to the client before it; `PadV2` pads with zeros whatever
it is told; `Roll` along the last axis, if that is -1, rolls clients. What is listed
here was compared, forward and gradient, with one client after the other, by
`tests/execution/local/test_vectorizable.py`, which wants a case for each. A client with
another operation trains one by one, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import tensorflow as tf

# Private: nothing public says how one operation is converted.
from tensorflow.python.ops.parallel_for.pfor import (
    ConversionNotImplementedError,
    _channel_flatten_input,
    _fallback_converter,
    _pfor_converter_registry,
    _PforInput,
    wrap,
)

from tff_drift import checks
from tff_drift.execution.local import policy
from tff_drift.execution.local.client_program import convolutions, plain_forms

# By TensorFlow's own conversions. What has one of ours is in `_CONVERSIONS`.
_CONVERTED = """
    Abs Acos Acosh Add AddN AddV2 All Angle Any ArgMax ArgMin Asin Asinh Assert Atan
    Atan2 Atanh AvgPool AvgPoolGrad BatchMatMul BatchMatMulV2 BatchToSpaceND
    BesselI0e BesselI1e BitwiseAnd BitwiseOr BitwiseXor BroadcastTo Bucketize Ceil
    Cholesky ClipByValue Complex ComplexAbs ConcatV2 Conj Cos Cosh Cross Cumprod
    Cumsum DepthToSpace Diag DiagPart Digamma Div DivNoNan Einsum Elu EluGrad
    EnsureShape Equal Erf Erfc Exp ExpandDims Expm1 Fill Floor FloorDiv FloorMod
    GatherV2 Greater GreaterEqual Identity IdentityN If Igamma Igammac Imag Inv
    Invert IsFinite IsInf IsNan LeakyRelu LeakyReluGrad LeftShift Less LessEqual
    Lgamma Log Log1p LogMatrixDeterminant LogSoftmax LogicalAnd LogicalNot LogicalOr
    MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagPartV3 MatrixDiagV3
    MatrixInverse MatrixSetDiagV3 MatrixSolve MatrixTriangularSolve Max MaxPoolGrad
    MaxPoolGradGrad Maximum Mean Min Minimum Mod Mul MulNoNan Ndtri Neg NotEqual
    OneHot Pack Pad Pow Prod RandomStandardNormal RandomUniform RandomUniformInt
    Rank Real RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad
    Reshape ReverseV2 RightShift Rint Round Rsqrt RsqrtGrad Select SelectV2 Selu
    SeluGrad Shape ShapeN Sigmoid SigmoidGrad Sign Sin Sinh Size Slice Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign SoftsignGrad
    SpaceToBatchND SpaceToDepth SparseSoftmaxCrossEntropyWithLogits Split SplitV
    Sqrt SqrtGrad Square SquaredDifference StatelessIf StatelessRandomNormal
    StatelessRandomUniform StatelessRandomUniformInt StatelessTruncatedNormal
    StopGradient StridedSlice StridedSliceGrad Sub Sum Tan Tanh TanhGrad
    TensorScatterUpdate Tile Transpose TruncateDiv TruncatedNormal Unpack Xdivy
    Xlog1py Xlogy ZerosLike
"""
# By a loop over the clients, where TensorFlow has no conversion or wants other inputs:
# with the inputs that say of what shape the results are, alike for all clients.
_LOOPED: dict[str, tuple[int, ...]] = {
    "Bitcast": (),
    "CheckNumerics": (),
    "Conv2D": (),
    "Conv2DBackpropFilter": (1,),
    "Conv2DBackpropInput": (0,),
    "DepthwiseConv2dNative": (),
    "DepthwiseConv2dNativeBackpropFilter": (1,),
    "DepthwiseConv2dNativeBackpropInput": (0,),
    "Fingerprint": (),
    "GatherNd": (),
    "InvGrad": (),
    "L2Loss": (),
    "MirrorPad": (1,),
    "OnesLike": (),
    "StatelessRandomGetKeyCounter": (),
    "StatelessRandomNormalV2": (0,),
    "StatelessRandomUniformFullIntV2": (0,),
    "StatelessRandomUniformIntV2": (0,),
    "StatelessRandomUniformV2": (0,),
    "StatelessTruncatedNormalV2": (0,),
    "TopKV2": (1,),
}
# What has no value that clients could have their own of, or says nothing of numbers.
_WITHOUT_CLIENTS_NAMES = """
    BroadcastGradientArgs ConcatOffset Const DynamicStitch EmptyTensorList
    InvertPermutation NoOp Placeholder Range RestoreV2 TensorListReserve
"""
WITHOUT_CLIENTS = frozenset(_WITHOUT_CLIENTS_NAMES.split())


def obstacle(operations: Collection[str]) -> str | None:
    """Says which operations, if any, are in the way of vectorizing them.

    Args:
      operations: The kinds of a client's operations.

    Returns:
      The reason, None if there is none.
    """
    others = sorted(set(operations) - TRUSTED)
    if not others:
        return None
    names = checks.listed(map(repr, others))
    return f"TensorFlow is not known to vectorize its operations {names} exactly"


def choose_conversion(operation: tf.Operation) -> None:
    """Has `tf.vectorized_map` convert an operation as it is known to be right."""
    converter = _CONVERSIONS.get(operation.type)
    if converter is not None:
        operation.pfor_converter = converter


def _in_a_loop(given: Any) -> Any:
    """Converts what TensorFlow cannot, or not always, by a loop over the clients."""
    if any(given.input(k).is_stacked for k in _LOOPED[given.op_type]):
        raise ValueError(f"clients have results of {given.op_type!r} of any shape")
    if given.op_type in convolutions.KINDS:
        result = convolutions.with_own_filters(given)
        if result is not None:
            return result
    converter = _pfor_converter_registry.get(given.op_type)
    if converter is not None and not _is_converted_wrongly(given):
        try:
            return converter(given)
        except ConversionNotImplementedError:
            pass
    return _fallback_converter(given)


def _is_converted_wrongly(given: Any) -> bool:
    """Whether TensorFlow's conversion leaves out padding, or that channels have groups.

    Clients' gradients on the same images become more filters there, and filters in
    another order belong to other groups.
    """
    if given.op_type != "Conv2DBackpropFilter":
        return False
    if given.get_attr("padding") == b"EXPLICIT":
        return True
    images, is_stacked, _ = given.input(0)
    channels = images.shape[1 if given.get_attr("data_format") == b"NCHW" else -1]
    sizes = tf.get_static_value(given.unstacked_input(1))
    has_one_group = sizes is not None and channels == sizes[2]
    return not is_stacked and not has_one_group


def _with_axes_from_the_front(given: Any) -> Any:
    """Converts a `Roll`, whose axes may be counted from behind.

    To these, too, TensorFlow's conversion adds one: the last becomes the clients'.
    """
    given.stack_inputs([0])
    axes = given.unstacked_input(2)
    rank = tf.cast(tf.rank(given.stacked_input(0)) - 1, axes.dtype)
    axes = wrap(tf.where(axes < 0, axes + rank, axes), False)
    inputs = _PforInput(given.pfor, given.op, [given.input(0), given.input(1), axes])
    return _pfor_converter_registry[given.op_type](inputs)


def _pooled(given: Any) -> Any:
    """Converts a pooling by the largest value, of the images of all clients at once."""
    images = given.stacked_input(0)
    shape = tf.shape(images)
    of_all = tf.reshape(images, tf.concat([[-1], shape[2:]], 0))
    pooled = plain_forms.pooled_by_one_thread(given.op, of_all)
    if pooled is None:
        return _pfor_converter_registry["MaxPool"](given)
    of_each = tf.reshape(pooled, tf.concat([shape[:2], tf.shape(pooled)[1:]], 0))
    return wrap(of_each, True)


def _with_bias(given: Any) -> Any:
    """Converts what adds a bias, or the gradient of that.

    Of channels in front TensorFlow takes it for granted that two dimensions follow.
    """
    if given.get_attr("data_format") != b"NCHW":
        return _with_known_ranks(given)
    given.stack_inputs()
    stack = given.stacked_input(0)
    behind = stack.shape.rank - 3
    if given.op_type == "BiasAddGrad":
        return wrap(tf.reduce_sum(stack, [1, *range(3, 3 + behind)]), True)
    bias = given.stacked_input(1)[:, tf.newaxis]
    return wrap(stack + bias[(..., *[tf.newaxis] * behind)], True)


def _matmul(given: Any) -> Any:
    """Converts a product of matrices.

    Of two stacks TensorFlow takes the conjugate, too, where it is told to transpose;
    of a stack and a matrix it finds a wrong shape if there are no rows, or no clients.
    """
    (first, has_first, _), (second, has_second, _) = given.input(0), given.input(1)
    turn_first, turn_second = (given.get_attr(f"transpose_{x}") for x in "ab")
    if has_first and has_second:
        multiply = plain_forms.multiplied_by_eigen if _is_small(given) else tf.matmul
        product = multiply(
            first, second, transpose_a=turn_first, transpose_b=turn_second
        )
    elif has_first:
        product = _rows_times(first, second, turn_first, turn_second)
    else:
        # The transposed product is that of the transposed in the other order.
        product = _rows_times(second, first, not turn_second, not turn_first)
        product = tf.linalg.matrix_transpose(product)
    return wrap(product, True)


def _is_small(given: Any) -> bool:
    """Whether a product is of as many rows as a batch has, and of few weights.

    What a `Reshape` has put together, such as the words of texts, has more rows.
    """
    factors = given.op.inputs
    if any(each.dtype != tf.float32 or _has_other_rows(each) for each in factors):
        return False
    (rows, inner), (other, columns) = (
        each.shape[::-1] if given.get_attr(f"transpose_{x}") else each.shape
        for x, each in zip("ab", factors, strict=True)
    )
    known = [size for size in (rows, inner or other, columns) if size is not None]
    return policy.multiply_without_threads(
        convolutions.limits_of_context(), math.prod(known)
    )


def _has_other_rows(matrix: tf.Tensor) -> bool:
    """Whether it is of a `Reshape` that does more than to flatten each row."""
    if matrix.op.type != "Reshape":
        return False
    sizes = [x.shape[1:].num_elements() for x in (matrix.op.inputs[0], matrix)]
    return None in sizes or sizes[0] != sizes[1]


def _rows_times(
    stack: tf.Tensor, matrix: tf.Tensor, turn_stack: bool, turn_matrix: bool
) -> tf.Tensor:
    """Returns the products of stacked matrices and a matrix, as one of all rows."""
    if turn_stack:
        stack = tf.linalg.matrix_transpose(stack)
    shape = tf.shape(stack)
    rows = tf.reshape(stack, [-1, shape[2]])
    product = tf.matmul(rows, matrix, transpose_b=turn_matrix)
    return tf.reshape(product, tf.concat([shape[:2], tf.shape(product)[1:]], 0))


def _cast(given: Any) -> Any:
    """Converts a `Cast`, of which TensorFlow's conversion drops how it rounds."""
    cast = tf.raw_ops.Cast(
        x=given.stacked_input(0),
        DstT=given.get_attr("DstT"),
        Truncate=given.get_attr("Truncate"),
    )
    return wrap(cast, True)


def _squeezed(given: Any) -> Any:
    """Converts a `Squeeze`, which may be of all dimensions of size 1.

    TensorFlow's conversion then takes that of the clients, too, if there is one.
    """
    if given.get_attr("squeeze_dims"):
        return _pfor_converter_registry[given.op_type](given)
    stack = given.stacked_input(0)
    if stack.shape[1:].is_fully_defined():
        axes = [k for k, size in enumerate(stack.shape) if k and size == 1]
        return wrap(tf.squeeze(stack, axes) if axes else stack, True)
    shape = tf.shape(stack)
    kept = tf.boolean_mask(shape[1:], tf.not_equal(shape[1:], 1))
    return wrap(tf.reshape(stack, tf.concat([shape[:1], kept], 0)), True)


class _KnownRanks(_PforInput):
    """Inputs that are made fit to be broadcast while the graph is built.

    TensorFlow adds some ten operations for each input, which look for its rank when
    they run: a quarter of a first round with a small model.
    """

    def expanddim_inputs_for_broadcast(self) -> None:
        """Gives stacked inputs the dimensions that they lack behind the first."""
        ranks = [each.t.shape.rank for each in self._inputs]
        if None in ranks:
            super().expanddim_inputs_for_broadcast()
            return
        of_one = [
            rank - each.is_stacked
            for rank, each in zip(ranks, self._inputs, strict=True)
        ]
        for place, each in enumerate(self._inputs):
            missing = max(of_one) - of_one[place]
            if each.is_stacked and missing:
                front = (slice(None), *[tf.newaxis] * missing)
                self._inputs[place] = wrap(each.t[front], True)


def _with_known_ranks(given: Any) -> Any:
    """Converts an operation as TensorFlow does."""
    inputs = _KnownRanks(given.pfor, given.op, given.inputs)
    return _pfor_converter_registry[given.op_type](inputs)


def _with_segments_of_each(given: Any) -> Any:
    """Converts an `UnsortedSegment...`, which drops what has a negative segment.

    The segments of all clients are numbered through. TensorFlow's conversion does so
    with negative ones, too, which are the last ones of another client there.
    """
    if given.input(2).is_stacked:
        raise ValueError(f"clients have results of {given.op_type!r} of any shape")
    given.stack_inputs([0, 1])
    data, segments = given.stacked_input(0), tf.cast(given.stacked_input(1), tf.int64)
    number = tf.cast(given.unstacked_input(2), tf.int64)
    clients = tf.cast(given.pfor.loop_len_vector, tf.int64)
    ones = tf.ones([tf.rank(segments) - 1], tf.int64)
    first = tf.range(clients[0]) * number
    of_all = segments + tf.reshape(first, tf.concat([clients, ones], 0))
    total = clients[0] * number
    # What is too large stays too large.
    of_all = tf.where(segments < number, of_all, total)
    result = getattr(tf.raw_ops, given.op_type)(
        data=data,
        segment_ids=tf.where(segments < 0, tf.constant(-1, tf.int64), of_all),
        num_segments=total,
    )
    of_one = tf.concat([[number], tf.shape(result, tf.int64)[1:]], 0)
    return wrap(tf.reshape(result, tf.concat([clients, of_one], 0)), True)


def _with_moments_of_batches(given: Any) -> Any:
    """Converts a fused normalization, or its gradient, by the moments of batches.

    The clients' channels are taken as those of one batch, as TensorFlow does. Its own
    conversion takes apart by client, too, what the normalization keeps for its
    gradient and what the gradient returns besides. Their sizes are the processor's
    choice (one value for any batch without oneDNN): they are that of all clients here.
    """
    if not given.get_attr("is_training"):
        raise ValueError("it normalizes by other moments than those of its batches")
    is_gradient = given.op_type == "FusedBatchNormGradV3"
    num_images, num_by_client = (2, 3) if is_gradient else (1, 5)
    form = given.get_attr("data_format")
    given.stack_inputs(range(5))
    images = [
        _channel_flatten_input(given.stacked_input(k), form) for k in range(num_images)
    ]
    inputs = [image for image, _, _ in images]
    inputs += [
        tf.reshape(given.input(k).t, [-1]) for k in range(num_images, given.num_inputs)
    ]
    attributes = {"epsilon": given.get_attr("epsilon"), "data_format": form}
    if not is_gradient:
        factor = given.get_attr("exponential_avg_factor")
        attributes["exponential_avg_factor"] = factor
    names = [each.name for each in given.op.op_def.input_arg]
    image, *others = getattr(tf.raw_ops, given.op_type)(
        **dict(zip(names, inputs, strict=True)), **attributes
    )
    _, order, shape = images[0]
    of_channels = tf.shape(given.stacked_input(num_images))
    by_client = [tf.transpose(tf.reshape(image, shape), order)]
    by_client += [tf.reshape(each, of_channels) for each in others[: num_by_client - 1]]
    of_all = others[num_by_client - 1 :]
    return [wrap(x, True) for x in by_client] + [wrap(x, False) for x in of_all]


_CONVERSIONS = {
    **dict.fromkeys(_CONVERTED.split(), _with_known_ranks),
    **dict.fromkeys(_LOOPED, _in_a_loop),
    "BiasAdd": _with_bias,
    "BiasAddGrad": _with_bias,
    "Cast": _cast,
    "FusedBatchNormGradV3": _with_moments_of_batches,
    "FusedBatchNormV3": _with_moments_of_batches,
    "MatMul": _matmul,
    "MaxPool": _pooled,
    "Roll": _with_axes_from_the_front,
    "Squeeze": _squeezed,
    "UnsortedSegmentMax": _with_segments_of_each,
    "UnsortedSegmentMin": _with_segments_of_each,
    "UnsortedSegmentProd": _with_segments_of_each,
    "UnsortedSegmentSum": _with_segments_of_each,
}
TRUSTED = WITHOUT_CLIENTS.union(_CONVERSIONS)
