"""A few of the fuzzer's cases, the same every time; `make fuzz` goes on for hours."""

import collections
import json

import hypothesis
import numpy as np
import pytest
import tensorflow as tf

from tests.execution.local import support
from tests.soak import results
from tests.soak.fuzz import __main__ as campaign
from tests.soak.fuzz import (
    chunk,
    cohorts,
    comparison,
    networks,
    pipelines,
    processes,
    rows,
    runs,
    steps,
)
from tff_drift.execution.local.client_program import vectorizable

pytestmark = pytest.mark.soak

_SETTINGS = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    # A case takes seconds: smaller ones are looked for by hand.
    "phases": [hypothesis.Phase.generate],
    "suppress_health_check": list(hypothesis.HealthCheck),
}
CLIENTS = tuple(cohorts.Client(size) for size in (7, 4, 0, 1, 5, 8))
COHORT = cohorts.Cohort(CLIENTS, batch_size=4)


@pytest.fixture(autouse=True)
def fixture_no_global_seed():
    """Forgets a seed of tests before, which TFF's graphs do not have."""
    tf.random.set_seed(None)


@hypothesis.settings(max_examples=6, **_SETTINGS)
@hypothesis.given(steps.cases(4))
def test_random_steps(case):
    outcome = chunk.check_steps(case)
    assert not outcome.not_built
    assert outcome.differences == []


@hypothesis.settings(max_examples=2, **_SETTINGS)
@hypothesis.given(processes.cases(3))
def test_random_processes(native_context, case):
    assert chunk.check_process(case, native_context).differences == []


@hypothesis.settings(max_examples=6, **_SETTINGS)
@hypothesis.given(pipelines.cases(2))
def test_random_pipelines(native_context, case):
    assert chunk.check_pipeline(case, native_context).differences == []


@hypothesis.settings(max_examples=4, **_SETTINGS)
@hypothesis.given(rows.cases(2))
def test_random_rows(case):
    assert chunk.check_rows(case).differences == []


@hypothesis.settings(max_examples=1, **_SETTINGS)
@hypothesis.given(runs.cases())
def test_random_runs(native_context, case):
    assert chunk.check_run(case, native_context).differences == []


@pytest.fixture
def fresh_contexts():
    """Contexts without plans of before, and none of these afterwards."""
    comparison.local_contexts.cache_clear()
    yield
    comparison.local_contexts.cache_clear()


def _segments_of_neighbours(given):
    """A wrong conversion: what one client drops counts for the client before it.

    TensorFlow 2.14 converts so by itself.
    """
    given.stack_inputs([0, 1])
    segments, number = given.stacked_input(1), given.unstacked_input(2)
    clients = given.pfor.loop_len_vector[0]
    result = tf.math.unsorted_segment_sum(
        given.stacked_input(0),
        segments + number * tf.range(clients)[:, tf.newaxis],
        number * clients,
    )
    of_each = tf.concat([[clients, number], tf.shape(result)[1:]], 0)
    return vectorizable.wrap(tf.reshape(result, of_each), True)


def test_a_wrong_conversion_is_noticed(monkeypatch, fresh_contexts):
    case = steps.StepCase(("segment_sum",), False, "reduce", (), (COHORT,))
    assert chunk.check_steps(case).differences == []
    comparison.local_contexts.cache_clear()
    monkeypatch.setitem(
        vectorizable._CONVERSIONS, "UnsortedSegmentSum", _segments_of_neighbours
    )
    differences = chunk.check_steps(case).differences
    assert {each.mode for each in differences} == {"fast", "batched"}


def test_an_error_on_one_side_is_a_difference(fresh_contexts):
    case = steps.StepCase(("tanh",), False, "reduce", (), (COHORT,))
    outcome = comparison.Outcome()
    computation = steps.build(case)
    arguments = steps.arguments(COHORT)
    comparison.compare(
        outcome, 0, computation, lambda: arguments, (None, ValueError("wanted"))
    )
    assert outcome.compared == len(support.MODES)
    assert len(outcome.differences) == len(support.MODES)
    assert "expected ValueError: wanted, found a result" in outcome.differences[0].text


def test_what_a_last_bit_changes_is_no_difference_and_more_is_one(fresh_contexts):
    computation = steps.build(steps.StepCase(("tanh",), False, "reduce", (), (COHORT,)))
    arguments = steps.arguments(COHORT)
    plain = comparison.local_contexts()["plain"]
    result = support.call(plain, computation, *arguments)

    def shifted(by):
        return tf.nest.map_structure(
            lambda leaf: leaf + np.asarray(by, leaf.dtype), result
        )

    for share, wrong in ((2, 0), (100, len(support.MODES))):
        outcome = comparison.Outcome()
        comparison.compare(
            outcome,
            0,
            computation,
            lambda: arguments,
            (shifted(share * 1e-3), None),
            lambda share=share: shifted((share + 1) * 1e-3),
        )
        assert len(outcome.differences) == wrong
        assert outcome.ill_conditioned == len(support.MODES) - wrong


def test_cases_can_be_written_down():
    case = processes.ProcessCase(
        networks.Network(("vector",), (), ("dense",), "classes"),
        "scaffold",
        "sgd",
        "none",
        (COHORT,),
    )
    names = {
        **vars(cohorts),
        "Network": networks.Network,
        "ProcessCase": processes.ProcessCase,
    }
    assert eval(repr(case), names) == case
    other = processes.ProcessCase(case.network, case.method, "sgd", "none", ())
    assert chunk.identity(case) == chunk.identity(other)


def test_the_data_of_all_forms_is_the_same():
    def examples(size, random):
        return collections.OrderedDict(x=random.normal(size=size))

    for drop in (False, True):
        given = [
            cohorts.datasets(
                cohorts.Cohort((cohorts.Client(7, 2, form),), 4, drop), examples
            )
            for form in ("dataset", "list", "on_demand", "random")
        ]
        read = [
            np.concatenate([np.asarray(batch["x"]) for batch in data])
            for (data,) in given
        ]
        assert len(read[0]) == (12 if drop else 14)
        for other in read[1:]:
            np.testing.assert_array_equal(other, read[0])


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    path = tmp_path / "fuzz.jsonl"
    results.append(path, {"what": "chunk", "chunk": "steps-0"})
    results.append(
        path,
        {
            "what": "case",
            "chunk": "steps-1",
            "case": "abc",
            "repr": "StepCase(...)",
            "compared": 6,
            "differences": [["batched", 1, "mismatch"]],
        },
    )
    with open(path, "a") as file:
        file.write('{"what": "ca')  # Cut by a kill.
    chunks = campaign._chunks(results.read(path))
    assert next(chunks) == ("processes", 0)
    assert [next(chunks) for _ in range(3)] == [
        ("pipelines", 0),
        ("rows", 0),
        ("runs", 0),
    ]
    assert next(chunks) == ("steps", 1)
    told = "\n".join(campaign.summary(results.read(path)))
    assert "6 results compared" in told
    assert "1 cases differ" in told
    assert "batched, cohort 1: mismatch" in told
    assert json.loads(path.read_text().splitlines()[0])["chunk"] == "steps-0"
