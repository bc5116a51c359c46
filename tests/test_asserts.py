"""Assertions, which `python -O` leaves out, are for readers and the type checker."""

import ast

import pytest

from tests.test_files import PACKAGES, REPOSITORY


@pytest.mark.parametrize("package", PACKAGES)
def test_an_assertion_computes_nothing(package):
    sources = list((REPOSITORY / package).rglob("*.py"))
    assert sources
    for path in sources:
        tree = ast.parse(path.read_text())
        nodes = list(ast.walk(tree))
        computed = {
            node.name
            for node in nodes
            if isinstance(node, ast.FunctionDef)
            and any("property" in ast.unparse(each) for each in node.decorator_list)
        }
        for node in nodes:
            if isinstance(node, ast.Assert):
                parts = list(ast.walk(node.test))
                calls = {ast.unparse(e.func) for e in parts if isinstance(e, ast.Call)}
                assert calls <= {"isinstance"}, ast.unparse(node)
                read = {e.attr for e in parts if isinstance(e, ast.Attribute)}
                assert not read & computed, ast.unparse(node)
