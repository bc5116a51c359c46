"""Random uses of the stores, compared with plain dictionaries."""

import shutil
import tempfile

import hypothesis
import hypothesis.stateful
import hypothesis.strategies as st
import numpy as np

from tff_drift import client_states

CLIENT_IDS = ["ann", "bob", "eve", "\udfff\0", ""]
INITIAL_STATE = {"a": np.zeros(2, np.int8), "b": [np.float64(0.5)]}

cohorts = st.lists(st.sampled_from(CLIENT_IDS), unique=True)


def make_state(value):
    return {"a": np.array([value, -value], np.int8), "b": [np.float64(value / 3)]}


def value_of(state):
    """Returns what `make_state` was given, 0.5 for the initial state."""
    value, negative = state["a"].tolist()
    if value == 0:
        assert state["b"][0] == 0.5
        return 0.5
    assert negative == -value
    assert state["b"][0] == value / 3
    return value


class StoreAndModel(hypothesis.stateful.RuleBasedStateMachine):
    """A store, the states it should have, and those of its versions."""

    def __init__(self):
        super().__init__()
        self.states = client_states.InMemoryClientStates(INITIAL_STATE)
        self.present = {}
        self.versions = {}

    @hypothesis.stateful.rule(cohort=cohorts, first=st.integers(1, 120))
    def scatter(self, cohort, first):
        values = [first + index for index in range(len(cohort))]
        self.states.scatter(cohort, list(map(make_state, values)))
        self.present = {**self.present, **dict(zip(cohort, values, strict=True))}

    @hypothesis.stateful.rule(cohort=cohorts)
    def gather(self, cohort):
        found = list(map(value_of, self.states.gather(cohort)))
        assert found == [self.present.get(client_id, 0.5) for client_id in cohort]

    @hypothesis.stateful.rule(step=st.integers(1, 3))
    def commit(self, step):
        version = max(self.versions, default=-1) + step
        self.states.commit(version)
        self.versions = {**self.versions, version: self.present}

    @hypothesis.stateful.precondition(lambda self: self.versions)
    @hypothesis.stateful.rule(data=st.data())
    def restore(self, data):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.states.restore(version)
        self.present = self.versions[version]
        self.versions = {v: s for v, s in self.versions.items() if v <= version}

    @hypothesis.stateful.precondition(lambda self: self.versions)
    @hypothesis.stateful.rule(data=st.data())
    def prune(self, data):
        version = data.draw(st.sampled_from(sorted(self.versions)))
        self.states.prune(version)
        self.versions = {v: s for v, s in self.versions.items() if v >= version}

    @hypothesis.stateful.invariant()
    def agrees(self):
        assert self.states.client_ids() == sorted(self.present)
        assert len(self.states) == len(self.present)
        assert self.states.versions == tuple(sorted(self.versions))
        self.gather(CLIENT_IDS)

    def teardown(self):
        """Goes back through all versions that are left."""
        for version in sorted(self.versions, reverse=True):
            self.states.restore(version)
            self.present = self.versions.pop(version)
            self.gather(CLIENT_IDS)
        self.states.close()


class InMemoryAndModel(StoreAndModel):
    @hypothesis.stateful.rule()
    def travel(self):
        loaded = client_states.InMemoryClientStates(INITIAL_STATE)
        loaded.load_leaves(self.states.leaves())
        self.states, self.versions = loaded, {}

    @hypothesis.stateful.invariant()
    def holds_no_more_than_the_versions_and_the_present(self):
        most = len(self.versions) + 1
        assert self.states.nbytes <= self.states.state_nbytes * most * len(self.present)


class OnDiskAndModel(StoreAndModel):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.states = client_states.DiskClientStates(self.folder, INITIAL_STATE)

    @hypothesis.stateful.rule()
    def reopen(self):
        self.states.close()
        self.states = client_states.DiskClientStates(self.folder, INITIAL_STATE)
        last = max(self.versions, default=None)
        self.present = {} if last is None else self.versions[last]

    def teardown(self):
        super().teardown()
        shutil.rmtree(self.folder)


TestInMemory = InMemoryAndModel.TestCase
TestInMemory.settings = hypothesis.settings(
    max_examples=40, stateful_step_count=30, deadline=None
)
TestOnDisk = OnDiskAndModel.TestCase
# Each commit waits for the disk.
TestOnDisk.settings = hypothesis.settings(
    max_examples=20, stateful_step_count=30, deadline=None
)
