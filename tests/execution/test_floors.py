"""The floors of `tff_drift.execution`: what may import from where."""

import ast
import pathlib

import tff_drift.execution
from tff_drift.execution import local

EXECUTION = pathlib.Path(tff_drift.execution.__file__).parent
PACKAGE = "tff_drift.execution.local"
# From the ground up, as in the docstring of `tff_drift.execution.local`.
FLOORS = (
    {"policy", "patterns", "rewriting"},
    {"placement"},
    {"tensors"},
    {"plans"},
    {"values"},
    {"graphs", "pure"},
    {"stacked"},
    {"run"},
    {"plan_cache"},
    {"context"},
)
MOST_LINES = 400


def _imported(path):
    """Yields the modules that a file imports, with those named in `from a import b`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _rooms(path):
    """Yields the rooms of the local context that a file imports from."""
    for name in _imported(path):
        if name.startswith(f"{PACKAGE}."):
            yield name[len(PACKAGE) + 1 :].split(".")[0]


def test_no_room_of_the_local_context_imports_from_above():
    floor_of = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
    seen = set()
    for path in (EXECUTION / "local").rglob("*.py"):
        room = path.relative_to(EXECUTION / "local").parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        seen.add(room)
        for other in _rooms(path):
            below = floor_of[other] < floor_of[room]
            assert below or other == room, f"{path} imports from {other}"
    assert seen == set(floor_of)


def test_other_contexts_see_the_front_door_alone():
    paths = [
        path
        for path in EXECUTION.rglob("*.py")
        if EXECUTION / "local" not in path.parents
    ]
    assert len(paths) > 10
    for path in paths:
        assert set(_rooms(path)) <= set(local.__all__), path


def test_modules_are_of_a_readable_length():
    for path in EXECUTION.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= MOST_LINES, path
