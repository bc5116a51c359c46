"""The rule that Bazel up to 7 has built in."""

py_runtime = native.py_runtime
