"""Runs pytest on the files it is given, from the top of Bazel's tree of files."""

import os
import sys

import pytest

if __name__ == "__main__":
    # Caches have no place in a tree that Bazel made. A file's tests are of all tiers.
    options = ["-p", "no:cacheprovider", "-m", "", "--rootdir", os.getcwd()]
    sys.exit(pytest.main([*options, *sys.argv[1:]]))
