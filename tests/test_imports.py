"""Importing tff_drift: at once without TensorFlow, in any order, without noise."""

import graphlib
import pathlib
import subprocess
import sys
import textwrap

import pytest

import tff_drift
from tests import tiers
from tests.forks.programs import PATIENCE


def run_program(code):
    """Runs a Python program; returns what it printed and its errors."""
    program = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    return program.stdout, program.stderr


def test_importing_tff_drift_imports_no_tensorflow():
    output, errors = run_program(
        """
        import sys
        import tff_drift
        from tff_drift import checks
        heavy = {"tensorflow", "tensorflow_federated", "numpy", "grpc"}
        print(sorted(heavy & set(sys.modules)))
        """
    )
    assert output == "[]\n"
    assert errors == ""


def test_no_module_imports_itself_by_others():
    # Layers of packages are import-linter's: `make lint`.
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph(
        *("tff_drift", "tasks", "experiments"),
        exclude_type_checking_imports=True,
        cache_dir=None,
    )
    assert len(graph.modules) > 200
    imported = {
        name: graph.find_modules_directly_imported_by(name) for name in graph.modules
    }
    graphlib.TopologicalSorter(imported).prepare()  # Raises on a circle.


def test_the_version_is_that_of_the_distribution():
    text = (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{tff_drift.__version__}"\n' in text


def test_packages_are_listed_before_they_are_imported():
    assert set(tff_drift.__all__) <= set(dir(tff_drift))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'tff_drift' has no attribute 'nothing'"):
        _ = tff_drift.nothing


# Programs of users start without what the tests set.
UNSET = """
import os
for name in ("TF_CPP_MIN_LOG_LEVEL", "GRPC_VERBOSITY", "TF_USE_LEGACY_KERAS"):
    os.environ.pop(name, None)
"""
COMPUTE = """
import numpy as np
@tff.tensorflow.computation(np.int32)
def increment(value):
    return value + 1
assert increment(1) == 2
"""


@pytest.mark.parametrize(
    "imports",
    tiers.first(
        [0],
        [
            "import tff_drift; import tensorflow_federated as tff; tff_drift.execution",
            # What the start-up file of an installation does, without tff_drift.
            "import _tff_drift_startup; _tff_drift_startup.install()\n"
            "import tensorflow_federated as tff",
            "import tff_drift.compat; import tensorflow as tf\n"
            "import tensorflow_federated as tff",
            "import _tff_drift_startup; _tff_drift_startup.install()\n"
            "import tensorflow as tf; import tensorflow_federated as tff\n"
            "import tff_drift",
        ],
    ),
)
def test_tff_computes_and_ends_in_silence(imports):
    output, errors = run_program(UNSET + imports + COMPUTE)
    assert output == ""
    assert errors == ""


def test_a_missing_tff_is_told_with_its_remedy():
    output, _ = run_program(
        """
        import sys
        import tff_drift
        sys.modules["tensorflow_federated"] = None
        try:
            tff_drift.execution
        except ImportError as error:
            print(error)
        from experiments import terminal
        sys.stderr = sys.stdout
        def train(words):
            import tensorflow_federated
        print(terminal.call(train, []))
        """
    )
    in_python, by_command, status = output.splitlines()
    assert "tff-drift install-tff" in in_python
    assert by_command == f"tff-drift: error: {in_python}"
    assert status == "1"


def test_a_program_of_tensorflow_alone_keeps_its_keras():
    output, _ = run_program(
        UNSET
        + """
import _tff_drift_startup; _tff_drift_startup.install()
import tensorflow
print(os.environ.get("TF_USE_LEGACY_KERAS"))
"""
    )
    assert output == "None\n"


@pytest.mark.parametrize(
    "imports", tiers.first([0], ["import tff_drift", "from tff_drift import layers"])
)
def test_keras_is_tffs_where_tensorflow_was_imported_first(imports):
    output, _ = run_program(
        UNSET
        + f"""
import _tff_drift_startup; _tff_drift_startup.install()
import tensorflow as tf
{imports}
print(os.environ.get("TF_USE_LEGACY_KERAS"), tf.keras.Sequential.__module__)
"""
    )
    chosen, module = output.split()
    assert chosen == "1"
    assert module.split(".")[0] in ("keras", "tf_keras")
    assert "keras.src.models" not in module


def test_the_start_up_finder_stands_once_and_only_asking_imports_nothing():
    output, _ = run_program(
        """
        import importlib.util, sys
        import tff_drift
        import _tff_drift_startup
        before = len(sys.meta_path)
        _tff_drift_startup.install()
        assert len(sys.meta_path) == before
        assert importlib.util.find_spec("tensorflow_federated") is not None
        assert importlib.util.find_spec("nothing_of_this_name") is None
        print("tensorflow" in sys.modules)
        """
    )
    assert output == "False\n"
