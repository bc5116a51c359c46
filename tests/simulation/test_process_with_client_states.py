"""A process beside its store, in loops of one's own and in TFF's."""

import asyncio
import copy
import functools
import json

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, client_states, execution, simulation
from tff_drift.simulation import ProcessWithClientStates

pytestmark = pytest.mark.no_smoke

SIZES = [5, 8, 11, 14]
CLIENTS = {
    f"client_{index}": client
    for index, client in enumerate(models.client_arrays(SIZES, seed=2))
}
ROUNDS = 4
SEED = 3


@functools.cache
def built(method):
    if method == "scaffold":
        return algorithms.build_scaffold(models.softmax_regression, 0.2, len(CLIENTS))
    if method == "fed_dyn":
        return algorithms.build_fed_dyn(
            models.softmax_regression, 0.2, len(CLIENTS), mu=0.1
        )
    return algorithms.build_adabest(models.softmax_regression, 0.2)


@pytest.fixture(params=tiers.first(["scaffold"], ["scaffold", "fed_dyn", "adabest"]))
def process(request):
    return built(request.param)


@pytest.fixture(scope="module")
def train():
    return simulation.ClientDatasets.from_arrays(CLIENTS, batch_size=4, seed=6)


def sampling(train):
    return simulation.build_uniform_sampling(train.client_ids, 2, SEED)


def cohort(train, round_number):
    return {
        name: train.training_data(name, round_number)
        for name in sampling(train)(round_number)
    }


def store(kind, process, folder):
    if kind == "ram":
        return client_states.InMemoryClientStates(process.initial_client_state)
    return client_states.DiskClientStates(folder, process.initial_client_state)


def contents(states):
    return [
        np.asarray(leaf)
        for state in states.gather(list(CLIENTS))
        for leaf in state.values()
    ]


@functools.cache
def expected(process):
    """The weights and clients' states of `run_training`."""
    train = simulation.ClientDatasets.from_arrays(CLIENTS, batch_size=4, seed=6)
    states = store("ram", process, None)
    result = simulation.run_training(
        process,
        train,
        rounds=ROUNDS,
        cohort_size=2,
        seed=SEED,
        client_states=states,
    )
    return models.trainable(process, result.state), contents(states)


