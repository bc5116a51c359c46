"""What docs/composing.md says of our aggregators and TFF's is so."""

import inspect
import pathlib
import re

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import aggregators, execution

ROOT = pathlib.Path(__file__).parents[2]
VECTOR, WEIGHT = tff.TensorType(np.float32, [4]), tff.TensorType(np.float32)
_dp = tff.aggregators.DifferentiallyPrivateFactory
# The factories of TFF, around another one (or none) where they take one.
TFF_FACTORIES = {
    "tff.aggregators.MeanFactory": tff.aggregators.MeanFactory,
    "tff.aggregators.UnweightedMeanFactory": tff.aggregators.UnweightedMeanFactory,
    "tff.aggregators.SumFactory": tff.aggregators.SumFactory,
    "tff.aggregators.SecureSumFactory": lambda: tff.aggregators.SecureSumFactory(10.0),
    "tff.aggregators.DifferentiallyPrivateFactory": lambda inner=None: _dp(
        _dp.gaussian_fixed(0.1, 2.0, 1.0)._query, inner
    ),
    "tff.aggregators.EncodedSumFactory": lambda: (
        tff.aggregators.EncodedSumFactory.quantize_above_threshold(8, 2)
    ),
    "tff.aggregators.zeroing_factory": lambda inner=None: (
        tff.aggregators.zeroing_factory(9.0, inner or tff.aggregators.MeanFactory())
    ),
    "tff.aggregators.clipping_factory": lambda inner=None: (
        tff.aggregators.clipping_factory(9.0, inner or tff.aggregators.MeanFactory())
    ),
    "tff.aggregators.concat_factory": lambda inner=None: tff.aggregators.concat_factory(
        inner or tff.aggregators.MeanFactory()
    ),
    "tff.learning.add_debug_measurements": lambda inner=None: (
        tff.learning.add_debug_measurements(inner or tff.aggregators.MeanFactory())
    ),
    "tff.learning.robust_aggregator": tff.learning.robust_aggregator,
    "tff.learning.dp_aggregator": lambda: tff.learning.dp_aggregator(0.1, 2.0),
    "tff.learning.compression_aggregator": tff.learning.compression_aggregator,
    "tff.learning.secure_aggregator": tff.learning.secure_aggregator,
    "tff.learning.ddp_secure_aggregator": lambda: tff.learning.ddp_secure_aggregator(
        0.1, 2
    ),
}
COMPOSITIONS = re.findall(
    r"^\| `(tff\.[\w.]+)` \| (.+) \| (.+) \|$",
    (ROOT / "docs" / "composing.md").read_text(),
    re.MULTILINE,
)


@pytest.fixture
def local_context():
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield


def all_of_ours(inner):
    for wrap in (
        aggregators.adaptive_clipping_factory,
        aggregators.cohort_measurements_factory,
        aggregators.reject_non_finite_factory,
    ):
        inner = wrap(inner)
    return inner


def run_a_round(factory):
    values = [np.full(4, 0.5, np.float32), np.full(4, np.nan, np.float32)]
    if isinstance(factory, tff.aggregators.WeightedAggregationFactory):
        process = factory.create(VECTOR, WEIGHT)
        return process.next(process.initialize(), values, [2.0, 1.0])
    process = factory.create(VECTOR)
    return process.next(process.initialize(), values)


def test_the_table_of_compositions_has_every_factory_once():
    assert [name for name, _, _ in COMPOSITIONS] == list(TFF_FACTORIES)


@pytest.mark.documents
@pytest.mark.parametrize(("name", "inside", "around"), COMPOSITIONS)
def test_factories_compose_as_the_table_says(name, inside, around, local_context):
    build = TFF_FACTORIES[name]
    takes_inner = bool(inspect.signature(build).parameters) and "learning." not in name
    assert inside == "yes"
    output = run_a_round(all_of_ours(build()))
    assert np.all(np.isfinite(output.result))
    assert output.measurements["rejected_clients"] == 1
    if around == "-":
        assert not takes_inner
        return
    inner = tff.aggregators.SumFactory() if around == "over sums" else None
    output = run_a_round(build(all_of_ours(inner)))
    assert np.all(np.isfinite(output.result))
    if around == "over sums":
        with pytest.raises(TypeError, match="UnweightedAggregationFactory"):
            build(all_of_ours(tff.aggregators.MeanFactory()))
