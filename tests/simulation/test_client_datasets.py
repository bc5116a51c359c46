import collections
import contextlib
import hashlib
import pickle
import sqlite3

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.fakes import labelled_clients
from tff_drift.simulation import ClientDatasets
from tff_drift.simulation.data.client_data_reader import ClientDataReader


def _label_batches(dataset):
    return [labels.tolist() for _, labels in dataset.as_numpy_iterator()]


@settings(max_examples=30, deadline=None)
@given(
    size=st.integers(1, 25),
    batch_size=st.integers(1, 12),
    epochs=st.integers(1, 4),
    round_number=st.integers(0, 10**9),
    shuffle=st.booleans(),
)
def test_every_epoch_holds_every_example_once_in_batches(
    size, batch_size, epochs, round_number, shuffle
):
    datasets = ClientDatasets.from_arrays(
        labelled_clients([size]), batch_size=batch_size, epochs=epochs, shuffle=shuffle
    )

    batches = _label_batches(datasets.training_data("client_0", round_number))

    epoch_sizes = [batch_size] * (size // batch_size)
    if size % batch_size:
        epoch_sizes.append(size % batch_size)
    assert [len(batch) for batch in batches] == epoch_sizes * epochs
    labels = np.concatenate(batches).reshape(epochs, size)
    if not shuffle:
        np.testing.assert_array_equal(labels, [np.arange(size)] * epochs)
    for epoch in labels:
        np.testing.assert_array_equal(np.sort(epoch), np.arange(size))


def test_rows_of_all_arrays_stay_together():
    x = np.random.default_rng(0).normal(size=(30, 2, 2))
    datasets = ClientDatasets.from_arrays(
        {"a": collections.OrderedDict(x=x, y=np.arange(30))}, batch_size=7, epochs=2
    )

    for batch in datasets.training_data("a", 3).as_numpy_iterator():
        assert isinstance(batch, collections.OrderedDict)
        np.testing.assert_array_equal(batch["x"], x[batch["y"]])


def test_order_is_a_pure_function_of_seed_round_and_client():
    clients = labelled_clients([40, 40])
    one = ClientDatasets.from_arrays(clients, batch_size=40, epochs=2, seed=5)
    other = ClientDatasets.from_arrays(clients, batch_size=40, epochs=2, seed=5)
    expected = {
        (client_id, round_number): _label_batches(
            one.training_data(client_id, round_number)
        )
        for client_id in one.client_ids
        for round_number in (0, 1, 7)
    }

    for client_id, round_number in reversed(list(expected)):
        batches = _label_batches(other.training_data(client_id, round_number))
        assert batches == expected[client_id, round_number]

    orders = [np.array(order) % 1000 for order in expected.values()]
    orders.append(
        np.array(_label_batches(one.replace(seed=6).training_data("client_0", 0)))
    )
    epochs = [tuple(epoch) for order in orders for epoch in order]
    assert len(set(epochs)) == len(epochs) == 14


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**32, 2**40 + 5, 2**63 - 1])
def test_order_follows_its_recipe(seed):
    """Changing the recipe would change what a stopped run does when it resumes."""
    datasets = ClientDatasets.from_arrays(
        labelled_clients([20]), batch_size=20, seed=seed
    )
    words = np.frombuffer(hashlib.sha256(b"client_0").digest()[:16], "<u4").tolist()
    sequence = np.random.SeedSequence((seed, 11, *words))
    expected = np.random.Generator(np.random.PCG64(sequence)).permutation(20)

    (batch,) = _label_batches(datasets.training_data("client_0", 11))

    assert batch == expected.tolist()


def test_max_examples_keeps_the_first():
    datasets = ClientDatasets.from_arrays(
        labelled_clients([10, 3]), batch_size=4, max_examples=5
    )

    (first, last) = _label_batches(datasets.training_data("client_0", 0))

    assert sorted(first + last) == [0, 1, 2, 3, 4]
    assert datasets.num_examples("client_0") == 5
    assert datasets.num_examples("client_1") == 3


