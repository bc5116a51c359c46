"""The driver keeps clients' states in step with the server state."""

import collections
import contextlib
import shutil
import sqlite3
import types

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import models, tiers
from tff_drift import algorithms, client_states, execution, simulation
from tff_drift.simulation.records import checkpoint
from tff_drift.simulation.records.run_store import InMemoryRunStore, TrainingState

pytestmark = pytest.mark.no_smoke

CLIENTS = {
    f"client_{index}": client
    for index, client in enumerate(models.client_arrays([5, 8, 11, 14], seed=2))
}


@pytest.fixture(scope="module")
def process():
    return algorithms.build_scaffold(models.softmax_regression, 0.2, len(CLIENTS))


@pytest.fixture(scope="module")
def train():
    return simulation.ClientDatasets.from_arrays(CLIENTS, batch_size=4, seed=6)


def run(process, train, rounds=6, output_dir=None, **options):
    if output_dir is not None:
        output_dir = simulation.OutputDir(output_dir, rounds_per_checkpoint=1)
    return simulation.run_training(
        process,
        train,
        rounds=rounds,
        cohort_size=2,
        seed=3,
        output_dir=output_dir,
        **options,
    )


def store(kind, process, folder):
    if kind == "ram":
        return client_states.InMemoryClientStates(process.initial_client_state)
    return client_states.DiskClientStates(folder, process.initial_client_state)


def variates(states):
    return [
        np.asarray(state["control_variate"]) for state in states.gather(list(CLIENTS))
    ]


def test_equals_rounds_driven_by_hand(process, train):
    states = client_states.InMemoryClientStates(process.initial_client_state)
    result = run(process, train, client_states=states)

    sample = simulation.build_uniform_sampling(train.client_ids, 2, 3)
    by_hand = dict.fromkeys(CLIENTS, process.initial_client_state)
    state = process.initialize()
    for round_number in range(6):
        cohort = sample(round_number)
        output = process.next(
            state,
            [
                collections.OrderedDict(
                    examples=train.training_data(name, round_number),
                    state=by_hand[name],
                    index=index,
                )
                for index, name in enumerate(cohort)
            ],
        )
        state = output.state
        collected = output.metrics[algorithms.CLIENT_STATES]
        for row, index in enumerate(collected["index"]):
            by_hand[cohort[index]] = collections.OrderedDict(
                control_variate=collected["state"]["control_variate"][row]
            )
    models.assert_bit_equal(
        models.trainable(process, result.state), models.trainable(process, state)
    )
    models.assert_bit_equal(
        variates(states),
        [np.asarray(each["control_variate"]) for each in by_hand.values()],
    )
    assert len(states) == len(CLIENTS)


# Those in RAM are in every checkpoint of test_resume.
@pytest.mark.parametrize("kind", tiers.first(["disk"], ["ram", "disk"]))
def test_a_resumed_run_equals_a_whole_one(kind, process, train, tmp_path):
    whole = store(kind, process, tmp_path / "whole_states")
    expected = run(process, train, client_states=whole, output_dir=tmp_path / "whole")
    for rounds in (2, 3, 6):
        parts = store(kind, process, tmp_path / "parts_states")
        result = run(
            process, train, rounds, client_states=parts, output_dir=tmp_path / "parts"
        )
        found = variates(parts)
        parts.close()
    models.assert_bit_equal(
        models.trainable(process, result.state),
        models.trainable(process, expected.state),
    )
    models.assert_bit_equal(found, variates(whole))
    whole.close()
    rows = [list(map(simulation.without_timing, r.rows)) for r in (result, expected)]
    assert rows[0] == rows[1]


def test_the_states_themselves_are_no_metric(process, train):
    row = run(process, train, rounds=1).rows[-1]
    assert not [name for name in row if "client_states" in name]
    assert row["client_work/drift"] > 0


@pytest.mark.parametrize(
    "method", tiers.first(["scaffold"], ["scaffold", "scaffold_m", "fed_dyn"])
)
def test_a_process_for_another_number_of_clients_is_refused(method, train):
    build = getattr(algorithms, f"build_{method}")
    process = build(models.softmax_regression, 0.2, 3)
    message = "built with num_clients=3, but train has 4 clients"
    with pytest.raises(ValueError, match=message):
        run(process, train)
    with pytest.raises(ValueError, match=message):
        run(simulation.ProcessWithClientStates(process), train)


