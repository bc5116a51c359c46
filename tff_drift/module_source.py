"""Reads the values of a module's names from its source, without importing it.

Importing TensorFlow Federated takes seconds, and an answer to `--help`, to a list of
the methods or to a misspelt name should not. Constants are followed to what they are
made of, in the module itself and in those that it imports them from.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import pathlib
import sys
import traceback
from collections.abc import Callable, Collection
from typing import Any

Function = ast.FunctionDef


class UnreadableError(ValueError):
    """An expression that cannot be evaluated without importing its module."""


def mistake(error: BaseException, path: pathlib.Path, line: int = 1) -> str:
    """Returns an error in a file on one line, with its place.

    Args:
      error: The error.
      path: The file.
      line: Where it is, if the error itself does not say so.
    """
    text = str(error)
    # Python calls a file by its absolute path.
    called = (str(path), os.path.abspath(path))
    if isinstance(error, SyntaxError) and error.filename in called:
        line, text = error.lineno or line, error.msg
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename in called:
            line = frame.lineno or line
    said = f"{path}:{line}: {type(error).__name__}: {' '.join(text.split())}"
    return f"{said}{_remedy(error, path.absolute().parent)}"


def _remedy(error: BaseException, folder: pathlib.Path) -> str:
    """Returns what to do about a module that is beside the file that imports it."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    # One with a dot is of a package that was found.
    if not name or not any((folder / each).exists() for each in (name, f"{name}.py")):
        return ""
    return f". It is beside the file: set PYTHONPATH={folder} in the environment"


class ModuleSource:
    """A module's names and what they stand for.

    Args:
      name: The module's dotted name; its outermost package is imported already.
      function: Returns what stands for a function, given its module and its node.
      importable: The modules that may be imported, because they need no TensorFlow;
        those of Python's library may be, too.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[ModuleSource, Function], Any],
        importable: Collection[str],
    ) -> None:
        self.name = name
        self.path = _path(name)
        self._function = function
        self._importable = importable
        self.tree = _parse(self.path)
        self._nodes: dict[str, Any] = {}
        for node in self.tree.body:
            self._add(node)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, Function):
            self._nodes[node.name] = node
        elif isinstance(node, ast.Assign):
            targets = [each for each in node.targets if isinstance(each, ast.Name)]
            self._nodes |= {each.id: node.value for each in targets}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self._nodes[node.target.id] = node.value
        elif isinstance(node, ast.Import):
            for each in node.names:
                module = each.name if each.asname else each.name.partition(".")[0]
                self._nodes[each.asname or module] = (module, None)
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                self._nodes[each.asname or each.name] = (node.module, each.name)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def __getitem__(self, name: str) -> Any:
        """Returns what a name of the module stands for."""
        node = self._nodes[name]
        if isinstance(node, Function):
            return self._function(self, node)
        return self._imported(*node) if isinstance(node, tuple) else self.value(node)

    def function(self, name: str) -> Function:
        """Returns the node of a function."""
        return self._nodes[name]

    def value(self, node: ast.expr) -> Any:
        """Returns what an expression of the module stands for.

        Args:
          node: The expression.

        Raises:
          UnreadableError: If it cannot be evaluated; the message is one line that
            says where.
        """
        line = node.lineno
        try:
            known = {}
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and each.id in self:
                    line = each.lineno
                    known[each.id] = self[each.id]
            line = node.lineno
            return eval(compile(ast.Expression(node), str(self.path), "eval"), known)
        except UnreadableError:
            raise
        except Exception as error:
            raise UnreadableError(
                f"{mistake(error, self.path, line)}. This is read without importing "
                "the module: make it of literals and of constants."
            ) from error

    def _imported(self, module: str, name: str | None) -> Any:
        """Returns a module, or what it has under a name."""
        if name is None:
            return self._module(module)
        whole = f"{module}.{name}"
        if whole in self._importable or self._is_read(whole):
            return self._module(whole)
        return getattr(self._module(module), name)

    def _module(self, name: str) -> Any:
        if name in self._importable or _package(name) in sys.stdlib_module_names:
            return importlib.import_module(name)
        if not self._is_read(name):
            raise NameError(f"{name} is not imported for this")
        return _Names(ModuleSource(name, self._function, self._importable))

    def _is_read(self, name: str) -> bool:
        """Returns whether there is such a module, in a package that is read."""
        packages = map(_package, (self.name, *self._importable))
        return _package(name) in packages and _path(name).is_file()


class _Names:
    """A module that is read, as an object with attributes."""

    def __init__(self, source: ModuleSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name not in self._source:
            raise AttributeError(f"{self._source.name} has no {name!r}")
        return self._source[name]


def _package(module: str) -> str:
    return module.partition(".")[0]


def _path(module: str) -> pathlib.Path:
    """Returns where a module of an imported package is; the file may be missing."""
    package, *rest = module.split(".")
    where = getattr(sys.modules.get(package), "__file__", None)
    if where is None:
        return pathlib.Path(package)
    path = pathlib.Path(where).parent.joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@functools.cache
def _parse(path: pathlib.Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except SyntaxError as error:
        raise UnreadableError(mistake(error, path)) from error
