"""Signatures in names that readers know.

An alias or a constant that is not public is spelled out; a public name of another
package is written with it, and so linked.
"""

from __future__ import annotations

import functools

import griffe
import public_names

_UNIONS = ("Optional", "Union")
_MODULE = "collections."  # Its types are known by their names.
_STARS = {
    griffe.ParameterKind.var_positional: "*",
    griffe.ParameterKind.var_keyword: "**",
}


def signature(function: griffe.Function, *, bound: bool = False) -> str:
    """Returns a function's arguments and result.

    Args:
      function: The function.
      bound: Whether it is a method, whose first argument is not shown.
    """
    parameters = list(function.parameters)
    if bound and "staticmethod" not in function.labels:
        del parameters[0]
    module = function.module.path
    returns = (
        f" -> {spell(function.returns, module, is_type=True)}"
        if function.returns
        else ""
    )
    return f"({_parameters(parameters, module)}){returns}"


def constructor(definition: griffe.Class) -> str:
    """Returns the arguments that a class is called with, if its readers call it.

    Args:
      definition: The class.
    """
    made = initializer(definition)
    if made is None:
        return ""
    docs = public_names.doc_of(definition) + public_names.doc_of(made)
    if "dataclass" not in definition.labels and "Args:" not in docs:
        return ""
    return signature(made, bound=True).removesuffix(" -> None")


def initializer(definition: griffe.Class) -> griffe.Function | None:
    """Returns a class's own `__init__`, if it has one; dataclasses have.

    Args:
      definition: The class.
    """
    return definition.members.get("__init__")


def _parameters(parameters: list[griffe.Parameter], module: str) -> str:
    shown, has_star = [], False
    for each in parameters:
        star = _STARS.get(each.kind, "")
        if each.kind is griffe.ParameterKind.keyword_only and not has_star:
            shown.append("*")
        has_star |= bool(star) or each.kind is griffe.ParameterKind.keyword_only
        text = star + each.name
        if each.annotation:
            text += f": {spell(each.annotation, module, is_type=True)}"
        if each.default is not None and not star:
            text += f" = {spell(each.default, module)}"
        shown.append(text)
    return ", ".join(shown)


def spell(expression: griffe.Expr | str, module: str, *, is_type: bool = False) -> str:
    """Returns a type or a value in names that readers know.

    Args:
      expression: The type or the value.
      module: The module that writes it, dotted.
      is_type: Whether it is a type, where what is in quotes is one too.
    """
    if isinstance(expression, str):
        is_quoted = is_type and expression[0] in "'\""
        return expression[1:-1].removeprefix(_MODULE) if is_quoted else expression
    if isinstance(expression, (griffe.ExprName, griffe.ExprAttribute)):
        return _name(expression, module, is_type)
    parts = list(expression.iterate(flat=False))
    if isinstance(expression, griffe.ExprSubscript):
        kind, kinds = str(expression.left), expression.slice
        if kind == "Literal":
            return str(expression)
        if kind in _UNIONS:
            kinds = kinds.elements if isinstance(kinds, griffe.ExprTuple) else [kinds]
            parts = [part for each in kinds for part in (" | ", each)][1:]
            parts += [" | None"] if kind == "Optional" else []
    return "".join(spell(each, module, is_type=is_type) for each in parts)


def _name(
    expression: griffe.ExprName | griffe.ExprAttribute, module: str, is_type: bool
) -> str:
    found = public_names.find(expression.canonical_path)
    if found is None or found.is_module:
        if isinstance(expression, griffe.ExprName):
            return expression.name
        *left, name = expression.values
        base = left[0] if len(left) == 1 else griffe.ExprAttribute(left)
        return f"{spell(base, module)}.{name}".removeprefix(_MODULE)
    address = _public().get(found.path)
    if address:
        package, _, name = address.rpartition(".")
        is_near = f"{module}.".startswith(f"{package}.")
        return name if is_near else address.removeprefix("tff_drift.")
    value = found.value if found.is_attribute else None
    if value is None or isinstance(value, griffe.ExprCall):
        return found.name
    return spell(value, found.module.path, is_type=is_type)


@functools.cache
def _public() -> dict[str, str]:
    """The address of each public name, by where it is defined."""
    return {
        each.definition.path: f"{package}.{each.name}"
        for package in reversed(public_names.PACKAGES)
        for each in public_names.public_names(package)
    }