def test_evaluation_batches_are_unshuffled():
    datasets = ClientDatasets.from_arrays(labelled_clients([7]), batch_size=2, epochs=3)

    batches = datasets.evaluation_batches("client_0", batch_size=3)

    assert [y.tolist() for _, y in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [x.shape for x, _ in batches] == [(3, 3), (3, 3), (1, 3)]


def test_element_spec_is_that_of_every_dataset():
    clients = {"a": (np.zeros((4, 2), np.float32), np.array([b"s", b"t", b"", b"u"]))}
    expected = (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.string))

    for epochs, shuffle in ((1, True), (2, True), (2, False)):
        datasets = ClientDatasets.from_arrays(
            clients, batch_size=2, epochs=epochs, shuffle=shuffle
        )
        assert datasets.element_spec == expected
        assert datasets.training_data("a", 0).element_spec == expected


def test_training_data_goes_into_a_tff_computation():
    datasets = ClientDatasets.from_arrays(
        labelled_clients([5, 8]), batch_size=4, epochs=2, seed=1
    )
    data_type = tff.SequenceType(tff.types.tensorflow_to_type(datasets.element_spec))

    @tff.tensorflow.computation(data_type)
    def sum_labels(dataset):
        return dataset.reduce(0, lambda total, batch: total + tf.reduce_sum(batch[1]))

    @tff.federated_computation(tff.FederatedType(data_type, tff.CLIENTS))
    def sum_all(data):
        return tff.federated_sum(tff.federated_map(sum_labels, data))

    total = sum_all([datasets.training_data(k, 0) for k in datasets.client_ids])

    # Two epochs of 0 ... 4 and of 1000 ... 1007.
    assert total == 2 * (10 + 8 * 1000 + 28)


def _client_data(clients):
    return tff.simulation.datasets.TestClientData(clients)


def test_from_client_data_stacks_every_clients_elements():
    clients = {
        "b": collections.OrderedDict(x=[[1.0, 2.0], [3.0, 4.0]], y=[b"p", b"q"]),
        "a": collections.OrderedDict(x=[[5.0, 6.0]], y=[b"r"]),
    }

    datasets = ClientDatasets.from_client_data(_client_data(clients), batch_size=2)

    assert sorted(datasets.client_ids) == ["a", "b"]
    for client_id, examples in clients.items():
        read = datasets.examples(client_id)
        np.testing.assert_array_equal(read["x"], examples["x"])
        assert read["y"].tolist() == examples["y"]


def test_from_client_data_preprocesses_wholelabelled_clients():
    client_data = _client_data({"a": collections.OrderedDict(v=[1, 2, 3])})

    datasets = ClientDatasets.from_client_data(
        client_data,
        lambda examples: (np.repeat(examples["v"], 2), np.arange(6.0)),
        batch_size=4,
        shuffle=False,
    )

    x, y = datasets.examples("a")
    assert x.tolist() == [1, 1, 2, 2, 3, 3]
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_reading_many_clients_traces_their_pipeline_once():
    """Every trace takes time, and memory that TensorFlow keeps."""
    traces = []

    def dataset_fn(client_id):
        traces.append(client_id)
        number = tf.strings.to_number(client_id, tf.int64)
        return tf.data.Dataset.range(number, number + 3).map(lambda v: v * 2)

    client_data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
        [str(k) for k in range(50)], dataset_fn
    )
    traces.clear()  # TFF looks at the first client's element type.
    datasets = ClientDatasets.from_client_data(client_data, batch_size=2)

    for k in range(50):
        assert datasets.examples(str(k)).tolist() == [2 * k, 2 * k + 2, 2 * k + 4]
    assert len(traces) == 1


def test_client_data_with_an_empty_client_says_which():
    client_data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
        ["3", "0"],
        lambda client_id: tf.data.Dataset.range(
            tf.strings.to_number(client_id, tf.int64)
        ),
    )
    datasets = ClientDatasets.from_client_data(client_data, batch_size=2)

    assert datasets.num_examples("3") == 3
    with pytest.raises(ValueError, match=r"Client '0' has no examples. Leave it out"):
        datasets.examples("0")


