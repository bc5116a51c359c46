"""Importing tff_drift: at once without TensorFlow, in any order, without noise."""

import gc
import graphlib
import importlib
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

import tff_drift
from tests import tiers
from tests.forks.programs import PATIENCE
from tff_drift import imports


def run_program(code):
    """Runs a Python program; returns what it printed and its errors."""
    # Importing tff_drift has set it for this process.
    environment = {**os.environ}
    environment.pop("TF_USE_LEGACY_KERAS", None)
    program = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
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
        exclude_type_checking_imports=False,
        cache_dir=None,
    )
    assert len(graph.modules) > 200
    imported = {
        name: graph.find_modules_directly_imported_by(name) for name in graph.modules
    }
    # The names that these have are imported when they are used.
    imported["tff_drift"] = imported["tasks"] = set()
    graphlib.TopologicalSorter(imported).prepare()  # Raises on a circle.


def test_the_version_is_that_of_the_distribution():
    text = (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{tff_drift.__version__}"\n' in text


def test_packages_are_listed_before_they_are_imported():
    assert set(tff_drift.__all__) <= set(dir(tff_drift))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'tff_drift' has no attribute 'nothing'"):
        _ = tff_drift.nothing


def test_packages_are_imported_without_the_garbage_collector(monkeypatch):
    at_import = []

    def import_module(name):
        at_import.append((name, gc.isenabled()))

    monkeypatch.setattr(importlib, "import_module", import_module)
    tff_drift.__getattr__("simulation")
    assert at_import == [("tff_drift.simulation", False)]
    assert gc.isenabled()


def test_an_import_that_fails_leaves_the_garbage_collector_on():
    with pytest.raises(ImportError, match="none"), imports.without_collection():
        raise ImportError("none")
    assert gc.isenabled()


def test_a_collector_that_the_program_has_turned_off_stays_off():
    gc.disable()
    try:
        with imports.without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_imports_leave_is_garbage_like_any_other(monkeypatch):
    # The tests' process has frozen what it began with, as some programs do.
    calls = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    for frozen, expected in ((5, []), (0, ["freeze", "unfreeze"])):
        monkeypatch.setattr(gc, "get_freeze_count", lambda frozen=frozen: frozen)
        calls.clear()
        with imports.without_collection():
            pass
        assert calls == expected


def test_what_comes_with_tensorflow_is_looked_at_no_more(monkeypatch):
    calls = []
    # The garbage of the program before it is collected.
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    monkeypatch.delitem(sys.modules, "tensorflow")
    with imports.without_collection():
        monkeypatch.setitem(sys.modules, "tensorflow", gc)
    assert calls == ["collect", "freeze"]
    # An import that brings something else.
    monkeypatch.delitem(sys.modules, "tensorflow")
    with imports.without_collection():
        pass
    assert calls[2:] == ["collect", "freeze", "unfreeze"]


COMPUTE = """
import numpy as np
@tff.tensorflow.computation(np.int32)
def increment(value):
    return value + 1
assert increment(1) == 2
"""
# TensorFlow 2.17 and newer write some lines whatever TF_CPP_MIN_LOG_LEVEL is.
LOGGED = re.compile(r"(WARNING: All log messages before absl|I\d{4} ).*\n")
modern = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="TFF needs nothing before its import here"
)


@pytest.mark.parametrize(
    "lines",
    [
        "import tff_drift; import tensorflow_federated as tff",
        *(
            pytest.param(each, marks=pytest.mark.conformance)
            for each in (
                "import tff_drift.compat; import tensorflow as tf\n"
                "import tensorflow_federated as tff",
                "import tensorflow as tf; import tff_drift\n"
                "import tensorflow_federated as tff; tff_drift.execution",
            )
        ),
        pytest.param(
            "import tensorflow_federated as tff; import tff_drift",
            marks=[
                pytest.mark.conformance,
                pytest.mark.skipif(
                    sys.version_info >= (3, 12),
                    reason="tff_drift comes before TFF here",
                ),
            ],
        ),
    ],
)
def test_tff_computes_and_ends_in_silence(lines):
    output, errors = run_program(lines + COMPUTE)
    assert output == ""
    assert LOGGED.sub("", errors) == ""


