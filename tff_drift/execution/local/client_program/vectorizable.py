"""Which operations TensorFlow vectorizes exactly: the one list of them.

`tf.vectorized_map` converts a graph operation by operation, and some of its
conversions are wrong without a word: `UnsortedSegmentSum` adds what one client drops,
as it has a negative segment, to the client before it; `PadV2` pads with zeros whatever
it is told. What is listed here was compared, forward and gradient, with one client
after the other, by `tests/execution/local/test_vectorizable.py`, which wants a case for
each. A client with another operation trains one by one, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf

# Private: nothing public says how one operation is converted.
from tensorflow.python.ops.parallel_for.pfor import (
    ConversionNotImplementedError,
    _fallback_converter,
    _pfor_converter_registry,
    _PforInput,
    wrap,
)

from tff_drift.execution.local.client_program import convolutions

# By TensorFlow's own conversions.
_CONVERTED_NAMES = """
    Abs Acos Acosh Add AddN AddV2 All Angle Any ArgMax ArgMin Asin Asinh Assert Atan
    Atan2 Atanh AvgPool AvgPoolGrad BatchMatMul BatchMatMulV2 BatchToSpaceND
    BesselI0e BesselI1e BiasAdd BiasAddGrad BitwiseAnd BitwiseOr BitwiseXor
    BroadcastTo Bucketize Cast Ceil Cholesky ClipByValue Complex ComplexAbs ConcatV2
    Conj Cos Cosh Cross Cumprod Cumsum DepthToSpace Diag DiagPart Digamma Div
    DivNoNan Einsum Elu EluGrad EnsureShape Equal Erf Erfc Exp ExpandDims Expm1 Fill
    Floor FloorDiv FloorMod GatherV2 Greater GreaterEqual Identity IdentityN If
    Igamma Igammac Imag Inv Invert IsFinite IsInf IsNan LeakyRelu LeakyReluGrad
    LeftShift Less LessEqual Lgamma Log Log1p LogMatrixDeterminant LogSoftmax
    LogicalAnd LogicalNot LogicalOr MatMul MatrixBandPart MatrixDiag MatrixDiagPart
    MatrixDiagPartV3 MatrixDiagV3 MatrixInverse MatrixSetDiagV3 MatrixSolve
    MatrixTriangularSolve Max MaxPool MaxPoolGrad MaxPoolGradGrad Maximum Mean Min
    Minimum Mod Mul MulNoNan Ndtri Neg NotEqual OneHot Pack Pad Pow Prod
    RandomStandardNormal RandomUniform RandomUniformInt Rank Real RealDiv Reciprocal
    ReciprocalGrad Relu Relu6 Relu6Grad ReluGrad Reshape ReverseV2 RightShift Rint
    Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Shape ShapeN Sigmoid
    SigmoidGrad Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyWithLogits
    Softplus SoftplusGrad Softsign SoftsignGrad SpaceToBatchND SpaceToDepth
    SparseSoftmaxCrossEntropyWithLogits Split SplitV Sqrt SqrtGrad Square
    SquaredDifference Squeeze StatelessIf StatelessRandomNormal
    StatelessRandomUniform StatelessRandomUniformInt StatelessTruncatedNormal
    StopGradient StridedSlice StridedSliceGrad Sub Sum Tan Tanh TanhGrad
    TensorScatterUpdate Tile Transpose TruncateDiv TruncatedNormal Unpack Xdivy
    Xlog1py Xlogy ZerosLike
"""
_CONVERTED = frozenset(_CONVERTED_NAMES.split())
# By a loop over the clients, where TensorFlow has no conversion or wants other inputs:
# with the inputs that say of what shape the results are, alike for all clients.
_LOOPED = {
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
    "Roll": (),
    "StatelessRandomGetKeyCounter": (),
    "StatelessRandomNormalV2": (0,),
    "StatelessRandomUniformFullIntV2": (0,),
    "StatelessRandomUniformIntV2": (0,),
    "StatelessRandomUniformV2": (0,),
    "StatelessTruncatedNormalV2": (0,),
    "TopKV2": (1,),
}
_SEGMENTS = (
    "UnsortedSegmentMax",
    "UnsortedSegmentMin",
    "UnsortedSegmentProd",
    "UnsortedSegmentSum",
)
# What has no value that clients could have their own of, or says nothing of numbers.
WITHOUT_CLIENTS = frozenset(
    {
        "BroadcastGradientArgs",
        "ConcatOffset",
        "Const",
        "DynamicStitch",
        "EmptyTensorList",
        "InvertPermutation",
        "NoOp",
        "Placeholder",
        "Range",
        "TensorListReserve",
    }
)
TRUSTED = _CONVERTED.union(_LOOPED, _SEGMENTS, WITHOUT_CLIENTS)


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
    names = ", ".join(map(repr, others))
    return f"TensorFlow is not known to vectorize its operations {names} exactly"


def choose_conversion(operation: tf.Operation) -> None:
    """Has `tf.vectorized_map` convert an operation as it is known to be right."""
    converter = _CONVERSIONS.get(operation.type)
    if converter is not None:
        operation.pfor_converter = converter


def _in_a_loop(shape_inputs: tuple[int, ...]) -> Callable[[Any], Any]:
    """Returns a conversion that runs what TensorFlow cannot convert in a loop."""

    def convert(given: Any) -> Any:
        if any(given.input(k).is_stacked for k in shape_inputs):
            raise ValueError(f"clients have results of {given.op_type!r} of any shape")
        if given.op_type in convolutions.KINDS:
            result = convolutions.with_own_filters(given)
            if result is not None:
                return result
        converter = _pfor_converter_registry.get(given.op_type)
        if converter is not None:
            try:
                return converter(given)
            except ConversionNotImplementedError:
                pass
        return _fallback_converter(given)

    return convert


def _with_dropped_segments(given: Any) -> Any:
    """Converts an `UnsortedSegment...`, which drops what has a negative segment.

    TensorFlow numbers the segments of all clients through, so that one's negative
    segments would be another one's last. They get a segment of their own here.
    """
    data, segments, number = (given.input(k) for k in range(3))
    if number.is_stacked:
        raise ValueError(f"clients have results of {given.op_type!r} of any shape")
    limit = tf.cast(number.t, segments.t.dtype)
    inside = (segments.t >= 0) & (segments.t < limit)
    kept = wrap(tf.where(inside, segments.t, limit), segments.is_stacked)
    more = _PforInput(given.pfor, given.op, [data, kept, wrap(number.t + 1, False)])
    result = _pfor_converter_registry[given.op_type](more)
    return wrap(result.t[:, :-1], True)


_CONVERSIONS = {
    **{name: _in_a_loop(shape_inputs) for name, shape_inputs in _LOOPED.items()},
    **dict.fromkeys(_SEGMENTS, _with_dropped_segments),
}
