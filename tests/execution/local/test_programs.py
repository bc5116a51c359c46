"""TFF's program logic and analytics under the local context."""

import asyncio
import collections
import datetime

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import models
from tests.execution.local.support import assert_same, call, call_native
from tff_drift import execution

CLIENTS = models.client_arrays([10, 7, 3, 8], seed=3)


class _Collector(tff.program.ReleaseManager):
    def __init__(self):
        self.released = []

    async def release(self, value, key):
        value = await tff.program.materialize_value(value)
        self.released.append((key, value))


class _Arrays(tff.program.FederatedDataSource, tff.program.FederatedDataSourceIterator):
    """All clients, in every round. Unlike datasets, it can be copied."""

    def __init__(self, clients):
        self._clients = clients

    @property
    def federated_type(self):
        element_type = tff.types.tensorflow_to_type(models.INPUT_SPEC)
        return tff.FederatedType(tff.SequenceType(element_type), tff.CLIENTS)

    @property
    def capabilities(self):
        return [tff.program.Capability.RANDOM_UNIFORM]

    def iterator(self):
        return self

    def select(self, k=None):
        assert k == len(self._clients)
        return models.datasets(self._clients)

    def to_bytes(self):
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, data):
        raise NotImplementedError


def _stock_process():
    return tff.learning.algorithms.build_weighted_fed_avg(
        models.softmax_regression, tff.learning.optimizers.build_sgdm(0.3)
    )


def _program(context, state):
    """Runs `train_model` for three rounds: returns what it released."""
    process = _stock_process()
    source = _Arrays(CLIENTS)
    outputs, metrics = _Collector(), _Collector()

    class NoStates(tff.program.ProgramStateManager):
        async def get_versions(self):
            return None

        async def load(self, version, structure):
            raise AssertionError("nothing is stored")

        async def save(self, state, version):
            pass

    async def run():
        await tff.learning.programs.train_model(
            train_process=process,
            initial_train_state=state,
            train_data_source=source,
            train_per_round_clients=4,
            train_total_rounds=3,
            program_state_manager=NoStates(),
            model_output_manager=outputs,
            train_metrics_manager=metrics,
            evaluation_manager=None,
            evaluation_periodicity=datetime.timedelta(days=1),
        )

    with tff.framework.get_context_stack().install(
        tff.program.NativeFederatedContext(context)
    ):
        asyncio.run(run())
    return outputs.released, metrics.released


@pytest.mark.conformance
def test_train_model(native):
    process = _stock_process()
    state = call(native, process.initialize)
    context = execution.create_async_local_execution_context()
    outputs, metrics = _program(context, state)
    data = models.datasets(CLIENTS)
    with tff.framework.get_context_stack().install(native):
        _, expected = models.train(process, data, rounds=3, state=state)
    losses = [m["client_work"]["train"]["loss"] for m in expected]
    released = [value["model_metrics"]["loss"] for _, value in metrics]
    np.testing.assert_allclose(released, losses, rtol=1e-5)
    assert len(outputs) == 1


@pytest.mark.no_smoke
def test_hierarchical_histogram(local, native):
    process = tff.analytics.build_hierarchical_histogram_process(
        lower_bound=0.0, upper_bound=4.0, num_bins=4, enable_secure_sum=False
    )
    data = [
        tf.data.Dataset.from_tensor_slices(np.array(values, np.float32))
        for values in ([0.5, 1.5], [1.2, 3.9, 2.2])
    ]
    state = call(native, process.initialize)
    expected = call(native, process.next, state, data)
    output = call(local, process.next, state, data)
    # The state holds a time, a seed.
    assert_same(output[1], expected[1], rtol=1e-6)


@pytest.mark.conformance
def test_heavy_hitters(local, native):
    computation = tff.analytics.heavy_hitters.iblt.build_iblt_computation(
        capacity=20, string_max_bytes=8, repetitions=3, seed=1
    )
    words = [["a", "b", "a"], ["b", "c"], ["naïve", "a"]]
    data = [
        tf.data.Dataset.from_tensor_slices(client).batch(1, drop_remainder=False)
        for client in words
    ]
    expected = call_native(native, computation, data)
    result = call(local, computation, data)

    def counts(output):
        keys, values = output["heavy_hitters"], output["heavy_hitters_counts"]
        return dict(zip(keys.tolist(), values.tolist(), strict=True))

    result = collections.OrderedDict((name, getattr(result, name)) for name in expected)
    assert counts(result) == counts(expected)
    assert counts(result)[b"a"] == 3


def test_distinct_counts(local, native):
    computation = (
        tff.analytics.count_distinct.create_federated_hyperloglog_computation()
    )
    data = [
        tf.data.Dataset.from_tensor_slices(client)
        for client in (["a", "b"], ["b", "c", "d"])
    ]
    assert_same(call(local, computation, data), call(native, computation, data))


def test_result_order_of_names(fast):
    """Names come back in the order of the type, not of the alphabet."""

    @tff.tensorflow.computation(np.int32)
    def computation(x):
        return collections.OrderedDict(z=x, a=x + 1)

    assert list(call(fast, computation, 1)) == ["z", "a"]
