import collections
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.papers import stackoverflow_tag, stackoverflow_word
from tasks.sources import sqlite_files, stackoverflow_data
from tff_drift import layers

_WORD_PARAMETERS = (
    10_004 * 96
    + 4 * ((96 + 670) * 670 + 670)
    + (670 * 96 + 96)
    + (96 * 10_004 + 10_004)
)
_TAG_PARAMETERS = 10_000 * 500 + 500
_BASELINES = tff.simulation.baselines.stackoverflow
_CLIENT_SPEC = tff.simulation.baselines.ClientSpec(
    num_epochs=1, batch_size=10_000, shuffle_buffer_size=1
)
# Ends and edges: no words, blanks at the ends and in a row, 19 to 21 words, bytes
# that are no text.
_SENTENCES = [
    b"",
    b" ",
    b"the  sql is",
    b" is it ",
    b"unheard-of words",
    b" ".join([b"the"] * 19),
    b" ".join([b"the"] * 20),
    b" ".join([b"the"] * 21),
    "Où est caf\xe9".encode(),
    b"tab\there the\n",
    b"is is is to",
]
_TITLES = [b"the sql", b"", b" ", b"to\tto  to", b"nothing here", *[b"is"] * 6]
_TAGS = [b"css|css3", b"", b"nothing", b"css|css", b"|css|", b" css", *[b"sql"] * 5]


@pytest.fixture(scope="module")
def word_task():
    return tasks.load("stackoverflow_word", synthetic=True, seed=2)


@pytest.fixture(scope="module")
def tag_task():
    return tasks.load("stackoverflow_tag", synthetic=True, seed=2)


@pytest.fixture(scope="module")
def word_baseline():
    return _BASELINES.create_word_prediction_task(_CLIENT_SPEC, use_synthetic_data=True)


@pytest.fixture(scope="module")
def tag_baseline():
    return _BASELINES.create_tag_prediction_task(_CLIENT_SPEC, use_synthetic_data=True)


def _synthetic_words():
    return list(tff.simulation.datasets.stackoverflow.get_synthetic_word_counts())


def _synthetic_tags():
    return list(tff.simulation.datasets.stackoverflow.get_synthetic_tag_counts())


def _examples(baseline, features):
    dataset = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(features))
    (batch,) = baseline.datasets.train_preprocess_fn(dataset).as_numpy_iterator()
    return batch


def _assert_equal_examples(examples, expected):
    for array, expected_array in zip(examples, expected, strict=True):
        assert array.dtype == expected_array.dtype
        np.testing.assert_array_equal(array, expected_array)


def test_words_pass_the_fast_lstm():
    kinds = [type(each) for each in stackoverflow_word.build_keras_model(9, 0).layers]
    assert layers.LSTM in kinds


def test_models_have_the_parameters_of_the_papers_layers():
    for model, expected in (
        (stackoverflow_word.build_keras_model(10_000, seed=0), _WORD_PARAMETERS),
        (stackoverflow_tag.build_keras_model(10_000, 500, seed=0), _TAG_PARAMETERS),
    ):
        assert model.count_params() == expected
    assert _WORD_PARAMETERS == 4_050_748
    assert _TAG_PARAMETERS == 5_000_500


def test_tokens_of_a_sentence_by_hand():
    preprocess = stackoverflow_word.build_preprocess(["a", "b"])

    x, y = preprocess({"tokens": np.array([b"b c a", b"a " * 20], object)})

    # Words 1 and 2, 3 for others, 4 opens and 5 closes.
    assert x[0].tolist() == [4, 2, 3, 1, 5] + [0] * 15
    assert y[0].tolist() == [2, 3, 1, 5] + [0] * 16
    # A sentence of 20 words, the last one cut off, is not closed.
    assert x[1].tolist() == [4] + [1] * 19
    assert y[1].tolist() == [1] * 20


