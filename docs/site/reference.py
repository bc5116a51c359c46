"""The pages of the API reference: one for each package, every public name on it."""

from __future__ import annotations

import ast

import docstrings
import public_names
from public_names import PublicName


def index() -> str:
    """Returns the page that leads to the packages."""
    rows, pages = [], []
    for package in public_names.PACKAGES:
        first = public_names.module_doc(package).split("\n\n")[0].replace("\n", " ")
        rows.append(f"| [`{package}`]({package}.md) | {first} |")
        pages.append(package)
    return (
        "# API reference\n\nEvery public name, made from the docstrings. The last "
        "pages have what a method or an\naggregator of your own is made of besides "
        "([Extending](../extending.md)).\n\n"
        "| package | |\n|---|---|\n"
        + "\n".join(rows)
        + "\n\n```{toctree}\n:hidden:\n\n"
        + "\n".join(pages)
        + "\n```\n"
    )


def page(package: str) -> str:
    """Returns the page of a package."""
    names = public_names.public_names(package)
    doc = docstrings.to_markdown(
        public_names.module_doc(package), public_names.addresses(), package
    )
    parts = [f"# `{package}`", "```{py:module} " + package + "\n```", doc]
    listing = "\n".join(
        f"| {{py:obj}}`{each.name} <{package}.{each.name}>` | {_summary(each)} |"
        for each in names
    )
    parts.append("| name | |\n|---|---|\n" + listing)
    parts += [_entry(each) for each in names]
    return "\n\n".join(parts) + "\n"


def signature(node: ast.FunctionDef, *, bound: bool = False) -> str:
    """Returns a function's arguments as they are written.

    Args:
      node: The function.
      bound: Whether it is a method, whose first argument is not shown.
    """
    arguments = ast.parse(ast.unparse(node)).body[0]
    assert isinstance(arguments, ast.FunctionDef)
    is_static = any(ast.unparse(each) == "staticmethod" for each in node.decorator_list)
    if bound and not is_static:
        arguments.args.args = arguments.args.args[1:]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(arguments.args)}){returns}"


def _summary(each: PublicName) -> str:
    first = each.doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return docstrings.to_markdown(first, public_names.addresses(), each.package)


def _entry(each: PublicName) -> str:
    text = docstrings.to_markdown(each.doc, public_names.addresses(), each.package)
    node = each.node
    if isinstance(node, ast.FunctionDef):
        return _directive("function", each.name + signature(node), text)
    if isinstance(node, ast.ClassDef):
        members = "\n\n".join(_members(node, each.package))
        return _directive(
            "class", each.name + _constructor(node), f"{text}\n\n{members}"
        )
    value = ast.unparse(node.value)
    return _directive("data", each.name, text, [f":value: {value}"])


def _constructor(node: ast.ClassDef) -> str:
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            return signature(child, bound=True).removesuffix(" -> None")
    if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
        fields = [
            ast.unparse(child).replace(": ", ": ", 1)
            for child in node.body
            if isinstance(child, ast.AnnAssign)
        ]
        return f"({', '.join(fields)})"
    return ""


def _members(node: ast.ClassDef, package: str) -> list[str]:
    """The documented public methods and properties of a class."""
    found = []
    for child in node.body:
        doc = ast.get_docstring(child) if isinstance(child, ast.FunctionDef) else None
        if not doc or child.name.startswith("_"):
            continue
        text = docstrings.to_markdown(doc, public_names.addresses(), package)
        decorators = {ast.unparse(each) for each in child.decorator_list}
        if "property" in decorators:
            found.append(_directive("property", child.name, text, depth=4))
            continue
        flags = [
            f":{each}:"
            for each in ("classmethod", "staticmethod")
            if each in decorators
        ]
        title = child.name + signature(child, bound=True)
        found.append(_directive("method", title, text, flags, depth=4))
    return found


def _directive(
    kind: str, title: str, text: str, options: list[str] | None = None, depth: int = 5
) -> str:
    """A directive around Markdown, in more colons than what is inside of it."""
    fence = ":" * depth
    lines = [f"{fence}{{py:{kind}}} {title}", *(options or []), "", text.strip(), fence]
    return "\n".join(lines)
