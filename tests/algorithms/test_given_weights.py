"""Clients that count by weights of their own, which their batches have."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests.client_works import against_keras
from tff_drift import algorithms, execution, models, simulation

DRAW = np.random.default_rng(8)
SIZES = {"a": 5, "b": 2, "c": 4}
DATA = {
    name: {
        "x": DRAW.normal(size=(size, 1)).astype(np.float32),
        "y": DRAW.normal(size=(size, 1)).astype(np.float32),
    }
    for name, size in SIZES.items()
}
BEGIN = [np.array([[0.5]], np.float32), np.array([-1.0], np.float32)]
RATE = 0.1


def weighted(weights):
    clients = {
        # In the order of names, which TFF's own context wants.
        name: {"client_weight": np.full(SIZES[name], weights[name]), **arrays}
        for name, arrays in DATA.items()
    }
    return simulation.ClientDatasets.from_arrays(clients, batch_size=3, shuffle=False)


def weighted_by_name(weights):
    pairs = {name: (arrays["x"], arrays["y"]) for name, arrays in DATA.items()}
    train = simulation.ClientDatasets.from_arrays(pairs, batch_size=3, shuffle=False)
    return train.with_client_weights(weights)


def model_fn_of(train):
    def model_fn():
        return models.from_keras2(
            tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[1])]),
            tf.keras.losses.MeanSquaredError(),
            train.element_spec,
        )

    return model_fn


@pytest.fixture(scope="module")
def by_weight():
    """FedAvg whose clients count by the weights that their batches have."""
    train = weighted(dict.fromkeys(SIZES, 1.0))
    return algorithms.build_fed_avg(
        model_fn_of(train), RATE, client_weighting="client_weight"
    )


@pytest.fixture(scope="module")
def local_context():
    return execution.create_local_execution_context()


@pytest.fixture
def local(local_context):
    """Runs a test under the local context, which a module's tests share."""
    with tff.framework.get_context_stack().install(local_context):
        yield


def trained_alone(name):
    """Plain SGD over the batches of a client, by hand."""
    kernel, bias = BEGIN
    x, y = (DATA[name][part].astype(np.float64) for part in "xy")
    for start in range(0, len(x), 3):
        rows = slice(start, start + 3)
        factor = 2 * (x[rows] @ kernel + bias - y[rows]) / len(x[rows])
        kernel, bias = (
            kernel - RATE * x[rows].T @ factor,
            bias - RATE * factor.sum(axis=0),
        )
    return [kernel, bias]


@pytest.mark.no_smoke
@pytest.mark.parametrize("context", tiers.first(["local"], ["local", "native"]))
def test_the_mean_has_the_weights_given(native_context, context, request):
    if context == "local":
        request.getfixturevalue("local")
    weights = {"a": 0.25, "b": 7.5, "c": 0.0, "another": 3.0}
    train = weighted_by_name(weights)
    del weights["another"]
    data = [train.training_data(name, 0) for name in SIZES]
    process = algorithms.build_fed_avg(
        model_fn_of(train), RATE, client_weighting="client_weight"
    )
    found, _ = against_keras.round_of(process, BEGIN, *data)
    alone = [trained_alone(name) for name in SIZES]
    expected = [
        np.average(parts, axis=0, weights=list(weights.values()))
        for parts in zip(*alone, strict=True)
    ]
    against_keras.assert_alike(found, expected)


def doubled(examples, generator):
    return tf.nest.map_structure(lambda array: array * 2, examples)


