"""Short source-like text of a template expression, for error messages and tables."""

from __future__ import annotations

from jinja2 import nodes

__all__ = ["unparse"]

_LONGEST = 80
_OPERATORS = {
    nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/", nodes.FloorDiv: "//", nodes.Mod: "%",
    nodes.Pow: "**", nodes.And: "and", nodes.Or: "or",
}  # fmt: skip
_COMPARE = {"eq": "==", "ne": "!=", "gt": ">", "gteq": ">=", "lt": "<", "lteq": "<=", "in": "in", "notin": "not in"}


def unparse(node: nodes.Node) -> str:
    """Return the text of an expression, cut at 80 characters."""
    made = _text(node, 12)
    return made if len(made) <= _LONGEST else made[: _LONGEST - 3] + "..."


def _text(node: nodes.Node | None, depth: int) -> str:
    if node is None or depth == 0:
        return "..." if node is not None else ""
    deeper = depth - 1
    match node:
        case nodes.Name():
            return node.name
        case nodes.Const():
            value = node.value
            if value is None or value is True or value is False:
                return str(value).lower()
            return repr(value[:60]) if isinstance(value, str) else repr(value)
        case nodes.Getattr():
            return f"{_text(node.node, deeper)}.{node.attr}"
        case nodes.Getitem():
            return f"{_text(node.node, deeper)}[{_text(node.arg, deeper)}]"
        case nodes.Slice():
            step = f":{_text(node.step, deeper)}" if node.step else ""
            return f"{_text(node.start, deeper)}:{_text(node.stop, deeper)}{step}"
        case nodes.Filter():
            given = _arguments(node, deeper)
            return f"{_text(node.node, deeper)} | {node.name}" + (f"({given})" if given else "")
        case nodes.Test():
            given = _arguments(node, deeper)
            return f"{_text(node.node, deeper)} is {node.name}" + (f"({given})" if given else "")
        case nodes.Call():
            return f"{_text(node.node, deeper)}({_arguments(node, deeper)})"
        case nodes.Concat():
            return " ~ ".join(_text(item, deeper) for item in node.nodes[:8])
        case nodes.Compare():
            rest = "".join(f" {_COMPARE[one.op]} {_text(one.expr, deeper)}" for one in node.ops[:8])
            return _text(node.expr, deeper) + rest
        case nodes.CondExpr():
            last = f" else {_text(node.expr2, deeper)}" if node.expr2 else ""
            return f"{_text(node.expr1, deeper)} if {_text(node.test, deeper)}{last}"
        case nodes.Not():
            return f"not {_text(node.node, deeper)}"
        case nodes.Neg() | nodes.Pos():
            return f"{node.operator}{_text(node.node, deeper)}"
        case nodes.BinExpr():
            return f"{_text(node.left, deeper)} {_OPERATORS[type(node)]} {_text(node.right, deeper)}"
        case nodes.List():
            return f"[{', '.join(_text(item, deeper) for item in node.items[:8])}]"
        case nodes.Tuple():
            return f"({', '.join(_text(item, deeper) for item in node.items[:8])})"
        case nodes.Dict():
            return "{" + ", ".join(f"{_text(i.key, deeper)}: {_text(i.value, deeper)}" for i in node.items[:8]) + "}"
        case _:
            return type(node).__name__.lower()


def _arguments(node: nodes.Filter | nodes.Test | nodes.Call, depth: int) -> str:
    given = [_text(item, depth) for item in node.args[:8]]
    given += [f"{item.key}={_text(item.value, depth)}" for item in node.kwargs[:8]]
    if node.dyn_args is not None:
        given.append(f"*{_text(node.dyn_args, depth)}")
    if node.dyn_kwargs is not None:
        given.append(f"**{_text(node.dyn_kwargs, depth)}")
    return ", ".join(given)
