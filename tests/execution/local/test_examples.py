"""What scripts for TFF look like: pipelines and training loops of their own.

In the forms of TFF's tutorials and examples, under its native context and the local one
as it is by default, with clients vectorized, and one by one.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.execution.local.support import assert_same, call
from tff_drift import algorithms, execution, layers

SIZES = [7, 4, 9, 4, 1, 6]
K = tf.keras.layers
Ordered = collections.OrderedDict


@pytest.fixture(name="contexts", scope="module")
def _contexts():
    return [
        execution.create_local_execution_context(batch_clients=batch_clients)
        for batch_clients in (None, True, False)
    ]


def _assert_as_native(contexts, native, run, **tolerances):
    """Compares what a function of a context returns."""
    expected = run(native)
    for context in contexts:
        assert_same(run(context), expected, **tolerances)


def _rounds(next_, initialize, *at_clients, count=2):
    """Returns a function that takes some rounds in a context."""

    def run(context):
        state, outputs = call(context, initialize), []
        for _ in range(count):
            output = call(context, next_, state, *at_clients)
            state = output[0]
            outputs.append(output)
        return [list(output) for output in outputs]

    return run


def _images():
    """Clients' images and labels, prepared as for a first model of digits."""
    random = np.random.default_rng(1)

    def prepared(size):
        examples = Ordered(
            pixels=random.uniform(size=(size, 4, 4)).astype(np.float32),
            label=random.integers(0, 3, size).astype(np.int32),
        )
        data = tf.data.Dataset.from_tensor_slices(examples)
        data = data.repeat(2).shuffle(100, seed=1).batch(3)
        return data.map(_flattened).prefetch(2)

    return list(map(prepared, SIZES))


def _flattened(batch):
    return Ordered(
        x=tf.reshape(batch["pixels"], [-1, 16]), y=tf.reshape(batch["label"], [-1, 1])
    )


IMAGES = Ordered(
    x=tf.TensorSpec([None, 16], tf.float32), y=tf.TensorSpec([None, 1], tf.int32)
)
DATA = tff.SequenceType(tff.types.tensorflow_to_type(IMAGES))


def _classifier(*before):
    return tf.keras.Sequential(
        [tf.keras.Input([16]), *before, K.Dense(3, kernel_initializer="zeros")]
    )


def _loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _image_model():
    return tff.learning.models.from_keras_model(
        _classifier(),
        loss=_loss(),
        input_spec=IMAGES,
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )


def _functional_model():
    return tff.learning.models.functional_model_from_keras(
        lambda: _classifier(layers.Dropout(0.5)), _loss(), IMAGES
    )


SGD = tff.learning.optimizers.build_sgdm(0.1, momentum=0.9)
ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR
PROCESSES = {
    "reduce": lambda: tff.learning.algorithms.build_weighted_fed_avg(_image_model, SGD),
    "iterator": lambda: tff.learning.algorithms.build_weighted_fed_avg(
        _image_model, SGD, loop_implementation=ITERATOR
    ),
    "private": lambda: tff.learning.algorithms.build_unweighted_fed_avg(
        _image_model,
        SGD,
        model_aggregator=tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
            noise_multiplier=0.0, clients_per_round=len(SIZES), clip=0.1
        ),
        loop_implementation=ITERATOR,
    ),
    "ours": lambda: algorithms.build_fed_avg(
        _image_model, 0.1, loop_implementation=ITERATOR
    ),
    "ours, functional": lambda: algorithms.build_fed_avg(_functional_model(), 0.1),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", list(PROCESSES))
def test_images(name, contexts, native):
    process = PROCESSES[name]()

    def run(context):
        state = call(context, process.initialize)
        output = call(context, process.next, state, _images())
        weights = process.get_model_weights(output.state)
        return [weights.trainable, output.metrics["client_work"]]

    _assert_as_native(contexts, native, run, rtol=1e-5, atol=1e-6)


WEIGHTS = Ordered(
    kernel=tff.TensorType(np.float32, [16, 3]), bias=tff.TensorType(np.float32, [3])
)
CLIENT_STATE = Ordered(batches=np.int32, last_loss=np.float32)


def _client_training(over):
    """Returns local training of variables, in a loop over batches of one's own.

    Args:
      over: What the loop makes of a dataset.
    """

    @tff.tensorflow.computation(DATA, WEIGHTS, CLIENT_STATE)
    def train(data, weights, client_state):
        model = _classifier()
        optimizer = tf.keras.optimizers.legacy.SGD(0.1)
        variables, loss_fn = model.trainable_variables, _loss()

        @tf.function
        def run(data, weights, client_state):
            tf.nest.map_structure(
                lambda v, w: v.assign(w), variables, list(weights.values())
            )
            examples, loss_sum, batches = 0, 0.0, client_state["batches"]
            for batch in over(data):
                with tf.GradientTape() as tape:
                    loss = loss_fn(batch["y"], model(batch["x"], training=True))
                optimizer.apply_gradients(
                    zip(tape.gradient(loss, variables), variables, strict=True)
                )
                size = tf.shape(batch["y"])[0]
                examples += size
                batches += 1
                loss_sum += loss * tf.cast(size, tf.float32)
            changes = [v - w for v, w in zip(variables, weights.values(), strict=True)]
            new_state = Ordered(batches=batches, last_loss=loss_sum)
            change = Ordered(zip(weights, changes, strict=True))
            return change, tf.cast(examples, tf.float32), new_state

        return run(data, weights, client_state)

    return train


