"""Plain operations beside TensorFlow's kernels, for which they stand."""

import numpy as np
import pytest
import tensorflow as tf

from tff_drift.execution.local.client_program import plain_forms

EPSILON = 1e-3


def arrays(channels=5, height=3, width=2, images=1):
    random = np.random.default_rng(1)
    shape = (images, channels, height, width)
    image, of_result = (random.normal(size=shape).astype(np.float32) for _ in range(2))
    # Far from 0, where a variance as a mean of squares has no digits left.
    image[:, 1] += 1_000
    scale, offset = random.normal(size=(2, channels)).astype(np.float32)
    return image, of_result, scale, offset


def results_of(make, values):
    """What an operation returns, and what stands for it, of the same values."""
    with tf.Graph().as_default():
        given = [tf.compat.v1.placeholder(x.dtype, x.shape) for x in values]
        results = make(*given)
        plain = plain_forms.as_plain(results[0].op)
        if plain is None:
            return None
        with tf.compat.v1.Session() as session:
            feeds = dict(zip(given, values, strict=True))
            return session.run((list(results), plain), feeds)


def normalization(image, scale, offset, mean, variance, **options):
    return tf.raw_ops.FusedBatchNormV3(
        x=image,
        scale=scale,
        offset=offset,
        mean=mean,
        variance=variance,
        epsilon=EPSILON,
        **{"data_format": "NCHW", "is_training": True, **options},
    )


def gradient(image, of_result, scale):
    forward = normalization(image, scale, scale, [], [])
    return tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=of_result,
        x=image,
        scale=scale,
        reserve_space_1=forward.reserve_space_1,
        reserve_space_2=forward.reserve_space_2,
        reserve_space_3=forward.reserve_space_3,
        epsilon=EPSILON,
        data_format="NCHW",
        is_training=True,
    )


SIZES = dict(zip("abcdehij", (3, 4, 5, 2, 4, 2, 3, 6), strict=True))
# Those of an attention of several heads, and of their gradients; products of matrices
# and of vectors, with and without a stack.
PRODUCTS = [
    "abc,chd->abhd",
    "aehd,abhd->ahbe",
    "ahbe,aehd->abhd",
    "abhd,hdc->abc",
    "abhd,chd->abc",
    "abc,abhd->chd",
    "ahbe,abhd->aehd",
    "ij,jb->ib",
    "ij,jb->bi",
    "aij,ajb->aib",
    "i,i->",
    "i,j->ij",
    "ai,ai->a",
    "ab,ab->ab",
]


@pytest.mark.parametrize("open_label", [None, "a", "b", "i"])
@pytest.mark.parametrize("equation", PRODUCTS)
def test_einstein_sums_are_those_of_numpy(equation, open_label):
    random, factors = np.random.default_rng(2), equation.split("->")[0].split(",")
    values = [random.normal(size=[SIZES[x] for x in each]) for each in factors]
    with tf.Graph().as_default():
        given = [
            tf.compat.v1.placeholder(
                tf.float64, [None if x == open_label else SIZES[x] for x in each]
            )
            for each in factors
        ]
        (plain,) = plain_forms.as_plain(
            tf.raw_ops.Einsum(inputs=given, equation=equation).op
        )
        kinds = {each.type for each in plain.graph.get_operations()}
        assert kinds & {"MatMul", "BatchMatMulV2"}
        with tf.compat.v1.Session() as session:
            feeds = dict(zip(given, values, strict=True))
            found = session.run(plain, feeds)
            empty = [
                np.zeros([0 if x == open_label else SIZES[x] for x in each])
                for each in factors
            ]
            of_none = session.run(plain, dict(zip(given, empty, strict=True)))
    np.testing.assert_allclose(found, np.einsum(equation, *values), rtol=1e-12)
    np.testing.assert_array_equal(of_none, np.einsum(equation, *empty))


