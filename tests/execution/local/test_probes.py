"""Every intrinsic on every kind of value, with TFF's native context as the oracle."""

import pytest

from tests import tiers
from tests.execution.local import probes
from tests.execution.local.support import assert_same, call, containers


def _check(computation, arguments, native, contexts):
    """With clients stacked wherever that is possible, one by one elsewhere."""
    expected = call(native, computation, *arguments)
    result = call(contexts["batched"], computation, *arguments)
    assert_same(result, expected)
    assert containers(result) == containers(expected)


@pytest.mark.no_smoke
@pytest.mark.parametrize("name", tiers.first(["string"], list(probes.KINDS)))
def test_intrinsics(name, native, local_contexts):
    computation, arguments = probes.computation(probes.KINDS[name], probes.of(name))
    _check(computation, arguments, native, local_contexts)


@pytest.mark.parametrize("num_clients", [0, 1])
def test_aggregations_of_few_clients(num_clients, native, local_contexts):
    computation, arguments = probes.computation(
        probes.KINDS["floats"], [probes.aggregated, probes.summed], num_clients
    )
    _check(computation, arguments, native, local_contexts)
