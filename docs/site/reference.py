"""The pages of the API reference: one for each package, every public name on it."""

from __future__ import annotations

import docstrings
import griffe
import public_names
import signatures
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
        "| package | what is in it |\n|---|---|\n"
        + "\n".join(rows)
        + "\n\n```{toctree}\n:hidden:\n\n"
        + "\n".join(pages)
        + "\n```\n"
    )


def page(package: str) -> str:
    """Returns the page of a package."""
    names = public_names.public_names(package)
    if package not in public_names.BUILDING_BLOCKS:
        names = sorted(names, key=_order)
    doc = docstrings.to_markdown(
        public_names.module_doc(package), public_names.addresses(), package
    )
    parts = [f"# `{package}`", "```{py:module} " + package + "\n```", doc]
    listing = "\n".join(
        f"| {{py:obj}}`{each.name} <{package}.{each.name}>` | {_summary(each)} |"
        for each in names
    )
    parts.append("| name | what it is |\n|---|---|\n" + listing)
    parts += [entry(each) for each in names]
    return "\n\n".join(parts) + "\n"


def _order(each: PublicName) -> int:
    """Functions first, which readers call, then classes, then values."""
    return ("function", "class", "data").index(each.kind)


def _summary(each: PublicName) -> str:
    first = each.doc.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return docstrings.to_markdown(first, public_names.addresses(), each.package)


def entry(each: PublicName) -> str:
    """Returns what the page says of a name."""
    text = docstrings.to_markdown(each.doc, public_names.addresses(), each.package)
    definition = each.definition
    if definition.is_function:
        arguments = signatures.signature(definition)
        return _directive("function", each.name + arguments, text)
    if definition.is_class:
        parts = [text, _initializer(each), *_members(each)]
        arguments = signatures.constructor(definition)
        return _directive("class", each.name + arguments, "\n\n".join(parts))
    value = signatures.spell(definition.value, definition.module.path)
    # Sphinx takes a pair of quotes off.
    value = value.replace('"', '\\"')
    return _directive("data", each.name, text, [f':value: "{value}"'])


def _initializer(each: PublicName) -> str:
    """What a class's `__init__` says of its arguments, below the class's own text."""
    made = signatures.initializer(each.definition)
    # The first sentence says that it makes one.
    _, _, rest = (public_names.doc_of(made) if made else "").partition("\n\n")
    return docstrings.to_markdown(rest, public_names.addresses(), each.package)


def _members(each: PublicName) -> list[str]:
    """The documented public methods and properties of a class."""
    found = []
    told = docstrings.attributes(each.doc)
    for name, child in _own_members(each.definition).items():
        doc = public_names.doc_of(child)
        if not doc or name.startswith("_") or name in told:
            continue
        text = docstrings.to_markdown(doc, public_names.addresses(), each.package)
        if "property" in child.labels:
            found.append(_directive("property", name, text, depth=4))
        elif child.is_function:
            kinds = ("classmethod", "staticmethod")
            flags = [f":{kind}:" for kind in kinds if kind in child.labels]
            title = name + signatures.signature(child, bound=True)
            found.append(_directive("method", title, text, flags, depth=4))
    return found


def _own_members(definition: griffe.Class) -> dict[str, griffe.Object]:
    """The members of a class, and those that it has from bases that have no page."""
    found = dict(definition.members)
    for base in definition.resolved_bases:
        if base.is_class and base.name not in public_names.addresses():
            found |= {**_own_members(base), **found}
    return found


def _directive(
    kind: str, title: str, text: str, options: list[str] | None = None, depth: int = 5
) -> str:
    """A directive around Markdown, in more colons than what is inside of it."""
    fence = ":" * depth
    lines = [f"{fence}{{py:{kind}}} {title}", *(options or []), "", text.strip(), fence]
    return "\n".join(lines)
