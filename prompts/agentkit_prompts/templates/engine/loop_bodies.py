"""What the body of a loop does, as far as it is known before it runs: what it costs, what it reads, what it uses."""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes

from agentkit_prompts.templates.operations.costs import NODE_STEPS

__all__ = ["fields_read", "only_reads", "prints_by_rounds", "size", "uses_of_loop"]

_READING = (nodes.Output, nodes.TemplateData, nodes.Name, nodes.Getattr, nodes.Const, nodes.If, nodes.Not)


def only_reads(body: Iterable[nodes.Node]) -> bool:
    """Tell whether a round reads and prints and nothing else: what can be slow in it looks at the clock itself."""
    stack: list[nodes.Node] = list(body)
    while stack:
        node = stack.pop()
        if not isinstance(node, _READING):
            return False
        stack.extend(node.iter_child_nodes())
    return True


def prints_by_rounds(loop: nodes.For) -> bool:
    """Tell whether a loop prints, and no other loop in it does: the round then says where in the list that was."""
    return not any(loop.find_all(nodes.For)) and any(loop.find_all((nodes.Output, nodes.FilterBlock, nodes.CallBlock)))


def uses_of_loop(body: Iterable[nodes.Node]) -> set[str]:
    """Return the attributes read off `loop` in a loop's body; an empty name for any other use."""
    uses: set[str] = set()
    stack: list[nodes.Node] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "loop":
            uses.add(node.attr)
        elif isinstance(node, nodes.Name) and node.name == "loop":
            uses.add("")
        elif isinstance(node, nodes.For):
            stack += [node.iter, *node.else_]
        elif isinstance(node, nodes.Macro | nodes.CallBlock) and any(
            n.name == "loop" for n in node.find_all(nodes.Name)
        ):
            uses.add("")
        else:
            stack.extend(node.iter_child_nodes())
    return uses


def size(node: nodes.Node, deep: int = 0) -> int:
    """Return the steps that one evaluation of a statement or expression costs, `deep` inside that many loops."""
    count = 0
    stack = [node]
    while stack:
        one = stack.pop()
        count += 3 + deep if isinstance(one, nodes.Output) else NODE_STEPS.get(type(one), 1)
        stack.extend(one.iter_child_nodes())
    return count


def fields_read(loop: nodes.For) -> list[str]:
    """Return the fields that each round reads off its item; none where it reads only one, or gives its name away."""
    target = loop.target
    if not isinstance(target, nodes.Name) or any(
        name.name == target.name and name.ctx != "load" for node in loop.body for name in node.find_all(nodes.Name)
    ):
        return []
    if sum(len(_fields_of(target.name, node)) for node in loop.body) < 2:
        return []
    always = [node.test if isinstance(node, nodes.If) else node for node in loop.body]
    return list(dict.fromkeys(field for node in always for field in _fields_of(target.name, node)))


def _fields_of(name: str, node: nodes.Node) -> list[str]:
    """Return the fields that a node reads off a name; not the methods that it calls."""
    fields: list[str] = []
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, nodes.Getattr) and isinstance(one.node, nodes.Name) and one.node.name == name:
            fields.append(one.attr)
        children = one.iter_child_nodes()
        if isinstance(one, nodes.Call) and isinstance(one.node, nodes.Getattr):
            stack.append(one.node.node)
            children = one.iter_child_nodes(exclude=("node",))
        stack.extend(children)
    return fields
