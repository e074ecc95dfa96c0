"""Whether a chat template prints messages of some roles whatever they say: read off its source, where it is proved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jinja2 import nodes

__all__ = ["covers"]


def covers(tree: nodes.Template, roles: Iterable[str]) -> bool:
    """Whether a template always prints the text of these roles: a top-level loop over `messages` says it for each.

    Nothing is proved when the loop can be left early or its names mean something else.
    """
    stored = [node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"]
    loops = [
        (loop.body, loop.target.name)
        for loop in tree.body
        if isinstance(loop, nodes.For)
        and isinstance(loop.iter, nodes.Name)
        and isinstance(loop.target, nodes.Name)
        and loop.iter.name == "messages"
        and loop.test is None
        and "messages" not in stored
        and stored.count(loop.target.name) == 1
        and next(loop.find_all((nodes.Break, nodes.Continue)), None) is None
    ]
    return all(any(_says(body, name, role) for body, name in loops) for role in roles)


def _says(body: Sequence[nodes.Node], name: str, role: str) -> bool:
    """Whether one of the statements prints the text of a message of this role."""
    return any(_statement(node, name, role) for node in body)


def _statement(node: nodes.Node, name: str, role: str) -> bool:
    if isinstance(node, nodes.Output):
        return any(_prints(one, name) for one in node.nodes)
    if isinstance(node, nodes.CallBlock) and isinstance(node.call.node, nodes.ExtensionAttribute):
        return _says(node.body, name, role)
    if not isinstance(node, nodes.If):
        return False
    for branch in (node, *node.elif_):
        tested = _role_tested(branch.test, name)
        if tested == role:
            return _says(branch.body, name, role)
        if tested is None and not _says(branch.body, name, role):  # which this message may end up in
            return False
    return _says(node.else_, name, role)


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
