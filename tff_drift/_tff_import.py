"""What TensorFlow Federated 0.87 needs before and after its import.

TFF 0.87 was made for Python 3.9 to 3.11 and TensorFlow 2.14. With what is here it
also runs on Python 3.12 and 3.13 with TensorFlow up to 2.20.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import types
import warnings

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
_XLA_CLASSES = ("Shape", "XlaComputation")


def choose_keras_2() -> None:
    """Makes `tf.keras` the Keras that TFF needs, unless it is in use already."""
    # Read by TensorFlow 2.16 and newer when `tf.keras` is first used.
    os.environ.setdefault(_KERAS_2, "1")


def before() -> None:
    """Runs before TFF is imported.

    Raises:
      ImportError: If this process uses Keras 3 as `tf.keras` already, or if
        Keras 2 is missing.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    choose_keras_2()
    import tensorflow as tf

    if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 16):
        return
    _check_keras_2(tf.__version__)
    _import_privacy_without_estimators()
    _give_jax_its_former_names()


def _check_keras_2(tensorflow_version: str) -> None:
    import tensorflow as tf

    release = ".".join(tensorflow_version.split(".")[:2])
    try:
        package = tf.keras.Model.__module__.partition(".")[0]
    except ImportError as error:
        raise ImportError(
            "TensorFlow Federated needs Keras 2, which is a package of its own for "
            f"TensorFlow {release}. Install it: pip install tf-keras~={release}.0"
        ) from error
    if package != "tf_keras":
        raise ImportError(
            "TensorFlow Federated needs Keras 2, and this process uses Keras 3 as "
            f"tf.keras. Set the environment variable {_KERAS_2}=1, or import "
            "tff_drift before tf.keras is first used, and start again."
        )


def _import_privacy_without_estimators() -> None:
    """Imports TensorFlow Privacy's queries without the rest of it.

    The rest needs TensorFlow's estimators, which TensorFlow 2.16 has removed.
    """
    # The switch that TensorFlow Privacy offers.
    sys.skip_tf_privacy_import = True  # type: ignore[attr-defined]
    try:
        privacy = importlib.import_module("tensorflow_privacy")
    finally:
        del sys.skip_tf_privacy_import  # type: ignore[attr-defined]
    for module_name, class_names in _QUERY_CLASSES.items():
        module = importlib.import_module(f"{_DP_QUERIES}.{module_name}")
        for class_name in class_names:
            setattr(privacy, class_name, getattr(module, class_name))
    for module_name in _QUERY_MODULES:
        module = importlib.import_module(f"{_DP_QUERIES}.{module_name}")
        setattr(privacy, module_name, module)


def _give_jax_its_former_names() -> None:
    """Lets TFF be imported beside a jax that has lost `jax.lib.xla_client`.

    TFF names its classes in annotations. Only `tff.jax` makes objects of them, so
    nothing but `tff.jax` needs a jax that has them.
    """
    jax_lib = importlib.import_module("jax.lib")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        there = getattr(jax_lib, "xla_client", None)
        if all(hasattr(there, name) for name in _XLA_CLASSES):
            return
    stand_in = types.ModuleType("jax.lib.xla_client")
    for name in _XLA_CLASSES:
        setattr(stand_in, name, type(name, (), {}))
    jax_lib.xla_client = stand_in  # type: ignore[attr-defined]


def after() -> None:
    """Runs once TFF is imported."""
    # They import TFF.
    from tff_drift import _tff_default, _tff_exit

    _allow_deep_messages()
    _tff_default.do_without_worker()
    _tff_exit.release_context_at_exit()


def _allow_deep_messages() -> None:
    """Lifts protobuf's limit on nested messages.

    A computation of many layers, such as distributed differential privacy inside
    another aggregation, is deeper than the 100 messages that protobuf reads by
    default, and could not be built.
    """
    for implementation in ("google._upb._message", "google.protobuf.pyext._message"):
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module(implementation).SetAllowOversizeProtos(True)
