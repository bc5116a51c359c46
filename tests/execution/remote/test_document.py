"""What docs/remote.md shows works."""

import pathlib
import re

import numpy as np
import tensorflow_federated as tff

import tff_drift
from tests.execution.remote.conftest import addresses_of
from tff_drift import compat

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "remote.md"


def test_the_example_sets_a_context_that_computes(start_workers, monkeypatch):
    text = DOCUMENT.read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    for shown, real in zip(
        ("10.0.0.5:8000", "10.0.0.6:8000"), addresses_of(start_workers(2))
    ):
        assert shown in code
        code = code.replace(shown, real)
    contexts = []
    monkeypatch.setattr(tff.framework, "set_default_context", contexts.append)
    exec(code, {"tff_drift": tff_drift})

    @compat.federated_computation(compat.FederatedType(np.int32, compat.CLIENTS))
    def total(values):
        return compat.federated_sum(values)

    with tff.framework.get_context_stack().install(contexts[0]):
        assert total([1, 2, 39]) == 42
