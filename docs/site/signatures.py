"""Signatures in names that readers know.

An alias or a constant that is not public is spelled out; a public name of another
package is written with it, and so linked.
"""

from __future__ import annotations

import ast
import functools
from typing import Union

import public_names

# The module that defines a name and what it is there, the module that the name is, or
# nothing of ours.
_Place = Union[tuple[str, ast.AST], str, None]


def signature(node: ast.FunctionDef, module: str, *, bound: bool = False) -> str:
    """Returns a function's arguments and result.

    Args:
      node: The function.
      module: The module that defines it, dotted.
      bound: Whether it is a method, whose first argument is not shown.
    """
    spelled = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(spelled, ast.FunctionDef)
    is_static = any(ast.unparse(each) == "staticmethod" for each in node.decorator_list)
    if bound and not is_static:
        spelled.args.args = spelled.args.args[1:]
    arguments = ast.unparse(_Spelled(module).visit(spelled.args))
    returns = f" -> {spell(node.returns, module)}" if node.returns else ""
    return f"({arguments}){returns}"


def constructor(node: ast.ClassDef, module: str) -> str:
    """Returns the arguments that a class is called with, if its readers call it.

    Args:
      node: The class.
      module: The module that defines it, dotted.
    """
    made = initializer(node)
    if made:
        is_told = "Args:" in f"{ast.get_docstring(node)}{ast.get_docstring(made)}"
        whole = signature(made, module, bound=True).removesuffix(" -> None")
        return whole if is_told else ""
    if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        return f"({', '.join(_field(each, module) for each in fields)})"
    return ""


def initializer(node: ast.ClassDef) -> ast.FunctionDef | None:
    """Returns a class's own `__init__`, if it has one.

    Args:
      node: The class.
    """
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            return child
    return None


def _field(node: ast.AnnAssign, module: str) -> str:
    field = f"{ast.unparse(node.target)}: {spell(node.annotation, module)}"
    return f"{field} = {value(node.value, module)}" if node.value else field


def value(node: ast.expr, module: str) -> str:
    """Returns a value in names that readers know.

    Args:
      node: The value, as a module writes it.
      module: The module, dotted.
    """
    return ast.unparse(_Spelled(module).visit(_copy(node)))


def spell(node: ast.expr, module: str) -> str:
    """Returns a type in names that readers know.

    Args:
      node: The type, as a module writes it.
      module: The module, dotted.
    """
    return ast.unparse(_Spelled(module, is_type=True).visit(_copy(node)))


class _Spelled(ast.NodeTransformer):
    """Writes names for readers, in an expression of a module.

    Args:
      module: The module, dotted.
      is_type: Whether the expression is a type, where what is in quotes is one too.
    """

    def __init__(self, module: str, is_type: bool = False) -> None:
        self._module = module
        self._is_type = is_type

    def visit_arg(self, node: ast.arg) -> ast.arg:
        if node.annotation:
            node.annotation = _parse(spell(node.annotation, self._module))
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if self._is_type and isinstance(node.value, str):
            return self.visit(_parse(node.value))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._spelled(node, _find(self._module, node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not isinstance(node.value, ast.Name):
            return self.generic_visit(node)  # type: ignore[return-value]
        if node.value.id == "collections":
            return ast.Name(node.attr)
        base = _find(self._module, node.value.id)
        return self._spelled(
            node, _find(base, node.attr) if isinstance(base, str) else None
        )

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        kind = ast.unparse(node.value)
        if kind == "Literal":
            return node
        self.generic_visit(node)
        kinds = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if kind == "Optional":
            return _either([*kinds, ast.Constant(None)])
        return _either(kinds) if kind == "Union" else node

    def _spelled(self, node: ast.expr, place: _Place) -> ast.expr:
        if place is None or isinstance(place, str):
            return node
        module, found = place
        name = ast.unparse(node).rpartition(".")[2]
        address = _public().get((module, name))
        if address:
            package = address.rpartition(".")[0]
            is_near = f"{self._module}.".startswith(f"{package}.")
            return _parse(name if is_near else address.removeprefix("tff_drift."))
        if isinstance(found, ast.expr) and not isinstance(found, ast.Call):
            return _Spelled(module, self._is_type).visit(_copy(found))
        return ast.Name(name)


def _parse(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _copy(node: ast.expr) -> ast.expr:
    return _parse(ast.unparse(node))


def _either(kinds: list[ast.expr]) -> ast.expr:
    return functools.reduce(
        lambda left, right: ast.BinOp(left, ast.BitOr(), right), kinds
    )


def _find(module: str, name: str) -> _Place:
    """Where a name of a module is defined, or the module that it is."""
    for node in public_names.statements(public_names.parse(module)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return module, node
        if isinstance(node, ast.Assign) and (value := _assigned(node, name)):
            return module, value
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) != name:
                    continue
                if node.module.split(".")[0] not in ("tff_drift", "tasks"):
                    return None
                if public_names.path_of(f"{node.module}.{alias.name}").exists():
                    return f"{node.module}.{alias.name}"
                return _find(node.module, alias.name)
    return None


def _assigned(node: ast.Assign, name: str) -> ast.expr | None:
    """What a statement gives to a name, as in `A, B = 1, 2`."""
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id == name:
            return node.value
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for each, value in zip(target.elts, node.value.elts):
                if isinstance(each, ast.Name) and each.id == name:
                    return value
    return None


@functools.cache
def _public() -> dict[tuple[str, str], str]:
    """The address of each public name, by where it is defined."""
    return {
        (each.module, each.name): f"{package}.{each.name}"
        for package in reversed(public_names.PACKAGES)
        for each in public_names.public_names(package)
    }
