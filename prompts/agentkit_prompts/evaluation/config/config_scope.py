"""The variables of a configuration's code: where a name is looked for, and which ones a statement sets."""

from __future__ import annotations

import ast
from collections import ChainMap
from typing import Any, TypeAlias

__all__ = ["Function", "Scope", "Unread", "variables_of"]

_CHANGING = frozenset(
    ("add", "append", "discard", "extend", "insert", "pop", "remove", "reverse", "setdefault", "sort", "update")
)
"""Methods that change what they are called on."""


class Unread:
    """Stands for a variable whose value could not be read: using it is an error that says why."""

    def __init__(self, why: str, path: str, line: int, name: str | None) -> None:
        self.why = why
        self.path = path
        self.line = line
        self.name = name
        """The construct, method, function or variable that cannot be read."""


Scope: TypeAlias = ChainMap[str, Any]
"""The variables of a file, a function or a comprehension, and of what is around it."""


class Function:
    """A function that the configuration defines."""

    def __init__(self, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> None:
        self.node, self.scope = node, scope


def variables_of(node: ast.AST) -> set[str]:
    """Return the variables that a statement may set or change."""
    found: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            found.add(inner.id)
        elif isinstance(inner, ast.alias):
            found.add(inner.asname or inner.name.partition(".")[0])
        elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
            found.add(inner.name)
        elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store):
            found |= {one.id for one in ast.walk(inner.value) if isinstance(one, ast.Name)}
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            holder = inner.func.value
            if isinstance(holder, ast.Name) and inner.func.attr in _CHANGING:
                found.add(holder.id)
    return found