def test_bag_of_words_by_hand():
    preprocess = stackoverflow_tag.build_preprocess(["a", "b", "c"], ["t", "u"])

    x, y = preprocess(
        {
            "tokens": np.array([b"b x a", b"x"], object),
            "title": np.array([b"b b", b""], object),
            "tags": np.array([b"u|v", b"t|u"], object),
        }
    )

    assert x.tolist() == [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]
    assert y.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert x.dtype == y.dtype == np.float32


@pytest.mark.conformance
def test_words_equal_those_of_tffs_baseline_at_the_edges(word_baseline):
    preprocess = stackoverflow_word.build_preprocess(_synthetic_words())

    examples = preprocess({"tokens": np.array(_SENTENCES, object)})

    expected = _examples(word_baseline, {"tokens": _SENTENCES})
    _assert_equal_examples(examples, expected)


def test_bags_equal_those_of_tffs_baseline_at_the_edges(tag_baseline):
    preprocess = stackoverflow_tag.build_preprocess(
        _synthetic_words(), _synthetic_tags()
    )
    features = {"tokens": _SENTENCES, "title": _TITLES, "tags": _TAGS}

    examples = preprocess(
        {name: np.array(texts, object) for name, texts in features.items()}
    )

    assert examples[0].any(axis=1).sum() > 5
    assert examples[1].max() == 2
    _assert_equal_examples(examples, _examples(tag_baseline, features))


@pytest.mark.conformance
def test_real_examples_equal_those_of_tffs_preprocessing(real_data, monkeypatch):
    """On every tenth test user, with the real vocabularies."""
    word_task = tasks.load("stackoverflow_word", cache_dir=real_data, test_clients=None)
    tag_task = tasks.load("stackoverflow_tag", cache_dir=real_data, test_clients=None)
    options = {**word_task.options, "num_tags": 500}
    words = stackoverflow_data.load_words("", real_data, options)
    tags = stackoverflow_data.load_tags("", real_data, options)
    # TFF's tasks take the counts of the official archives.
    source = tff.simulation.datasets.stackoverflow
    counts = {"load_word_counts": words, "load_tag_counts": tags}
    for name, known in counts.items():
        monkeypatch.setattr(
            source, name, lambda known=known, **options: dict.fromkeys(known)
        )
    word_baseline = _BASELINES.create_word_prediction_task(
        _CLIENT_SPEC, cache_dir=real_data
    )
    tag_baseline = _BASELINES.create_tag_prediction_task(
        _CLIENT_SPEC, cache_dir=real_data
    )
    train, heldout, test = source.load_data(real_data)

    assert len(words) == 10_000
    assert len(tags) == 500
    for task in (word_task, tag_task):
        assert list(task.train.client_ids) == train.client_ids
        assert list(task.test.client_ids) == test.client_ids
        assert list(task.validation.client_ids) == heldout.client_ids
    fields = ("tokens", "title", "tags")
    reader = sqlite_files.SqliteExamples(
        pathlib.Path(real_data, "stackoverflow.sqlite"),
        ("test",),
        {field: tf.TensorSpec((), tf.string) for field in fields},
    )
    client_ids = test.client_ids[::10]
    raw = [reader.read("test", client_id) for client_id in client_ids]
    # TFF's loader, on one user, as it is slow.
    elements = test.create_tf_dataset_for_client(client_ids[3]).as_numpy_iterator()
    for number, element in enumerate(elements):
        for field in fields:
            assert raw[3][field][number] == element[field]
    assert number + 1 == len(raw[3]["tokens"])

    features = {
        field: np.concatenate([client[field] for client in raw]) for field in fields
    }
    for task, baseline in ((word_task, word_baseline), (tag_task, tag_baseline)):
        examples = [task.test.examples(client_id) for client_id in client_ids]
        _assert_equal_examples(
            tuple(np.concatenate(arrays) for arrays in zip(*examples, strict=True)),
            _examples(baseline, features),
        )


