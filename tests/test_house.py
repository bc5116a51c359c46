"""The order of the house: no module too long, imports that go one way, no circles."""

import ast
import io
import pathlib
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parents[1]
# From the ground up: each imports those before it, and none after.
HOUSES = ("tff_drift", "tasks", "experiments")
LONGEST = 400


def modules():
    """All modules of the project by their dotted names."""
    paths = {}
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            paths[".".join(parts)] = path
    return paths


MODULES = modules()


def is_for_types_only(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def statements(node):
    """The statements in a module that run when it is imported."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if not is_function and not is_for_types_only(child):
            yield child
            yield from statements(child)


def imported(name):
    """The modules of the project that a module imports when it is imported."""
    found = set()
    for node in statements(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in MODULES else node.module)
    return found & set(MODULES)


GRAPH = {name: imported(name) for name in MODULES}


def circles(graph):
    """The circles that a walk along the arrows comes upon."""
    found, done = [], set()

    def visit(name, path):
        if name in path:
            found.append(" -> ".join([*path[path.index(name) :], name]))
        elif name not in done:
            for other in sorted(graph[name]):
                visit(other, [*path, name])
            done.add(name)

    for name in sorted(graph):
        visit(name, [])
    return found


def test_circles_are_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b -> c -> b"]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_module_is_longer_than_a_reader_likes():
    folders = (*HOUSES, "tests", "benchmarks")
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    }
    assert len(lengths) > 300
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


# From the words of a command to the settings of runs, the table of flags included.
COMMAND_LINE = (
    "experiments.main",
    "experiments.commands",
    "experiments.commands.command",
    "experiments.commands.listing",
    "experiments.flags.declarations",
    "experiments.flags.errors",
    "experiments.flags.fit",
    "experiments.flags.flag",
    "experiments.flags.parser",
    "experiments.flags.settings",
    "experiments.flags.table",
    "experiments.reports.listing",
)
LONGEST_COMMAND_LINE = 900
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text):
    """Counts lines that are neither blank, nor comments, nor docstrings."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


def test_code_is_counted_without_docstrings_comments_and_blank_lines():
    text = """'''Head,
of two lines.'''
import ast  # Code.

# A comment.
def f(
    x,
):
    '''A docstring.'''
    return '''no
docstring'''
"""
    assert code_lines(text) == 6


def test_the_command_line_stays_small():
    lengths = {name: code_lines(MODULES[name].read_text()) for name in COMMAND_LINE}
    assert sum(lengths.values()) <= LONGEST_COMMAND_LINE, lengths


@pytest.mark.parametrize("floor", range(len(HOUSES)))
def test_imports_go_down(floor):
    above = HOUSES[floor + 1 :]
    upward = [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        for other in others
        if name.split(".")[0] == HOUSES[floor] and other.split(".")[0] in above
    ]
    assert upward == []


def test_no_module_imports_itself_by_others():
    assert circles(GRAPH) == []


def test_no_package_imports_itself_by_others():
    def package(name):
        return ".".join(name.split(".")[:2])

    graph = {package(name): set() for name in MODULES}
    for name, others in GRAPH.items():
        graph[package(name)] |= {package(other) for other in others}
    without_loops = {name: others - {name} for name, others in graph.items()}
    assert circles(without_loops) == []