def test_traffic_counts_the_variates(process):
    traffic = simulation.model_traffic(process)
    # A 3 x 4 kernel, 4 biases, and the variate of the same size.
    assert traffic.model_bytes == 64
    assert traffic.bytes_down == 128
    assert traffic.bytes_up == 128 + 4
    assert traffic.units_down == 2
    plain = algorithms.build_adabest(models.softmax_regression, 0.2)
    assert simulation.model_traffic(plain).units_down == 1


def test_a_store_of_another_run_is_refused(process, train, tmp_path):
    states = store("ram", process, None)
    run(process, train, rounds=1, client_states=states)
    with pytest.raises(client_states.ClientStatesError, match="empty store"):
        run(process, train, client_states=states, output_dir=tmp_path)
    with pytest.raises(client_states.ClientStatesError, match="empty store"):
        run(process, train, client_states=states)


def test_a_store_goes_on_with_its_server_state(process, train):
    states = store("ram", process, None)
    first = run(process, train, rounds=3, client_states=states)
    second = run(
        process,
        train,
        rounds=3,
        client_states=states,
        initial_state=first.state,
    )
    assert int(second.state.client_work["round_number"]) == 6
    # Client states of another round would not add up to the server's variate.
    mismatch = simulation.control_variate_mismatch(
        process, second.state, states, len(CLIENTS)
    )
    assert mismatch < 1e-6


def test_a_store_and_its_server_state_begin_a_run_in_a_folder(process, train, tmp_path):
    states = store("ram", process, None)
    first = run(process, train, rounds=2, client_states=states)
    leaves = {name: np.array(leaf) for name, leaf in states.leaves().items()}

    def go_on(rounds, output_dir):
        begun = store("ram", process, None)
        begun.load_leaves(leaves)
        options = {"client_states": begun, "initial_state": first.state}
        return run(process, train, rounds, output_dir, **options), begun

    whole, expected = go_on(2, None)
    go_on(1, tmp_path / "run")
    resumed, found = go_on(2, tmp_path / "run")
    weights = [
        [np.asarray(leaf) for leaf in result.model_weights.trainable]
        for result in (resumed, whole)
    ]
    models.assert_bit_equal(*weights)
    np.testing.assert_array_equal(variates(found), variates(expected))
    assert np.any(variates(found))


def test_a_store_on_disk_is_not_taken_for_another_run(process, train, tmp_path):
    with store("disk", process, tmp_path / "states") as states:
        states.scatter(["client_0"], [process.initial_client_state])
        states.commit(0)
        with pytest.raises(client_states.ClientStatesError, match="InMemoryClientS"):
            run(
                process,
                train,
                output_dir=tmp_path / "run",
                client_states=states,
                initial_state=process.initialize(),
            )


def test_a_store_without_need_or_of_another_kind_is_refused(process, train):
    plain = models.fed_avg(0.1)
    states = store("ram", process, None)
    with pytest.raises(ValueError, match="client_states"):
        run(plain, train, client_states=states)
    with pytest.raises(TypeError, match="client_states"):
        run(process, train, client_states={})


class _LeavingStates(execution.RoundRunner, tff.framework.SyncContext):
    """Runs rounds on another context, and leaves every state at its client."""

    def __init__(self, context):
        self._context = context

    def invoke(self, comp, arg):
        return self._context.invoke(comp, arg)

    def run_round(self, process, server_state, cohort):
        assert cohort.state_nbytes == 64
        assert len(cohort.clients) == 2
        data = cohort.datasets()
        return cohort.run(process, server_state, data, states_stay=True)


