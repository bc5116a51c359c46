"""Operations on a batch `[n, 4]`, as people's models and losses hold them.

Each takes the batch `x`, labels `y` from -1 to 3, the model (`w` of `[4, 3]`, `s` of
`[4]`) and the number of examples so far, and returns a batch `[m, 4]`, bounded where
`x` is.
"""

import tensorflow as tf

from tests.soak.fuzz import checks, functions
from tests.soak.fuzz.functions import as_images, as_rows, make_filters


def _straight(function):
    return lambda x, y, model, count: function(x)


def _with_model(function):
    return lambda x, y, model, count: function(x, model)


def _of_each_row(function):
    return lambda x, y, model, count: tf.map_fn(lambda row: function(row, model), x)


OPERATIONS = {
    "tanh": _straight(tf.tanh),
    "softplus": _straight(tf.nn.softplus),
    "relu": _straight(tf.nn.relu),
    "relu6": _straight(tf.nn.relu6),
    "leaky_relu": _straight(tf.nn.leaky_relu),
    "elu": _straight(tf.nn.elu),
    "selu": _straight(tf.nn.selu),
    "gelu": _straight(tf.nn.gelu),
    "swish": _straight(tf.nn.silu),
    "mish": _straight(lambda x: x * tf.tanh(tf.nn.softplus(x))),
    "erf": _straight(tf.math.erf),
    "log1p": _straight(lambda x: tf.math.log1p(tf.abs(x))),
    "sqrt": _straight(lambda x: tf.sqrt(tf.abs(x) + 0.1)),
    "pow": _straight(lambda x: (tf.abs(tf.tanh(x)) + 0.1) ** 1.5),
    "sign": _straight(tf.sign),
    "floor": _straight(lambda x: tf.floor(x * 2) / 2),
    "clip": _straight(lambda x: tf.clip_by_value(x, -0.5, 0.5)),
    "clip_by_norm": _straight(lambda x: tf.clip_by_norm(x, 1.0)),
    "clip_by_global_norm": _straight(lambda x: tf.clip_by_global_norm([x], 1.0)[0][0]),
    "where": _straight(lambda x: tf.where(x > 0, x, tf.exp(tf.minimum(x, 0.0)) - 1)),
    "where_of_row": _with_model(
        lambda x, m: tf.where(x[:, :1] > m["s"], x, tf.reverse(x, [1]))
    ),
    "maximum": _with_model(lambda x, m: tf.maximum(x, m["s"])),
    "matmul": _with_model(lambda x, m: tf.matmul(x @ m["w"], m["w"], transpose_b=True)),
    "einsum": _with_model(lambda x, m: tf.einsum("bi,ij,kj->bk", x, m["w"], m["w"])),
    "tensordot": _with_model(
        lambda x, m: tf.tensordot(tf.tensordot(x, m["w"], 1), tf.transpose(m["w"]), 1)
    ),
    "matvec": _with_model(lambda x, m: x + tf.linalg.matvec(x, m["s"])[:, tf.newaxis]),
    "bias": _with_model(lambda x, m: tf.nn.bias_add(x, m["s"])),
    "softmax": _straight(tf.nn.softmax),
    "log_softmax": _straight(tf.nn.log_softmax),
    "logsumexp": _straight(lambda x: x - tf.reduce_logsumexp(x, axis=1, keepdims=True)),
    "l2_normalize": _straight(lambda x: tf.nn.l2_normalize(x + 0.1, axis=1)),
    "l2_loss": _straight(lambda x: x * tf.tanh(tf.nn.l2_loss(x))),
    "norm": _straight(lambda x: x / (1 + tf.norm(x + 0.1))),
    "moments": functions.moments,
    "layer_norm": functions.layer_norm,
    "fused_batch_norm": functions.fused_batch_norm,
    "cumsum": _straight(lambda x: tf.cumsum(x, axis=1, exclusive=True, reverse=True)),
    "cumsum_of_batch": _straight(lambda x: tf.tanh(tf.cumsum(x, axis=0))),
    "cumprod": _straight(lambda x: tf.math.cumprod(tf.tanh(x) + 1.1, axis=1)),
    "top_k": _straight(lambda x: tf.math.top_k(x, 4).values),
    "sort": _straight(lambda x: tf.sort(x, axis=1)),
    "sort_of_batch": _straight(lambda x: tf.sort(x, axis=0)),
    "argsort": _straight(lambda x: tf.gather(x, tf.argsort(x), batch_dims=1)),
    "argmax": _straight(lambda x: x + tf.one_hot(tf.argmax(x, 1), 4)),
    "reduce_max": _straight(lambda x: x - tf.reduce_max(x, axis=1, keepdims=True)),
    "reduce_prod": _straight(
        lambda x: x * tf.reduce_prod(tf.tanh(x), axis=1, keepdims=True)
    ),
    "reduce_any": _straight(
        lambda x: x * tf.cast(tf.reduce_any(x > 1, axis=1, keepdims=True), tf.float32)
    ),
    "reverse": _straight(lambda x: tf.reverse(x, [0])),
    "roll": _straight(lambda x: tf.roll(x, 1, axis=1)),
    "roll_last": _straight(lambda x: tf.roll(x, 1, axis=-1)),
    "transpose": _straight(
        lambda x: tf.reshape(
            tf.transpose(tf.reshape(x, [-1, 2, 2]), [0, 2, 1]), [-1, 4]
        )
    ),
    "concat": _straight(lambda x: tf.concat([x[:, 2:], x[:, :2]], axis=1)),
    "concat_of_batch": _straight(lambda x: tf.concat([x, x * 0.5], axis=0)),
    "split": _straight(lambda x: tf.concat(tf.split(x, 2, axis=1)[::-1], axis=1)),
    "stack": _straight(
        lambda x: tf.reduce_mean(tf.stack([x, tf.sin(x), x * x / 4], axis=1), axis=1)
    ),
    "unstack": _straight(lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=1)),
    "pad": _straight(lambda x: tf.pad(x[:, :3], [[0, 0], [1, 0]], constant_values=0.5)),
    "mirror_pad": _straight(lambda x: tf.pad(x[:, :3], [[0, 0], [1, 0]], "REFLECT")),
    "tile": _straight(lambda x: tf.tile(x[:, :2], [1, 2])),
    "repeat": _straight(lambda x: tf.repeat(x[:, :2], 2, axis=1)),
    "broadcast": _straight(lambda x: tf.broadcast_to(x[:, 1:2], tf.shape(x)) + x),
    "strided_slice": _straight(lambda x: tf.concat([x[:, ::2], x[:, 1::2]], 1)),
    "slice": _straight(lambda x: tf.slice(x, [0, 0], [-1, 4])),
    "meshgrid": _straight(lambda x: x + tf.meshgrid(tf.range(4.0), x[:, 0])[0] * 0.1),
    "band_part": _straight(
        lambda x: tf.matmul(x, tf.linalg.band_part(tf.matmul(x, x, True), 1, 0)) * 0.1
    ),
    "diag": _with_model(lambda x, m: tf.matmul(x, tf.linalg.diag(m["s"]))),
    "set_diag": _with_model(
        lambda x, m: tf.matmul(x, tf.linalg.set_diag(tf.ones([4, 4]), m["s"])) * 0.2
    ),
    "cholesky": functions.cholesky,
    "solve": functions.solve,
    "inverse": _straight(
        lambda x: x @ tf.linalg.inv(tf.matmul(x, x, True) + 2 * tf.eye(4))
    ),
    "logdet": _straight(
        lambda x: x * tf.tanh(tf.linalg.logdet(tf.matmul(x, x, True) + tf.eye(4)))
    ),
    "cross": _straight(
        lambda x: tf.concat([tf.linalg.cross(x[:, :3], x[:, 1:]), x[:, :1]], axis=1)
    ),
    "double": _straight(
        lambda x: tf.cast(tf.tanh(tf.cast(x, tf.float64) * 1.5), tf.float32)
    ),
    "complex": _straight(
        lambda x: tf.abs(tf.complex(x, tf.reverse(x, [1])) + tf.complex(0.5, 0.1))
    ),
    "fft": _straight(
        lambda x: tf.math.real(tf.signal.fft(tf.cast(x, tf.complex64))) * 0.5
    ),
    "bitcast": _straight(
        lambda x: (
            x
            + tf.cast(tf.bitcast(tf.stop_gradient(x), tf.int32) % 7, tf.float32) * 0.01
        )
    ),
    "conv2d": _with_model(
        lambda x, m: as_rows(tf.nn.conv2d(as_images(x), make_filters(m), 1, "SAME"))
    ),
    "conv2d_dilated": _with_model(
        lambda x, m: as_rows(
            tf.nn.conv2d(as_images(x), make_filters(m), 1, "SAME", dilations=2)
        )
    ),
    "conv2d_channels": _with_model(
        lambda x, m: as_rows(
            tf.reduce_mean(
                tf.nn.conv2d(
                    tf.tile(as_images(x), [1, 1, 1, 2]),
                    make_filters(m, 2, 3),
                    1,
                    "SAME",
                ),
                axis=-1,
            )
        )
    ),
    "conv2d_strided": _with_model(
        lambda x, m: tf.tile(
            tf.reshape(
                tf.nn.conv2d(as_images(x), make_filters(m), 2, "SAME"),
                [-1, 1],
            ),
            [1, 4],
        )
    ),
    "depthwise": functions.depthwise,
    "conv_transpose": functions.conv_transpose,
    "conv1d": functions.conv1d,
    "conv3d": functions.conv3d,
    "max_pool": _straight(
        lambda x: as_rows(tf.nn.max_pool2d(as_images(x), 2, 1, "SAME"))
    ),
    "avg_pool": _straight(
        lambda x: as_rows(tf.nn.avg_pool2d(as_images(x), 2, 1, "SAME"))
    ),
    "space_to_depth": _straight(
        lambda x: tf.reshape(tf.nn.space_to_depth(as_images(x), 2), [-1, 4])
    ),
    "patches": _straight(
        lambda x: tf.reduce_mean(
            tf.reshape(
                tf.image.extract_patches(
                    as_images(x), [1, 2, 2, 1], [1] * 4, [1] * 4, "SAME"
                ),
                [-1, 4, 4],
            ),
            axis=1,
        )
    ),
    "resize": _straight(
        lambda x: as_rows(tf.image.resize(as_images(x), [4, 4])[:, 1:3, 1:3])
    ),
    "cond": functions.cond_of_mean,
    "cond_of_size": functions.cond_of_shared,
    "cond_of_weights": functions.cond_of_weights,
    "nested_cond_of_weights": functions.nested_cond_of_weights,
    "nested_cond": functions.nested_cond,
    "switch_case": functions.switch_case,
    "case": functions.case,
    "while": functions.fixed_while,
    "while_of_own_length": functions.while_of_own_length,
    "while_until_small": functions.while_until_small,
    "scan": functions.scan,
    "map_fn": _of_each_row(lambda row, model: tf.sin(row) * model["s"]),
    "vectorized_map": _straight(
        lambda x: tf.vectorized_map(lambda row: row * tf.reduce_max(tf.abs(row)), x)
    ),
    "tensor_array": functions.tensor_array,
    "segment_sum": functions.segment_sum,
    "segment_max": functions.segment_max,
    "segment_mean": functions.segment_mean,
    "scatter_nd": functions.scatter_nd,
    "scatter_add": functions.scatter_add,
    "scatter_update": functions.scatter_update,
    "embedding": functions.embedding,
    "gather": lambda x, y, model, count: (
        tf.gather(x, tf.maximum(y, 0), axis=1)[:, :1] + x
    ),
    "gather_batch": lambda x, y, model, count: (
        x + tf.gather(x, tf.maximum(y, 0), batch_dims=1)[:, tf.newaxis]
    ),
    "one_hot": functions.one_hot,
    "masked_loss": functions.masked_loss,
    "ignored_class": functions.ignored_class,
    "weighted_loss": functions.weighted_loss,
    "boolean_mask": lambda x, y, model, count: tf.boolean_mask(x, y > 0),
    "rows_above": _straight(lambda x: tf.gather(x, tf.where(x[:, 0] > 0)[:, 0])),
    "sparse": _straight(
        lambda x: tf.sparse.to_dense(tf.sparse.from_dense(tf.nn.relu(x)))
    ),
    "slice_of_own_length": lambda x, y, model, count: x[: count % 3 + 1],
    "range_of_own_length": lambda x, y, model, count: (
        x + 0.1 * tf.cast(tf.reduce_sum(tf.range(count % 4)), tf.float32)
    ),
    "unique": lambda x, y, model, count: (
        x + tf.cast(tf.size(tf.unique(y)[0]), tf.float32) * 0.1
    ),
    "dynamic_partition": functions.partition,
    "ragged": functions.ragged,
    "hashed": functions.hashed,
    "asserted": checks.asserted,
    "asserted_few": checks.asserted_few,
    "asserted_in_a_function": checks.asserted_in_a_function,
    "asserted_in_a_branch": checks.asserted_in_a_branch,
    "asserted_in_a_loop": checks.asserted_in_a_loop,
    "asserted_labels": checks.asserted_labels,
    "finite_logarithm": checks.finite_logarithm,
    "cond_without_else": checks.cond_without_else,
    "switch_of_label": functions.switch_of_label,
    "switch_of_weights": functions.switch_of_weights,
    "where_of_weights": functions.where_of_weights,
    "where_safe_division": functions.where_safe_division,
    "embedding_of_sum": functions.embedding_of_sum,
    "embedding_of_unique": functions.embedding_of_unique,
    "count_of_labels": functions.count_of_labels,
    "compressed": functions.compressed,
    "sequence_mask": functions.sequence_mask,
    "top_rows": functions.top_rows,
    "stateless_noise": functions.stateless_noise,
    "stateless_dropout": functions.stateless_dropout,
    "stateless_shuffle": functions.stateless_shuffle,
    "stop_gradient": functions.stop_gradient,
    "custom_gradient": _straight(lambda x: functions.with_custom_gradient(x)),
    "recomputed": _straight(lambda x: functions.recomputed(x)),
    "inner_gradient": functions.inner_gradient,
    "lstm_cell": functions.lstm_cell,
    "attention": functions.attention,
}

# What gives another number of rows than it takes.
CHANGE_ROWS = frozenset(
    {"boolean_mask", "rows_above", "concat_of_batch", "slice_of_own_length"}
)
# With one of these in it a step is taken one by one today: drawn less often.
ONE_BY_ONE = frozenset(
    [
        "asserted_in_a_loop",
        "boolean_mask",
        "case",
        "cond",
        "cond_of_size",
        "cond_without_else",
        "conv3d",
        "dynamic_partition",
        "embedding_of_unique",
        "fft",
        "fused_batch_norm",
        "hashed",
        "ignored_class",
        "map_fn",
        "nested_cond",
        "pad",
        "patches",
        "ragged",
        "resize",
        "rows_above",
        "scan",
        "scatter_add",
        "scatter_nd",
        "sparse",
        "switch_case",
        "switch_of_label",
        "tensor_array",
        "unique",
        "vectorized_map",
        "while",
        "while_of_own_length",
        "while_until_small",
    ]
)
