"""Which names a test shows to be there: what stands behind `is defined` may be missing without harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from jinja2 import nodes

__all__ = ["KWARGS", "Guard", "Path", "guards", "kwarg_name"]

Path: TypeAlias = tuple[Any, ...]
"""The steps of `a.b[0]`: names, keys and positions."""

Guard: TypeAlias = tuple[str, str]
"""`("name", ...)` for a name from outside, `("kwarg", ...)` for one of the additional kwargs."""

KWARGS = (("additional_kwargs",), ("user_input", "additional_kwargs"))
"""The two paths to the additional kwargs."""


def guards(test: nodes.Node, outcome: bool, path_of: Callable[[nodes.Node], Path | None]) -> frozenset[Guard]:
    """Return what is known to be defined when a test had an outcome; `path_of` follows names to where they are from."""
    match test:
        case nodes.Test() if test.name in ("defined", "undefined") and (test.name == "defined") is outcome:
            return _key(path_of(test.node))
        case nodes.Not():
            return guards(test.node, not outcome, path_of)
        case nodes.And() | nodes.Or() if isinstance(test, nodes.And) is outcome:
            return guards(test.left, outcome, path_of) | guards(test.right, outcome, path_of)
        case nodes.Compare() if len(test.ops) == 1 and test.ops[0].op == ("in" if outcome else "notin"):
            return _element(path_of(test.ops[0].expr), test.expr)
        case nodes.Call() if outcome and isinstance(test.node, nodes.Getattr) and test.node.attr == "get" and test.args:
            return _element(path_of(test.node.node), test.args[0])
    return frozenset()


def _element(path: Path | None, key: nodes.Node) -> frozenset[Guard]:
    return _key((*path, key.value)) if path is not None and isinstance(key, nodes.Const) else frozenset()


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