def assert_as_expected(process, state, states):
    weights, of_clients = expected(process)
    found = process.get_model_weights(state).trainable
    for a, b in zip([*found, *contents(states)], [*weights, *of_clients], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_loop_of_one_s_own(process, train):
    kept = ProcessWithClientStates(process)
    state = kept.initialize()
    for round_number in range(ROUNDS):
        state, metrics = kept.next(state, cohort(train, round_number))
        assert algorithms.CLIENT_STATES not in metrics
    weights, of_clients = expected(process)
    models.assert_bit_equal(models.trainable(process, state), weights)
    models.assert_bit_equal(contents(kept.client_states), of_clients)


@pytest.mark.conformance
def test_lists_of_batches_are_taken_too(train):
    process = built("scaffold")
    kept = ProcessWithClientStates(process)
    state = kept.initialize()
    with tff.framework.get_context_stack().install(
        execution.create_local_execution_context()
    ):
        for round_number in range(ROUNDS):
            batches = {
                name: train.training_batches(name, round_number)
                for name in sampling(train)(round_number)
            }
            state, _ = kept.next(state, batches)
    assert_as_expected(process, state, kept.client_states)


def test_the_type_of_next_hides_the_states():
    process = built("scaffold")
    kept = ProcessWithClientStates(process)
    plain = models.fed_avg(0.1)
    assert (
        kept.next.type_signature.parameter[1]
        == (plain.next.type_signature.parameter[1])
    )
    metrics = kept.next.type_signature.result.metrics.member
    assert "client_states" not in dir(metrics)
    assert (
        metrics["client_work"]
        == (process.next.type_signature.result.metrics.member["client_work"])
    )


def test_run_training_takes_it_as_it_is(train):
    process = built("scaffold")
    kept = ProcessWithClientStates(process)
    result = simulation.run_training(
        kept, train, rounds=ROUNDS, cohort_size=2, seed=SEED
    )
    assert_as_expected(process, result.state, kept.client_states)
    with pytest.raises(ValueError, match="process has a store"):
        simulation.run_training(
            kept,
            train,
            rounds=ROUNDS,
            cohort_size=2,
            client_states=store("ram", process, None),
        )


def test_it_says_of_itself_what_its_process_says(train):
    kept = ProcessWithClientStates(built("scaffold"))
    # Of the 3 x 4 weights and 4 biases, and of as many of the control variate, 4 bytes
    # each way; a client's weight goes up beside them.
    model = (3 * 4 + 4) * 4
    assert simulation.model_traffic(kept) == simulation.Traffic(
        bytes_down=2 * model, bytes_up=2 * model + 4, model_bytes=model
    )
    result = simulation.run_training(kept, train, rounds=1, cohort_size=2)
    assert result.rows[0]["bytes_down"] == 2 * 2 * model
    assert result.rows[0]["bytes_up"] == 2 * (2 * model + 4)


@pytest.mark.parametrize(
    "name", ["message_down", "message_up", "needs_full_participation", "settings"]
)
def test_an_attribute_of_its_process(name):
    process = built("fed_dyn")
    assert getattr(ProcessWithClientStates(process), name) == getattr(process, name)


def test_an_asynchronous_context(train):
    process = built("scaffold")
    kept = ProcessWithClientStates(process)
    state = kept.initialize()

    async def run(state):
        for round_number in range(ROUNDS):
            state, _ = await kept.next(state, cohort(train, round_number))
        return state

    context = execution.create_async_local_execution_context()
    with tff.framework.get_context_stack().install(context):
        state = asyncio.run(run(state))
    assert_as_expected(process, state, kept.client_states)


def test_states_of_another_round_are_refused(train):
    process = built("scaffold")
    kept = ProcessWithClientStates(process)
    first = kept.initialize()
    second, _ = kept.next(first, cohort(train, 0))
    kept.next(second, cohort(train, 1))
    before = contents(kept.client_states)
    with pytest.raises(
        client_states.ClientStatesError, match=r"after 2 rounds, but .* after 1"
    ):
        kept.next(second, cohort(train, 1))
    models.assert_bit_equal(contents(kept.client_states), before)
    # A store of which nobody has said what it belongs to.
    again = ProcessWithClientStates(process, kept.client_states)
    with pytest.raises(client_states.ClientStatesError, match="after no round"):
        again.next(first, cohort(train, 0))
    # An empty store beside a state that has been trained.
    fresh = ProcessWithClientStates(process)
    with pytest.raises(client_states.ClientStatesError, match="of 0 clients"):
        fresh.next(second, cohort(train, 1))
    fresh.begin(second)
    fresh.next(second, cohort(train, 1))


@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_a_store_that_others_wrote_is_refused(kind, train, tmp_path):
    process = built("scaffold")
    with store(kind, process, tmp_path / "states") as states:
        first, second = (ProcessWithClientStates(process, states) for _ in range(2))
        start = first.initialize()
        state, _ = first.next(start, cohort(train, 0))
        refused = pytest.raises(
            client_states.ClientStatesError, match="client_states was written since"
        )
        with refused:
            second.next(start, cohort(train, 0))
        states.scatter(["client_0"], [process.initial_client_state])
        with refused:
            first.next(state, cohort(train, 1))
        # Of no run, but it is said to be.
        first.begin(state)
        state, _ = first.next(state, cohort(train, 1))
        states.commit(2)
        state, _ = first.next(state, cohort(train, 2))
        states.restore(2)
        with refused:
            first.next(state, cohort(train, 3))


def test_a_store_that_was_changed_since_its_version_is_of_no_round(train):
    process = built("scaffold")
    kept = ProcessWithClientStates(process)
    saved, _ = kept.next(kept.initialize(), cohort(train, 0))
    kept.client_states.commit(1)
    ProcessWithClientStates(process, kept.client_states).next(saved, cohort(train, 1))
    again = ProcessWithClientStates(process, kept.client_states)
    with pytest.raises(client_states.ClientStatesError, match="after no round"):
        again.next(saved, cohort(train, 1))


def test_bad_arguments_are_errors(train):
    process = built("scaffold")
    plain = models.fed_avg(0.1)
    with pytest.raises(TypeError, match="process must be one whose clients keep"):
        ProcessWithClientStates(plain)
    with pytest.raises(
        TypeError, match=r"client_states must be a tff_drift\.client_states"
    ):
        ProcessWithClientStates(process, {})
    other = client_states.InMemoryClientStates({"x": np.zeros(3)})
    with pytest.raises(ValueError, match="made for other states"):
        ProcessWithClientStates(process, other)
    kept = ProcessWithClientStates(process)
    state = kept.initialize()
    with pytest.raises(
        TypeError, match="client_data must be the cohort's data by client id"
    ):
        kept.next(state, list(cohort(train, 0).values()))
    with pytest.raises(TypeError, match="state must be the server state"):
        kept.next({}, cohort(train, 0))


class KilledError(Exception):
    pass


def run_tffs_loop(kept, train, folder, rounds=ROUNDS, every=1, kill_at=None):
    """Trains with `tff.simulation.run_training_process`."""

    def select(round_number):
        if round_number == kill_at:
            raise KilledError
        return cohort(train, round_number - 1)

    asyncio.set_event_loop(asyncio.new_event_loop())
    return tff.simulation.run_training_process(
        kept,
        select,
        rounds,
        program_state_manager=simulation.ClientStatesProgramStateManager(
            tff.program.FileProgramStateManager(folder), kept
        ),
        rounds_per_saving_program_state=every,
    )


def test_tffs_simulation_loop_trains_them(process, train):
    kept = ProcessWithClientStates(process)
    released = []

    class Rows(tff.program.ReleaseManager):
        async def release(self, value, key):
            released.append(value)

    asyncio.set_event_loop(asyncio.new_event_loop())
    state = tff.simulation.run_training_process(
        kept,
        lambda round_number: cohort(train, round_number - 1),
        ROUNDS,
        metrics_managers=[Rows()],
    )
    assert_as_expected(process, state, kept.client_states)
    assert len(released) == ROUNDS
    assert algorithms.CLIENT_STATES not in released[0]


@pytest.mark.parametrize("kind", tiers.first(["ram"], ["ram", "disk"]))
def test_tffs_simulation_loop_resumes(kind, train, tmp_path):
    process = built("scaffold")
    states = None
    for kill_at in (2, 4, None):
        # A program that ends: its store is lost, or closed.
        if states is not None:
            states.close()
        states = store(kind, process, tmp_path / "states")
        kept = ProcessWithClientStates(process, states)
        try:
            state = run_tffs_loop(
                kept, train, tmp_path / "program", every=2, kill_at=kill_at
            )
        except KilledError:
            continue
    assert_as_expected(process, state, states)
    states.close()


def test_a_store_that_is_newer_than_the_program_state_is_refused(train, tmp_path):
    process = built("scaffold")
    with store("disk", process, tmp_path / "states") as states:
        kept = ProcessWithClientStates(process, states)
        run_tffs_loop(kept, train, tmp_path / "program", rounds=2)
    with store("disk", process, tmp_path / "states") as states:
        kept = ProcessWithClientStates(process, states)
        with pytest.raises(client_states.ClientStatesError, match="no program state"):
            run_tffs_loop(kept, train, tmp_path / "another")


class WithoutFingerprints(tff.program.FileProgramStateManager):
    """Saves program states as earlier versions of this library did."""

    async def save(self, program_state, version):
        await super().save(program_state[0], version)


@pytest.mark.conformance
def test_a_program_state_takes_no_store_of_another_program(
    train, tmp_path, monkeypatch
):
    process = built("scaffold")

    def go_on(rounds, states, program="program"):
        with store("disk", process, tmp_path / states) as opened:
            kept = ProcessWithClientStates(process, opened)
            return run_tffs_loop(kept, train, tmp_path / program, rounds)

    go_on(2, "states")
    go_on(2, "other states", "other")
    with pytest.raises(client_states.ClientStatesError, match="that of another run"):
        go_on(3, "other states")
    monkeypatch.setattr(tff.program, "FileProgramStateManager", WithoutFingerprints)
    go_on(2, "earlier states", "earlier")
    monkeypatch.undo()
    state = go_on(3, "earlier states", "earlier")
    models.assert_bit_equal(
        models.trainable(process, state),
        models.trainable(process, go_on(3, "states")),
    )


def train_model(kept, train, folder, rounds=ROUNDS, discard=None):
    """Trains with `tff.learning.programs.train_model`."""
    asyncio.run(
        tff.learning.programs.train_model(
            train_process=kept,
            train_data_source=simulation.ClientDataSource(train, seed=SEED),
            train_per_round_clients=2,
            train_total_rounds=rounds,
            should_discard_round=discard,
            program_state_manager=simulation.ClientStatesProgramStateManager(
                tff.program.FileProgramStateManager(folder / "program"), kept
            ),
            model_output_manager=tff.program.SavedModelFileReleaseManager(
                str(folder / "models"), "model_"
            ),
            evaluation_manager=None,
            evaluation_periodicity=100,
        )
    )


def program_context(name):
    if name == "local":
        context = execution.create_async_local_execution_context()
    else:
        context = tff.backends.native.create_async_local_cpp_execution_context()
    return tff.program.NativeFederatedContext(context)


@pytest.fixture
def server_states(monkeypatch):
    """The server states that a program comes to."""
    states, end = [], simulation.Cohort.end

    def noting(*arguments, **options):
        output = end(*arguments, **options)
        states.append(output.state)
        return output

    monkeypatch.setattr(simulation.Cohort, "end", noting)
    return states


@pytest.mark.parametrize("context", tiers.first(["local"], ["local", "native"]))
def test_tffs_program_trains_them(context, process, train, tmp_path, server_states):
    kept = simulation.ProcessWithClientStates(process)
    with tff.framework.get_context_stack().install(program_context(context)):
        train_model(kept, train, tmp_path)
    assert_as_expected(process, server_states[-1], kept.client_states)


@pytest.mark.conformance
@pytest.mark.parametrize("kind", tiers.first(["disk"], ["ram", "disk"]))
def test_tffs_program_resumes(kind, train, tmp_path, server_states):
    process = built("scaffold")
    with tff.framework.get_context_stack().install(program_context("local")):
        for rounds in (1, 3, ROUNDS):
            states = store(kind, process, tmp_path / "states")
            kept = simulation.ProcessWithClientStates(process, states)
            train_model(kept, train, tmp_path, rounds)
            found = contents(states)
            states.close()
    again = store("ram", process, None)
    again.scatter(
        list(CLIENTS),
        [
            dict(zip(process.initial_client_state, [leaf], strict=True))
            for leaf in found
        ],
    )
    assert_as_expected(process, server_states[-1], again)


@pytest.mark.conformance
def test_tffs_program_may_discard_a_round(train, tmp_path, server_states):
    process = built("scaffold")
    outputs = []

    def discard(output):
        outputs.append(output)
        return len(outputs) in (1, 3)

    kept = simulation.ProcessWithClientStates(process)
    with tff.framework.get_context_stack().install(program_context("local")):
        train_model(kept, train, tmp_path, discard=discard)
    assert len(outputs) == ROUNDS + 2
    assert_as_expected(process, server_states[-1], kept.client_states)


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["ram", "disk"])
def test_the_first_round_after_a_resume_may_be_discarded(
    kind, train, tmp_path, server_states
):
    process = built("scaffold")
    outputs = []

    def discard(output):
        outputs.append(output)
        return len(outputs) == 1

    def resume(rounds, discarded):
        states = store(kind, process, tmp_path / "states")
        kept = ProcessWithClientStates(process, states)
        with tff.framework.get_context_stack().install(program_context("local")):
            train_model(kept, train, tmp_path, rounds, discarded)
        return states

    resume(2, None).close()
    with resume(ROUNDS, discard) as states:
        assert len(outputs) == ROUNDS - 2 + 1
        assert_as_expected(process, server_states[-1], states)


