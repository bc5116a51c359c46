import collections
import types
from unittest import mock

import numpy as np
import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.simulation import Traffic, model_traffic
from tff_drift.simulation.loop.traffic import num_bytes


def test_bytes_by_hand():
    structure = collections.OrderedDict(
        a=(np.float32, [3, 5]),  # 60
        b=[np.float64, (np.int32, [0]), (np.bool_, [7])],  # 8 + 0 + 7
        c=collections.OrderedDict(),
    )
    assert num_bytes(compat.to_type(structure)) == 75


def test_what_trains_goes_down_and_update_with_weight_comes_up():
    weights = tff.learning.models.ModelWeights(
        trainable=[(np.float32, [10, 4]), (np.float32, [4])],  # 176
        non_trainable=[(np.int64, [2])],  # No round changes it.
    )
    process = mock.Mock(spec=tff.learning.templates.LearningProcess)
    process.get_model_weights.type_signature = types.SimpleNamespace(
        result=compat.to_type(weights)
    )
    assert model_traffic(process) == Traffic(
        bytes_down=176, bytes_up=180, model_bytes=176
    )
