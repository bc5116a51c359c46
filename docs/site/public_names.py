"""The public names of the packages, read from their source.

Nothing is imported: the pages of the reference are made in seconds, in an environment
without TensorFlow.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Iterator
from typing import Union

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a method or an aggregator of one's own is made of, beside the packages' names.
BUILDING_BLOCKS = {
    "tff_drift.algorithms.server_steps": [
        "ServerStep",
        "OptimizerStep",
        "CorrectedCloudStep",
        "Cohort",
        "ServerResult",
    ],
    "tff_drift.algorithms.options": ["split"],
    "tff_drift.aggregators.wrapping": [
        "wrap_factory",
        "Steps",
        "call_next",
        "join_measurements",
    ],
}
PACKAGES = (
    "tff_drift.algorithms",
    "tff_drift.aggregators",
    "tff_drift.client_states",
    "tff_drift.client_works",
    "tff_drift.execution",
    "tff_drift.layers",
    "tff_drift.models",
    "tff_drift.optimizers",
    "tff_drift.simulation",
    "tff_drift.simulation.callbacks",
    "tasks",
    *BUILDING_BLOCKS,
)
Definition = Union[ast.FunctionDef, ast.ClassDef, ast.Assign]


@dataclasses.dataclass(frozen=True)
class PublicName:
    """A name that a package offers.

    Attributes:
      package: The package, dotted.
      name: The name in it.
      module: The module that defines it, dotted.
      node: Its definition there.
      doc: Its docstring; of a value, the comment above it.
    """

    package: str
    name: str
    module: str
    node: Definition
    doc: str

    @property
    def kind(self) -> str:
        """Which of Sphinx's directives describes it."""
        if isinstance(self.node, ast.FunctionDef):
            return "function"
        return "class" if isinstance(self.node, ast.ClassDef) else "data"


def path_of(module: str) -> pathlib.Path:
    """Returns a module's file."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def parse(module: str) -> ast.Module:
    """Returns a module's syntax tree."""
    return ast.parse(path_of(module).read_text("utf-8"))


def module_doc(module: str) -> str:
    """Returns a module's docstring."""
    return ast.get_docstring(parse(module)) or ""


def public_names(package: str) -> list[PublicName]:
    """Returns what a package offers, in the order in which it lists it."""
    found = []
    for name in _offered(package):
        if f"{package}.{name}" in PACKAGES:
            continue  # It has a page of its own.
        module, node = definition(package, name)
        found.append(PublicName(package, name, module, node, _doc(module, node)))
    return found


@functools.cache
def addresses() -> dict[str, str]:
    """Returns where each name is documented, by the ways in which texts write it."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        found[package] = package
        for each in public_names(package):
            whole = f"{package}.{each.name}"
            found[whole] = whole
            for short in (each.name, f"{package.split('.', 1)[-1]}.{each.name}"):
                found.setdefault(short, whole)
    return found


def _offered(package: str) -> list[str]:
    if package in BUILDING_BLOCKS:
        return BUILDING_BLOCKS[package]
    for node in parse(package).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    # Without `__all__`, `from x import y as y` offers y.
    return sorted(
        alias.name
        for node in parse(package).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    )


def definition(module: str, name: str) -> tuple[str, Definition]:
    """Returns the module that defines a name which another one has, and how.

    Args:
      module: The module that has the name, dotted.
      name: The name.

    Raises:
      LookupError: If the module has no such name.
    """
    for node in statements(parse(module)):
        if isinstance(node, ast.ImportFrom):
            if any((alias.asname or alias.name) == name for alias in node.names):
                return definition(node.module or "", name)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node.name == name:
                return module, node
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return module, node
    raise LookupError(f"{module} offers {name} and does not define it.")


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yields a module's statements, those for type checkers too."""
    for node in tree.body:
        yield node
        if isinstance(node, ast.If):  # `if TYPE_CHECKING:`
            yield from node.body


def _doc(module: str, node: Definition) -> str:
    if not isinstance(node, ast.Assign):
        return ast.get_docstring(node) or ""
    lines = path_of(module).read_text("utf-8").splitlines()
    comment: list[str] = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.startswith("#"):
            break
        comment.insert(0, line.removeprefix("#").strip())
    return "\n".join(comment)