def _example(value):
    values = tf.train.Int64List(value=[value])
    feature = {"v": tf.train.Feature(int64_list=values)}
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString()


# Each is a whole query's end: of all clients, of the other split, of another table.
STRANGE_IDS = [
    "ann",
    "O'Brien",
    "''",
    "zz' OR 'a'='a",
    "' OR 1=1 --",
    "' UNION SELECT secret FROM other --",
    "'; DROP TABLE examples; --",
    'a"b',
    "50 %_\\'",
    "ü'\n",
]


@pytest.fixture(scope="module")
def strange_file(tmp_path_factory):
    """Clients of one example each in TFF's format, and one more of another split."""
    path = tmp_path_factory.mktemp("sqlite") / "clients.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute(
            "CREATE TABLE examples "
            "(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)"
        )
        file.execute(
            "CREATE TABLE client_metadata "
            "(client_id TEXT, split_name TEXT, num_examples INTEGER)"
        )
        file.execute("CREATE TABLE other (secret BLOB)")
        file.execute("INSERT INTO other VALUES (?)", (_example(-1),))
        for value, name in enumerate([*STRANGE_IDS, "a\0b"]):
            row = ("train", name, _example(value))
            file.execute("INSERT INTO examples VALUES (?, ?, ?)", row)
            file.execute("INSERT INTO client_metadata VALUES (?, 'train', 1)", (name,))
        file.execute("INSERT INTO examples VALUES ('test', 'bob', ?)", (_example(-2),))
        file.commit()
    return str(path)


@pytest.fixture(scope="module")
def strange_clients(strange_file):
    return tff.simulation.datasets.load_and_parse_sql_client_data(
        strange_file, {"v": tf.TensorSpec([], tf.int64)}, "train"
    )


@pytest.mark.parametrize("way", ["parsed", "preprocessed", "transformed"])
def test_clients_in_sqlite_have_their_own_rows_whatever_their_ids(strange_clients, way):
    client_data = strange_clients
    if way == "preprocessed":
        client_data = client_data.preprocess(lambda dataset: dataset.repeat(1))
    if way == "transformed":
        client_data = tff.simulation.datasets.TransformingClientData(
            client_data, lambda client_id: lambda example: example
        )
    datasets = ClientDatasets.from_client_data(client_data, batch_size=2)
    found = {name: datasets.examples(name)["v"].tolist() for name in STRANGE_IDS}
    assert found == {name: [value] for value, name in enumerate(STRANGE_IDS)}


def test_so_do_those_of_a_reader_that_was_sent_to_another_process(strange_file):
    client_data = tff.simulation.datasets.SqlClientData(strange_file, "train")
    reader = pickle.loads(pickle.dumps(ClientDataReader(client_data, None)))
    found = {name: reader(name).tolist() for name in STRANGE_IDS}
    assert found == {name: [_example(i)] for i, name in enumerate(STRANGE_IDS)}


def test_clients_in_sqlite_behind_other_classes_are_refused(strange_clients):
    client_data = tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
        strange_clients.client_ids, strange_clients.serializable_dataset_fn
    )
    datasets = ClientDatasets.from_client_data(client_data, batch_size=2)
    assert datasets.examples("ann")["v"].tolist() == [0]
    assert datasets.examples('a"b')["v"].tolist() == [7]
    for name in STRANGE_IDS:
        if "'" in name:
            with pytest.raises(ValueError, match="cannot read the client ") as at:
                datasets.examples(name)
            assert "\n" not in str(at.value)


def test_a_null_character_in_an_id_is_refused_where_it_ends_a_query(strange_clients):
    datasets = ClientDatasets.from_client_data(strange_clients, batch_size=2)
    with pytest.raises(ValueError, match="take a null character for the end of the id"):
        datasets.examples("a\0b")


