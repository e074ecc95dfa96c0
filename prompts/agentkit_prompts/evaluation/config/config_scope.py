"""The variables of a configuration's code: how a name is looked up, and which ones a statement sets."""

from __future__ import annotations

import ast
from collections import ChainMap
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Function", "Imported", "Scope", "Unread", "variables_of"]

_CHANGING = frozenset(
    (
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault"),
        *("sort", "update"),
    )
)
"""Methods that change the object that they are called on."""


class Imported(str):
    """The dotted name of an import. Nothing of it is loaded."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unread:
    """Replaces a variable that cannot be read: using it is an error with this reason."""

    reason: str
    path: str
    line: int
    name: str | None
    """The construct, method, function or variable that cannot be read, if it is one."""


Scope: TypeAlias = ChainMap[str, Any]
"""The variables of a file, a function or a comprehension, and of the scopes around it."""


class Function:
    """A function that the configuration defines."""

    def __init__(self, node: ast.FunctionDef, scope: Scope) -> None:
        self.node, self.scope = node, scope

    # A list of functions can be copied; a copy of the scope of each would be as large as the file.
    def __deepcopy__(self, memo: object) -> Function:
        return self


def variables_of(node: ast.AST) -> set[str]:
    """Return the variables that a statement may set or change."""
    names: set[str] = set()
    # Too many names are harmless: an unread variable is an error only if it is used. One too few gives a wrong prompt.
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.alias():
                names.add(inner.asname or inner.name.partition(".")[0])
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Subscript(ctx=ast.Store() | ast.Del()):
                names |= {one.id for one in ast.walk(inner.value) if isinstance(one, ast.Name)}
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in _CHANGING:
                names.add(name)
    return names