def test_weights_come_with_the_examples_however_they_are_read():
    x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    forms = {
        "in RAM": simulation.ClientDatasets.from_arrays({"a": (x, y)}, batch_size=2),
        "loaded": simulation.ClientDatasets(
            ["a"], lambda _: [x, y, y / 2], batch_size=2, max_examples=4
        ),
        "lists": simulation.ClientDatasets(
            ["a"], lambda _: (x.tolist(), y.tolist()), batch_size=2
        ),
        "by name": simulation.ClientDatasets.from_arrays(
            {"a": {"y": y, "x": x}}, batch_size=2, transform=doubled
        ),
    }
    found = {
        form: datasets.with_client_weights({"a": 1.5}).examples("a")
        for form, datasets in forms.items()
    }
    expected = {
        "in RAM": {"client_weight": [1.5] * 5, "x": x, "y": y},
        "loaded": {
            "client_weight": [1.5] * 4,
            "sample_weight": (y / 2)[:4],
            "x": x[:4],
            "y": y[:4],
        },
        "lists": {"client_weight": [1.5] * 5, "x": x, "y": y},
        "by name": {"client_weight": [1.5] * 5, "x": x * 2, "y": y * 2},
    }
    for form, wanted in expected.items():
        assert list(found[form]) == list(wanted)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[form][name], array)
            assert found[form]["client_weight"].dtype == np.float32


X, Y = np.arange(10.0).reshape(5, 2), np.arange(5)
FORMS = {
    "pairs": (X, Y),
    "pairs with weights of examples": (X, Y, Y / 2),
    "by name": {"y": Y, "x": X},
}