def test_tables_of_numbers_and_truth_values_are_arrays_of_numbers():
    table = pd.DataFrame({"age": [1.0, np.nan], "colour": ["r", "g"], "size": [3, 4]})
    dummies = pd.get_dummies(table)
    whole = dummies[["size", "colour_r"]]
    short = dummies[["age", "colour_g"]].astype({"age": np.float32})
    for numbers, dtype, expected in (
        (dummies, np.float64, [[1, 3, 0, 1], [np.nan, 4, 1, 0]]),
        (whole, np.int64, [[3, 1], [4, 0]]),
        (short, np.float32, [[1, 0], [np.nan, 1]]),
        (dummies[["age", "size"]], np.float64, [[1, 3], [np.nan, 4]]),
        (dummies[["colour_r"]], np.bool_, [[True], [False]]),
    ):
        clients = {"ann": (numbers, np.array([0, 1]))}
        found = ClientDatasets.from_arrays(clients, batch_size=2).examples("ann")[0]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="TensorFlow Federated has no type"):
        ClientDatasets.from_arrays({"ann": table[["age", "colour"]]}, batch_size=2)


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_tables_of_nullable_types_are_arrays_of_numpys(backend):
    table = pd.DataFrame({"age": [1, 2], "size": [0.5, 1.5], "ill": [True, False]})
    nullable = table.convert_dtypes(dtype_backend=backend)
    assert not isinstance(nullable["age"].dtype, np.dtype)
    clients = {"ann": (nullable[["age", "size"]], nullable["ill"])}
    x, y = ClientDatasets.from_arrays(clients, batch_size=2).examples("ann")
    np.testing.assert_array_equal(x, table[["age", "size"]].to_numpy())
    assert (x.dtype, y.dtype, y.tolist()) == (np.float64, np.bool_, [True, False])
    names = pd.Series(["a", "b"]).convert_dtypes(dtype_backend=backend)
    texts = ClientDatasets.from_arrays({"ann": {"name": names}}, batch_size=2)
    assert texts.examples("ann")["name"].tolist() == ["a", "b"]
    nullable.loc[1, "size"] = pd.NA
    with pytest.raises(ValueError, match="'ann': example 1 has a missing"):
        ClientDatasets.from_arrays({"ann": nullable[["size"]]}, batch_size=2)


def _load(client_id):
    return np.zeros(3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"client_ids": []}, ValueError, "client_ids is empty"),
        ({"client_ids": "ann"}, TypeError, "sequence of strings, found 'ann'"),
        ({"client_ids": ["a", 3]}, TypeError, "client_ids must be strings, found 3"),
        ({"client_ids": ["a", "b", "a"]}, ValueError, "holds 'a' more than once"),
        ({"load_client": {}}, TypeError, "load_client must be a function"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, found 0"),
        ({"batch_size": 2.5}, TypeError, "batch_size must be an integer, found 2.5"),
        (
            {"batch_size": float("nan")},
            TypeError,
            "batch_size must be an integer, found nan",
        ),
        ({"batch_size": True}, TypeError, "batch_size must be an integer, found True"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1, found 0"),
        ({"max_examples": 0}, ValueError, "max_examples must be at least 1, found 0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, found -1"),
        ({"cache_bytes": -1}, ValueError, "cache_bytes must be at least 0, found -1"),
    ],
)
def test_raises_on_bad_arguments(arguments, error, message):
    arguments = {
        "client_ids": ["a"],
        "load_client": _load,
        "batch_size": 2,
        **arguments,
    }
    with pytest.raises(error, match=message):
        ClientDatasets(**arguments)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ((np.zeros((3, 2)), np.zeros(4)), r"different first dimensions: .*\(3, 2\)"),
        ((np.zeros((0, 2)), np.zeros(0)), "Client 'a': it has no examples"),
        ((np.zeros(2), np.float32(1)), "without a first dimension"),
        ((), "holds no array"),
    ],
)
def test_raises_on_bad_examples(examples, message):
    with pytest.raises(ValueError, match=message):
        ClientDatasets.from_arrays({"a": examples}, batch_size=2)
    datasets = ClientDatasets(["a"], lambda _: examples, batch_size=2)
    with pytest.raises(ValueError, match=message):
        datasets.training_data("a", 0)


