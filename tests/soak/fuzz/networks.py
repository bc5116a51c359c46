"""Random Keras models for TFF, with examples that suit them."""

import collections
import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import strategies as st

from tests.soak.fuzz.blocks import BLOCKS, KEPT_OF_BUILDING, VECTOR
from tests.soak.fuzz.operations import CHANGE_ROWS, OPERATIONS

CLASSES, VOCABULARY = 4, 7
_LAYERS = tf.keras.layers
# Of each kind of input: its spec without the batch, and the blocks that take it.
_SHAPES = {
    "vector": ((5,), tf.float32),
    "image": ((6, 5, 2), tf.float32),
    "series": ((4, 3), tf.float32),
    "tokens": ((5,), tf.int32),
}


@dataclasses.dataclass(frozen=True)
class Network:
    """A model.

    Attributes:
      inputs: The kinds of its inputs, one or two.
      blocks: The layers of the first input, by name.
      joint: The blocks after all inputs have become one vector.
      head: What is predicted, with its loss.
      form: "variables" or "functional", as TFF has models.
      decay: Whether its dense layers have an L2 penalty.
    """

    inputs: tuple[str, ...]
    blocks: tuple[str, ...]
    joint: tuple[str, ...]
    head: str
    metric: str = "plain"
    form: str = "variables"
    decay: bool = False


class Operation(_LAYERS.Layer):
    """One of `OPERATIONS` as a layer with weights of its own."""

    def __init__(self, operation):
        super().__init__()
        self._operation = operation

    def build(self, shape):
        del shape
        self._w = self.add_weight("w", [4, 3], initializer="glorot_uniform")
        self._s = self.add_weight("s", [4], initializer="ones")

    def call(self, inputs):
        labels = tf.argmax(inputs, axis=1, output_type=tf.int32) - 1
        # In a functional model they are no variables.
        model = {"w": tf.convert_to_tensor(self._w), "s": tf.convert_to_tensor(self._s)}
        apply = OPERATIONS[self._operation]
        result = apply(inputs, labels, model, tf.shape(inputs)[0])
        return tf.ensure_shape(result, [None, 4])


_OPERATIONS = sorted(set(OPERATIONS) - CHANGE_ROWS)


def _cross_entropy(**options):
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


class _Masked(tf.keras.losses.Loss):
    """The cross entropy of labels that are not 0, a mean over these."""

    def call(self, y_true, y_pred):
        labels = tf.reshape(y_true, [-1])
        counts = tf.cast(tf.not_equal(labels, 0), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)
        return tf.math.divide_no_nan(
            tf.reduce_sum(losses * counts), tf.reduce_sum(counts)
        )


_CLASS_HEADS = {
    "classes": _cross_entropy,
    "ignored_class": lambda: _cross_entropy(ignore_class=0),
    "masked": lambda: _Masked(),
    "hinge": lambda: tf.keras.losses.CategoricalHinge(),
}
_VALUE_HEADS = {
    "values": tf.keras.losses.MeanSquaredError,
    "huber": tf.keras.losses.Huber,
    "log_cosh": tf.keras.losses.LogCosh,
    "binary": lambda: tf.keras.losses.BinaryCrossentropy(from_logits=True),
}
# Of several outputs, or of one for every token.
HEADS = (*_CLASS_HEADS, *_VALUE_HEADS, "two_outputs", "weighted_outputs", "per_token")
_TWO_OUTPUTS = frozenset({"two_outputs", "weighted_outputs"})


