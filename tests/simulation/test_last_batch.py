"""What becomes of an epoch's last, short batch."""

import hashlib

import numpy as np
import pytest

from tff_drift import simulation
from tff_drift.simulation import ClientDatasets


def _datasets(sizes, **options):
    clients = {
        f"client_{k}": (np.arange(n, dtype=np.float32), 100 * k + np.arange(n))
        for k, n in enumerate(sizes)
    }
    return ClientDatasets.from_arrays(clients, **{"batch_size": 4, **options})


def _batches(datasets, client_id="client_0", round_number=0):
    found = [y.tolist() for _, y in datasets.training_batches(client_id, round_number)]
    data = datasets.training_data(client_id, round_number)
    assert [y.tolist() for _, y in data.as_numpy_iterator()] == found
    return found


def _draw(seed, round_number, client_id):
    words = np.frombuffer(hashlib.sha256(client_id).digest()[:16], "<u4").tolist()
    sequence = np.random.SeedSequence((seed, round_number, *words))
    return np.random.Generator(np.random.PCG64(sequence))


def test_the_last_batch_stays_short_unless_asked():
    short = _datasets([6], last_batch="short")

    assert [len(batch) for batch in _batches(short)] == [4, 2]
    assert _batches(short) == _batches(_datasets([6]))


def test_a_short_batch_is_left_out():
    shuffled = _batches(_datasets([10], last_batch="drop", epochs=2, seed=1))
    kept = _batches(_datasets([10], epochs=2, seed=1))

    assert [len(batch) for batch in shuffled] == [4, 4, 4, 4]
    # The order is the one that the whole epoch has.
    assert shuffled == kept[:2] + kept[3:5]
    in_order = _datasets([10], last_batch="drop", shuffle=False)
    assert _batches(in_order) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_clients_only_batch_is_kept():
    assert _batches(_datasets([3], last_batch="drop", shuffle=False)) == [[0, 1, 2]]


def test_a_short_batch_is_filled_up_by_bootstrap():
    datasets = _datasets([6], last_batch="bootstrap", seed=5)
    draw = _draw(5, 2, b"client_0")
    order, filling = draw.permutation(6).tolist(), draw.integers(6, size=2).tolist()

    assert _batches(datasets, round_number=2) == [order[:4], order[4:] + filling]
    assert datasets.num_examples("client_0") == 6
    assert [y.tolist() for _, y in datasets.evaluation_batches("client_0")] == [
        [0, 1, 2, 3, 4, 5]
    ]


def test_the_bootstrap_draws_from_all_of_the_clients_own_examples():
    datasets = _datasets([9, 9], last_batch="bootstrap", epochs=200)
    batches = _batches(datasets, "client_1")

    drawn = [y for batch in batches[2::3] for y in batch[1:]]
    counts = np.bincount(np.array(drawn) - 100, minlength=9)
    assert counts.sum() == 600
    # Each of nine examples is drawn with probability 1/9.
    assert np.abs(counts - 600 / 9).max() < 5 * np.sqrt(600 * 8 / 81)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("last_batch", ["drop", "bootstrap"])
def test_full_batches_are_as_they_are(size, last_batch):
    for shuffle in (True, False):
        options = {"shuffle": shuffle, "epochs": 2, "seed": 3}
        assert _batches(_datasets([size], last_batch=last_batch, **options)) == (
            _batches(_datasets([size], **options))
        )


def test_a_fill_is_a_pure_function_of_seed_round_and_client():
    def fills(**options):
        datasets = _datasets([5, 5], last_batch="bootstrap", **options)
        return [
            tuple(y % 100 for y in _batches(datasets, client_id, round_number)[1][1:])
            for round_number in (3, 0, 1)
            for client_id in ("client_1", "client_0")
        ]

    assert fills() == fills()
    assert fills() != fills(seed=1)
    assert len(set(fills())) > 3


def test_the_fill_is_distorted_like_any_example():
    def transform(examples, draw):
        x, y = examples
        return (x if draw is None else x + draw.random(len(x), np.float32)), y

    datasets = _datasets([2], last_batch="bootstrap", transform=transform)
    ((x, y),) = datasets.training_batches("client_0", 0)

    assert len(set(y.tolist())) == 2
    assert len(set(x.tolist())) == 4


def test_options_keep_and_change_it():
    datasets = _datasets([6, 6], last_batch="drop")

    assert datasets.subset(["client_1"]).batching.last_batch == "drop"
    assert datasets.replace(batch_size=5).batching.last_batch == "drop"
    shared = simulation.share(datasets, datasets.examples("client_0"))
    assert shared.batching.last_batch == "drop"
    assert [len(b) for b in _batches(datasets.replace(last_batch="short"))] == [4, 2]
    with pytest.raises(
        ValueError, match="last_batch must be one of 'short', 'drop', '"
    ):
        datasets.replace(last_batch="long")


def test_as_many_local_steps_for_every_client():
    # Below an epoch, an epoch and a half, and many of a small one.
    datasets = _datasets([20, 6, 3], local_steps=3, shuffle=False)

    assert _batches(datasets) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    sizes = [list(map(len, _batches(datasets, f"client_{k}"))) for k in (1, 2)]
    assert sizes == [[4, 2, 4], [3, 3, 3]]
    found = [datasets.num_examples_per_round(f"client_{k}") for k in range(3)]
    assert found == [12, 10, 9]


def test_local_steps_are_the_first_ones_of_as_many_epochs_as_it_takes():
    options = {"shuffle": True, "seed": 4, "last_batch": "bootstrap"}
    steps = _batches(_datasets([6], local_steps=3, **options), round_number=5)
    epochs = _batches(_datasets([6], epochs=2, **options), round_number=5)

    assert steps == epochs[:3]
    assert _datasets([6], epochs=2, **options).num_examples_per_round("client_0") == 16


def test_epochs_and_local_steps_at_once_are_refused():
    with pytest.raises(ValueError, match="epochs must be 1 with local_steps, found 2"):
        _datasets([6], epochs=2, local_steps=3)
    with pytest.raises(ValueError, match="local_steps must be at least 1"):
        _datasets([6], local_steps=0)