def test_lists_are_structures_as_tuples_are():
    x = np.arange(4, dtype=np.float32)
    # Of one shape and dtype, so that TensorFlow could make one array of both.
    examples = {"x": [x, 10 + x], "y": x}
    datasets = ClientDatasets.from_arrays(
        {"a": [x, 10 + x]}, batch_size=3, shuffle=False
    )
    named = ClientDatasets(["a"], lambda _: examples, batch_size=3, shuffle=False)

    assert datasets.element_spec == (tf.TensorSpec([None], tf.float32),) * 2
    for batches in (
        datasets.training_data("a", 0).as_numpy_iterator(),
        (batch["x"] for batch in named.training_data("a", 0).as_numpy_iterator()),
    ):
        first, last = batches
        assert [leaf.tolist() for leaf in first] == [[0, 1, 2], [10, 11, 12]]
        assert [leaf.tolist() for leaf in last] == [[3], [13]]


def test_many_epochs_are_no_chain():
    datasets = ClientDatasets.from_arrays(
        {"a": np.arange(2)}, batch_size=1, shuffle=False, epochs=300
    )

    def depth(dataset):
        return 1 + max(map(depth, dataset._inputs()), default=0)

    dataset = datasets.training_data("a", 0)
    assert [batch.numpy().tolist() for batch in dataset] == [[0], [1]] * 300
    # A chain of some thousands overflows TensorFlow's stack.
    assert depth(dataset) < 20


def test_raises_on_clients_of_different_types():
    datasets = ClientDatasets.from_arrays(
        {"a": np.zeros((2, 3)), "b": np.zeros((2, 4))}, batch_size=2
    )
    datasets.examples("a")

    with pytest.raises(ValueError, match="Client 'b' has examples of another type"):
        datasets.examples("b")


def test_raises_on_bad_use():
    datasets = ClientDatasets.from_arrays(labelled_clients([2, 2]), batch_size=2)

    with pytest.raises(ValueError, match=r"Unknown client_id 'x'. There are 2 clients"):
        datasets.training_data("x", 0)
    with pytest.raises(ValueError, match="Unknown client_id 'x'"):
        datasets.subset(["client_0", "x"])
    with pytest.raises(ValueError, match="round_number must be at least 0, found -1"):
        datasets.training_data("client_0", -1)
    with pytest.raises(TypeError, match=r"must be an integer, found 1\.0"):
        datasets.training_data("client_0", 1.0)
    with pytest.raises(ValueError, match="batch_size must be at least 1, found 0"):
        datasets.evaluation_batches("client_0", batch_size=0)
    with pytest.raises(TypeError, match=r"no argument 'batch'.*batch_size"):
        datasets.replace(batch=3)
    with pytest.raises(ValueError, match="epochs must be at least 1, found 0"):
        datasets.replace(epochs=0)
    with pytest.raises(
        TypeError, match=r"must be a tff.simulation.datasets.ClientData"
    ):
        ClientDatasets.from_client_data({"a": np.zeros(2)}, batch_size=2)


def _read_by_tensorflow(client_id):
    return {"x": tf.ones([7, 3]).numpy(), "y": np.zeros(7, np.int64)}


def _double(examples, generator=None):
    return {**examples, "x": (2 * tf.constant(examples["x"])).numpy()}


@pytest.mark.parametrize("kind", ["client_data", "preprocess", "load", "transform"])
def test_the_first_client_is_read_in_a_graph(kind):
    arrays = {"a": _read_by_tensorflow("a")}
    client_data = tff.simulation.datasets.TestClientData(arrays)
    build = ClientDatasets.from_client_data
    datasets = {
        "client_data": lambda: build(client_data, batch_size=4),
        "preprocess": lambda: build(client_data, _double, batch_size=4),
        "load": lambda: ClientDatasets(["a"], _read_by_tensorflow, batch_size=4),
        "transform": lambda: ClientDatasets(
            ["a"], _read_by_tensorflow, batch_size=4, transform=_double
        ),
    }[kind]()
    with tf.Graph().as_default():
        spec = datasets.element_spec
    assert spec["x"] == tf.TensorSpec([None, 3], tf.float32)
    assert spec["y"] == tf.TensorSpec([None], tf.int64)
    assert datasets.num_examples("a") == 7
