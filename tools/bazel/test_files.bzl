"""The tests of a folder, one target for each file."""

load("@rules_python//python:defs.bzl", "py_library", "py_test")

_SHARED = "//tests:support"
_RUNNER = "//tools/bazel:run_pytest.py"

def test_files(deps = [], test_deps = [], data = [], test_data = []):
    """Declares a test for each `test_*.py`, and a library of the folder's other files.

    Args:
      deps: What the files import, besides what the tests of all folders share.
      test_deps: What only the tests import.
      data: What they read.
      test_data: What only the tests read.
    """
    if native.package_name() != "tests":
        deps = [_SHARED] + deps
    py_library(
        name = "support",
        testonly = True,
        srcs = native.glob(
            ["*.py"],
            exclude = ["test_*.py"],
        ),
        data = data,
        visibility = ["//tests:__subpackages__"],
        deps = deps,
    )
    py_library(
        name = "files",
        testonly = True,
        srcs = native.glob(["*.py"]),
        visibility = ["//tests:__subpackages__"],
    )
    for file in native.glob(["test_*.py"]):
        py_test(
            name = file[:-len(".py")],
            timeout = "eternal",
            srcs = [
                file,
                _RUNNER,
            ],
            args = ["$(rootpath %s)" % file],
            data = test_data,
            main = _RUNNER,
            deps = [":support"] + test_deps,
        )
