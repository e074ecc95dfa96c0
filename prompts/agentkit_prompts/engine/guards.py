"""Which names a test shows to be there: what stands behind `is defined` may be missing without harm."""

from __future__ import annotations

from typing import Any, TypeAlias

from jinja2 import nodes

__all__ = ["KWARGS", "Guard", "Path", "guards", "kwarg_name"]

Path: TypeAlias = tuple[Any, ...]
"""The steps of `a.b[0]`: names, keys and positions."""

Guard: TypeAlias = tuple[str, str]
"""`("name", ...)` for a name from outside, `("kwarg", ...)` for one of the additional kwargs."""

KWARGS = (("additional_kwargs",), ("user_input", "additional_kwargs"))
"""The two paths to the additional kwargs."""


def guards(test: nodes.Node, outcome: bool) -> frozenset[Guard]:
    """Return what is known to be defined when a test had an outcome."""
    match test:
        case nodes.Test() if test.name in ("defined", "undefined"):
            if (test.name == "defined") is outcome:
                return _key(_plain_path(test.node))
        case nodes.Not():
            return guards(test.node, not outcome)
        case nodes.And() | nodes.Or() if isinstance(test, nodes.And) is outcome:
            return guards(test.left, outcome) | guards(test.right, outcome)
        case nodes.Compare() if outcome and len(test.ops) == 1 and test.ops[0].op == "in":
            path = _plain_path(test.ops[0].expr)
            if isinstance(test.expr, nodes.Const) and path is not None:
                return _key((*path, test.expr.value))
        case nodes.Compare() if not outcome and len(test.ops) == 1 and test.ops[0].op == "notin":
            path = _plain_path(test.ops[0].expr)
            if isinstance(test.expr, nodes.Const) and path is not None:
                return _key((*path, test.expr.value))
        case nodes.Call() if outcome and isinstance(test.node, nodes.Getattr) and test.node.attr == "get":
            path = _plain_path(test.node.node)
            if path is not None and test.args and isinstance(test.args[0], nodes.Const):
                return _key((*path, test.args[0].value))
    return frozenset()


def _plain_path(node: nodes.Node) -> Path | None:
    match node:
        case nodes.Name():
            return (node.name,)
        case nodes.Getattr():
            key: Any = node.attr
        case nodes.Getitem() if isinstance(node.arg, nodes.Const):
            key = node.arg.value
        case _:
            return None
    path = _plain_path(node.node)
    return None if path is None else (*path, key)


def _key(path: Path | None) -> frozenset[Guard]:
    if path is None:
        return frozenset()
    name = kwarg_name(path)
    if name is not None:
        return frozenset({("kwarg", name)})
    return frozenset({("name", path[0])}) if len(path) == 1 else frozenset()


def kwarg_name(path: Path) -> str | None:
    """Return the name of the additional kwarg a path reads, when it ends there."""
    return path[-1] if path[:-1] in KWARGS and isinstance(path[-1], str) else None