class _Weighted(tf.keras.metrics.Mean):
    """The mean label, by weights that are 0 for some: Keras metrics take weights."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels = tf.cast(y_true, tf.float32)
        weights = tf.where(labels > 0, tf.abs(labels), 0.0)
        return super().update_state(labels * 0.5, sample_weight=weights)


_CLASS_METRICS = {
    "plain": lambda: tf.keras.metrics.SparseCategoricalAccuracy("measured"),
    "top": lambda: tf.keras.metrics.SparseTopKCategoricalAccuracy(2, "measured"),
    "weighted": lambda: _Weighted("measured"),
    "entropy": lambda: tf.keras.metrics.SparseCategoricalCrossentropy(
        "measured", from_logits=True
    ),
}
_VALUE_METRICS = {
    "plain": lambda: tf.keras.metrics.MeanSquaredError("measured"),
    "top": lambda: tf.keras.metrics.RootMeanSquaredError("measured"),
    "weighted": lambda: _Weighted("measured"),
    "entropy": lambda: tf.keras.metrics.CosineSimilarity("measured"),
}


@st.composite
def networks(draw):
    first = draw(st.sampled_from(tuple(_SHAPES)))
    more = draw(st.lists(st.sampled_from(("vector", "tokens")), max_size=1))
    names = st.one_of(
        st.sampled_from(tuple(VECTOR)),
        st.sampled_from(_OPERATIONS).map("op:{}".format),
    )
    head = draw(st.sampled_from(HEADS))
    # TFF's functional models have one loss.
    forms = ("variables",) if head in _TWO_OUTPUTS else ("variables", "functional")
    if head == "per_token":  # Whose masks these lose, and are refused.
        forms = ("variables",)
    if head == "per_token":
        first, more = "tokens", []
    joint = tuple(draw(st.lists(names, max_size=2)))
    if KEPT_OF_BUILDING & set(joint):
        forms = ("variables",)
    return Network(
        inputs=(first, *more),
        blocks=tuple(draw(st.lists(st.sampled_from(tuple(BLOCKS[first])), max_size=3))),
        joint=joint,
        head=head,
        metric=draw(st.sampled_from(tuple(_CLASS_METRICS))),
        form=draw(st.sampled_from(forms)),
        decay=draw(st.booleans()),
    )


def _of_blocks(kind, blocks):
    """Returns an input, and what the blocks make of it."""
    shape, dtype = _SHAPES[kind]
    given = _LAYERS.Input(shape, dtype=dtype)
    x = given
    if kind == "tokens":
        x = _LAYERS.Embedding(VOCABULARY, 3, mask_zero="attention" not in blocks)(x)
    for name in blocks:
        x = BLOCKS[kind][name](x)
    return given, x


def _one_vector(kind, blocks, decay):
    """Returns an input, and what the blocks make of it, as one vector."""
    given, x = _of_blocks(kind, blocks)
    if kind in ("series", "tokens"):
        x = _LAYERS.GlobalAveragePooling1D()(x)
    elif kind == "image":
        x = _LAYERS.Flatten()(x)
    penalty = tf.keras.regularizers.L2(0.01) if decay else None
    return given, _LAYERS.Dense(4, kernel_regularizer=penalty)(x)


def keras_model(network):
    """Returns the Keras model, with any weights."""
    if network.head == "per_token":
        given, x = _of_blocks("tokens", network.blocks)
        return tf.keras.Model(given, _LAYERS.Dense(CLASSES)(x))
    branches = [
        _one_vector(kind, network.blocks if not number else (), network.decay)
        for number, kind in enumerate(network.inputs)
    ]
    inputs, vectors = zip(*branches, strict=True)
    x = vectors[0] if len(vectors) == 1 else _LAYERS.Add()(list(vectors))
    for name in network.joint:
        if name.startswith("op:"):
            x = Operation(name[3:])(_LAYERS.Dense(4, "tanh")(x))
        else:
            x = VECTOR[name](x)
    if network.head in _TWO_OUTPUTS:
        outputs = [_LAYERS.Dense(CLASSES)(x), _LAYERS.Dense(1)(x)]
    else:
        outputs = _LAYERS.Dense(CLASSES if network.head in _CLASS_HEADS else 1)(x)
    given = inputs[0] if len(inputs) == 1 else list(inputs)
    return tf.keras.Model(given, outputs)


def _input_spec(network):
    features = [
        tf.TensorSpec([None, *_SHAPES[kind][0]], _SHAPES[kind][1])
        for kind in network.inputs
    ]
    of_classes = tf.TensorSpec([None, 1], tf.int32)
    of_values = tf.TensorSpec([None, 1], tf.float32)
    labels = of_classes if network.head in _CLASS_HEADS else of_values
    if network.head == "hinge":
        labels = tf.TensorSpec([None, CLASSES], tf.float32)
    if network.head in _TWO_OUTPUTS:
        labels = [of_classes, of_values]
    if network.head == "per_token":
        labels = tf.TensorSpec([None, *_SHAPES["tokens"][0]], tf.int32)
    x = features[0] if len(features) == 1 else features
    return collections.OrderedDict(x=x, y=labels)


def examples(network, size, random):
    """Returns examples of a network."""

    def of(spec):
        shape = [size, *spec.shape[1:]]
        if spec.dtype == tf.float32:
            return random.normal(size=shape).astype(np.float32)
        return random.integers(0, CLASSES, shape).astype(np.int32)

    spec = _input_spec(network)
    made = tf.nest.map_structure(of, spec)
    if network.head == "binary":
        made["y"] = (made["y"] > 0).astype(np.float32)
    # Structures of a dataset are tuples: lists would become tensors.
    made = collections.OrderedDict(
        (key, tuple(value) if isinstance(value, list) else value)
        for key, value in made.items()
    )
    return made if network.form == "variables" else (made["x"], made["y"])


def _loss(network):
    if network.head in _TWO_OUTPUTS:
        return [_cross_entropy(), tf.keras.losses.MeanSquaredError()]
    if network.head == "per_token":
        # As next words are learnt: token 0 fills up short texts.
        return _cross_entropy(ignore_class=0)
    return {**_CLASS_HEADS, **_VALUE_HEADS}[network.head]()


def model_fn(network):
    """Returns what builders take: a function that makes the model, or the model."""
    spec = _input_spec(network)
    loss = _loss(network)
    if network.form == "functional":
        return tff.learning.models.functional_model_from_keras(
            lambda: keras_model(network),
            loss_fn=loss,
            input_spec=(spec["x"], spec["y"]),
            metrics_constructor=collections.OrderedDict(
                measured=lambda: _metric(network)
            ),
        )

    def make():
        tuples = collections.OrderedDict(
            (key, tuple(value) if isinstance(value, list) else value)
            for key, value in spec.items()
        )
        return tff.learning.models.from_keras_model(
            keras_model(network),
            loss=loss,
            input_spec=tuples,
            loss_weights=[0.3, 2.0] if network.head == "weighted_outputs" else None,
            metrics=None if network.head in _TWO_OUTPUTS else [_metric(network)],
        )

    return make


def _metric(network):
    of_classes = network.head in (*_CLASS_HEADS, "per_token")
    if of_classes and network.head != "hinge":
        return _CLASS_METRICS[network.metric]()
    return _VALUE_METRICS[network.metric]()
