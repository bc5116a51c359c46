"""Methods after the five papers with what others bring, and in others' places."""

import inspect

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, stateful, tiers
from tff_drift import aggregators, algorithms, execution

CLIENTS = stateful.ragged_clients([7, 4, 9], epochs=2, seed=5)
ALL = list(CLIENTS)
RATE = 0.05
NEEDS = {"num_clients": len(CLIENTS)}
SINCE = {
    "fed_cm": algorithms.build_fed_cm,
    "fed_dc": algorithms.build_fed_dc,
    "fed_exp": algorithms.build_fed_exp,
    "fed_nova": algorithms.build_fed_nova,
    "mime": algorithms.build_mime,
    "mime_lite": algorithms.build_mime_lite,
    "scaffnew": algorithms.build_scaffnew,
    "scaffold_momentum": algorithms.build_scaffold_momentum,
}


@pytest.fixture(autouse=True, scope="module")
def local_context():
    context = execution.create_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        yield


def parameters(build):
    return inspect.signature(build).parameters


WITH_SERVER_OPTIMIZER = [
    name for name, build in SINCE.items() if "server_optimizer_fn" in parameters(build)
]


def drive(name, **options):
    build = SINCE[name]
    needs = {need: NEEDS[need] for need in NEEDS if need in parameters(build)}
    process = build(stateful.LinearRegression, RATE, **needs, **options)
    return stateful.Driver(process, CLIENTS)


@pytest.mark.conformance
@pytest.mark.parametrize("name", tiers.first(["fed_cm"], WITH_SERVER_OPTIMIZER))
def test_server_momentum_goes_on_in_the_last_direction(name):
    """Of the second round alone what the first one leaves behind differs."""
    plain = drive(name)
    momentum = drive(
        name, server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, 0.5)
    )
    plain.round(ALL)
    momentum.round(ALL)
    np.testing.assert_array_equal(momentum.model, plain.model)
    first = plain.model
    assert np.linalg.norm(first) > 0.01
    plain.round(ALL)
    momentum.round(ALL)
    np.testing.assert_allclose(momentum.model, plain.model + 0.5 * first, atol=1e-6)


def test_server_momentum_is_tried_with_all_that_have_a_server_optimizer():
    assert len(WITH_SERVER_OPTIMIZER) >= 4


@pytest.mark.conformance
@pytest.mark.parametrize("name", tiers.first(["fed_nova"], list(SINCE)))
def test_updates_may_be_clipped_adaptively_and_summed_securely(name):
    # 32 bits for numbers in [-64, 64]; examples and their sums are below that.
    secure = tff.aggregators.SecureSumFactory(64.0, -64.0)
    mean = tff.aggregators.MeanFactory(secure, secure, no_nan_division=True)
    plain = drive(name)
    # No update is clipped: what is sent beside them need not be.
    options = {"message_aggregator": mean} if name == "fed_exp" else {}
    clipped = drive(
        name,
        **options,
        model_aggregator=aggregators.adaptive_clipping_factory(
            mean, initial_clipping_norm=100.0
        ),
    )
    for _ in range(2):
        plain.round(ALL)
        metrics = clipped.round(ALL)
        np.testing.assert_allclose(clipped.model, plain.model, atol=1e-3)
    assert np.linalg.norm(plain.model) > 0.01
    measured = metrics["aggregator"].get("model", metrics["aggregator"])
    assert measured["clipped_fraction"] == 0.0


@pytest.mark.conformance
@pytest.mark.parametrize(
    "build",
    tiers.first(
        ["fed_avg"],
        {
            "tff": tff.learning.algorithms.build_weighted_fed_avg,
            "fed_avg": algorithms.build_fed_avg,
            "fed_nova": algorithms.build_fed_nova,
            "mime_lite": algorithms.build_mime_lite,
        },
    ),
)
def test_a_script_of_fed_avg_works_unchanged_with_another_builder(build):
    process = build(
        models.softmax_regression,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    )
    data = models.datasets(models.client_arrays([9, 6, 14]))
    state, losses = process.initialize(), []
    for _ in range(3):
        output = process.next(state, data)
        state = output.state
        losses.append(float(output.metrics["client_work"]["train"]["loss"]))
    assert losses[-1] < losses[0]
    weights = process.get_model_weights(state)
    assert any(np.any(tensor) for tensor in weights.trainable)
    evaluation = tff.learning.algorithms.build_fed_eval(models.softmax_regression)
    measured = evaluation.next(
        evaluation.set_model_weights(evaluation.initialize(), weights), data
    ).metrics["client_work"]["eval"]["current_round_metrics"]
    assert float(measured["loss"]) < losses[0]


@pytest.mark.conformance
def test_the_latest_model_of_fed_dc_is_what_the_client_trained():
    kept = drive("fed_dc", keep_latest_models=True, alpha=0.0, correct_gradients=False)
    process = algorithms.build_fed_avg(
        stateful.LinearRegression, RATE, client_weighting=stateful.UNIFORM
    )
    fed_avg = stateful.Driver(process, CLIENTS)
    kept.round(ALL[:1])
    fed_avg.round(ALL[:1])
    # Of one client's round from the same model: without α its steps are FedAvg's, and
    # its update has its drift besides.
    np.testing.assert_array_equal(
        kept.remembered(ALL[0], "latest_model"), fed_avg.model
    )
    assert np.linalg.norm(kept.model - fed_avg.model) > 0.01
