"""The pages of the methods, each from its row, its docstring and what is written of it.

`docs/methods/notes/NAME.md` has what a row cannot say: the update rule in the field's
notation, when to use the method, what the tests prove. A method without notes has a
page all the same. Documents link to the notes, which readers of the files find, and the
site to the pages.
"""

from __future__ import annotations

import re

import docstrings
import public_names
import signatures

from tff_drift import from_source, method_specs

NOTES = public_names.ROOT / "docs" / "methods" / "notes"
_WEIGHTINGS = {"num_examples": "number of examples", "uniform": "uniform"}


def index() -> str:
    """Returns the page that leads to the methods."""
    rows, pages = [], []
    for method in from_source.read().values():
        down, up = method.traffic
        sends = "gradients" if method.sends_gradients else "updates"
        flags = (
            keeps_state(method),
            method.second_gradients,
            method.needs_full_participation,
        )
        told = " | ".join("yes" if flag else "no" for flag in flags)
        rows.append(
            f"| [{title(method)}]({method.name}.md) | {authors(method)} | "
            f"{_WEIGHTINGS[method.weighting]} | {_multiple(down)}, {_multiple(up)} "
            f"| {sends} | {told} |"
        )
        pages.append(method.name)
    return (
        "# Methods\n\n"
        "Each is a builder of a `tff.learning.templates.LearningProcess`. Traffic is "
        "that of a client in a round, for n trainable weights. [Choosing a method]"
        "(../choosing.md) compares them by results; `algorithms.methods().to_frame()` "
        "is this table with your own methods in it.\n\n"
        ":::{container} wide\n\n"
        "| method | paper | weight of a client | down, up | clients send "
        "| clients keep a state | second gradients | all clients in every round |\n"
        "|---|---|---|--:|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n\n:::\n\n```{toctree}\n:hidden:\n\n"
        + "\n".join(pages)
        + "\n```\n"
    )


def page(method: method_specs.Method) -> str:
    """Returns the page of a method."""
    notes = NOTES / f"{method.name}.md"
    text = notes.read_text("utf-8") if notes.exists() else f"# {method.name}\n"
    # Pages are a folder higher than notes.
    heading, _, rest = text.replace("](../", "](").partition("\n")
    builder = _builder(method)
    doc = docstrings.to_markdown(builder.doc, public_names.addresses(), builder.package)
    signature = signatures.signature(builder.definition)
    first, more = _what_and_when(rest)
    return (
        f"{heading}\n\n{first}\n\n{_at_a_glance(method)}\n\n{more}\n\n"
        "## The builder\n\n"
        f":::::{{py:function}} {builder.name}{signature}\n:no-index:\n\n{doc}\n:::::"
        f"\n\n{_options(method)}"
    )


def _builder(method: method_specs.Method) -> public_names.PublicName:
    """Returns the function that builds a method's process."""
    [builder] = [
        each
        for each in public_names.public_names("tff_drift.algorithms")
        if each.name == method.builder.__name__
    ]
    return builder


def with_links(text: str) -> str:
    """Returns a document whose links to notes lead to the pages that have them.

    Args:
      text: The document, in Markdown.
    """
    text = re.sub(r"(\]\([./\w]*)methods/notes/\)", r"\1methods/index.md)", text)
    return re.sub(r"(\]\([./\w]*)methods/notes/(\w)", r"\1methods/\2", text)


def _what_and_when(notes: str) -> tuple[str, str]:
    """Splits notes: what the method does and when to take it come first."""
    summary, *sections = notes.strip().split("\n## ")
    first = [each for each in sections if each.startswith("When ")]
    others = [each for each in sections if not each.startswith("When ")]
    heading = "\n\n## At a glance" if first else ""
    return (
        "\n## ".join([summary, *first]).strip() + heading,
        "\n".join(f"## {each}" for each in others).strip(),
    )


def title(method: method_specs.Method) -> str:
    """Returns a method's name for readers, the heading of its notes."""
    notes = NOTES / f"{method.name}.md"
    if not notes.exists():
        return method.name
    return notes.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def authors(method: method_specs.Method) -> str:
    """Returns who published a method, and when, as a link."""
    who = method.paper.partition("), ")[0].replace(" (", ", ")
    return f"[{who}]({method.url})"


def keeps_state(method: method_specs.Method) -> bool:
    """Whether clients keep something between the rounds they take part in."""
    return str(_builder(method).definition.returns) == "StatefulLearningProcess"


def cost(value: method_specs.Cost | None, count: str) -> str:
    """Returns operations in words, in units of n.

    Args:
      value: The operations.
      count: The letter that repeats them.
    """
    if value is None:
        return "not counted"
    sums = _polynomial(value.repeated_sums, value.sums, count)
    products = _polynomial(value.repeated_products, value.products, count)
    return f"{sums} sums, {products} products"


def _polynomial(repeated: float, once: float, count: str) -> str:
    factor = "" if repeated == 1 else f"{repeated:g}"
    terms = [f"{factor}{count}"] if repeated else []
    if not terms:
        return _multiple(once) if once else "no"
    return f"({terms[0]} + {once:g})n" if once else f"{terms[0]}n"


def _multiple(number: float) -> str:
    return "n" if number == 1 else f"{number:g}n"


def _at_a_glance(method: method_specs.Method) -> str:
    down, up = method.traffic
    address = f"tff_drift.algorithms.{method.builder.__name__}"
    rows = [
        ("paper", f"[{method.paper}]({method.url})"),
        ("builder", f"{{py:obj}}`{address}`"),
        ("command line", f"`tff-drift train --algorithm={method.name}`"),
        ("a client's weight by default", _WEIGHTINGS[method.weighting]),
        (
            "a client's traffic per round",
            f"{_multiple(down)} down, {_multiple(up)} up",
        ),
        ("a client computes, beyond K steps of SGD", cost(method.client_cost, "K")),
        ("the server computes, for M clients", cost(method.server_cost, "M")),
        ("clients keep a state", "yes" if keeps_state(method) else "no"),
    ]
    lines = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return f"| at a glance | n is the number of trainable weights |\n|---|---|\n{lines}"


def _options(method: method_specs.Method) -> str:
    if not method.options:
        return ""
    lines = "\n".join(
        f"| `{each.name}` | `--{each.flag}` | {each.help} |" for each in method.options
    )
    return (
        "## Options\n\n| argument | flag of the command line | |\n|---|---|---|\n"
        f"{lines}\n"
    )
