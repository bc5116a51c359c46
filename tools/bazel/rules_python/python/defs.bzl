"""The rules that Bazel up to 7 has built in."""

py_binary = native.py_binary
py_library = native.py_library
py_test = native.py_test
