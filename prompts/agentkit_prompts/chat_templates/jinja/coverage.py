"""Which messages a chat template prints whatever they say: read off its source, where that can be proved."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeAlias

from jinja2 import nodes

__all__ = ["Roles", "covered_roles"]

Roles: TypeAlias = frozenset[str] | None
"""Names of roles; None for every role there is."""

_NONE: Roles = frozenset()


def covered_roles(tree: nodes.Template) -> Roles:
    """Return the roles whose text a template always prints: a top-level loop over `messages` says it for each.

    Nothing is proved, which is the empty set, when the loop can be left early or its names mean something else.
    """
    stored = [node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"]
    covered: Roles = _NONE
    for loop in tree.body:
        if (
            isinstance(loop, nodes.For)
            and isinstance(loop.iter, nodes.Name)
            and isinstance(loop.target, nodes.Name)
            and loop.iter.name == "messages"
            and loop.test is None
            and "messages" not in stored
            and stored.count(loop.target.name) == 1
            and next(loop.find_all((nodes.Break, nodes.Continue)), None) is None
        ):
            covered = _union([covered, _printed(loop.body, loop.target.name)])
    return covered


def _union(many: Iterable[Roles]) -> Roles:
    made: set[str] = set()
    for roles in many:
        if roles is None:
            return None
        made |= roles
    return frozenset(made)


def _printed(body: Sequence[nodes.Node], name: str) -> Roles:
    return _union(_statement(node, name) for node in body)


def _statement(node: nodes.Node, name: str) -> Roles:
    if isinstance(node, nodes.Output):
        return None if any(_prints(one, name) for one in node.nodes) else _NONE
    if isinstance(node, nodes.CallBlock) and isinstance(node.call.node, nodes.ExtensionAttribute):
        return _printed(node.body, name)
    return _branches(node, name) if isinstance(node, nodes.If) else _NONE


def _branches(node: nodes.If, name: str) -> Roles:
    """Follow the branches in order: what a test on anything but the role may catch, no later branch is sure of."""
    sure: set[str] = set()
    taken: set[str] = set()
    for branch in (node, *node.elif_):
        roles = _printed(branch.body, name)
        role = _role_tested(branch.test, name)
        if role is None:
            if roles is not None:
                return frozenset(sure)
        elif role not in taken:
            taken.add(role)
            if _has(roles, role):
                sure.add(role)
    otherwise = _printed(node.else_, name) if node.else_ else _NONE
    if otherwise is None:
        return None if taken <= sure else frozenset(sure)
    return frozenset(sure | (otherwise - taken))


def _has(roles: Container[str] | None, role: str) -> bool:
    return roles is None or role in roles


def _role_tested(test: nodes.Node, name: str) -> str | None:
    """Return `X` of `message.role == X`."""
    if isinstance(test, nodes.Compare) and len(test.ops) == 1 and test.ops[0].op == "eq":
        value = test.ops[0].expr
        if _reads(test.expr, name, "role") and isinstance(value, nodes.Const) and isinstance(value.value, str):
            return value.value
    return None


def _prints(node: nodes.Node, name: str) -> bool:
    """Tell whether an expression is the content, white space around it aside, or a sum of texts that has it."""
    if isinstance(node, nodes.Add):
        return _prints(node.left, name) or _prints(node.right, name)
    if isinstance(node, nodes.Concat):
        return any(_prints(one, name) for one in node.nodes)
    if isinstance(node, nodes.Filter) and node.name == "trim" and node.node is not None and not node.args:
        return _prints(node.node, name)
    return _reads(node, name, "content")


def _reads(node: nodes.Node, name: str, key: str) -> bool:
    if isinstance(node, nodes.Getattr):
        read: object = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        read = node.arg.value
    else:
        return False
    return read == key and isinstance(node.node, nodes.Name) and node.node.name == name
