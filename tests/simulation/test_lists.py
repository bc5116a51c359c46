"""Lists among clients' examples: arrays where they hold examples, else tuples."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

from tff_drift import simulation

_X, _Y = [[1, 2], [3, 4], [5, 6]], [0, 1, 0]


def _examples(examples):
    datasets = simulation.ClientDatasets.from_arrays({"u": examples}, batch_size=2)
    return datasets.examples("u")


@pytest.mark.parametrize("examples", [(_X, _Y), [_X, _Y], (np.array(_X), _Y)])
def test_lists_of_numbers_are_arrays(examples):
    x, y = _examples(examples)
    np.testing.assert_array_equal(x, np.array(_X))
    np.testing.assert_array_equal(y, np.array(_Y))


def test_a_range_is_an_array():
    _, y = _examples((_X, range(3)))
    assert y.tolist() == [0, 1, 2]


def test_lists_in_the_layout_of_leaf_are_arrays():
    images = np.arange(50 * 784, dtype=float).reshape(50, 784)
    found = _examples({"x": images.tolist(), "y": list(range(50))})
    np.testing.assert_array_equal(found["x"], images)
    assert found["y"].tolist() == list(range(50))


def test_lists_of_strings_are_arrays():
    x, _ = _examples((["a", "bc", "d"], _Y))
    assert x.tolist() == ["a", "bc", "d"]


_LARGE = 2**53 + 1


@pytest.mark.parametrize(
    "rows",
    [
        [0.5, _LARGE, 2],
        [[0.5, 1], [_LARGE, 2], [3, 4]],
        [np.float32(0.5), np.int64(_LARGE), 2],
        # NumPy makes floats of what is too large for int64 beside what is not.
        [1, 2**63 + 1, 2],
        [0, 2**64, 1],
        [0.5, 10**400, 1],
    ],
)
def test_an_integer_that_an_array_would_round_is_refused_with_its_row(rows):
    with pytest.raises(
        ValueError, match=r"'u'.* row 1 has the integer \d+.* too large"
    ):
        _examples((rows, _Y))


@pytest.mark.parametrize(
    "rows", [[_LARGE, 1, 2], [2**63 + 1, 2**63, 2**63], [0.5, 2**60, float(2**70)]]
)
def test_large_numbers_that_an_array_keeps_are_taken(rows):
    x, _ = _examples((rows, _Y))
    assert x.tolist() == rows


@pytest.mark.parametrize("of", [np.asarray, tf.constant, pd.Series])
def test_a_list_with_an_array_for_each_example_is_an_array(of):
    x, _ = _examples(([of([1.0, 2.0, 3.0, 4.0])] * 3, _Y))
    np.testing.assert_array_equal(x, [[1, 2, 3, 4]] * 3)


def test_a_list_with_an_array_for_each_input_is_a_tuple():
    first, second = np.ones((3, 5)), np.zeros((3, 2))
    (x, z), _ = _examples(([first, second], _Y))
    np.testing.assert_array_equal(x, first)
    np.testing.assert_array_equal(z, second)


def test_lists_from_a_loader_are_arrays_too():
    datasets = simulation.ClientDatasets(["u"], lambda _: (_X, _Y), batch_size=2)
    np.testing.assert_array_equal(datasets.examples("u")[0], _X)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        # As many images as each has rows: examples, or inputs?
        (([np.ones((3, 5))] * 3, _Y), r"np\.stack\(them\) for ex.*tuple\(them\) for"),
        ([[1, 2], [3, 4]], r"np\.array\(them\) for examples, a tuple"),
        (
            ([[1, 2], [3]], [0, 1]),
            r"row 1 has the shape \(1,\), row 0 has \(2,\)\..*pad_sequences",
        ),
        (([np.ones(3), np.ones(2)], [0, 1]), "must have the same shape.*pad_sequences"),
        ((np.array([[1], [1, 2]], object), [0, 1]), "pad_sequences"),
        (
            ([[[1, 2], [3, 4]], [[1, 2], [3]]], [0, 1]),
            r"in row 1, row 1 has the shape \(1,\), row 0 has \(2,\)\..*pad_sequences",
        ),
        ((tf.ragged.constant([[1], [1, 2]]), [0, 1]), r"RaggedTensor.*to_tensor\(\)"),
        ((tf.sparse.from_dense([[1], [2]]), [0, 1]), r"SparseTensor.*to_dense"),
        ((scipy.sparse.eye(2, format="csr"), [0, 1]), r"csr_matrix.*toarray\(\)"),
        (([scipy.sparse.eye(3, format="csr")] * 2, [0, 1]), "array of object"),
        ((np.ones(2), [0, 1], None), "None is no array. Leave it out"),
        ((((1, 2), (3, 4)), [0, 1]), r"1 is without a first dimension.*np\.asarray"),
        (([1, "a"], [0, 1]), "list has both strings and numbers"),
        (([1, None], [0, 1]), "Give numbers or strings"),
        (([], []), "has no examples"),
        ((np.zeros((50, 784)).tolist(), [0] * 49), r"\[\(50, 784\), \(49,\)\]"),
        ((tuple(range(9999)), tuple(range(9999))), "without a first dimension"),
        (
            ([[0.5] * 9999] * 99 + [[0.5] * 9998], [0] * 100),
            r"row 99 has the shape \(9998,\)",
        ),
    ],
)
def test_what_makes_no_array_is_refused_in_one_short_line(examples, message):
    with pytest.raises(ValueError, match=message) as caught:
        _examples(examples)
    assert "'u'" in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert "\n" not in str(caught.value)
