"""No modules import each other, in functions and for types either: each can be read after those that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.packages import MODULES, module_name, parsed

NAMES = {module_name(path) for path in MODULES if path.name != "__init__.py"}


def imported_by(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & NAMES
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & NAMES


def test_no_modules_import_each_other() -> None:
    graph = {module_name(path): set(imported_by(parsed(path))) for path in MODULES if path.name != "__init__.py"}
    assert sum(map(len, graph.values())) > 2_000
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"they import each other: {' -> '.join(error.args[1])}")


def test_an_import_for_types_in_a_function_is_seen() -> None:
    source = "def f():\n    if TYPE_CHECKING:\n        from agentkit_prompts.tree import prompt"
    assert [*imported_by(ast.parse(source))] == ["agentkit_prompts.tree.prompt"]