@pytest.mark.conformance
def test_word_model_equals_tffs_with_accuracy_over_words_alone(
    word_task, word_baseline
):
    model, baseline_model = word_task.model_fn(), word_baseline.model_fn()
    for variable, baseline_variable in zip(
        model.trainable_variables, baseline_model.trainable_variables, strict=True
    ):
        # Large weights, so that predictions differ between positions.
        variable.assign(10 * variable)
        baseline_variable.assign(variable)
    preprocess = stackoverflow_word.build_preprocess(_synthetic_words())
    x, y = preprocess({"tokens": np.array(_SENTENCES, object)})

    output = model.forward_pass((x, y), training=False)
    expected = baseline_model.forward_pass((x, y), training=False)

    # Our LSTM adds up in another order than Keras'; the logits reach tens.
    np.testing.assert_allclose(
        output.predictions, expected.predictions, rtol=1e-4, atol=1e-3
    )
    np.testing.assert_allclose(output.loss, expected.loss, rtol=1e-5)
    metrics, baseline_metrics = (
        {metric.name: float(metric.result()) for metric in each.get_metrics()}
        for each in (model, baseline_model)
    )
    num_words = len(_synthetic_words())
    is_word = (y >= 1) & (y <= num_words)
    right = output.predictions.numpy().argmax(axis=-1) == y
    assert 0 < is_word.sum() < (y != 0).sum() < y.size
    np.testing.assert_allclose(metrics["accuracy"], right[is_word].mean(), rtol=1e-6)
    np.testing.assert_allclose(
        metrics["accuracy"],
        baseline_metrics["accuracy_without_out_of_vocab_or_end_of_sentence"],
        rtol=1e-6,
    )
    assert metrics["num_tokens"] == np.count_nonzero(y)


def test_tag_model_equals_tffs_with_exact_recall_at_5(tag_task, tag_baseline):
    model, baseline_model = tag_task.model_fn(), tag_baseline.model_fn()
    for variable, baseline_variable in zip(
        model.trainable_variables, baseline_model.trainable_variables, strict=True
    ):
        variable.assign(30 * variable)
        baseline_variable.assign(variable)
    rng = np.random.default_rng(0)
    x = rng.dirichlet(np.full(len(_synthetic_words()), 0.1), 40).astype(np.float32)
    y = (rng.random((40, len(_synthetic_tags()))) < 0.15).astype(np.float32)

    output = model.forward_pass((x, y), training=False)
    expected = baseline_model.forward_pass((x, y), training=False)

    np.testing.assert_allclose(output.predictions, expected.predictions, rtol=1e-5)
    np.testing.assert_allclose(output.loss, expected.loss, rtol=1e-5)
    p = output.predictions.numpy().astype(np.float64)
    entropies = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    np.testing.assert_allclose(output.loss, entropies.mean(axis=1).sum(), rtol=1e-4)
    ranks = (-p).argsort(axis=1).argsort(axis=1)
    recall = y[ranks < 5].sum() / y.sum()
    assert 0.1 < recall < 0.9
    metrics = {metric.name: metric.result() for metric in model.get_metrics()}
    np.testing.assert_allclose(metrics["recall_at_5"], recall, rtol=1e-6)
    assert tag_task.accuracy_metric == "recall_at_5"
    assert tag_task.higher_is_better


def test_test_clients_are_a_sample_that_the_seed_fixes(real_data):
    samples = [
        tasks.load("stackoverflow_word", cache_dir=real_data, seed=seed)
        for seed in (1, 1, 2)
    ]

    for part in ("test", "validation"):
        ids = [getattr(task, part).client_ids for task in samples]
        assert len(set(ids[0])) == 100
        assert list(ids[0]) == sorted(ids[0])
        assert ids[0] == ids[1] != ids[2]
    assert len(samples[0].train) == len(samples[2].train)


def test_training_clients_keep_1000_sentences_unless_told_otherwise():
    for name, batch_size in (("stackoverflow_word", 32), ("stackoverflow_tag", 100)):
        task = tasks.load(name, synthetic=True)
        assert task.train.max_examples == 1000
        assert task.test.max_examples is None
        assert task.train.batching.batch_size == batch_size
