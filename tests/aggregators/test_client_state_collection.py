"""New client states travel through an aggregation, each beside its index."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_drift import aggregators

STATE_TYPE = tff.to_type(
    collections.OrderedDict(
        vector=tff.TensorType(np.float32, [3]),
        counts=collections.OrderedDict(
            last_round=np.int32, seen=np.bool_, total=np.float64
        ),
    )
)


def sent(index):
    state = collections.OrderedDict(
        vector=np.array([index, 0.1 * index, -index], np.float32),
        counts=collections.OrderedDict(
            last_round=np.int32(index - 1),
            seen=np.bool_(index % 2),
            total=np.float64(1e-17 * index),
        ),
    )
    return collections.OrderedDict(index=np.int32(index), state=state)


@pytest.fixture(scope="module")
def process():
    return aggregators.ClientStateCollectionFactory().create(
        aggregators.collected_type(STATE_TYPE)
    )


@pytest.mark.parametrize("indices", [[7, 0, 3, 12, 5], [4], [2, 2]])
def test_every_state_arrives_bit_for_bit_beside_its_index(process, run_rounds, indices):
    (output,) = run_rounds(process, [[sent(index) for index in indices]])
    collected = output.result
    assert sorted(collected["index"]) == sorted(indices)
    for row, index in enumerate(collected["index"]):
        expected = sent(index)["state"]
        vector = collected["state"]["vector"][row]
        assert vector.tobytes() == expected["vector"].tobytes()
        for name, value in expected["counts"].items():
            stacked = collected["state"]["counts"][name]
            assert stacked.dtype == value.dtype
            assert stacked[row] == value


def test_states_that_are_not_finite_arrive_as_well(process, run_rounds):
    value = sent(1)
    value["state"]["vector"] = np.array([np.nan, np.inf, -0.0], np.float32)
    (output,) = run_rounds(process, [[value, sent(2)]])
    row = list(output.result["index"]).index(1)
    vector = output.result["state"]["vector"][row]
    assert vector.tobytes() == value["state"]["vector"].tobytes()


def test_a_cohort_of_nobody_gives_empty_arrays(process, run_rounds):
    (output,) = run_rounds(process, [[]])
    assert output.result["index"].shape == (0,)
    assert output.result["state"]["vector"].shape == (0, 3)
    assert output.result["state"]["counts"]["seen"].shape == (0,)


def test_has_the_documented_type(process):
    assert str(process.next.type_signature.parameter[1]) == (
        "{<index=int32,state=<vector=float32[3],counts=<last_round=int32,seen=bool,"
        "total=float64>>>}@CLIENTS"
    )
    result = process.next.type_signature.result
    assert str(result.result) == (
        "<index=int32[?],state=<vector=float32[?,3],counts=<last_round=int32[?],"
        "seen=bool[?],total=float64[?]>>>@SERVER"
    )
    assert str(result.state) == "<>@SERVER"
