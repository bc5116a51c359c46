"""Public examples: drawn from all clients, and added to each."""

import collections

import numpy as np
import pytest

from tff_drift import simulation

# Example number j of client i is 100 i + j.
SIZES = {"a": 3, "b": 50, "c": 47}


def numbered(**options):
    clients = {
        name: (np.arange(size) + 100 * index, np.full([size, 2], index, np.float32))
        for index, (name, size) in enumerate(SIZES.items())
    }
    return simulation.ClientDatasets.from_arrays(clients, batch_size=4, **options)


def trained(datasets, client_id, round_number=3):
    """The numbers that a client trains on, batch by batch."""
    data = datasets.training_data(client_id, round_number)
    return [batch[0].tolist() for batch in data.as_numpy_iterator()]


def test_a_sample_is_drawn_from_all_clients_without_replacement():
    numbers, features = simulation.sample_examples(numbered(), 0.6, seed=1)
    assert len(set(numbers.tolist())) == len(numbers) == 60
    of_client = collections.Counter((numbers // 100).tolist())
    # 60 of 100, of which a client has 3: hypergeometric, sd 0.7; the others 2.4.
    assert of_client[1] == pytest.approx(30, abs=12)
    np.testing.assert_array_equal(features, np.stack([numbers // 100] * 2, 1))
    assert np.any(np.diff(numbers) < 0)


def test_a_sample_is_a_function_of_the_seed():
    def draw(seed, fraction=0.2):
        numbers, _ = simulation.sample_examples(numbered(), fraction, seed)
        return numbers.tolist()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    assert len(draw(1, 1e-9)) == 1
    assert draw(1, 0.0) == []


def test_everybody_gets_what_is_shared():
    public = (np.array([900, 901]), np.zeros([2, 2], np.float32))
    shared = simulation.share(numbered(epochs=2), public)
    assert shared.num_examples("a") == 5
    batches = trained(shared, "a")
    assert [len(batch) for batch in batches] == [4, 1, 4, 1]
    assert sorted(batches[0] + batches[1]) == [0, 1, 2, 900, 901]
    assert shared.client_ids == tuple(SIZES)


def test_what_is_shared_may_be_a_list_of_arrays():
    public = [np.array([900, 901]), np.zeros([2, 2], np.float32)]
    shared = simulation.share(numbered(), public)
    assert shared.examples("a")[0].tolist() == [0, 1, 2, 900, 901]


def test_split_shares_are_equal_up_to_one():
    public = (np.arange(900, 905), np.zeros([5, 2], np.float32))
    shared = simulation.share(numbered(), public, split=True)
    parts = [
        sorted(set(shared.examples(name)[0]) & set(public[0].tolist()))
        for name in SIZES
    ]
    assert parts == [[900, 901], [902, 903], [904]]


@pytest.mark.parametrize("split", [False, True])
def test_nothing_shared_changes_nothing(split):
    own = numbered(epochs=2, seed=5)
    nothing = simulation.sample_examples(own, 0.0, seed=1)
    shared = simulation.share(own, nothing, split=split)
    for name in SIZES:
        assert trained(shared, name) == trained(own, name)


def test_options_are_kept_and_limits_are_of_the_clients_own_examples():
    def doubled(examples, generator):
        return examples[0] * 2, examples[1]

    own = numbered(max_examples=10, transform=doubled, shuffle=False, cache_bytes=100)
    public = simulation.sample_examples(own.replace(transform=None), 0.1, seed=1)
    shared = simulation.share(own, public)
    assert shared.num_examples("b") == 10 + 2
    numbers = shared.examples("b")[0].tolist()
    assert numbers[:10] == [2 * (100 + j) for j in range(10)]
    assert numbers[10:] == [2 * number for number in public[0].tolist()]
    assert (shared.batching.shuffle, shared.cache_bytes) == (False, 100)


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="fraction must be a number from 0 to 1"):
        simulation.sample_examples(numbered(), 1.5, seed=1)
    with pytest.raises(TypeError, match="seed must be an integer"):
        simulation.sample_examples(numbered(), 0.5, seed=None)
    other = (np.zeros([2]), np.zeros([2, 2], np.float32))
    with pytest.raises(TypeError, match="examples must be of the type"):
        simulation.share(numbered(), other)