def test_a_missing_tff_is_told_with_its_remedy():
    output, _ = run_program(
        """
        import sys
        import tff_drift, tasks
        sys.modules["tensorflow_federated"] = None
        for package, name in ((tff_drift, "execution"), (tasks, "load")):
            try:
                getattr(package, name)
            except ImportError as error:
                print(error)
        from experiments import main, terminal
        sys.stderr = sys.stdout
        with terminal.ending() as end:
            import tensorflow_federated
        print(end.status)
        for command in ("train", "diagnose"):
            print(main.run([command]))
        """
    )
    of_package, of_tasks, *by_commands = output.splitlines()
    assert "tff-drift install-tff" in of_package
    assert of_tasks == of_package
    assert by_commands == 3 * [f"tff-drift: error: {of_package}", "1"]


def test_a_program_of_tensorflow_alone_sees_nothing_of_tff_drift(monkeypatch):
    """Neither environment variables nor finders nor modules."""
    names = ("TF_CPP_MIN_LOG_LEVEL", "GRPC_VERBOSITY", "TF_USE_LEGACY_KERAS")
    for name in names[:2]:  # The tests set them.
        monkeypatch.delenv(name, raising=False)
    output, _ = run_program(
        f"""
        import os, sys
        print([name for name in {names} if name in os.environ])
        import tensorflow as tf
        hooks = (*sys.meta_path, *sys.path_hooks)
        print([each for each in hooks if "tff" in repr(each)])
        print([name for name in sys.modules if name.lstrip("_").startswith("tff_")])
        print(os.environ.get("TF_USE_LEGACY_KERAS"))
        """
    )
    assert output.split() == ["[]", "[]", "[]", "None"]


@pytest.mark.conformance
@pytest.mark.parametrize(
    "imports", tiers.first([0], ["import tff_drift", "from tff_drift import layers"])
)
def test_keras_is_tffs_where_tensorflow_was_imported_first(imports):
    output, _ = run_program(
        f"""
        import tensorflow as tf
        {imports}
        print(tf.keras.Sequential.__module__)
        """
    )
    assert output.split(".")[0] in ("keras", "tf_keras")
    assert "keras.src.models" not in output


@modern
@pytest.mark.parametrize(
    ("before", "told"),
    [
        (
            "import contextlib\n"
            "with contextlib.suppress(ImportError): import tensorflow_federated",
            r"imported before tff_drift, which failed. Start Python again .*first\.",
        ),
        (
            "import tensorflow as tf; tf.keras.Sequential",
            r"needs Keras 2, .* Start Python again .* before tf.keras is used\.",
        ),
        (
            "import os; os.environ['TF_USE_LEGACY_KERAS'] = '0'",
            r"needs Keras 2, .* without TF_USE_LEGACY_KERAS=0 in the environment .*",
        ),
    ],
)
def test_what_comes_too_late_is_told_in_one_line(before, told):
    output, _ = run_program(
        f"{before}\n"
        + "try:\n  import tff_drift\nexcept ImportError as error:\n  print(error)"
    )
    assert re.fullmatch(f"TensorFlow Federated .*{told}\n", output)


@modern
def test_tensorflow_privacy_has_its_queries_and_nothing_else():
    output, _ = run_program(
        """
        import tff_drift
        import tensorflow_privacy
        print(tensorflow_privacy.NoPrivacySumQuery.__module__)
        print(tensorflow_privacy.restart_query.__name__)
        print(hasattr(tensorflow_privacy, "DPKerasSGDOptimizer"))
        """
    )
    queries = "tensorflow_privacy.privacy.dp_query"
    assert output.split() == [
        f"{queries}.no_privacy_query",
        f"{queries}.restart_query",
        "False",
    ]
