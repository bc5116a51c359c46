"""Functions of a batch that take more than a line, for `operations`.

Each takes the batch `x`, labels `y` from -1 to 3, the model (`w` of `[4, 3]`, `s` of
`[4]`) and the number of examples so far, and returns a batch `[m, 4]`.
"""

import tensorflow as tf


def as_images(x):
    return tf.reshape(x, [-1, 2, 2, 1])


def as_rows(images):
    return tf.reshape(images, [-1, 4])


def make_filters(model, inputs=1, outputs=1):
    count = 4 * inputs * outputs
    flat = tf.reshape(model["w"], [-1])
    return tf.reshape(tf.tile(flat, [-(-count // 12)])[:count], [2, 2, inputs, outputs])


def switch_case(x, y, model, count):
    del y
    return tf.switch_case(
        count % 3,
        [lambda: tf.sin(x), lambda: x * model["s"], lambda: tf.reverse(x, [1])],
    )


def case(x, y, model, count):
    mean = tf.reduce_mean(x)
    return tf.case(
        [
            (mean < -0.2, lambda: tf.cos(x)),
            (tf.logical_and(mean < 0.2, count < 5), lambda: x + model["s"]),
        ],
        default=lambda: tf.nn.relu(x),
    )


def nested_cond(x, y, model, count):
    def inner():
        return tf.cond(x[0, 1] > 0, lambda: x * 0.5, lambda: x + model["w"][:, 0])

    return tf.cond(x[0, 0] > 0, inner, lambda: -x)


def cond_of_mean(x, y, model, count):
    return tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: tf.tanh(x @ model["w"]) @ tf.transpose(model["w"]),
        lambda: x * model["s"],
    )


def cond_of_shared(x, y, model, count):
    return tf.cond(tf.shape(x)[0] > 1, lambda: x - tf.reduce_mean(x, 0), lambda: x)


def cond_of_weights(x, y, model, count):
    scale = tf.cond(
        tf.reduce_sum(model["s"]) > tf.cast(count % 3, tf.float32),
        lambda: model["s"] * 0.5,
        lambda: model["w"][:, 0] + 1.0,
    )
    return x * scale


def nested_cond_of_weights(x, y, model, count):
    def small():
        return tf.cond(
            count > 4, lambda: tf.tanh(model["s"]), lambda: tf.reverse(model["s"], [0])
        )

    return x + tf.cond(tf.reduce_sum(x) < 0, small, lambda: model["s"] ** 2)


def fixed_while(x, y, model, count):
    return tf.while_loop(
        lambda k, _: k < 3,
        lambda k, now: (k + 1, tf.tanh(now + model["s"])),
        (0, x),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
    )[1]


def while_of_own_length(x, y, model, count):
    return tf.while_loop(
        lambda k, _: k < count % 4,
        lambda k, now: (k + 1, now * 0.5 + model["s"]),
        (0, x),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
    )[1]


def while_until_small(x, y, model, count):
    return tf.while_loop(
        lambda now: tf.reduce_sum(now**2) > 1.0,
        lambda now: (now * 0.6,),
        (x,),
        shape_invariants=(tf.TensorShape([None, 4]),),
    )[0]


def scan(x, y, model, count):
    columns = tf.transpose(x)
    states = tf.scan(lambda a, b: tf.tanh(a * 0.5 + b), columns)
    return tf.transpose(tf.ensure_shape(states, [4, None]))


def tensor_array(x, y, model, count):
    array = tf.TensorArray(tf.float32, 4)
    for k in range(4):
        array = array.write(k, x[:, k] * model["s"][k])
    return tf.transpose(tf.ensure_shape(array.stack(), [4, None]))


def segment_sum(x, y, model, count):
    sums = tf.math.unsorted_segment_sum(x, y, 4)
    return tf.gather(sums, tf.maximum(y, 0))


def segment_max(x, y, model, count):
    most = tf.math.unsorted_segment_max(x, tf.maximum(y, 0), 4)
    return tf.gather(most, tf.maximum(y, 0))


def segment_mean(x, y, model, count):
    means = tf.math.unsorted_segment_mean(x, tf.maximum(y, 0), 4)
    return tf.gather(means, tf.maximum(y, 0))


def scatter_nd(x, y, model, count):
    where = tf.maximum(y, 0)[:, tf.newaxis]
    return tf.gather_nd(tf.scatter_nd(where, x, [4, 4]), where)


def scatter_add(x, y, model, count):
    changed = tf.tensor_scatter_nd_add(
        model["w"], tf.maximum(y, 0)[:, tf.newaxis], x[:, :3] * 0.1
    )
    return tf.tanh(x @ changed) @ tf.transpose(model["w"])


def scatter_update(x, y, model, count):
    changed = tf.tensor_scatter_nd_update(model["s"], [[1], [3]], model["s"][:2] * 2)
    return x * changed


def embedding(x, y, model, count):
    found = tf.nn.embedding_lookup(model["w"], tf.maximum(y, 0))
    return x + tf.concat([found, found[:, :1]], axis=1)


def one_hot(x, y, model, count):
    return x + tf.one_hot(y, 4)


def masked_loss(x, y, model, count):
    mask = tf.cast(y >= 0, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(y, 0), x)
    mean = tf.math.divide_no_nan(tf.reduce_sum(losses * mask), tf.reduce_sum(mask))
    return x * tf.tanh(mean)


def ignored_class(x, y, model, count):
    kept = tf.boolean_mask(x, y >= 0)
    labels = tf.boolean_mask(y, y >= 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, kept)
    return x + tf.reduce_sum(losses) * 0.01


def weighted_loss(x, y, model, count):
    losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.one_hot(y, 4), x)
    return x + losses * tf.gather(model["s"], tf.maximum(y, 0))[:, tf.newaxis]


def moments(x, y, model, count):
    mean, variance = tf.nn.moments(x, [0])
    return tf.nn.batch_normalization(x, mean, variance, None, model["s"], 0.1)


def layer_norm(x, y, model, count):
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 0.1)


def fused_batch_norm(x, y, model, count):
    images = tf.tile(as_images(x), [1, 1, 1, 3])
    result, _, _ = tf.compat.v1.nn.fused_batch_norm(
        images, model["s"][:3], model["w"][0], epsilon=0.1
    )
    return as_rows(result[..., :1])


def depthwise(x, y, model, count):
    images = tf.tile(as_images(x), [1, 1, 1, 2])
    done = tf.nn.depthwise_conv2d(images, make_filters(model, 2), [1, 1, 1, 1], "SAME")
    return as_rows(done[..., :1] + done[..., 1:])


def conv_transpose(x, y, model, count):
    images = as_images(x)
    big = tf.nn.conv2d_transpose(
        images, make_filters(model), [tf.shape(x)[0], 4, 4, 1], [1, 2, 2, 1], "SAME"
    )
    return as_rows(big[:, :2, :2])


def conv1d(x, y, model, count):
    filters = tf.reshape(model["w"][0], [3, 1, 1])
    return tf.nn.conv1d(x[..., tf.newaxis], filters, 1, "SAME")[..., 0]


def conv3d(x, y, model, count):
    volume = tf.reshape(x, [-1, 1, 2, 2, 1])
    filters = make_filters(model)[tf.newaxis]
    return as_rows(tf.nn.conv3d(volume, filters, [1] * 5, "SAME"))


def lstm_cell(x, y, model, count):
    steps = tf.unstack(x, axis=1)
    cell = tf.zeros_like(steps[0])
    out = []
    for k, step in enumerate(steps):
        gate = tf.sigmoid(step * model["s"][k])
        cell = gate * cell + (1 - gate) * tf.tanh(step)
        out.append(cell)
    return tf.stack(out, axis=1)


def attention(x, y, model, count):
    weights = tf.nn.softmax(tf.matmul(x, x, transpose_b=True) * 0.5)
    return tf.matmul(weights, x)


def cholesky(x, y, model, count):
    factor = tf.linalg.cholesky(tf.matmul(x, x, transpose_a=True) + tf.eye(4))
    return tf.transpose(tf.linalg.triangular_solve(factor, tf.transpose(x)))


def solve(x, y, model, count):
    matrix = tf.matmul(x, x, transpose_a=True) + 2 * tf.eye(4)
    return tf.transpose(tf.linalg.solve(matrix, tf.transpose(x)))


def ragged(x, y, model, count):
    ragged = tf.RaggedTensor.from_row_lengths(
        tf.reshape(x, [-1]), tf.fill([tf.shape(x)[0]], 4)
    )
    return tf.ensure_shape(ragged.to_tensor(shape=[None, 4]), [None, 4])


def partition(x, y, model, count):
    low, high = tf.dynamic_partition(x, tf.cast(y > 1, tf.int32), 2)
    return tf.concat([low, high * 0.5], axis=0)


def hashed(x, y, model, count):
    buckets = tf.strings.to_hash_bucket_fast(tf.as_string(y), 4)
    return x * tf.gather(model["s"], tf.cast(buckets, tf.int32))[:, tf.newaxis]


def switch_of_label(x, y, model, count):
    """Each example of a branch of its own."""
    branches = [lambda row: row * 0.5, tf.sin, lambda row: row * model["s"]]

    def apply(each):
        row, label = each
        chosen = [lambda branch=branch: branch(row) for branch in branches]
        return tf.switch_case(tf.maximum(label, 0) % 3, chosen)

    return tf.map_fn(apply, (x, y), fn_output_signature=tf.TensorSpec([4]))


def switch_of_weights(x, y, model, count):
    index = tf.cast(tf.reduce_sum(model["s"]) * 3, tf.int32) % 3
    scale = tf.switch_case(
        index,
        [lambda: model["s"], lambda: model["w"][:, 1], lambda: model["s"] ** 2],
    )
    return x * scale


def where_of_weights(x, y, model, count):
    rows = tf.where(y[:, tf.newaxis] > 0, x, tf.zeros_like(x))
    return tf.where(model["s"] > 0.1, rows, x * model["s"])


def where_safe_division(x, y, model, count):
    """The usual form of a gradient without NaN."""
    small = tf.abs(x) < 0.1
    return tf.where(small, 0.0, 0.1 / tf.where(small, 1.0, x))


def embedding_of_sum(x, y, model, count):
    ids = tf.stack([tf.maximum(y, 0), tf.abs(y)], axis=1)
    rows = tf.nn.embedding_lookup(tf.linalg.diag(model["s"]), ids)
    return x + tf.reduce_mean(rows, axis=1)


def embedding_of_unique(x, y, model, count):
    """Each row of a table once, as sparse optimizers look them up."""
    ids, places = tf.unique(tf.maximum(y, 0))
    rows = tf.gather(tf.linalg.diag(model["s"]), ids)
    return x + tf.gather(rows, places)


def count_of_labels(x, y, model, count):
    counts = tf.math.bincount(tf.maximum(y, 0), minlength=4, maxlength=4)
    return x / tf.cast(1 + counts, tf.float32)


def compressed(x, y, model, count):
    """As many rows as labels that count, and then all again, in their places."""
    places = tf.where(y >= 0)
    rows = tf.gather_nd(x, places) * model["s"]
    return x + tf.scatter_nd(places, rows, tf.shape(x, tf.int64))


def sequence_mask(x, y, model, count):
    mask = tf.sequence_mask(tf.maximum(y, 0) + 1, 4, tf.float32)
    return x * mask


def top_rows(x, y, model, count):
    size = tf.minimum(tf.shape(x)[0], 2)
    best = tf.math.top_k(tf.reduce_sum(x, axis=1), size).indices
    return x + tf.reduce_mean(tf.gather(x, best), axis=0)


def stateless_noise(x, y, model, count):
    return x + tf.random.stateless_normal(tf.shape(x), tf.stack([count, 7])) * 0.1


def stateless_dropout(x, y, model, count):
    return tf.nn.experimental.stateless_dropout(x, 0.4, tf.stack([count, 3]))


def stateless_shuffle(x, y, model, count):
    order = tf.argsort(tf.random.stateless_uniform([4], tf.stack([count, 5])))
    return tf.gather(x, order, axis=1)


def stop_gradient(x, y, model, count):
    return x + tf.stop_gradient(x * model["s"]) * 0.5


@tf.custom_gradient
def with_custom_gradient(x):
    return tf.sign(x) * tf.math.log1p(tf.abs(x)), lambda slope: slope * 0.5


@tf.recompute_grad
def recomputed(x):
    return tf.tanh(x) * tf.sin(x)


def inner_gradient(x, y, model, count):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_sum(tf.nn.softplus(tf.matmul(x, model["w"])))
    return tape.gradient(value, x)