def _process(over):
    """FedAvg with clients that have a state and a server that has an optimizer."""
    train = _client_training(over)
    server_type = Ordered(weights=WEIGHTS, momentum=WEIGHTS, round=np.int32)

    @tff.tensorflow.computation
    def initialize():
        zeros = [
            Ordered((name, tf.zeros(each.shape)) for name, each in WEIGHTS.items())
            for _ in range(2)
        ]
        return Ordered(weights=zeros[0], momentum=zeros[1], round=0)

    @tff.tensorflow.computation(server_type, WEIGHTS)
    def update(state, change):
        momentum = tf.nest.map_structure(
            lambda m, c: 0.5 * m + c, state["momentum"], change
        )
        weights = tf.nest.map_structure(lambda w, m: w + m, state["weights"], momentum)
        return Ordered(weights=weights, momentum=momentum, round=state["round"] + 1)

    get_weights = tff.tensorflow.computation(lambda s: s["weights"], server_type)

    @tff.federated_computation(
        tff.FederatedType(server_type, tff.SERVER),
        tff.FederatedType(DATA, tff.CLIENTS),
        tff.FederatedType(CLIENT_STATE, tff.CLIENTS),
    )
    def next_(state, data, client_states):
        weights = tff.federated_broadcast(tff.federated_map(get_weights, state))
        change, size, states = tff.federated_map(train, (data, weights, client_states))
        mean = tff.federated_mean(change, size)
        batches = tff.federated_sum(states["batches"])
        return tff.federated_map(update, (state, mean)), batches, states

    return initialize, next_


@pytest.mark.conformance
@pytest.mark.parametrize(
    "over", tiers.first([1], [iter, lambda data: data]), ids=["iter", "for"]
)
def test_clients_with_states_and_loops_of_their_own(over, contexts, native):
    initialize, next_ = _process(over)
    client_states = [
        Ordered(batches=np.int32(k), last_loss=np.float32(0)) for k in range(len(SIZES))
    ]
    run = _rounds(next_, initialize, _images(), client_states)
    _assert_as_native(contexts, native, run, rtol=1e-5, atol=1e-6)


@pytest.mark.conformance
def test_training_written_in_tffs_language(contexts, native):
    """Local training by `tff.sequence_reduce`."""

    @tff.tensorflow.computation(WEIGHTS, DATA.element)
    def step(weights, batch):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = batch["x"] @ weights["kernel"] + weights["bias"]
            loss = _loss()(batch["y"], logits)
        gradients = tape.gradient(loss, weights)
        return tf.nest.map_structure(lambda w, g: w - 0.1 * g, weights, gradients)

    @tff.federated_computation(WEIGHTS, DATA)
    def train(weights, data):
        return tff.sequence_reduce(data, weights, step)

    @tff.federated_computation(
        tff.FederatedType(WEIGHTS, tff.SERVER), tff.FederatedType(DATA, tff.CLIENTS)
    )
    def next_(weights, data):
        weights = tff.federated_broadcast(weights)
        return tff.federated_mean(tff.federated_map(train, (weights, data)))

    weights = Ordered(
        kernel=np.zeros([16, 3], np.float32), bias=np.zeros(3, np.float32)
    )

    def run(context):
        return call(context, next_, weights, _images())

    _assert_as_native(contexts, native, run, rtol=1e-5, atol=1e-6)


LENGTH, CHARACTERS = 4, "abcdefg"


def _texts():
    """Clients' lines as the numbers of characters, and of those that follow."""
    random = np.random.default_rng(2)
    keys = tf.constant(list(CHARACTERS))
    table = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            keys, tf.range(len(CHARACTERS), dtype=tf.int64)
        ),
        num_oov_buckets=1,
    )

    def numbers(line):
        return table.lookup(tf.strings.bytes_split(line))

    def prepared(count):
        lines = [
            "".join(random.choice(list(CHARACTERS + "?"), 9)) for _ in range(count)
        ]
        data = tf.data.Dataset.from_tensor_slices(lines).map(numbers).unbatch()
        data = data.batch(LENGTH + 1, drop_remainder=True).shuffle(10, seed=3)
        data = data.batch(2, drop_remainder=True)
        return data.map(lambda each: (each[:, :-1], each[:, 1:]))

    return list(map(prepared, SIZES))


def _text_model():
    number = len(CHARACTERS) + 1
    initializer = tf.keras.initializers.GlorotUniform(seed=1)
    recurrent = K.GRU(
        3,
        return_sequences=True,
        kernel_initializer=initializer,
        recurrent_initializer=initializer,
    )
    embedding = K.Embedding(number, 3, embeddings_initializer=initializer)
    model = tf.keras.Sequential(
        [
            tf.keras.Input([LENGTH], dtype=tf.int64),
            embedding,
            recurrent,
            K.Dense(number, kernel_initializer=initializer),
        ]
    )
    spec = tf.TensorSpec([None, LENGTH], tf.int64)
    return tff.learning.models.from_keras_model(
        model, loss=_loss(), input_spec=(spec, spec)
    )


@pytest.mark.conformance
def test_texts(contexts, native):
    process = tff.learning.algorithms.build_weighted_fed_avg(
        _text_model, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5)
    )
    data = _texts()

    def run(context):
        state = call(context, process.initialize)
        output = call(context, process.next, state, data)
        return process.get_model_weights(output.state).trainable

    _assert_as_native(contexts, native, run, rtol=1e-5, atol=1e-6)
