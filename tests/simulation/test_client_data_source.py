"""TFF's federated programs on processes whose clients keep no state."""

import asyncio

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, execution, simulation

pytestmark = pytest.mark.no_smoke

CLIENTS = {
    f"client_{index}": client
    for index, client in enumerate(models.client_arrays([5, 8, 11, 14], seed=2))
}
SEED = 3
BUILDERS = {
    "ours": algorithms.build_fed_avg,
    "tff's": tff.learning.algorithms.build_weighted_fed_avg,
}
CONTEXTS = {
    "local": execution.create_async_local_execution_context,
    "native": tff.backends.native.create_async_local_cpp_execution_context,
}


@pytest.fixture(name="train", scope="module")
def train_fixture():
    return simulation.ClientDatasets.from_arrays(CLIENTS, batch_size=4, seed=6)


def train_model(process, source, folder, rounds):
    """Trains with `tff.learning.programs.train_model`, and returns the weights."""
    outputs = tff.program.MemoryReleaseManager()
    asyncio.run(
        tff.learning.programs.train_model(
            train_process=process,
            train_data_source=source,
            train_per_round_clients=2,
            train_total_rounds=rounds,
            program_state_manager=tff.program.FileProgramStateManager(folder),
            model_output_manager=outputs,
            evaluation_manager=None,
            evaluation_periodicity=100,
        )
    )
    (state,) = outputs.values().values()
    return state.global_model_weights.trainable


@pytest.mark.parametrize(
    ("builder", "context"),
    tiers.first([0], [(b, c) for c in CONTEXTS for b in BUILDERS]),
)
def test_a_program_trains_what_run_training_does(builder, context, train, tmp_path):
    process = BUILDERS[builder](
        models.softmax_regression, tff.learning.optimizers.build_sgdm(0.2)
    )
    source = simulation.ClientDataSource(train, seed=SEED, by_client_id=False)
    program_context = tff.program.NativeFederatedContext(CONTEXTS[context]())
    with tff.framework.get_context_stack().install(program_context):
        # The second program goes on where the first one ended.
        for rounds in (2, 3):
            trained = train_model(process, source, tmp_path, rounds)
    with tff.framework.get_context_stack().install(
        execution.create_local_execution_context()
    ):
        result = simulation.run_training(
            process, train, rounds=3, cohort_size=2, seed=SEED
        )
    for found, expected in zip(trained, result.model_weights.trainable, strict=True):
        np.testing.assert_allclose(
            found, expected, rtol=0 if context == "local" else 1e-5
        )


@pytest.mark.parametrize(
    ("context", "message"),
    tiers.first(
        [0],
        [
            ("local", r"found a Selection\. Give a list of its values\.$"),
            ("native", r"ClientDataSource\(train, by_client_id=False\) selects lists"),
        ],
    ),
)
def test_datasets_by_client_id_are_refused(context, message, train, tmp_path):
    process = algorithms.build_fed_avg(models.softmax_regression, 0.2)
    source = simulation.ClientDataSource(train, seed=SEED)
    program_context = tff.program.NativeFederatedContext(CONTEXTS[context]())
    with (
        tff.framework.get_context_stack().install(program_context),
        pytest.raises(TypeError, match=message),
    ):
        train_model(process, source, tmp_path, rounds=1)


def test_selections_are_lists_of_the_clients_datasets(train):
    source = simulation.ClientDataSource(train, seed=SEED, by_client_id=False)
    selected = source.iterator().select(2)
    assert isinstance(selected, list)
    expected = simulation.build_uniform_sampling(train.client_ids, 2, SEED)(0)
    for dataset, name in zip(selected, expected, strict=True):
        for batch, other in zip(dataset, train.training_data(name, 0), strict=True):
            for one, another in zip(batch, other, strict=True):
                np.testing.assert_array_equal(one, another)
