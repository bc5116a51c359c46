"""What Bazel takes from this machine: the checkout's Python, and no network."""

_PYTHON = """
load("@rules_python//python:py_runtime.bzl", "py_runtime")
load("@rules_python//python:py_runtime_pair.bzl", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{python}",
    python_version = "PY3",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""

def _environment_python(context):
    checkout = str(context.path(Label("@//:BUILD")).dirname)
    python = context.os.environ.get("TFF_DRIFT_PYTHON", checkout + "/.venv/bin/python")
    if not context.path(python).exists:
        fail("%s is not there. Run `make setup`, or name the Python of an " % python +
             "environment: --repo_env=TFF_DRIFT_PYTHON=/path/to/bin/python")
    context.file("BUILD", _PYTHON.format(python = python))

# The Python that `make setup` made, with every package, as Bazel's Python.
environment_python = repository_rule(
    implementation = _environment_python,
    environ = ["TFF_DRIFT_PYTHON"],
    local = True,
)
