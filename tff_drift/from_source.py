"""Methods and signatures of the library, read from its source.

A method that is read is the `Method` of its spec, but that its builder imports the
method's module when it is called.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pathlib
from collections.abc import Iterator
from typing import Any

from tff_drift import method_specs
from tff_drift.module_source import Function, ModuleSource

_FOLDER = pathlib.Path(__file__).parent
# What specs are made of.
_IMPORTABLE = (
    "tff_drift.method_options",
    "tff_drift.method_specs",
    "tff_drift.value_types",
)


class _Builder:
    """A builder with its signature and documentation, imported when it is called."""

    def __init__(self, source: ModuleSource, function: Function) -> None:
        self.__module__ = source.name
        self.__name__ = function.name
        self.__doc__ = ast.get_docstring(function)
        self._source = source
        self._function = function

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        return _signature(self._source, self._function)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module = importlib.import_module(self.__module__)
        return getattr(module, self.__name__)(*arguments, **options)


def methods() -> dict[str, method_specs.Method]:
    """Returns all methods by name: those of the library, then a user's own.

    What is imported is as it was registered, the rest as it is read.
    """
    return {**read(), **method_specs.methods()}


@functools.cache
def read() -> dict[str, method_specs.Method]:
    """Returns the methods of the library by name, in alphabetical order."""
    stems = [path.stem for path in sorted((_FOLDER / "algorithms").glob("*.py"))]
    rows = [row for stem in stems for row in _rows(f"tff_drift.algorithms.{stem}")]
    return {row.name: row for row in rows}


def defaults(module: str, function: str) -> dict[str, Any]:
    """Returns the defaults of those of a function's arguments that have one, by name.

    Args:
      module: The dotted name of the function's module in the library.
      function: Its name.
    """
    source = _source(module)
    parameters = _signature(source, source.function(function)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _source(module: str) -> ModuleSource:
    return ModuleSource(module, _Builder, _IMPORTABLE)


def _rows(module: str) -> Iterator[method_specs.Method]:
    source = _source(module)
    for statement in source.tree.body:
        if isinstance(statement, (Function, ast.ClassDef)):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _last_name(node.func) == "Method":
                yield source.value(node)


def _last_name(node: ast.expr) -> str:
    """Returns `Method` for `Method` and for `algorithms.Method`."""
    return str(getattr(node, "id", None) or getattr(node, "attr", ""))


def _signature(source: ModuleSource, function: Function) -> inspect.Signature:
    takes, kinds = function.args, inspect.Parameter
    positional = [*takes.posonlyargs, *takes.args]
    required: list[Any] = [None] * (len(positional) - len(takes.defaults))
    parameters = [
        kinds(each.arg, kind, default=source.value(node) if node else kinds.empty)
        for kind, arguments, defaults in (
            (kinds.POSITIONAL_OR_KEYWORD, positional, [*required, *takes.defaults]),
            (kinds.KEYWORD_ONLY, takes.kwonlyargs, takes.kw_defaults),
        )
        for each, node in zip(arguments, defaults, strict=True)
    ]
    if takes.kwarg:
        parameters.append(kinds(takes.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)
