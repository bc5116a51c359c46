"""A diagnosis of drift takes a Keras 3 model."""

import numpy as np
import pytest

from tests import keras3_models
from tests import models as small
from tff_drift import execution, simulation

pytestmark = [keras3_models.needed, pytest.mark.conformance]


def test_a_keras_3_model_is_diagnosed():
    execution.set_local_execution_context()
    arrays = enumerate(small.client_arrays([10, 7, 3, 8]))
    clients = {f"c{place}": each for place, each in arrays}
    data = simulation.ClientDatasets.from_arrays(clients, batch_size=4)
    keras_model = keras3_models.softmax_regression()
    report = simulation.diagnose(
        keras3_models.model_fn(keras_model),
        data,
        client_optimizer_fn=0.1,
        cohort_size=2,
        rounds=1,
        initial_weights=keras_model,
    )
    # The gradient of softmax regression at the model: (p - onehot) x and p - onehot.
    kernel, bias = keras_model.get_weights()
    gradients, sizes = [], []
    for name in data.client_ids:
        x, y = data.examples(name)
        scores = np.exp(x @ kernel + bias)
        errors = scores / scores.sum(1, keepdims=True) - np.eye(len(bias))[y]
        flat = [*(x.T @ errors / len(x)).ravel(), *errors.mean(0)]
        gradients.append(flat)
        sizes.append(len(x))
    shares = np.array(sizes) / sum(sizes)
    lengths = shares @ np.sum(np.square(gradients), 1)
    mean = shares @ np.array(gradients)
    naive = report.differences[0]["g2_naive"].value
    assert naive == pytest.approx(lengths - mean @ mean, 1e-3)
    assert set(report.differences) == {0, 1}
