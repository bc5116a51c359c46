"""Names of TFF that move stand in `tff_drift/compat.py` alone."""

import ast
import pathlib

import tff_drift

LIBRARY = pathlib.Path(tff_drift.__file__).parent
COMPAT = LIBRARY / "compat.py"
ROOT = LIBRARY.parent
# Those that use the library, too.
MODULES = [
    path
    for folder in ("tff_drift", "tasks", "experiments")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
# What compat itself imports, and what runs at the end of a program without compat.
BEFORE_COMPAT = {"_tff_default.py", "_tff_exit.py"}
# Whole namespaces that move, whatever the name in them.
MOVING = ("tff.structure", "tff.framework", "tff.program", "tff.types")


def _tff_names(path):
    """Yields the dotted names that begin with `tff`, and where they stand."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if id(node) in inner:
            continue
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id == "tff":
            yield ".".join(["tff", *reversed(parts)]), node.lineno


def _is_within(name, spelled):
    return name == spelled or name.startswith(f"{spelled}.")


def test_compat_alone_spells_the_names_that_move():
    moving = {*MOVING, *(name for name, _ in _tff_names(COMPAT))}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in MODULES
        if path != COMPAT and path.name not in BEFORE_COMPAT
        for name, line in _tff_names(path)
        if any(_is_within(name, spelled) for spelled in moving)
    ]
    assert not found, "use tff_drift.compat for:\n" + "\n".join(found)


def test_every_name_of_compat_is_used():
    defined = {
        target.id
        for node in ast.parse(COMPAT.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    used = {
        node.attr
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "compat"
    }
    assert len(defined) > 20
    assert not defined - used
