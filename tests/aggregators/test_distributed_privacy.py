"""Distributed differential privacy, deep as it is, inside our aggregations."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import tiers
from tff_drift import aggregators, execution

# Within the clipping norm that TFF begins with, 0.1.
VALUES = [np.float32([0.05, -0.025, 0.0]), np.float32([0.025, 0.025, -0.05])]
MEAN = [0.0375, 0.0, -0.025]


@pytest.fixture(params=tiers.first(["local"], ["test_context", "local"]))
def secure_sums_run_here(request):
    if request.param == "test_context":
        request.getfixturevalue("secure_sums_run")
        yield
    else:
        context = execution.create_local_execution_context()
        with tff.framework.get_context_stack().install(context):
            yield


@pytest.mark.no_smoke
@pytest.mark.parametrize(
    "wrap",
    tiers.first(
        [0],
        [
            aggregators.reject_non_finite_factory,
            aggregators.cohort_measurements_factory,
        ],
    ),
)
def test_rounds_give_the_mean_up_to_the_noise(wrap, run_rounds, secure_sums_run_here):
    # The noise's standard deviation in the mean is far below the tolerance.
    private = tff.learning.ddp_secure_aggregator(
        noise_multiplier=1e-3, expected_clients_per_round=2, zeroing=False
    )
    process = wrap(private).create(tff.TensorType(np.float32, [3]))
    for output in run_rounds(process, (VALUES,), (VALUES,)):
        np.testing.assert_allclose(output.result, MEAN, atol=0.002)
