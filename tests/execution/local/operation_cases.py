"""Inputs for every operation that may be vectorized, see `test_trusted_operations`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Own:
    """An input of which each client may have its own.

    Attributes:
      values: Those of all clients.
    """

    values: np.ndarray


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation with its inputs.

    Attributes:
      operation: Its name.
      inputs: For each input an `Own` or an array that all clients share, in a list if
        the operation takes a list there.
      attributes: Its attributes.
    """

    operation: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]


NUM_CLIENTS = 3
_random = np.random.default_rng(5)


def floats(*shape, low=0.1, high=0.9, dtype=np.float32):
    """Floats of every client, by default where most functions are defined."""
    return Own(_random.uniform(low, high, (NUM_CLIENTS, *shape)).astype(dtype))


def signed(*shape):
    return floats(*shape, low=-2.0, high=2.0)


def integers(*shape, low=0, high=4, dtype=np.int32):
    return Own(_random.integers(low, high, (NUM_CLIENTS, *shape)).astype(dtype))


def bools(*shape):
    return Own(_random.random((NUM_CLIENTS, *shape)) < 0.5)


def complexes(*shape):
    return Own(
        (signed(*shape).values + 1j * signed(*shape).values).astype(np.complex64)
    )


def matrices(size):
    """Symmetric, positive definite matrices."""
    factors = signed(2, size, size).values
    return Own(factors @ factors.swapaxes(-1, -2) + np.eye(size, dtype=np.float32))


def case(operation, *inputs, **attributes):
    return Case(operation, inputs, attributes)


_FLOAT_UNARY_NAMES = """
    Abs Acos Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil Cos Cosh Digamma Elu Erf
    Erfc Exp Expm1 Floor Inv IsFinite IsInf IsNan Lgamma Log Log1p Ndtri Neg
    Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus
    Softsign Sqrt Square Tan Tanh ZerosLike OnesLike Identity StopGradient
    LogSoftmax Softmax
"""
_FLOAT_UNARY = _FLOAT_UNARY_NAMES.split()
_FLOAT_BINARY_NAMES = """
    Add AddV2 Atan2 Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual Igamma
    Igammac Less LessEqual Maximum Minimum Mod Mul MulNoNan NotEqual Pow RealDiv
    SquaredDifference Sub TruncateDiv Xdivy Xlog1py Xlogy
"""
_FLOAT_BINARY = _FLOAT_BINARY_NAMES.split()
_GRADIENTS_NAMES = """
    EluGrad InvGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad
    SoftsignGrad SqrtGrad TanhGrad ReciprocalGrad LeakyReluGrad
"""
_GRADIENTS = _GRADIENTS_NAMES.split()
_REDUCTIONS = ("Sum", "Prod", "Max", "Min", "Mean")
_POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
_IMAGES = (2, 4, 4, 3)
_POOLED = (2, 2, 2, 3)
_int32 = np.int32


