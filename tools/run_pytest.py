"""Runs pytest on the files it is given, from the top of Bazel's tree of files."""

import os
import sys

import pytest

if __name__ == "__main__":
    # Caches have no place in a tree that Bazel made.
    sys.exit(
        pytest.main(["-p", "no:cacheprovider", "--rootdir", os.getcwd(), *sys.argv[1:]])
    )
