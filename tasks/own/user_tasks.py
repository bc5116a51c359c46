"""Arguments and construction of the tasks on a user's own data."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tasks import definitions, seeds
from tasks.models import keras_models, last_activation, nets
from tasks.own import parts, targets
from tff_drift import checks, signatures
from tff_drift.models import keras2_arguments
from tff_drift.simulation import ClientDatasets
from tff_drift.simulation.data.example_store import OfSource
from tff_drift.simulation.data.examples import Transform

# Of a model of Keras 2 (`tf.keras`) or, where it is there, of Keras 3 (`keras`).
BuildKerasModel = Callable[[], Any]

# What users of other libraries call some of the arguments.
suggest_names = signatures.suggesting_names(
    client="client_id",
    group="client_id",
    image_size="image_shape",
    keras_model="build_keras_model",
    model_fn="build_keras_model",
    num_epochs="epochs",
    window_size="window",
)


@dataclasses.dataclass(frozen=True)
class Training:
    """The arguments for training that all tasks on a user's own data take.

    Attributes:
      build_keras_model: Builds a net; `None` is softmax or linear regression.
      batch_size: The examples in a training batch.
      epochs: The passes over a client's data per round.
      max_examples: The number of examples kept of a training client, or `None`.
      seed: The seed of shuffles, of what is held out, and of initial weights.
      class_weight: The weights of classes in training, by what labels name them.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If one is out of its range.
    """

    build_keras_model: BuildKerasModel | None
    batch_size: int
    epochs: int
    max_examples: int | None
    seed: int
    class_weight: Mapping[Any, float] | None = None

    def __post_init__(self) -> None:
        if self.build_keras_model is not None:
            what = "a function without arguments that builds a Keras model"
            checks.check_callable("build_keras_model", self.build_keras_model, what)
            # Which can be called, too.
            if _is_model(self.build_keras_model):
                raise TypeError(
                    f"build_keras_model must be {what}, found the model "
                    f"{checks.shown(self.build_keras_model)}."
                )
        checks.check_integer("batch_size", self.batch_size)
        checks.check_integer("epochs", self.epochs)
        if self.max_examples is not None:
            checks.check_integer("max_examples", self.max_examples)
        checks.check_integer("seed", self.seed, at_least=0)
        if self.class_weight is not None:
            what = "a mapping of classes to numbers, such as {0: 1.0, 1: 20.0}"
            checks.check_instance("class_weight", self.class_weight, Mapping, what)
            if not self.class_weight:
                raise ValueError(
                    "class_weight is empty. Leave it out, or weigh a class."
                )
            for name, weight in self.class_weight.items():
                checks.check_non_negative(f"class_weight[{checks.shown(name)}]", weight)


def check_columns(features: Sequence[Any] | None, **others: Any) -> None:
    """Raises unless arguments name columns, each for one purpose.

    Args:
      features: The argument `features`.
      **others: The arguments `label` and perhaps `client_id`.

    Raises:
      TypeError: If one has the wrong type.
      ValueError: If two are the same, or no feature is named or one twice.
    """
    names: dict[Any, str] = {}
    for argument, name in others.items():
        _take_column(argument, name, names)
    if features is None:
        return
    if isinstance(features, (str, bytes)) or not isinstance(features, Sequence):
        raise TypeError(
            f"features must be a list of columns, found {checks.shown(features)}. "
            "Leave it out to take all others."
        )
    if not features:
        raise ValueError("features is empty. Name a column, or leave it out.")
    for name in features:
        _take_column("features", name, names)


def _take_column(argument: str, name: Any, names: dict[Any, str]) -> None:
    """Adds a column to those that arguments name; raises if it cannot be one."""
    if name is None or not isinstance(name, Hashable):
        raise TypeError(f"{argument} must name columns, found {checks.shown(name)}.")
    if name in names:
        raise ValueError(
            f"{argument} names the column {checks.shown(name)}, which {names[name]} "
            "names already. Use a column for one purpose, once."
        )
    names[name] = argument


def task_of_found(
    name: str,
    found: Sequence[parts.Found],
    target: str | None,
    num_classes: int | None,
    split: parts.Split,
    training: Training,
    transform: Transform | None = None,
) -> definitions.Task:
    """Returns the task of clients that were found in a user's data.

    Args:
      name: The task's name.
      found: The clients to train on, and those to test on if there are any.
      target: As for `targets.find_target`.
      num_classes: As for `targets.find_target`.
      split: How examples to test on are held out if there are none.
      training: How to train.
      transform: As for `build_task`.

    Returns:
      The task.

    Raises:
      DataError: If a label is of another kind than the target.
      TypeError: As in `build_task`, like ValueError.
    """
    # Different clients may read alike in messages.
    labels = [
        (of_part.field(owner), values)
        for of_part in found
        for owner, values in of_part.labels.items()
    ]
    num_examples = sum(sum(of_part.sizes.values()) for of_part in found)
    predicted = targets.find_target(target, num_classes, labels, num_examples)
    split_parts = parts.parted(found, predicted, split)
    source = hashlib.sha256(" ".join(each.sha256 for each in found).encode())
    return build_task(
        name, split_parts, predicted, training, source.hexdigest(), transform
    )


def build_task(
    name: str,
    split_parts: Sequence[parts.Part],
    target: targets.Target,
    training: Training,
    source_sha256: str | None,
    transform: Transform | None = None,
) -> definitions.Task:
    """Returns a task.

    Args:
      name: The task's name.
      split_parts: The clients to train and those to test on.
      target: What is predicted.
      training: How to train.
      source_sha256: A hash of the data as a whole, by which a run that is resumed knows
        it again; `None` if there is none.
      transform: What turns examples into those that models take; see
        `ClientDatasets`.

    Returns:
      The task.

    Raises:
      TypeError: If `build_keras_model` builds no Keras model.
      ValueError: If its inputs or outputs do not fit the data, or `class_weight` not
        the classes.
    """
    target = target.weighted(training.class_weight)
    train_part, test_part = (
        part
        if source_sha256 is None
        else part._replace(load=OfSource(part.load, source_sha256))
        for part in split_parts
    )
    batching: dict[str, Any] = {
        "batch_size": training.batch_size,
        "epochs": training.epochs,
        "seed": training.seed,
        "transform": transform,
    }
    train = ClientDatasets(
        tuple(train_part.client_ids),
        train_part.load,
        max_examples=training.max_examples,
        **batching,
    )
    test = ClientDatasets(tuple(test_part.client_ids), test_part.load, **batching)
    input_shape = train.element_spec[0].shape[1:]
    if training.build_keras_model is not None:
        inputs = train.element_spec[0]
        with seeds.drawing_from(training.seed):
            _check_model(training.build_keras_model, inputs, target)
    regression = functools.partial(
        _regression, input_shape, target.outputs, training.seed
    )
    model_fn = target.model_fn(
        training.build_keras_model or regression, train.element_spec
    )
    return definitions.Task(
        name=name,
        description=f"Your own data: {len(train)} clients, {target}.",
        train=train,
        test=test,
        validation=None,
        model_fn=seeds.seeded(model_fn, training.seed),
        accuracy_metric=target.accuracy_metric,
        higher_is_better=target.higher_is_better,
        seed=training.seed,
        options={
            "batch_size": train.batching.batch_size,
            "epochs": train.batching.epochs,
            "max_examples": training.max_examples,
            **target.options,
        },
    )


def _check_model(
    build_keras_model: BuildKerasModel, spec: tf.TensorSpec, target: targets.Target
) -> None:
    """Raises unless a user's net takes the inputs and has the outputs needed."""
    input_shape = tuple(spec.shape[1:])
    # A graph of its own: what is built here counts for nothing later.
    with tf.Graph().as_default():
        model = keras_models.built(build_keras_model)
        if not _is_model(model):
            raise TypeError(
                "build_keras_model must build a model of Keras 2 (tf.keras) or Keras 3 "
                f"(keras), found {checks.shown(model)}."
            )
        keras2_arguments.check_built("build_keras_model", model)
        _check_single(model)
        # Of Keras 3, a model may be without.
        inputs, outputs = (
            getattr(model, shape, None) for shape in ("input_shape", "output_shape")
        )
        activation = None
        # What is wrong with calling it is said where it is made a model of TFF.
        with contextlib.suppress(Exception):
            activation = last_activation.last_activation(model, spec)
    if isinstance(inputs, tuple) and not tf.TensorShape(inputs[1:]).is_compatible_with(
        input_shape
    ):
        raise ValueError(
            f"build_keras_model builds a net for examples of shape {inputs[1:]}, but "
            f"the data's are of shape {input_shape}. Build it for these."
        )
    if isinstance(outputs, tuple):
        target.check_outputs(outputs)
    if activation is not None:
        target.check_activation(activation)


def _check_single(model: Any) -> None:
    """Raises if a net has several inputs or outputs, as far as it says."""
    for what in ("inputs", "outputs"):
        number = len(getattr(model, what, None) or ())
        if number > 1:
            raise ValueError(
                f"build_keras_model builds a net with {number} {what}, but an example "
                "of a task is one array and one label. Build a net with one, or give "
                "arrays to ClientDatasets.from_arrays and the losses to from_keras2 or "
                "from_keras3."
            )


def _is_model(value: Any) -> bool:
    """Whether a value is a model of Keras 2 or 3, and not a class of them."""
    if isinstance(value, type):
        return False
    is_of_keras3 = checks.is_of_keras3(value) and hasattr(value, "layers")
    return isinstance(value, tf.keras.Model) or is_of_keras3


def _regression(
    input_shape: Sequence[int], num_outputs: int, seed: int
) -> tf.keras.Model:
    """Returns one layer: softmax regression, or linear regression by one output."""
    layers = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(num_outputs)]
    return nets.build_sequential(input_shape, layers, seed)