def assert_examples(datasets, weight, x, y, sample_weight=None, client="a"):
    wanted = {"client_weight": [weight] * len(y), "x": x, "y": y}
    if sample_weight is not None:
        wanted["sample_weight"] = sample_weight
    assert list(datasets.element_spec) == sorted(wanted)
    found = datasets.examples(client)
    assert list(found) == sorted(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("before", [None, doubled])
@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_another_transform_is_given_examples_without_weights(form, is_loaded, before):
    given = []

    def negative(examples, generator):
        given.append(examples)
        return tf.nest.map_structure(lambda array: -array, examples)

    options = {"batch_size": 5, "shuffle": False, "transform": before}
    train = simulation.ClientDatasets.from_arrays({"a": FORMS[form]}, **options)
    if is_loaded:
        train = simulation.ClientDatasets(["a"], lambda _: FORMS[form], **options)
    own = Y / 2 if "weights" in form else None
    train = train.with_client_weights({"a": 1.5})
    assert train.transform is before
    changed = train.replace(transform=negative)
    assert_examples(changed, 1.5, -X, -Y, None if own is None else -own)
    (batch,) = changed.training_batches("a", 0)
    np.testing.assert_array_equal(batch["x"], -X)
    np.testing.assert_array_equal(batch["client_weight"], [1.5] * 5)
    for examples in given:
        tf.nest.assert_same_structure(examples, FORMS[form])
    for plain in (changed.replace(transform=None), train.replace(transform=None)):
        assert plain.transform is None
        assert_examples(plain, 1.5, X, Y, own)
    again = changed.replace(transform=changed.transform)
    assert_examples(again, 1.5, -X, -Y, None if own is None else -own)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("transform", [None, doubled])
@pytest.mark.parametrize("form", FORMS)
def test_clients_keep_their_weights_when_examples_are_shared_or_pooled(
    form, transform, split
):
    train = simulation.ClientDatasets.from_arrays(
        {"a": FORMS[form], "b": FORMS[form]}, batch_size=5, transform=transform
    ).with_client_weights({"a": 1.5, "b": 4.0})
    own = Y / 2 if "weights" in form else None
    times = 1 if transform is None else 2
    public = simulation.sample_examples(train.replace(transform=None), 1.0, seed=0)
    both = simulation.share(train, public, split=split)
    pooled = simulation.pool(train)
    assert both.num_examples("a") == (10 if split else 15)
    for datasets, client, weight in (
        (both, "a", 1.5),
        (both, "b", 4.0),
        (pooled, "everyone", 1.0),
    ):
        found = datasets.examples(client)
        first = {name: array[:5] for name, array in found.items()}
        assert list(first) == list(train.element_spec)
        np.testing.assert_array_equal(first["x"], X * times)
        np.testing.assert_array_equal(found["client_weight"], weight)
        rows = datasets.replace(transform=None, max_examples=5)
        assert_examples(rows, weight, X, Y, own, client)
    labels = [both.examples(client)["y"][5:] for client in "ab"]
    drawn = np.concatenate(labels) if split else labels[0]
    assert sorted(drawn) == sorted(np.tile(Y, 2) * times)


def test_weights_that_are_arrays_of_the_examples_stay_the_clients_own():
    train = weighted({"a": 1.0, "b": 9.0, "c": 4.0})
    both = simulation.share(train, train.examples("b"))
    for client, weight in {"a": 1.0, "b": 9.0, "c": 4.0}.items():
        found = both.examples(client)
        np.testing.assert_array_equal(
            found["client_weight"], [weight] * (SIZES[client] + SIZES["b"])
        )
        np.testing.assert_array_equal(found["x"][-2:], DATA["b"]["x"])
    everyone = simulation.pool(train).examples("everyone")
    np.testing.assert_array_equal(everyone["client_weight"], [1.0] * 11)


@pytest.mark.parametrize("kind", ["in RAM", "loaded", "shared", "arrays"])
@pytest.mark.parametrize("transform", [None, doubled])
def test_new_weights_replace_the_old(kind, transform):
    options = {"batch_size": 5, "transform": transform}
    train = simulation.ClientDatasets.from_arrays({"a": (X, Y)}, **options)
    if kind == "loaded":
        train = simulation.ClientDatasets(["a"], lambda _: (X, Y), **options)
    train = train.with_client_weights({"a": 1.5})
    if kind == "shared":
        public = simulation.sample_examples(train.replace(transform=None), 0.0, 0)
        train = simulation.share(train, public)
    if kind == "arrays":
        clients = {"a": {"client_weight": np.full(5, 1.5), "x": X, "y": Y}}
        train = simulation.ClientDatasets.from_arrays(clients, **options)
    again = train.with_client_weights({"a": 7.0}).with_client_weights({"a": 3.0})
    times = 1 if transform is None else 2
    assert again.transform is transform
    assert_examples(again, 3.0, X * times, Y * times)
    both = simulation.share(again, again.replace(transform=None).examples("a"))
    assert_examples(
        both, 3.0, *(np.concatenate([each, each]) for each in (X * times, Y * times))
    )


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ({"a": 1.0, "c": 2.0}, ValueError, "weights lacks 1 of 3 clients, such as 'b'"),
        (
            {"a": 1.0, "b": -1.0, "c": 2.0},
            ValueError,
            r"weights\['b'\] must be .* -1.0",
        ),
        (
            {"a": 1.0, "b": np.nan, "c": 2.0},
            ValueError,
            r"weights\['b'\] must be .* nan",
        ),
        ({"a": 1.0, "b": "2", "c": 2.0}, TypeError, r"weights\['b'\] must be a number"),
        ([1.0, 2.0, 3.0], TypeError, "weights must be a mapping of client ids"),
    ],
)
def test_weights_that_are_none_are_refused_by_name(weights, error, message):
    with pytest.raises(error, match=message):
        weighted_by_name(weights)


def test_examples_without_names_take_no_weights():
    train = simulation.ClientDatasets.from_arrays({"a": np.ones(3)}, batch_size=3)
    with pytest.raises(ValueError, match=r"examples \(x, y\) or .* found 'ndarray'"):
        train.with_client_weights({"a": 1.0})


