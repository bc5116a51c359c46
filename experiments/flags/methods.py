"""What the methods say of themselves, read from their source.

Importing TensorFlow Federated takes seconds, and an answer to `--help`, to `list` or to
a misspelt name should not. The rows at the foot of the methods' modules and the
signatures of their builders are therefore read as text. Methods that are imported, such
as those of a plugin, are taken as they are.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tasks import Option

_REGISTRY = "tff_drift.algorithms.methods"
# The arguments of a row and of an option of it, in their order.
_ROW = ("name", "builder", "paper", "url", "weighting")
_OPTION = ("name", "kind", "help", "may_be_none", "choices", "flag")
_CLIENT_RATE = {"client_learning_rate", "client_optimizer_fn"}
_SERVER_RATE = {"server_learning_rate", "server_optimizer_fn"}


@dataclasses.dataclass(frozen=True)
class Method:
    """What is known of a method, as in `tff_drift.algorithms.Method`.

    Its options have their defaults, and are by the names of their flags.
    """

    name: str
    paper: str
    url: str
    has_client_rate: bool
    has_server_rate: bool
    options: Mapping[str, Option]
    weighting: str = "num_examples"
    sends_gradients: bool = False
    needs: tuple[str, ...] = ()


def methods() -> dict[str, Method]:
    """Returns all methods by name: the library's, then those of plugins."""
    known = dict(_in_source())
    if _REGISTRY in sys.modules:
        for name, row in sys.modules[_REGISTRY].methods().items():
            known.setdefault(name, of_row(row))
    return known


def of_row(row: Any) -> Method:
    """Returns what is known of a method that is imported, from its row."""
    options = {
        option.flag: _option(vars(option), row.defaults[option.name])
        for option in row.options
    }
    names = {field.name for field in dataclasses.fields(Method)} - {"options"}
    return Method(**{name: getattr(row, name) for name in names}, options=options)


def signature(module: str, function: str) -> dict[str, Any]:
    """Returns the defaults of a function's arguments, `None` for those without one.

    Args:
      module: The name of the module.
      function: The name of the function.
    """
    package, *names = module.split(".")
    return _signature(_parse(_folder(package).joinpath(*names)), function)


@functools.cache
def _in_source() -> dict[str, Method]:
    paths = sorted((_folder("tff_drift") / "algorithms").glob("*.py"))
    return {row.name: row for path in paths for row in _rows(_parse(path))}


def _folder(package: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    return pathlib.Path(str(spec.origin)).parent


def _parse(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))


def _rows(tree: ast.Module) -> Iterator[Method]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Method":
            yield _row(_arguments(node, _ROW), tree)


def _row(row: Mapping[str, Any], tree: ast.Module) -> Method:
    defaults = _signature(tree, row["builder"].id)
    options = {}
    for call in getattr(row.get("options"), "elts", ()):
        fields = _literals(_arguments(call, _OPTION))
        flag = fields.get("flag", fields["name"])
        options[flag] = _option(fields, defaults[fields["name"]])
    names = {field.name for field in dataclasses.fields(Method)} - {"options"}
    return Method(
        **_literals({name: node for name, node in row.items() if name in names}),
        has_client_rate=bool(_CLIENT_RATE & set(defaults)),
        has_server_rate=bool(_SERVER_RATE & set(defaults)),
        options=options,
    )


def _option(fields: Mapping[str, Any], default: Any) -> Option:
    values = {name: fields[name] for name in _OPTION[:-1] if name in fields}
    return Option(**values, default=default)


def _signature(tree: ast.Module, function: str) -> dict[str, Any]:
    (found,) = (
        node.args
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == function
    )
    names = [each.arg for each in (*found.args, *found.kwonlyargs)]
    defaults = [*found.defaults, *found.kw_defaults]
    missing = [None] * (len(names) - len(defaults))
    return {
        name: default and ast.literal_eval(default)
        for name, default in zip(names, [*missing, *defaults])
    }


def _arguments(call: ast.Call, names: tuple[str, ...]) -> dict[str, Any]:
    named = {word.arg: word.value for word in call.keywords if word.arg}
    return {**dict(zip(names, call.args)), **named}


def _literals(nodes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: ast.literal_eval(node) for name, node in nodes.items()}