@pytest.mark.parametrize(
    "create_context",
    tiers.first(
        [1],
        [
            execution.create_native_execution_context,
            execution.create_local_execution_context,
        ],
    ),
)
def test_states_stay_at_the_clients_where_the_context_prefers_it(
    process, train, monkeypatch, create_context
):
    stores = [store("ram", process, None) for _ in range(2)]
    context, stack = create_context(), tff.framework.get_context_stack()
    with stack.install(context):
        collected = run(process, train, client_states=stores[0])
    with stack.install(_LeavingStates(context)):
        # It has a type, and cannot be called.
        unused = types.SimpleNamespace(type_signature=process.next.type_signature)
        monkeypatch.setattr(process, "_next_fn", unused)
        left = run(process, train, client_states=stores[1])
    for a, b in zip(
        models.trainable(process, left.state),
        models.trainable(process, collected.state),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    for a, b in zip(*map(variates, stores), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def two_runs(process, train, tmp_path_factory):
    """Returns a folder of two runs of two rounds: a and b, states_a and states_b."""
    folder = tmp_path_factory.mktemp("two")
    for name, seed in (("a", 3), ("b", 4)):
        with store("disk", process, folder / f"states_{name}") as states:
            run(
                process,
                train.replace(seed=seed),
                2,
                client_states=states,
                output_dir=folder / name,
            )
    return folder


@pytest.fixture
def copies(two_runs, tmp_path):
    shutil.copytree(two_runs, tmp_path, dirs_exist_ok=True)
    return tmp_path


def go_on(process, train, folder, states):
    with store("disk", process, folder / states) as opened:
        return run(process, train, 4, client_states=opened, output_dir=folder / "a")


def edit_index(folder, statement):
    with contextlib.closing(sqlite3.connect(folder / "index.sqlite")) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("how", ["another", "deleted", "of the checkpoint"])
def test_a_store_that_is_not_the_checkpoints_is_refused(how, process, train, copies):
    states, output_dir = "states_a", copies / "a"
    message = "other states of version 2 .* another run, or has been changed"
    if how == "another":
        states = "states_b"
    elif how == "deleted":
        edit_index(copies / states, "DELETE FROM states")
    else:
        # The store in RAM that the run had, and one on disk of the same round.
        shutil.rmtree(output_dir)
        run(process, train.replace(seed=3), 2, output_dir=output_dir)
        message = "its checkpoint holds them. Leave client_states out"
    before = (output_dir / "checkpoint.npz").read_bytes()
    with pytest.raises(client_states.ClientStatesError, match=message) as caught:
        go_on(process, train.replace(seed=3), copies, states)
    assert "\n" not in str(caught.value)
    assert (output_dir / "checkpoint.npz").read_bytes() == before


def test_a_checkpoint_that_names_no_store_takes_one_and_names_it(
    process, train, copies
):
    """As those of earlier versions, whose stores have no name of their own either."""
    train = train.replace(seed=3)
    saved = checkpoint.load_checkpoint(copies / "a" / "checkpoint.npz")
    description = dict(saved.description)
    assert description.pop("client_states_fingerprint")
    checkpoint.save_checkpoint(
        copies / "a" / "checkpoint.npz",
        2,
        description,
        {name: dict(leaves) for name, leaves in saved.leaves.items()},
    )
    edit_index(copies / "states_a", "DELETE FROM properties WHERE name = 'store_id'")
    found = go_on(process, train, copies, "states_a")
    expected = run(process, train, 4)
    models.assert_bit_equal(
        models.trainable(process, found.state),
        models.trainable(process, expected.state),
    )
    edit_index(copies / "states_a", "DELETE FROM states")
    with pytest.raises(client_states.ClientStatesError, match="has been changed"):
        go_on(process, train, copies, "states_a")


class _KeptElsewhere(InMemoryRunStore):
    """A run store of one's own that says where a run stands, and knows no states."""

    def __init__(self, state):
        super().__init__()
        self._state = state

    def resume(self, initial_state, hyperparameters):
        return TrainingState(2, self._state)


def test_a_run_kept_elsewhere_does_not_go_on_without_its_states(process, train):
    first = run(process, train, 2)
    with pytest.raises(
        client_states.ClientStatesError, match=r"0 clients after 0 rounds.*after 2"
    ):
        simulation.run_training(
            process,
            train,
            rounds=3,
            cohort_size=2,
            output_dir=_KeptElsewhere(first.state),
        )
