"""What users' functions return, against what it takes the place of."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_drift import returned

EXPECTED = collections.OrderedDict(
    weights=(tf.zeros([3, 4]), tf.zeros([4])), steps=tf.constant(0, tf.int64)
)


def found(first=None, last=None, steps=None):
    """What is like `EXPECTED`, but for what is given."""
    return {
        "steps": tf.constant(7, tf.int64) if steps is None else steps,
        "weights": [
            tf.ones([3, 4]) if first is None else first,
            tf.ones([4]) if last is None else last,
        ],
    }


def test_what_is_alike_is_returned_in_the_expected_containers():
    given = found()
    result = returned.as_like("It", given, EXPECTED)
    assert isinstance(result, collections.OrderedDict)
    assert list(result) == ["weights", "steps"]
    assert isinstance(result["weights"], tuple)
    assert result["weights"][0] is given["weights"][0]
    assert result["steps"] is given["steps"]


def test_numbers_become_tensors_of_the_expected_dtype():
    result = returned.as_like("It", found(steps=7, last=np.ones(4, "f")), EXPECTED)
    assert (result["steps"].dtype, int(result["steps"])) == (tf.int64, 7)
    np.testing.assert_array_equal(result["weights"][1], [1, 1, 1, 1])


def test_shapes_that_a_graph_does_not_know_are_taken():
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec(None)])
    def alike(first, last):
        return returned.as_like("It", found(first, last), EXPECTED)

    first, last = np.ones([3, 4], "f"), np.ones(4, "f")
    tf.nest.map_structure(
        np.testing.assert_array_equal, alike(first, last)["weights"], (first, last)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            found(first=tf.constant(1.0)),
            "It must have at 'weights/0' shape (3, 4) and dtype float32, found shape "
            "(), dtype float32.",
        ),
        (
            found(last=tf.ones([1])),
            "It must have at 'weights/1' shape (4,) and dtype float32, found shape "
            "(1,), dtype float32.",
        ),
        (
            found(steps=tf.constant(7)),
            "It must have at 'steps' shape () and dtype int64, found shape (), dtype "
            "int32.",
        ),
        (
            found(steps="seven"),
            "It must have at 'steps' shape () and dtype int64, found shape (), dtype "
            "string.",
        ),
        (
            found(steps=object),
            "It must have at 'steps' shape () and dtype int64, found <class 'object'>.",
        ),
        (
            {"steps": 7, "weight": 1.0},
            "It must hold steps, weights/0, weights/1, found steps, weight.",
        ),
        ((), "It must hold steps, weights/0, weights/1, found nothing."),
        (None, "It must hold steps, weights/0, weights/1, found None."),
    ],
)
def test_what_differs_is_named(given, message):
    with pytest.raises(TypeError) as error:
        returned.as_like("It", given, EXPECTED)
    assert str(error.value) == message


def test_one_tensor_has_no_place():
    with pytest.raises(TypeError, match=r"^It must have shape \(2,\) and dtype float"):
        returned.as_like("It", 1.0, tf.zeros([2]))
    with pytest.raises(TypeError, match=r"^It must hold one tensor, found a, b\."):
        returned.as_like("It", {"a": 1.0, "b": 2.0}, tf.zeros([]))
    with pytest.raises(TypeError, match=r"^It must hold nothing, found 1\.0\."):
        returned.as_like("It", 1.0, ())
