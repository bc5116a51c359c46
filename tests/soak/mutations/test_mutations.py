"""The mutation check fits the source; on demand, all of it."""

import os

import pytest

from tests.soak.mutations import check, mutations
from tests.soak.mutations.mutations import MUTATIONS

VARIABLE = "TFF_DRIFT_MUTATION_CHECK"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mutation_changes_the_source(mutation):
    texts = check.mutated(check.ROOT, mutation)
    for path, text in texts.items():
        assert text != (check.ROOT / path).read_text("utf-8")
        compile(text, path, "exec")
    assert (check.ROOT / "tests" / "paper" / mutation.tests).exists()


def test_a_mutation_that_no_longer_fits_is_an_error():
    change = mutations.Change(mutations.SCAFFOLD, "c_i", "d_i")
    mutation = check.Mutation("everywhere", "test_scaffold.py", [change])
    with pytest.raises(check.MutationError, match="not once"):
        check.mutated(check.ROOT, mutation)


def test_the_parts_of_as_many_days_are_all_mutations():
    parts = [check.part_of(MUTATIONS, day, 7) for day in range(365, 372)]
    assert sorted(m.name for part in parts for m in part) == sorted(
        m.name for m in MUTATIONS
    )
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.soak
@pytest.mark.skipif(
    VARIABLE not in os.environ,
    reason=f"takes about fifteen minutes; set {VARIABLE}=1 to run it",
)
def test_every_mutation_is_noticed():
    rows = check.check(MUTATIONS)
    assert [name for name, test in rows if not test] == []
