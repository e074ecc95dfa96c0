"""Jinja's own compiler, made to count: what an untrusted template does to values goes through `Bounds`.

What a template means stays Jinja's: every change wraps the code of an expression and leaves its result alone.
"""

# ruff: noqa: N802 (the visitor calls methods by the name of the node class)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

__all__ = ["INTERCEPTED", "BoundedCodeGenerator", "check_depth"]

INTERCEPTED = frozenset({"+", "-", "*", "/", "//", "%", "**"})
"""Operators that are never worked out while a template is compiled."""

_LONGEST_SUM = 4
_DEEPEST = 120
_NAMES = [
    "text",
    "printed",
    "joined",
    "grown",
    "multiplied",
    "raised",
    "modulo",
    "weighed",
    "searched",
    "iterated",
    "concat",
]
_LITERALS = (nodes.List, nodes.Tuple)


def check_depth(tree: nodes.Template) -> int | None:
    """Return the line at which a template nests too deeply to be compiled, or None."""
    level: list[nodes.Node] = [tree]
    for _ in range(_DEEPEST):
        if not level:
            return None
        level = [child for node in level for child in node.iter_child_nodes()]
    return level[0].lineno if level else None


def _weight(parts: list[nodes.Node]) -> int:
    """Return the steps that a piece of template costs each time, without what loops inside add per round."""
    count = 4
    stack = list(parts)
    while stack:
        node = stack.pop()
        count += 1 + (len(node.data) >> 4 if isinstance(node, nodes.TemplateData) else 0)
        stack.extend(node.iter_child_nodes())
    return count


def _is_number(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, int | float)


class BoundedCodeGenerator(CodeGenerator):
    """Writes the same program as Jinja, with the guards of `Bounds` around what can grow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[int, int] = {}
        self._summands: set[int] = set()
        self._bodies: list[int] = []

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("bounds = context.bounds")
        for name in _NAMES:
            self.writeline(f"{name} = bounds.{name}")

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        weight = self._loops.pop(id(node), None)
        if weight is None:
            return super().visit(node, *args, **kwargs)
        self.write("iterated(")
        super().visit(node, *args, **kwargs)
        self.write(f", {weight})")
        return None

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        self._loops[id(node.iter)] = _weight([*node.body, *([node.test] if node.test else [])])
        super().visit_For(node, frame)

    def macro_body(self, node: nodes.Macro | nodes.CallBlock, frame: Frame) -> Any:
        self._bodies.append(_weight([*node.body, *node.defaults]))
        made = super().macro_body(node, frame)
        self._bodies.pop()
        return made

    def push_parameter_definitions(self, frame: Frame) -> None:
        self.writeline(f"bounds.charge({self._bodies[-1]})")
        super().push_parameter_definitions(frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            super()._output_child_pre(node, frame, finalize)
            self.write("printed(")
        else:
            self.write("text(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write("))" if frame.eval_ctx.volatile or frame.eval_ctx.autoescape else ")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            self.write("grown(markup_join((" if frame.eval_ctx.autoescape else "grown(str_join((")
            self._call("printed(", node.nodes[:1], frame)
            for one in node.nodes[1:]:
                self._call("), printed(", [one], frame)
            self.write("), )))")
            return
        self._call("joined((", node.nodes, frame)
        self.write(", ))")

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        inner = id(node) in self._summands
        summands = list(_sum(node))
        if not inner:
            self._summands.update(id(one) for one in summands[1:_LONGEST_SUM])
        bare = inner or any(_is_number(one.right) or _is_number(one.left) for one in summands)
        self.write("(" if bare else "grown(")
        self.visit(node.left, frame)
        self.write(" + ")
        self.visit(node.right, frame)
        self.write(")")

    def visit_Mul(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._pair("multiplied(", node, frame)

    def visit_Pow(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._pair("raised(", node, frame)

    def visit_Mod(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._pair("modulo(", node, frame)

    def visit_Sub(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._infix("-", node, frame)

    def visit_Div(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._infix("/", node, frame)

    def visit_FloorDiv(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._infix("//", node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self.write("grown(")
            super().visit_Getitem(node, frame)
            self.write(")")
        elif isinstance(node.arg, nodes.Const):
            super().visit_Getitem(node, frame)
        else:
            self.write("environment.getitem(")
            self.visit(node.node, frame)
            self._call(", weighed(", [node.arg], frame)
            self.write("))")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("{")
        for pair in node.items:
            self._call("weighed(", [pair.key], frame)
            self._call("): ", [pair.value], frame)
            self.write(", ")
        self.write("}")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        operands = [node.expr, *(one.expr for one in node.ops)]
        if any(isinstance(one, nodes.Const) for one in operands) and all(one.op in ("eq", "ne") for one in node.ops):
            super().visit_Compare(node, frame)
            return
        self.write("(")
        self._compared("weighed(", node.expr, frame)
        for one in node.ops:
            guard = "searched(" if one.op in ("in", "notin") else "weighed("
            self.write(f" {_OPERATORS[one.op]} ")
            self._compared(guard, one.expr, frame)
        self.write(")")

    def _compared(self, guard: str, node: nodes.Expr, frame: Frame) -> None:
        small = isinstance(node, _LITERALS) and all(isinstance(item, nodes.Const) for item in node.items)
        if small or isinstance(node, nodes.Const):
            self.visit(node, frame)
        else:
            self._call(guard, [node], frame)
            self.write(")")

    def _pair(self, guard: str, node: nodes.BinExpr, frame: Frame) -> None:
        self._call(guard, [node.left, node.right], frame)
        self.write(")")

    def _infix(self, sign: str, node: nodes.BinExpr, frame: Frame) -> None:
        self._call("(", [node.left], frame)
        self._call(f" {sign} ", [node.right], frame)
        self.write(")")

    def _call(self, head: str, arguments: list[Any], frame: Frame) -> None:
        self.write(head)
        for position, argument in enumerate(arguments):
            if position:
                self.write(", ")
            self.visit(argument, frame)


_OPERATORS = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gteq": ">=",
    "lt": "<",
    "lteq": "<=",
    "in": "in",
    "notin": "not in",
}


def _sum(node: nodes.Node) -> Iterator[nodes.Add]:
    """Yield the additions of `a + b + c`, the last one first."""
    while isinstance(node, nodes.Add):
        yield node
        node = node.left
