"""Prepares a process for the import of TensorFlow Federated 0.87.

TFF 0.87 was made for TensorFlow 2.14 and Python up to 3.11. With what is here it also
runs on Python 3.12 and 3.13 with TensorFlow up to 2.21. All of it happens when
tff_drift is imported, and takes milliseconds: neither TensorFlow nor TFF is imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import pathlib
import sys
import types
from typing import Any

_TFF = "tensorflow_federated"
_KERAS_2 = "TF_USE_LEGACY_KERAS"
_DP_QUERIES = "tensorflow_privacy.privacy.dp_query"
# The classes that TFF uses of TensorFlow Privacy, and the modules they live in.
_QUERY_CLASSES = {
    "dp_query": ("DPQuery", "SumAggregationDPQuery"),
    "distributed_discrete_gaussian_query": ("DistributedDiscreteGaussianSumQuery",),
    "distributed_skellam_query": ("DistributedSkellamSumQuery",),
    "gaussian_query": ("GaussianSumQuery",),
    "no_privacy_query": ("NoPrivacySumQuery",),
    "normalized_query": ("NormalizedQuery",),
    "quantile_adaptive_clip_sum_query": ("QuantileAdaptiveClipSumQuery",),
    "quantile_adaptive_clip_tree_query": ("QAdaClipTreeResSumQuery",),
    "quantile_estimator_query": (
        "NoPrivacyQuantileEstimatorQuery",
        "QuantileEstimatorQuery",
    ),
    "restart_query": ("RestartQuery",),
    "tree_aggregation_query": ("TreeCumulativeSumQuery", "TreeResidualSumQuery"),
    "tree_range_query": ("TreeRangeSumQuery",),
}
_QUERY_MODULES = ("restart_query", "tree_aggregation")
_XLA_CLIENT = "jax.lib.xla_client"
_XLA_CLASSES = ("Shape", "XlaComputation")


def prepare() -> None:
    """Makes TFF importable, and deep computations readable, in this process.

    Raises:
      ImportError: If it is too late for that: an import of TFF has failed already, or
        `tf.keras` is in use as Keras 3.
    """
    _check_no_failed_import()
    if sys.version_info >= (3, 12):
        _choose_keras_2()
        _import_privacy_without_estimators()
        _give_jax_its_former_names()
    _allow_deep_messages()


def _check_no_failed_import() -> None:
    """Refuses what a failed import of TFF has left: a second one fails on it."""
    left = any(name.startswith(f"{_TFF}.") for name in tuple(sys.modules))
    if left and _TFF not in sys.modules:
        raise ImportError(
            "TensorFlow Federated was imported before tff_drift, which failed. Start "
            "Python again (restart the session), and import tff_drift first."
        )


def _choose_keras_2() -> None:
    """Makes `tf.keras` the Keras that TFF needs."""
    # TensorFlow reads it when `tf.keras` is first used.
    chosen = os.environ.setdefault(_KERAS_2, "1") in ("1", "true", "True")
    tensorflow = sys.modules.get("tensorflow")
    if chosen and tensorflow is not None:
        chosen = tensorflow.keras.Model.__module__.partition(".")[0] == "tf_keras"
    if not chosen:
        raise ImportError(
            "TensorFlow Federated needs Keras 2, and tf.keras is Keras 3 in this "
            "process. Start Python again (restart the session), without "
            f"{_KERAS_2}={os.environ[_KERAS_2]} in the environment if that was set "
            "there, and import tff_drift before tf.keras is used."
        )


def _import_privacy_without_estimators() -> None:
    """Imports TensorFlow Privacy without what needs TensorFlow's estimators.

    TensorFlow 2.16 has removed these. The queries, which TFF uses, are imported when
    they are asked for.
    """
    # The switch that TensorFlow Privacy offers.
    sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]
    try:
        privacy = importlib.import_module("tensorflow_privacy")
    except ModuleNotFoundError:
        return  # It comes with TFF, and neither is installed.
    finally:
        del sys.skip_tf_privacy_import  # type: ignore[attr-defined]
    privacy.__getattr__ = _query  # type: ignore[method-assign]


def _query(name: str) -> Any:
    """Returns what TensorFlow Privacy has of such a name among its queries."""
    if name in _QUERY_MODULES:
        return importlib.import_module(f"{_DP_QUERIES}.{name}")
    for module_name, class_names in _QUERY_CLASSES.items():
        if name in class_names:
            module = importlib.import_module(f"{_DP_QUERIES}.{module_name}")
            return getattr(module, name)
    raise AttributeError(f"module 'tensorflow_privacy' has no attribute {name!r}")


def _give_jax_its_former_names() -> None:
    """Lets TFF be imported beside a jax that has lost `jax.lib.xla_client`.

    TFF names its classes in annotations. Only `tff.jax` makes objects of them, so
    nothing but `tff.jax` needs a jax that has them. Where `jax.lib` has an attribute of
    this name, `from jax.lib import xla_client` takes that one; a module of this name
    would not be looked for beside the stand-in.
    """
    jax = importlib.util.find_spec("jax")
    places = (jax and jax.submodule_search_locations) or ()
    if any((pathlib.Path(each) / "lib" / "xla_client.py").exists() for each in places):
        return
    stand_in = types.ModuleType(_XLA_CLIENT)
    for name in _XLA_CLASSES:
        setattr(stand_in, name, type(name, (), {}))
    sys.modules.setdefault(_XLA_CLIENT, stand_in)


def _allow_deep_messages() -> None:
    """Lifts protobuf's limit on nested messages.

    A computation of many layers, such as distributed differential privacy inside
    another aggregation, is deeper than the 100 messages that protobuf reads by
    default, and could not be built.
    """
    for implementation in ("google._upb._message", "google.protobuf.pyext._message"):
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module(implementation).SetAllowOversizeProtos(True)
