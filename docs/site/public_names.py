"""The public names of the packages, read from their source by griffe.

Nothing is imported: the pages of the reference are made in seconds, in an environment
without TensorFlow.
"""

from __future__ import annotations

import functools
import pathlib
from typing import NamedTuple

import griffe

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


class PublicName(NamedTuple):
    """A name that a package offers.

    Attributes:
      package: The package, dotted.
      name: The name in it.
      definition: What it is, where it is defined.
    """

    package: str
    name: str
    definition: griffe.Object

    @property
    def kind(self) -> str:
        """Which of Sphinx's directives describes it."""
        kind = self.definition.kind.value
        return "data" if kind == "attribute" else kind

    @property
    def doc(self) -> str:
        """Its docstring; of a value, the comment above it."""
        if self.kind != "data":
            return doc_of(self.definition)
        lines = self.definition.filepath.read_text("utf-8").splitlines()
        comment: list[str] = []
        for line in reversed(lines[: self.definition.lineno - 1]):
            if not line.startswith("#"):
                break
            comment.insert(0, line.removeprefix("#").strip())
        return "\n".join(comment)


@functools.cache
def _modules() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(search_paths=[ROOT], allow_inspection=False)
    for package in ("tff_drift", "tasks"):
        loader.load(package)
    return loader.modules_collection


def find(path: str) -> griffe.Object | None:
    """Returns what a dotted path leads to, if it is of this project.

    Args:
      path: The path, by way of other modules that import it too.
    """
    try:
        found = _modules()[path]
        if found.is_module:
            # What is imported from a module of its name hides the module.
            found = found.members.get(found.name, found)
        return found.final_target if found.is_alias else found
    except (KeyError, griffe.AliasResolutionError):
        return None


def doc_of(definition: griffe.Object) -> str:
    """Returns a docstring, empty if there is none."""
    return definition.docstring.value if definition.docstring else ""


def module_doc(module: str) -> str:
    """Returns a module's docstring."""
    return doc_of(_modules()[module])


@functools.cache
def public_names(package: str) -> list[PublicName]:
    """Returns what a package offers, in the order in which it lists it."""
    module = _modules()[package]
    offered = BUILDING_BLOCKS.get(package) or module.exports
    if offered is None:  # `from x import y as y` offers y.
        offered = sorted(name for name, each in module.members.items() if each.is_alias)
    return [
        PublicName(package, str(name), find(f"{package}.{name}"))
        for name in offered
        if f"{package}.{name}" not in PACKAGES  # They have pages of their own.
    ]


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