def test_a_data_source_selects_what_run_training_samples(train):
    source = simulation.ClientDataSource(train, seed=SEED)
    iterator = source.iterator()
    selected = [list(iterator.select(2)) for _ in range(3)]
    assert selected == [sampling(train)(number) for number in range(3)]
    # A copy, and one restored from its bytes, go on from there.
    for other in (
        copy.deepcopy(iterator),
        type(iterator).from_bytes(iterator.to_bytes()),
    ):
        assert list(other.select(2)) == sampling(train)(3)
    changed = simulation.ClientDataSource(train.replace(batch_size=3), seed=SEED)
    with pytest.raises(ValueError, match="trained on other clients"):
        type(changed.iterator()).from_bytes(iterator.to_bytes())
    x, y = CLIENTS["client_2"]
    others = {**CLIENTS, "client_2": (np.roll(x, 1, axis=0), y)}
    other = simulation.ClientDataSource(
        train.from_arrays(others, batch_size=4, seed=6), seed=SEED
    )
    saved = json.loads(iterator.to_bytes())
    with pytest.raises(ValueError, match="trained on other clients or examples"):
        type(other.iterator()).from_bytes(json.dumps(saved).encode())
    # Programs that earlier versions saved say nothing of examples.
    del saved["examples"]
    restored = type(other.iterator()).from_bytes(json.dumps(saved).encode())
    assert list(restored.select(2)) == sampling(train)(3)
    assert source.federated_type == iterator.federated_type