@pytest.mark.parametrize(
    ("equation", "dtype", "shapes"),
    [
        ("ij->ji", tf.float32, [[2, 3]]),
        ("iij,jb->ib", tf.float32, [[2, 2, 3], [3, 4]]),
        ("...i,ij->...j", tf.float32, [[2, 3], [3, 4]]),
        ("ai,b->b", tf.float32, [[2, 3], [4]]),
        ("ij,jb->ib", tf.bfloat16, [[2, 3], [3, 4]]),
        ("ij,jb->ib", tf.float32, [[None, None], [3, None]]),
        ("ij,jb->ib", tf.float32, [None, [3, 4]]),
        ("ij,jb->ib", tf.float32, [[2, 0], [0, 4]]),
    ],
)
def test_other_einstein_sums_stay(equation, dtype, shapes):
    with tf.Graph().as_default():
        given = [tf.compat.v1.placeholder(dtype, shape) for shape in shapes]
        result = tf.raw_ops.Einsum(inputs=given, equation=equation)
        before = len(result.graph.get_operations())
        assert plain_forms.as_plain(result.op) is None
        assert len(result.graph.get_operations()) == before


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("size", [(5, 3, 2), (4, 6, 1), (3, 1, 1)])
def test_results_and_moments_are_those_of_the_kernel(share, size):
    image, _, scale, offset = arrays(*size)
    averages = np.arange(2 * size[0], dtype=np.float32).reshape(2, -1)
    if share == 1:
        averages = averages[:, :0]
    of_kernel, plain = results_of(
        lambda *given: normalization(*given, exponential_avg_factor=share),
        [image, scale, offset, *averages],
    )
    # All but what the kernels keep for themselves.
    for actual, expected in zip(plain[:5], of_kernel[:5], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_results_are_the_definition():
    image, _, scale, offset = arrays()
    wide = image.astype(np.float64)
    mean = wide.mean((2, 3), keepdims=True)
    variance = wide.var((2, 3), keepdims=True)
    expected = (wide - mean) / np.sqrt(variance + EPSILON)
    expected = expected * scale[:, None, None] + offset[:, None, None]
    empty = np.zeros([0], np.float32)
    _, plain = results_of(normalization, [image, scale, offset, empty, empty])
    np.testing.assert_allclose(plain[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(5, 3, 2), (4, 6, 1), (3, 1, 1)])
def test_gradients_are_those_of_the_kernel(size):
    image, of_result, scale, _ = arrays(*size)
    of_kernel, plain = results_of(gradient, [image, of_result, scale])
    for actual, expected in zip(plain[:3], of_kernel[:3], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_what_keras_gives_for_a_scale_and_an_offset_is_left_out():
    with tf.Graph().as_default():
        given = tf.compat.v1.placeholder(tf.float32, [1, None, None, 1])
        channels = tf.shape(given)[1:2]
        for scale, products in ((1.0, 1), (2.0, 2)):
            result = normalization(
                given, tf.fill(channels, scale), tf.fill(channels, 0.0), [], []
            )
            plain, *_ = plain_forms.as_plain(result[0].op)
            assert plain.op.type == "Mul"
            assert [x.op.type for x in plain.op.inputs].count("Mul") == products - 1


@pytest.mark.parametrize(
    ("images", "options"),
    [
        (2, {}),
        (1, {"data_format": "NHWC"}),
        (1, {"is_training": False}),
    ],
)
def test_others_stay(images, options):
    image, _, scale, offset = arrays(4, 4, 4, images)
    assert (
        results_of(
            lambda *given: normalization(*given, **options),
            [image, scale, offset, scale, offset],
        )
        is None
    )


def test_half_precision_stays():
    image, _, scale, offset = arrays()
    assert (
        results_of(
            lambda x, *given: normalization(tf.cast(x, tf.float16), *given, [], []),
            [image, scale, offset],
        )
        is None
    )


@pytest.mark.parametrize("kind", ["Sum", "Mean"])
@pytest.mark.parametrize("keep_dims", [True, False])
@pytest.mark.parametrize("axes", [[1, 3], [3, 1, 0], [0, -1], [-1, 1]])
def test_sums_over_axes_with_others_between_them(kind, keep_dims, axes):
    values = np.random.default_rng(4).normal(size=(2, 3, 4, 5))
    reduce = {"Sum": tf.reduce_sum, "Mean": tf.reduce_mean}[kind]
    _, (plain,) = results_of(lambda x: [reduce(x, axes, keepdims=keep_dims)], [values])
    in_numpy = {"Sum": np.sum, "Mean": np.mean}[kind]
    expected = in_numpy(values, tuple(axes), keepdims=keep_dims)
    assert plain.shape == expected.shape
    np.testing.assert_allclose(plain, expected, rtol=1e-12)


@pytest.mark.parametrize("axes", [[], [2], [0, 1], [3, 2, 1], [-1, 2]])
def test_sums_over_axes_side_by_side_stay(axes):
    values = np.ones([2, 3, 4, 5], np.float32)
    assert results_of(lambda x: [tf.reduce_sum(x, axes)], [values]) is None


def test_means_of_integers_stay():
    """They are rounded, and would be once more."""
    values = np.ones([2, 3, 4], np.int32)
    assert results_of(lambda x: [tf.reduce_mean(x, [0, 2])], [values]) is None


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("strides", [1, 2, (2, 1)])
def test_poolings_by_one_thread(padding, strides):
    values = np.random.default_rng(5).normal(size=(3, 5, 6, 2)).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        pooled = tf.nn.max_pool2d(values, (2, 3), strides, padding)
        plain = plain_forms.pooled_by_one_thread(pooled.op, pooled.op.inputs[0])
        assert plain.op.type == "MaxPoolV2"
        np.testing.assert_array_equal(*session.run([plain, pooled]))


def test_poolings_of_padded_images_stay():
    with tf.Graph().as_default():
        padding = [[0, 0], [1, 0], [0, 1], [0, 0]]
        pooled = tf.nn.max_pool2d(np.zeros([1, 4, 4, 1], np.float32), 2, 2, padding)
        images = pooled.op.inputs[0]
        assert plain_forms.pooled_by_one_thread(pooled.op, images) is None