def _convolution(size, channels, taps, filters, groups=1, **placing):
    """Convolutions of images, and their gradients, in a form of TensorFlow's."""
    attributes = {"strides": [1, 1, 1, 1], "padding": "VALID", **placing}
    images, kernel = (2, *size, channels), (*taps, channels // groups, filters)
    result = tf.raw_ops.Conv2D(
        input=tf.zeros(images), filter=tf.zeros(kernel), **attributes
    )
    # Of sums of many values, others are too inexact to compare.
    span = 2.0 if size[0] < 10 else 0.1
    values = functools.partial(floats, low=-span, high=span)
    gradient = values(*result.shape)
    yield case("Conv2D", values(*images), values(*kernel), **attributes)
    yield case(
        "Conv2DBackpropFilter",
        values(*images),
        _vector(*kernel),
        gradient,
        **attributes,
    )
    yield case(
        "Conv2DBackpropInput", _vector(*images), values(*kernel), gradient, **attributes
    )


def _depthwise(size, channels, taps, multiplier, **placing):
    """The same of filters that each see one channel."""
    attributes = {"strides": [1, 1, 1, 1], "padding": "VALID", **placing}
    images, kernel = (2, *size, channels), (*taps, channels, multiplier)
    result = tf.raw_ops.DepthwiseConv2dNative(
        input=tf.zeros(images), filter=tf.zeros(kernel), **attributes
    )
    gradient, name = signed(*result.shape), "DepthwiseConv2dNative"
    yield case(name, signed(*images), signed(*kernel), **attributes)
    yield case(
        f"{name}BackpropFilter",
        signed(*images),
        _vector(*kernel),
        gradient,
        **attributes,
    )
    yield case(
        f"{name}BackpropInput",
        _vector(*images),
        signed(*kernel),
        gradient,
        **attributes,
    )


def _normalizations(data_format, shape):
    """Fused normalizations by the moments of batches, and their gradients."""
    channels = shape[1 if data_format == "NCHW" else 3]
    attributes = {"data_format": data_format, "epsilon": 1e-3, "is_training": True}
    yield case(
        "FusedBatchNormV3",
        signed(*shape),
        signed(channels),
        signed(channels),
        np.zeros([0], np.float32),
        np.zeros([0], np.float32),
        exponential_avg_factor=1.0,
        **attributes,
    )
    yield case(
        "FusedBatchNormGradV3",
        signed(*shape),
        signed(*shape),
        *(floats(channels) for _ in range(3)),
        np.zeros([0], np.float32),
        **attributes,
    )


def _slicing(**masks):
    names = ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    return {f"{name}_mask": masks.get(name, 0) for name in names}


def _scalar(value, dtype=np.int32):
    return np.array(value, dtype)


def _vector(*values, dtype=np.int32):
    return np.array(values, dtype)


CASES = (
    *(
        case(each, signed(2, 3) if each != "Log" else floats(2, 3))
        for each in _FLOAT_UNARY
    ),
    *(case(each, floats(4)) for each in _FLOAT_UNARY if "Softmax" not in each),
    case("Acosh", floats(2, 3, low=1.1, high=3.0)),
    *(case(each, floats(2, 3), floats(2, 3)) for each in _FLOAT_BINARY),
    # Inputs of other ranks are broadcast.
    *(case(each, floats(2, 3), floats(3)) for each in _FLOAT_BINARY),
    *(case(each, floats(), floats(3)) for each in _FLOAT_BINARY),
    *(
        case(each, integers(3, low=1), integers(2, 1, low=1))
        for each in ("Add", "FloorDiv")
    ),
    case("Equal", integers(3), integers(3)),
    *(case(each, floats(2, 3), signed(2, 3)) for each in _GRADIENTS),
    *(case(each, bools(2, 3), bools(3)) for each in ("LogicalAnd", "LogicalOr")),
    case("LogicalNot", bools(2, 3)),
    *(
        case(each, integers(3), integers(3))
        for each in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    ),
    *(case(each, integers(3), integers(2, 3)) for each in ("LeftShift", "RightShift")),
    case("Invert", integers(3)),
    case("Complex", signed(2), signed(2)),
    *(
        case(each, complexes(2, 3))
        for each in ("Angle", "ComplexAbs", "Conj", "Imag", "Real")
    ),
    *(
        case(each, signed(2, 3), _vector(*axes), keep_dims=keep)
        for each in _REDUCTIONS
        for axes in ((0,), (-1,), (0, 1), ())
        for keep in (False, True)
    ),
    *(case(each, signed(2, 3), _scalar(-1), keep_dims=False) for each in _REDUCTIONS),
    *(
        case(each, bools(2, 3), _vector(*axes), keep_dims=keep)
        for each in ("All", "Any")
        for axes in ((0,), (-1,), (0, 1))
        for keep in (False, True)
    ),
    *(
        case(each, signed(2, 3), _scalar(axis), output_type=tf.int64)
        for each in ("ArgMax", "ArgMin")
        for axis in (0, -1)
    ),
    *(
        case(each, signed(2, 3), _scalar(axis), exclusive=exclusive, reverse=True)
        for each in ("Cumsum", "Cumprod")
        for axis in (0, -1)
        for exclusive in (False, True)
    ),
    *(
        case("MatMul", signed(*a), signed(*b), transpose_a=ta, transpose_b=tb)
        for a, ta in (((2, 3), False), ((3, 2), True), ((1, 3), False))
        for b, tb in (((3, 4), False), ((4, 3), True), ((3, 1), False))
    ),
    *(
        case("MatMul", signed(*a), signed(*b), transpose_a=ta, transpose_b=tb)
        # Of many weights.
        for a, ta in (((2, 53), False), ((53, 2), True))
        for b, tb in (((53, 40), False), ((40, 53), True))
    ),
    *(
        case("MatMul", complexes(3, 3), complexes(3, 3), transpose_a=ta, transpose_b=tb)
        for ta in (False, True)
        for tb in (False, True)
    ),
    *(
        case(each, signed(2, 3, 4), signed(2, 4, 5), adj_x=False, adj_y=False)
        for each in ("BatchMatMul", "BatchMatMulV2")
    ),
    case("BatchMatMulV2", signed(2, 4, 3), signed(5, 4), adj_x=True, adj_y=True),
    case("BatchMatMulV2", signed(3, 4), signed(2, 4, 5), adj_x=False, adj_y=False),
    case("Einsum", [signed(2, 3), signed(3, 4)], equation="ij,jk->ik"),
    case("Einsum", [signed(2, 3, 3)], equation="bij->bji"),
    case("Einsum", [signed(5, 2, 3), signed(3, 4)], equation="...ij,jk->...ik"),
    case("Cross", signed(2, 3), signed(2, 3)),
    case("AddN", [signed(2, 3), signed(2, 3), signed(2, 3)]),
    case("BiasAdd", signed(2, 3), signed(3), data_format="NHWC"),
    case("BiasAdd", signed(2, 4, 4, 3), signed(3), data_format="NHWC"),
    case("BiasAddGrad", signed(2, 3), data_format="NHWC"),
    case("BiasAddGrad", signed(2, 4, 4, 3), data_format="NHWC"),
    *(
        each
        for pixels in ((4,), (3, 2), (2, 3, 2))
        for each in (
            case("BiasAdd", signed(3, 3, *pixels), signed(3), data_format="NCHW"),
            case("BiasAddGrad", signed(3, 3, *pixels), data_format="NCHW"),
        )
    ),
    case("L2Loss", signed(2, 3)),
    case("Bitcast", signed(2, 3), type=tf.int32),
    case("Fingerprint", integers(2, 4, high=200, dtype=np.uint8), "farmhash64"),
    case("LeakyRelu", signed(2, 3), alpha=0.3),
    case("ClipByValue", signed(2, 3), _scalar(-1, np.float32), _scalar(1, np.float32)),
    case("Bucketize", signed(2, 3), boundaries=[-1.0, 0.0, 1.0]),
    case("Cast", signed(2, 3), DstT=tf.int32),
    case("Cast", bools(2, 3), DstT=tf.float32),
    case("Cast", floats(2, 3), DstT=tf.half, Truncate=True),
    case("CheckNumerics", signed(2, 3), message="not finite"),
    case("SoftmaxCrossEntropyWithLogits", signed(4, 3), floats(4, 3)),
    case("SparseSoftmaxCrossEntropyWithLogits", signed(4, 3), integers(4, high=3)),
    *(
        case("Reshape", signed(2, 3), _vector(*shape))
        for shape in ((6,), (3, -1), (1, 2, 3, 1))
    ),
    case("Reshape", signed(), _vector(1)),
    case("Reshape", signed(1), np.zeros([0], np.int32)),
    *(case("ExpandDims", signed(2, 3), _scalar(axis)) for axis in (0, 1, -1)),
    *(case("Squeeze", signed(1, 3, 1), axis=axes) for axes in ([0], [-1], [0, 2], [])),
    case("Fill", _vector(2, 3), signed()),
    case("BroadcastTo", signed(3), _vector(2, 3)),
    case("BroadcastTo", signed(), _vector(2, 3)),
    case("Tile", signed(2, 3), _vector(2, 1)),
    *(
        case("Transpose", signed(2, 3, 4), _vector(*perm))
        for perm in ((2, 0, 1), (0, 2, 1))
    ),
    *(case("Pack", [signed(2, 3), signed(2, 3)], axis=axis) for axis in (0, 1, -1)),
    *(
        case("Unpack", signed(2, 3), num=num, axis=axis)
        for num, axis in ((2, 0), (3, -1))
    ),
    *(
        case("ConcatV2", [signed(2, 3), signed(2, 3)], _scalar(axis))
        for axis in (0, 1, -1)
    ),
    case("ConcatV2", [signed(2, 3), signed(1, 3)], _scalar(0)),
    *(case("Split", _scalar(axis), signed(2, 4), num_split=2) for axis in (0, 1, -1)),
    *(
        case("SplitV", signed(2, 5), _vector(2, 3), _scalar(axis), num_split=2)
        for axis in (1, -1)
    ),
    case("Pad", signed(2, 3), np.array([[1, 0], [0, 2]], np.int32)),
    case(
        "MirrorPad", signed(2, 3), np.array([[1, 0], [0, 1]], np.int32), mode="REFLECT"
    ),
    case("Slice", signed(4, 3), _vector(1, 0), _vector(2, -1)),
    case(
        "StridedSlice", signed(4, 3), _vector(1), _vector(3), _vector(1), **_slicing()
    ),
    case(
        "StridedSlice",
        signed(4, 3),
        _vector(-1),
        _vector(0),
        _vector(1),
        **_slicing(shrink_axis=1),
    ),
    case(
        "StridedSlice",
        signed(4, 3),
        _vector(0, 0),
        _vector(0, 2),
        _vector(1, 1),
        **_slicing(begin=1, end=1),
    ),
    case(
        "StridedSlice",
        signed(4, 3),
        _vector(0, 1),
        _vector(0, 2),
        _vector(1, 1),
        **_slicing(ellipsis=1, shrink_axis=2),
    ),
    case(
        "StridedSlice",
        signed(4),
        _vector(0, 0),
        _vector(0, 0),
        _vector(1, 1),
        **_slicing(begin=1, end=1, new_axis=2),
    ),
    case(
        "StridedSlice", signed(4, 3), _vector(3), _vector(0), _vector(-2), **_slicing()
    ),
    case(
        "StridedSliceGrad",
        _vector(4, 3),
        _vector(1),
        _vector(3),
        _vector(1),
        signed(2, 3),
        **_slicing(),
    ),
    case(
        "StridedSliceGrad",
        _vector(4, 3),
        _vector(1),
        _vector(2),
        _vector(1),
        signed(3),
        **_slicing(shrink_axis=1),
    ),
    case("ReverseV2", signed(2, 3), _vector(0, -1)),
    case("Roll", signed(4, 3), integers(1), _vector(0)),
    # Axes from behind, of one shift and of several.
    case("Roll", signed(4, 3), _scalar(1), _scalar(-1)),
    case("Roll", signed(4, 3), integers(2), _vector(-1, -2)),
    *(
        case("GatherV2", signed(4, 3), integers(2, high=3), _scalar(axis), batch_dims=0)
        for axis in (0, 1, -1)
    ),
    case("GatherV2", signed(4, 3), integers(4, high=3), _scalar(1), batch_dims=1),
    case("GatherV2", signed(4, 3), integers(high=3), _scalar(0), batch_dims=0),
    case("GatherV2", signed(4, 3), integers(2, 5, high=3), _scalar(0), batch_dims=0),
    case("GatherNd", signed(4, 3), integers(5, 2, high=3)),
    case(
        "OneHot",
        integers(5),
        _scalar(4),
        _scalar(2, np.float32),
        _scalar(-1, np.float32),
        axis=-1,
    ),
    case(
        "OneHot",
        integers(5),
        _scalar(4),
        _scalar(2, np.float32),
        _scalar(-1, np.float32),
        axis=0,
    ),
    *(
        case(each, bools(2, 3), signed(2, 3), signed(2, 3))
        for each in ("Select", "SelectV2")
    ),
    case("SelectV2", bools(), signed(2, 3), signed(3)),
    case("Shape", signed(2, 3), out_type=tf.int32),
    case("ShapeN", [signed(2, 3), signed(4)], out_type=tf.int64),
    case("Size", signed(2, 3), out_type=tf.int32),
    case("Rank", signed(2, 3)),
    case("IdentityN", [signed(2, 3), integers(2)]),
    case("EnsureShape", signed(2, 3), shape=[None, 3]),
    case("Diag", signed(3)),
    case("DiagPart", signed(3, 3)),
    case("MatrixDiag", signed(2, 3)),
    case("MatrixDiagPart", signed(2, 3, 3)),
    case(
        "MatrixDiagV3",
        signed(2, 3),
        _scalar(0),
        _scalar(-1),
        _scalar(-1),
        _scalar(0, np.float32),
        align="RIGHT_LEFT",
    ),
    case(
        "MatrixDiagPartV3",
        signed(2, 3, 3),
        _scalar(0),
        _scalar(0, np.float32),
        align="RIGHT_LEFT",
    ),
    case(
        "MatrixSetDiagV3", signed(2, 3, 3), signed(2, 3), _scalar(0), align="RIGHT_LEFT"
    ),
    case("MatrixBandPart", signed(3, 3), _scalar(1, np.int64), _scalar(0, np.int64)),
    case("Cholesky", matrices(3)),
    case("LogMatrixDeterminant", matrices(3)),
    *(case("MatrixInverse", matrices(3), adjoint=adjoint) for adjoint in (False, True)),
    case("MatrixSolve", matrices(3), signed(2, 3, 2), adjoint=False),
    case(
        "MatrixTriangularSolve", matrices(3), signed(2, 3, 2), lower=True, adjoint=False
    ),
    case("TopKV2", signed(2, 5), _scalar(2), sorted=True),
    case(
        "TensorScatterUpdate",
        signed(4, 3),
        Own(np.array([[[0], [2]], [[1], [3]], [[2], [0]]], _int32)),
        signed(2, 3),
    ),
    *(
        case(each, signed(5, 2), integers(5, low=low, high=3), _scalar(3))
        for each in (
            "UnsortedSegmentSum",
            "UnsortedSegmentMax",
            "UnsortedSegmentMin",
            "UnsortedSegmentProd",
        )
        # Those of negative segments are left out.
        for low in (0, -2)
    ),
    case(
        "UnsortedSegmentSum", signed(2, 3), integers(2, 3, low=-1), _scalar(4, np.int64)
    ),
    *(
        each
        # As of layers of batches and of features, `LayerNormalization` among them.
        for data_format, shape in (
            ("NHWC", (4, 3, 2, 5)),
            ("NCHW", (2, 5, 6, 1)),
            ("NCHW", (1, 5, 6, 1)),
        )
        for each in _normalizations(data_format, shape)
    ),
    *(
        each
        for size, channels, taps, filters, placing in (
            # Large images of few channels, whose patches are made in another way.
            ((30, 27), 1, (3, 2), 2, {}),
            ((34, 32), 2, (3, 2), 2, {"strides": [1, 1, 2, 1], "padding": "SAME"}),
            ((5, 6), 1, (3, 2), 2, {}),
            ((5, 6), 5, (3, 2), 2, {}),
            ((4, 5), 3, (2, 3), 2, {"padding": "SAME"}),
            ((4, 5), 5, (2, 3), 2, {"padding": "SAME"}),
            ((7, 6), 2, (3, 3), 2, {"strides": [1, 2, 3, 1]}),
            ((7, 6), 4, (3, 3), 2, {"strides": [1, 2, 3, 1], "padding": "SAME"}),
            # Pixels between patches, and patches that do not overlap.
            ((5, 5), 4, (1, 1), 2, {"strides": [1, 2, 2, 1]}),
            ((4, 6), 4, (2, 3), 2, {"strides": [1, 2, 3, 1]}),
            ((1, 7), 4, (1, 3), 5, {"padding": "SAME"}),
            # Groups of channels, each with filters of its own.
            ((5, 6), 4, (3, 2), 6, {"groups": 2}),
            ((5, 6), 4, (3, 2), 4, {"groups": 4, "padding": "SAME"}),
            ((7, 8), 1, (2, 3), 2, {"dilations": [1, 3, 2, 1]}),
            ((7, 8), 4, (2, 3), 2, {"dilations": [1, 3, 2, 1], "padding": "SAME"}),
            (
                (4, 5),
                4,
                (3, 2),
                2,
                {
                    "padding": "EXPLICIT",
                    "explicit_paddings": [0, 0, 2, 1, 0, 3, 0, 0],
                },
            ),
            # Large patches.
            (
                (28, 27),
                3,
                (3, 3),
                2,
                {
                    "padding": "EXPLICIT",
                    "explicit_paddings": [0, 0, 2, 1, 1, 0, 0, 0],
                },
            ),
        )
        for each in _convolution(size, channels, taps, filters, **placing)
    ),
    *(
        each
        for placing in (
            {},
            {"padding": "SAME"},
            {"strides": [1, 2, 2, 1], "padding": "SAME"},
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 2, 1, 1, 0, 0, 0]},
        )
        for multiplier in (1, 2)
        for each in _depthwise((5, 6), 3, (3, 2), multiplier, **placing)
    ),
    *(
        case(
            "SpaceToBatchND", signed(2, 5, 6, 3), _vector(3, 2), _vector([0, 1], [2, 0])
        ),
        case("SpaceToBatchND", signed(2, 6, 3), _vector(3), _vector([1, 2])),
        case(
            "BatchToSpaceND",
            signed(12, 2, 4, 3),
            _vector(3, 2),
            _vector([0, 1], [2, 0]),
        ),
        case("BatchToSpaceND", signed(6, 3, 3), _vector(3), _vector([1, 2])),
    ),
    case("MaxPool", signed(*_IMAGES), **_POOL),
    case(
        "MaxPool",
        signed(*_IMAGES),
        **{
            **_POOL,
            "padding": "EXPLICIT",
            "explicit_paddings": [0, 0, 1, 0, 0, 1, 0, 0],
        },
    ),
    case("AvgPool", signed(*_IMAGES), **_POOL),
    case("AvgPoolGrad", _vector(*_IMAGES), signed(*_POOLED), **_POOL),
    *(
        case(each, signed(*_IMAGES), signed(*_POOLED), signed(*_POOLED), **_POOL)
        for each in ("MaxPoolGrad",)
    ),
    case(
        "MaxPoolGradGrad", signed(*_IMAGES), signed(*_POOLED), signed(*_IMAGES), **_POOL
    ),
    case("SpaceToDepth", signed(*_IMAGES), block_size=2),
    case("DepthToSpace", signed(2, 2, 2, 4), block_size=2),
    *(
        case(each, np.array([2, 3], _int32), integers(2), alg)
        if alg is not None
        else case(each, np.array([2, 3], _int32), integers(2))
        for each, alg in (
            ("StatelessRandomUniform", None),
            ("StatelessRandomNormal", None),
            ("StatelessTruncatedNormal", None),
        )
    ),
    case(
        "StatelessRandomUniformInt",
        np.array([2, 3], _int32),
        integers(2),
        _scalar(0),
        _scalar(9),
    ),
    *(
        case(
            f"{each}V2",
            _vector(2, 3),
            integers(1, dtype=np.uint64),
            integers(2, dtype=np.uint64),
            _scalar(1),
        )
        for each in (
            "StatelessRandomUniform",
            "StatelessRandomNormal",
            "StatelessTruncatedNormal",
            "StatelessRandomUniformFullInt",
        )
    ),
    case(
        "StatelessRandomUniformIntV2",
        _vector(2, 3),
        integers(1, dtype=np.uint64),
        integers(2, dtype=np.uint64),
        _scalar(1),
        _scalar(0),
        _scalar(9),
    ),
    case("StatelessRandomGetKeyCounter", integers(2)),
)
