"""How tests are chosen, and what comes before TensorFlow is imported."""

import argparse
import os
import re
import signal

# Started in the background of a shell, the tests would ignore interrupts, and so would
# the programs that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow and gRPC read these when they are loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# The tests run side by side: threads for single operations would only wait.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

# Before anything of ours is imported, see there.
if os.environ.get("TFF_DRIFT_ELSEWHERE") == "1":
    from tests import elsewhere

    elsewhere.take_linux_away()

import pytest  # noqa: E402

# Before TensorFlow Federated, which conftests of folders import.
import tff_drift  # noqa: E402, F401
from tests.forks import programs  # noqa: E402

programs.own_session()


def pytest_configure(config):
    # A process that hands all tests out to others needs no TensorFlow.
    hands_out = config.getoption("dist", "no") != "no" and config.getoption("tx")
    if not hands_out or config.option.collectonly:
        config.pluginmanager.import_plugin("tests.with_tensorflow")


def pytest_addoption(parser):
    parser.addoption(
        "--smoke",
        action="store_true",
        help="run the first test of every file that takes no more than a second or two",
    )

    parser.addoption(
        "--no-grappler",
        action="store_true",
        help="run graphs as they were traced, whose operations keep no stacks, and "
        "read types of TFF once: TensorFlow's optimizer of graphs alone takes a "
        "quarter of the tests' time",
    )

    parser.addoption(
        "--part",
        type=_part,
        default=(0, 1),
        metavar="K/N",
        help="of N parts of the files the one with the number K modulo N, such as a "
        "day's",
    )


def _part(text):
    match = re.fullmatch(r"(\d+)/([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N, such as 3/7")
    return int(match[1]), int(match[2])


@pytest.hookimpl(trylast=True)  # Of the tests that markers choose.
def pytest_collection_modifyitems(config, items):
    number, parts = config.getoption("--part")
    files = list(dict.fromkeys(item.path for item in items))
    # Neighbours share what takes long to build.
    bounds = [len(files) * k // parts for k in (number % parts, number % parts + 1)]
    of_part = set(files[slice(*bounds)])
    chosen = {item for item in items if item.path in of_part}
    if config.getoption("--smoke"):
        quick = [item for item in items if not item.get_closest_marker("no_smoke")]
        chosen &= set({item.path: item for item in reversed(quick)}.values())
    config.hook.pytest_deselected(items=[each for each in items if each not in chosen])
    items[:] = [each for each in items if each in chosen]
