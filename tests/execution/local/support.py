"""The same computation under TFF's native context and ours, results compared."""

import asyncio
import collections
import functools
import itertools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tff_drift import layers

# Every optimization of the local context, on and off.
MODES = {
    "fast": {"max_concurrent_clients": 2},
    "plain": {
        "max_concurrent_clients": 1,
        "functionalize_clients": False,
        "batch_clients": False,
    },
    "batched": {"batch_clients": True},
}


def call(context, computation, *args, **kwargs):
    """Calls a computation under a context, leaving the default context alone."""
    with tff.framework.get_context_stack().install(context):
        return computation(*args, **kwargs)


@functools.cache
def _without_secure_sums(computation):
    return tff.backends.test.replace_secure_intrinsics_with_bodies(computation)


def call_native(context, computation, *args):
    """Calls a computation that may use secure sums, which TFF's worker lacks."""
    return call(context, _without_secure_sums(computation), *args)


def training(context, computation, *args):
    """Returns how the clients of a computation train, what `explain` says of it."""
    argument = args[0] if len(args) == 1 else args or None
    lines = context.explain(computation, argument).splitlines()
    (start,) = (k for k, line in enumerate(lines) if line.startswith("  clients:"))
    told = itertools.takewhile(lambda line: line.startswith("    "), lines[start + 1 :])
    return [line.strip() for line in told]


def leaves(value):
    """Returns the leaves of a result, datasets turned into lists."""
    if isinstance(value, tf.data.Dataset):
        value = list(value)
    if isinstance(value, tff.structure.Struct):
        return [leaf for element in value for leaf in leaves(element)]
    if isinstance(value, collections.abc.Mapping):
        return [leaf for element in value.values() for leaf in leaves(element)]
    if hasattr(value, "__attrs_attrs__"):
        names = [attribute.name for attribute in value.__attrs_attrs__]
        return [leaf for name in names for leaf in leaves(getattr(value, name))]
    if isinstance(value, (list, tuple)):
        return [leaf for element in value for leaf in leaves(element)]
    return [value.numpy() if isinstance(value, tf.Tensor) else value]


def containers(value):
    """Returns the Python containers of a result, with the types of its leaves."""
    if isinstance(value, collections.abc.Mapping):
        return type(value), [(key, containers(value[key])) for key in value]
    if hasattr(value, "__attrs_attrs__"):
        names = [attribute.name for attribute in value.__attrs_attrs__]
        return type(value), [containers(getattr(value, name)) for name in names]
    if isinstance(value, (list, tuple)):
        return type(value), [containers(element) for element in value]
    if isinstance(value, tf.data.Dataset):
        return tf.data.Dataset, value.element_spec
    return type(value)


def assert_same(actual, expected, *, rtol=0.0, atol=0.0):
    """Asserts that two results hold the same values of the same dtypes."""
    actual, expected = leaves(actual), leaves(expected)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if np.issubdtype(ours.dtype, np.inexact) and (rtol or atol):
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(ours, theirs)


def run_coroutine(coroutine):
    return asyncio.run(coroutine)


def with_dropout():
    """A model whose clients draw dropout masks of their own."""
    return models.from_keras(
        models.keras_softmax_regression(
            tf.keras.layers.Dense(
                5,
                activation="relu",
                kernel_initializer=tf.keras.initializers.GlorotUniform(1),
            ),
            layers.Dropout(0.5),
        )
    )
