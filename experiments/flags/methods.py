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
# The arguments of an option of a row, in their order.
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


_FIELDS = {field.name for field in dataclasses.fields(Method)} - {"options"}


def methods() -> dict[str, Method]:
    """Returns all methods by name: the library's, then those of plugins."""
    known = dict(_in_source())
    if _REGISTRY in sys.modules:
        for name, row in sys.modules[_REGISTRY].methods().items():
            known.setdefault(name, of_row(row))
    return known


def of_row(row: Any) -> Method:
    """Returns what is known of a method that is imported, from its row."""
    options = {each.flag: _option(vars(each), row.defaults) for each in row.options}
    return Method(**{name: getattr(row, name) for name in _FIELDS}, options=options)


@functools.cache
def _in_source() -> dict[str, Method]:
    modules = sorted((_folder("tff_drift") / "algorithms").glob("*.py"))
    return {method.name: method for path in modules for method in _rows(_parse(path))}


def _folder(package: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    return pathlib.Path(str(spec.origin)).parent


def _parse(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.with_suffix(".py").read_text(encoding="utf-8"))


def _rows(tree: ast.Module) -> Iterator[Method]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Method":
            row: dict[str, Any] = {word.arg or "": word.value for word in node.keywords}
            defaults = _signature(tree, row["builder"].id)
            calls = row["options"].elts if "options" in row else ()
            options = [_literals(_arguments(call)) for call in calls]
            yield Method(
                **_literals({name: row[name] for name in row if name in _FIELDS}),
                has_client_rate=bool(_CLIENT_RATE & set(defaults)),
                has_server_rate=bool(_SERVER_RATE & set(defaults)),
                options={
                    o.get("flag", o["name"]): _option(o, defaults) for o in options
                },
            )


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    named = {word.arg: word.value for word in call.keywords if word.arg}
    return {**dict(zip(_OPTION, call.args)), **named}


def _literals(nodes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: ast.literal_eval(node) for name, node in nodes.items()}


def _option(fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> Option:
    values = {name: fields[name] for name in _OPTION[:-1] if name in fields}
    return Option(**values, default=defaults[fields["name"]])


def signature(module: str, function: str) -> dict[str, Any]:
    """Returns the defaults of a function's arguments, `None` for those without one."""
    package, *names = module.split(".")
    return _signature(_parse(_folder(package).joinpath(*names)), function)


def _signature(tree: ast.Module, function: str) -> dict[str, Any]:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    (found,) = (node.args for node in functions if node.name == function)
    names = [each.arg for each in (*found.args, *found.kwonlyargs)]
    defaults = [*found.defaults, *found.kw_defaults]
    missing = [None] * (len(names) - len(defaults))
    pairs = zip(names, [*missing, *defaults])
    return {name: node and ast.literal_eval(node) for name, node in pairs}