SGDM = tff.learning.optimizers.build_sgdm(RATE, 0.5)
BUILDERS = {
    "fed_avg": algorithms.build_fed_avg,
    "fed_nova": algorithms.build_fed_nova,
    "mime": lambda model_fn, rate, **options: algorithms.build_mime(
        model_fn, SGDM, **options
    ),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", tiers.first(["fed_avg"], list(BUILDERS)))
def test_numbers_of_examples_as_weights_change_nothing(name):
    plain = simulation.ClientDatasets.from_arrays(DATA, batch_size=3, shuffle=False)
    by_examples = tff.learning.ClientWeighting.NUM_EXAMPLES

    def trained(weighting, train):
        process = BUILDERS[name](model_fn_of(train), RATE, client_weighting=weighting)
        result = simulation.run_training(
            process, train, rounds=2, cohort_size=2, initial_weights=BEGIN
        )
        return result.model_weights.trainable

    with against_keras.local():
        one = trained("client_weight", weighted(SIZES))
        other = trained(by_examples, plain)
    for found, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not np.allclose(one[-1], BEGIN[-1])


def test_weights_that_nobody_gives_or_sums_are_refused():
    train = simulation.ClientDatasets.from_arrays(DATA, batch_size=3)
    with pytest.raises(ValueError, match=r'"client_weight": \.\.\.'):
        algorithms.build_fed_avg(
            model_fn_of(train), RATE, client_weighting="client_weight"
        )
    with pytest.raises(ValueError, match="for methods whose clients keep no state"):
        algorithms.build_scaffold(
            model_fn_of(weighted(SIZES)),
            RATE,
            num_clients=3,
            client_weighting="client_weight",
        )


@pytest.mark.parametrize("keeps_states", [False, True])
def test_weights_that_a_process_ignores_are_refused(keeps_states):
    train = weighted_by_name(dict.fromkeys(SIZES, 2.0))
    process = algorithms.build_fed_avg(model_fn_of(train), RATE)
    weighting = "NUM_EXAMPLES"
    if keeps_states:
        process = simulation.ProcessWithClientStates(
            algorithms.build_scaffold(model_fn_of(train), RATE, num_clients=3)
        )
        weighting = "UNIFORM"
    with pytest.raises(
        ValueError,
        match=f"train has weights of clients, .*client_weighting {weighting}, which "
        "ignores them. Build it with client_weighting='client_weight', ",
    ):
        simulation.run_training(process, train, rounds=1, cohort_size=3)


def test_a_diagnosis_refuses_weights_that_it_would_ignore():
    train = weighted_by_name(dict.fromkeys(SIZES, 2.0))
    with pytest.raises(ValueError, match="train must be clients without weights: "):
        simulation.diagnose(
            model_fn_of(train), train, client_optimizer_fn=RATE, cohort_size=2
        )


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_client_whose_weight_is_none_is_left_out_and_counted(
    weight, by_weight, local
):
    weights = {"a": 0.25, "b": weight, "c": 2.0}
    train = weighted(weights)
    data = [train.training_data(name, 0) for name in SIZES]
    found, metrics = against_keras.round_of(by_weight, BEGIN, *data)
    expected = [
        np.average(parts, axis=0, weights=[0.25, 2.0])
        for parts in zip(trained_alone("a"), trained_alone("c"), strict=True)
    ]
    against_keras.assert_alike(found, expected)
    assert metrics["client_work"]["rejected_clients"] == 1


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], "example 1: found -1.0 as client_weight"),
        ([np.nan, np.nan], "example 0: found nan as client_weight"),
        ([np.inf, np.inf], "example 0: found inf as client_weight"),
        ([1.0, 2.0], r"example 1: found 2.0 .* 1.0 in its first .* are sample_weight"),
    ],
)
def test_a_run_refuses_weights_that_are_none(weights, message, by_weight, local):
    train = weighted(dict.fromkeys(SIZES, 1.0))
    clients = {name: train.examples(name) for name in SIZES}
    clients["b"] = {**clients["b"], "client_weight": np.array(weights)}
    train = simulation.ClientDatasets.from_arrays(clients, batch_size=3)
    with pytest.raises(ValueError, match=f"'b', {message}"):
        simulation.run_training(by_weight, train, rounds=2, cohort_size=3)
