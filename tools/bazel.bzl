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

def _files(context):
    for path, content in context.attr.files.items():
        context.file(path, content)

_repository = repository_rule(
    implementation = _files,
    attrs = {"files": attr.string_dict()},
)

def _built_in(language, rules):
    lines = ["%s = native.%s" % (rule, rule) for rule in rules.split(" ")]
    return {language + "/BUILD": "", language + "/defs.bzl": "\n".join(lines)}

def built_in_rules():
    """Names the rules that Bazel up to 7 has built in, as newer Bazel fetches them."""
    pair = "@bazel_tools//tools/python:toolchain.bzl"
    python = {
        "python/py_runtime.bzl": "py_runtime = native.py_runtime",
        "python/py_runtime_pair.bzl": "load(\"%s\", pair = \"py_runtime_pair\")\n" % pair +
                                      "py_runtime_pair = pair",
    }
    python.update(_built_in("python", "py_binary py_library py_test"))
    _repository(name = "rules_python", files = python)

    # Bazel's own toolchains load these.
    _repository(
        name = "rules_cc",
        files = _built_in(
            "cc",
            "cc_binary cc_import cc_library cc_test cc_toolchain cc_toolchain_suite",
        ),
    )
    _repository(
        name = "rules_java",
        files = _built_in(
            "java",
            "java_binary java_import java_library java_runtime java_test java_toolchain",
        ),
    )

    # Every test of Bazel 4.2 names this; only `bazel coverage` runs it.
    _repository(
        name = "remote_coverage_tools",
        files = {"BUILD": """
filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
"""},
    )
