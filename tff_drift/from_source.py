"""Methods and signatures of the library, read from its source.

Importing TensorFlow Federated takes seconds, and an answer to `--help`, to a list of
the methods or to a misspelt name should not. A method that is read is the `Method` of
its row, but that its builder imports the method's module when it is called.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from tff_drift import method_options, method_specs, value_types

_FOLDER = pathlib.Path(__file__).parent
# What a row is made of, beside its builder.
_NAMED: dict[str, Callable[..., Any]] = {
    "Cost": method_specs.Cost,
    "Method": method_specs.Method,
    "Option": value_types.Option,
    "shared_options": method_options.shared_options,
}


class _Builder:
    """A builder with its signature and documentation, imported when it is called."""

    def __init__(self, module: str, function: ast.FunctionDef) -> None:
        self.__module__ = module
        self.__name__ = function.name
        self.__doc__ = ast.get_docstring(function)
        self.__signature__ = _signature(function)

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
    parameters = _signature(_functions(_parse(module))[function]).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def _rows(module: str) -> Iterator[method_specs.Method]:
    tree = _parse(module)
    functions = _functions(tree)

    def named(name: str) -> Any:
        return _NAMED.get(name) or _Builder(module, functions[name])

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Method":
            yield _value(node, named)


def _parse(module: str) -> ast.Module:
    path = _FOLDER.parent.joinpath(*module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in nodes}


def _value(node: ast.expr, named: Callable[[str], Any]) -> Any:
    """Returns what an expression of a row stands for, given what its names do."""
    if isinstance(node, ast.Name):
        return named(node.id)
    if isinstance(node, ast.Tuple):
        return tuple(_value(each, named) for each in node.elts)
    if isinstance(node, ast.Call):
        arguments = [_value(each, named) for each in node.args]
        options = {str(each.arg): _value(each.value, named) for each in node.keywords}
        return _value(node.func, named)(*arguments, **options)
    return ast.literal_eval(node)


def _signature(function: ast.FunctionDef) -> inspect.Signature:
    takes, kinds = function.args, inspect.Parameter
    required: list[Any] = [None] * (len(takes.args) - len(takes.defaults))
    parameters = [
        kinds(each.arg, kind, default=ast.literal_eval(node) if node else kinds.empty)
        for kind, arguments, defaults in (
            (kinds.POSITIONAL_OR_KEYWORD, takes.args, [*required, *takes.defaults]),
            (kinds.KEYWORD_ONLY, takes.kwonlyargs, takes.kw_defaults),
        )
        for each, node in zip(arguments, defaults)
    ]
    if takes.kwarg:
        parameters.append(kinds(takes.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(parameters)
