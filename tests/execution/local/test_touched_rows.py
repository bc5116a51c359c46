"""Tables of embeddings, trained on the rows that a client's batches name."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call, training
from tff_drift import algorithms, execution

ROWS, LENGTH = 5_000, 6
ON_ROWS = "; of tables, on the rows that batches name"
SIZES = [8] * 5 + [11, 9, 3, 1, 14]
K = tf.keras.layers


def _clients(sizes=SIZES, *, dtype=np.int32, words=ROWS, columns=LENGTH):
    """Clients of unequal sizes, each with words that nobody else has."""
    random = np.random.default_rng(5)
    texts = [random.integers(0, words, (size, columns)).astype(dtype) for size in sizes]
    labels = [random.integers(0, 3, (size, 1)).astype(np.int32) for size in sizes]
    return [
        [
            collections.OrderedDict(x=x[start : start + 4], y=y[start : start + 4])
            for start in range(0, len(x), 4)
        ]
        for x, y in zip(texts, labels, strict=True)
    ]


def _mean_of_words(inputs):
    return K.Dense(3)(K.GlobalAveragePooling1D()(K.Embedding(ROWS, 4)(inputs)))


def _two_tables(inputs):
    first, second = (K.Embedding(ROWS, 4)(inputs[:, k]) for k in range(2))
    return K.Dense(3)(first * second)


def _tables_of_other_rows(inputs):
    """Two tables of one size, and one of another."""
    first, second = (K.Embedding(ROWS, 4)(inputs[:, k]) for k in range(2))
    third = K.Embedding(2 * ROWS, 4)(inputs[:, 2])
    return K.Dense(3)(first * second + third)


def _shared_table(inputs):
    """One table, of which rows are read twice, and a mask of its numbers."""
    table = K.Embedding(ROWS, 4)
    mask = tf.cast(inputs[:, :2, tf.newaxis] > ROWS // 2, tf.float32)
    return K.Dense(3)(K.Flatten()(table(inputs[:, :2]) * mask + table(inputs[:, 2:4])))


def _columns_of_their_own(inputs):
    """Numbers of rows that the model computes."""
    numbers = (inputs + tf.range(LENGTH) * 7) % ROWS
    return K.Dense(3)(K.Flatten()(K.Embedding(ROWS, 4)(numbers)))


def _decayed(inputs):
    table = K.Embedding(ROWS, 4, embeddings_regularizer=tf.keras.regularizers.L2(0.1))
    return K.Dense(3)(K.GlobalAveragePooling1D()(table(inputs)))


def _model_fn(net, *, dtype=tf.int32):
    def model_fn():
        inputs = tf.keras.Input([LENGTH], dtype=dtype)
        model = tf.keras.Model(inputs, net(inputs))
        for number, weights in enumerate(model.trainable_weights):
            initial = np.random.default_rng(number).normal(size=weights.shape)
            weights.assign(initial * 0.3)
        return tff.learning.models.from_keras_model(
            model,
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=collections.OrderedDict(
                x=tf.TensorSpec([None, LENGTH], dtype),
                y=tf.TensorSpec([None, 1], tf.int32),
            ),
            metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
        )

    return model_fn


def _fed_avg(net, optimizer=None, **kwargs):
    model_fn = _model_fn(net, **kwargs)
    return algorithms.build_fed_avg(model_fn, optimizer or 0.5)


@pytest.fixture(name="one_by_one", scope="module")
def one_by_one_fixture():
    return execution.create_local_execution_context(batch_clients=False)


def _two_rounds(context, process, cohorts):
    state = call(context, process.initialize)
    for cohort in cohorts:
        output = call(context, process.next, state, cohort)
        state = output.state
    return output


def _told(context, process, cohort):
    return training(context, process.next, call(context, process.initialize), cohort)[0]


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    "net",
    tiers.first(
        [1], [_mean_of_words, _two_tables, _tables_of_other_rows, _shared_table]
    ),
)
def test_clients_train_on_rows(context, one_by_one, net):
    process = _fed_avg(net)
    cohorts = [_clients(), _clients(SIZES[2:])]
    assert _told(context, process, cohorts[0]).endswith(ON_ROWS)
    actual = _two_rounds(context, process, cohorts)
    expected = _two_rounds(one_by_one, process, cohorts)
    assert_same(actual, expected, rtol=2e-5, atol=1e-6)
    # The tables have changed where words are, and nowhere else.
    named = np.zeros(ROWS, bool)
    for client in [client for cohort in cohorts for client in cohort]:
        for batch in client:
            named[batch["x"]] = True
    first = call(context, process.initialize).global_model_weights.trainable[0]
    changed = (actual.state.global_model_weights.trainable[0] != first).any(axis=1)
    assert changed.any()
    assert not changed[~named].any()


@pytest.mark.conformance
def test_native_and_tffs_own_fed_avg(context, native):
    process = tff.learning.algorithms.build_weighted_fed_avg(
        _model_fn(_mean_of_words),
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5),
    )
    assert _told(context, process, _clients()).endswith(ON_ROWS)
    actual, expected = (
        _two_rounds(each, process, [_clients()] * 2) for each in (context, native)
    )
    assert_same(actual.state, expected.state, rtol=2e-5, atol=1e-6)


def _cast(inputs):
    return _mean_of_words(K.Lambda(lambda x: tf.cast(x, tf.int64))(inputs))


@pytest.mark.conformance
def test_numbers_that_numpy_does_not_take_for_rows(context, one_by_one):
    process = _fed_avg(_cast, dtype=tf.uint64)
    cohort = _clients(dtype=np.uint64)
    assert _told(context, process, cohort).endswith(ON_ROWS)
    actual, expected = (
        _two_rounds(each, process, [cohort]) for each in (context, one_by_one)
    )
    assert_same(actual, expected, rtol=2e-5, atol=1e-6)


def _train_checked(words, table):
    """Trains a table, and checks before each step that no number of it is large."""
    variable = tf.Variable(table)

    def step(count, batch):
        check = tf.debugging.assert_less(tf.reduce_max(variable), 9.0)
        with tf.control_dependencies([check]):
            batch = tf.identity(batch)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(tf.gather(variable, batch)))
        gradient = tape.gradient(loss, variable)
        variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))
        return count + 1

    def run(table):
        variable.assign(table)
        count = words.reduce(0, step)
        return table - variable.read_value(), count

    return tf.function(run)(table)


@pytest.mark.no_smoke
def test_a_check_of_a_whole_table(context, one_by_one):
    table_type = tff.TensorType(np.float32, [ROWS, 4])
    data_type = tff.SequenceType(tff.TensorType(np.int32, [None, LENGTH]))
    train = tff.tensorflow.computation(_train_checked, data_type, table_type)

    @tff.federated_computation(
        tff.FederatedType(data_type, tff.CLIENTS),
        tff.FederatedType(table_type, tff.SERVER),
    )
    def computation(data, table):
        change, count = tff.federated_map(train, (data, tff.federated_broadcast(table)))
        return tff.federated_sum(change), tff.federated_sum(count)

    clients = _clients([8] * 6, words=200)  # None of them is masked.
    data = [[batch["x"] for batch in client] for client in clients]
    table = np.ones([ROWS, 4], np.float32)
    expected = call(one_by_one, computation, data, table)
    assert_same(call(context, computation, data, table), expected, rtol=1e-5)
    table[-1] = 10  # No batch names this row.
    for each in (one_by_one, context):
        with pytest.raises(tf.errors.InvalidArgumentError):
            call(each, computation, data, table)


def _train_swapped(data, first, second):
    """Trains two tables that change places in each step."""

    def step(tables, numbers):
        with tf.GradientTape() as tape:
            tape.watch(tables)
            loss = tf.sin(tf.gather(tables[0], numbers)) * tf.gather(tables[1], numbers)
        gradients = map(tf.convert_to_tensor, tape.gradient(loss, tables))
        first, second = (x - 0.1 * g for x, g in zip(tables, gradients, strict=True))
        return second, first

    new = data.reduce((first, second), step)
    return first - new[0], second - new[1]


def test_tables_that_change_places(context, native):
    table_type = tff.TensorType(np.float32, [ROWS, 4])
    data_type = tff.SequenceType(tff.TensorType(np.int32, [None, LENGTH]))
    train = tff.tensorflow.computation(
        _train_swapped, data_type, table_type, table_type
    )

    @tff.federated_computation(
        tff.FederatedType(data_type, tff.CLIENTS),
        tff.FederatedType(table_type, tff.SERVER),
        tff.FederatedType(table_type, tff.SERVER),
    )
    def computation(data, first, second):
        first, second = map(tff.federated_broadcast, (first, second))
        changes = tff.federated_map(train, (data, first, second))
        return [tff.federated_sum(changes[k]) for k in range(2)]

    data = [[batch["x"] for batch in client] for client in _clients()]
    random = np.random.default_rng(4)
    tables = random.normal(size=(2, ROWS, 4)).astype(np.float32)
    assert training(context, computation, data, *tables)[0].startswith("vectorized")
    expected = call(native, computation, data, *tables)
    actual = call(context, computation, data, *tables)
    assert_same(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.conformance
@pytest.mark.parametrize("dtype", [tf.uint8, tf.int64])
def test_numbers_of_other_dtypes(context, one_by_one, dtype):
    process = _fed_avg(_mean_of_words, dtype=dtype)
    cohort = _clients(dtype=dtype.as_numpy_dtype, words=200)
    told = _told(context, process, cohort)
    # Keras makes int32 of int64, which may turn the number of no row into one.
    assert told.endswith(ON_ROWS) or dtype == tf.int64
    actual, expected = (
        _two_rounds(each, process, [cohort]) for each in (context, one_by_one)
    )
    assert_same(actual, expected, rtol=2e-5, atol=1e-6)


def _sgdm(**kwargs):
    return tff.learning.optimizers.build_sgdm(0.5, **kwargs)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("net", "build"),
    tiers.first(
        [0],
        [
            (_columns_of_their_own, _fed_avg),
            (_decayed, _fed_avg),
            # A step adds something to rows that no batch names, or might.
            (_mean_of_words, lambda net: _fed_avg(net, _sgdm(momentum=0.9))),
            (
                _mean_of_words,
                lambda net: algorithms.build_fed_prox(_model_fn(net), 0.5, mu=0.1),
            ),
        ],
    ),
)
def test_whole_tables_are_trained_where_steps_change_them(
    context, one_by_one, net, build
):
    process = build(net)
    cohort = _clients()
    state = call(context, process.initialize)
    told = training(context, process.next, state, cohort)[0]
    assert told.startswith("vectorized")
    assert not told.endswith(ON_ROWS)
    actual, expected = (
        call(each, process.next, state, cohort) for each in (context, one_by_one)
    )
    assert_same(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.conformance
def test_many_words_are_trained_on_the_whole_table(context):
    process = _fed_avg(_mean_of_words)
    many = _clients([500] * 10)
    assert not _told(context, process, many).endswith(ON_ROWS)


def _users_and_items():
    """A factorization, with components of their own for users and items."""
    random = np.random.default_rng(3)
    shapes = (ROWS, 5), (2 * ROWS, 5)
    tables = [random.normal(size=shape).astype(np.float32) for shape in shapes]

    @tf.function
    def predict(weights, x, training):
        del training
        (users, items), _ = weights
        chosen = tf.gather(users, x["user"]) * tf.gather(items, x["item"])
        return tf.reduce_sum(chosen, axis=1)

    @tf.function
    def loss(output, label, sample_weight=None):
        del sample_weight
        return tf.reduce_mean((output - label) ** 2)

    return tff.learning.models.FunctionalModel(
        initial_weights=(tuple(tables), ()),
        predict_on_batch_fn=predict,
        loss_fn=loss,
        input_spec=collections.OrderedDict(
            x=collections.OrderedDict(
                item=tf.TensorSpec([None], tf.int64),
                user=tf.TensorSpec([None], tf.int32),
            ),
            y=tf.TensorSpec([None], tf.float32),
        ),
    )


@pytest.mark.conformance
@pytest.mark.parametrize("same", [False, True])
def test_components_of_their_own(context, one_by_one, same):
    process = algorithms.build_fed_avg(_users_and_items(), 0.1)
    random = np.random.default_rng(8)

    def batch(size):
        user = random.integers(0, ROWS, size).astype(np.int32)
        item = user if same else random.integers(0, 2 * ROWS, size)
        y = random.normal(size=size).astype(np.float32)
        x = collections.OrderedDict(item=item.astype(np.int64), user=user)
        return collections.OrderedDict(x=x, y=y)

    cohort = [[batch(4) for _ in range(n)] + [batch(1 + n)] for n in (2, 2, 2, 1, 3, 2)]
    assert _told(context, process, cohort).endswith(ON_ROWS)
    actual, expected = (
        _two_rounds(each, process, [cohort] * 2) for each in (context, one_by_one)
    )
    assert_same(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.conformance
def test_a_large_table_is_trained_on_few_rows(context):
    def net(inputs):
        table = K.Embedding(40 * ROWS, 8)
        return K.Dense(3)(K.GlobalAveragePooling1D()(table(inputs)))

    assert _told(context, _fed_avg(net), _clients()).endswith(ON_ROWS)


@pytest.mark.conformance
def test_a_table_that_is_not_finite(context, one_by_one):
    process = _fed_avg(_mean_of_words, _sgdm())
    cohort = _clients()
    state = call(context, process.initialize)
    table, *rest = state.global_model_weights.trainable
    table = np.array(table)
    named = np.concatenate([batch["x"].ravel() for own in cohort for batch in own])
    # A row that nobody names.
    table[np.setdiff1d(np.arange(ROWS), named)[0]] = np.inf
    weights = tff.learning.models.ModelWeights([table, *rest], [])
    state = call(context, process.set_model_weights, state, weights)
    actual, expected = (
        call(each, process.next, state, cohort) for each in (context, one_by_one)
    )
    assert_same(actual, expected)


@pytest.mark.conformance
def test_a_number_of_no_row_is_refused(one_by_one):
    context = execution.create_local_execution_context()
    process = _fed_avg(_mean_of_words)
    cohort = _clients()
    assert _told(context, process, cohort).endswith(ON_ROWS)
    cohort[2][0]["x"][1, 1] = ROWS
    state = call(context, process.initialize)
    for each in (one_by_one, context):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{ROWS} is not in"):
            call(each, process.next, state, cohort)
