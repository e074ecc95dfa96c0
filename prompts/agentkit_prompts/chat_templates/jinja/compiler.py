"""Jinja's own compiler, quicker at reading messages, and made to count for templates that are not trusted.

What a template means stays Jinja's: every change wraps the code of an expression and leaves its result alone.
"""

# ruff: noqa: N802 (the visitor calls methods by the name of the node class)

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.nodes import Node

from agentkit_prompts.templates.operations.costs import COSTS, NODE_STEPS
from agentkit_prompts.templates.operations.objects import Loop

__all__ = ["DICT_NAMES", "FREE", "BoundedCodeGenerator", "QuickCodeGenerator"]

FREE = frozenset(("count", "d", "default", "first", "last", "length"))
"""Filters that take the same time whatever they get: a loop charges them with its rounds."""

DICT_NAMES = frozenset(dir(dict))
"""Attributes of a dict: `message.name` reads any other name as a key."""

_MAX_SUM = 6
_MAX_FREE = 256
_ARGUMENT = 8
"""Steps of each argument that is spread out of a list or a mapping."""
_NAMES = (
    "text",
    "printed",
    "joined",
    "grown",
    "weighed",
    "searched",
    "looked_up",
    "iterated",
    "looked",
    "nest",
    "clock",
    "concat",
    "added",
    "room",
    "listed",
    "inspected",
)
_LITERALS = (nodes.List, nodes.Tuple)


def _weight(parts: list[nodes.Node]) -> int:
    """Return the steps that a piece of template costs each time, without what loops inside add per round."""
    count = 4
    stack = list(parts)
    while stack:
        node = stack.pop()
        count += NODE_STEPS.get(type(node), 1)
        if isinstance(node, nodes.Filter) and node.name in FREE:
            count += COSTS[f"filter.{node.name}"].worst()
        count += len(node.data) >> 4 if isinstance(node, nodes.TemplateData) else 0
        stack.extend(node.iter_child_nodes())
    return count


def _is_small(node: nodes.Node) -> bool:
    """Tell whether comparing with a node costs nothing to speak of, whatever the other is."""
    return isinstance(node, nodes.Const) and (not isinstance(node.value, str) or len(node.value) < _MAX_FREE)


def _is_few(node: nodes.Node) -> bool:
    """Tell whether a node is a list of constants that holds little enough to be looked through for nothing."""
    return isinstance(node, _LITERALS) and len(node.items) < _MAX_FREE and all(map(_is_small, node.items))


class QuickCodeGenerator(CodeGenerator):
    """Writes the same program as Jinja, without a call where a key of a dict or a counter of a loop is read."""

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        if isinstance(node.node, nodes.Name) and node.node.name == "loop" and node.attr in Loop.FIELDS:
            temp = self.temporary_identifier()
            self.write(f"({temp}.{node.attr} if type({temp} := ")
            self.visit(node.node, frame)
            self.write(f") is LoopContext else environment.getattr({self.inspected(temp)}, {node.attr!r}))")
        elif node.attr in DICT_NAMES:
            super().visit_Getattr(node, frame)
        else:
            self._key(node.node, node.attr, "getattr", frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            self._key(node.node, node.arg.value, "getitem", frame)
        else:
            super().visit_Getitem(node, frame)

    @staticmethod
    def inspected(temp: str) -> str:
        """Return the code of a value of which more is read than a key that it has."""
        return temp

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        operands = _operands(node)
        if not _is_text(operands):
            self._plain_add(node, frame)
            return
        texts = [one.value if isinstance(one, nodes.Const) else None for one in operands]
        temps = ["" if text is not None else self.temporary_identifier() for text in texts]
        filled = "".join(
            f"{{{temp}}}" if text is None else text.replace("{", "{{").replace("}", "}}")
            for text, temp in zip(texts, temps, strict=True)
        )
        self.write(f"(f{filled!r} if ")
        tested = [(one, temp) for one, temp in zip(operands, temps, strict=True) if temp]
        for position, (one, temp) in enumerate(tested):
            self.write(f"{' & ' if position else ''}(type({temp} := ")
            self.visit(one, frame)
            self.write(") is str)")
        self.write(self.room_for([temp for _, temp in tested], sum(len(text or "") for text in texts)))
        summed = [temp or repr(text) for text, temp in zip(texts, temps, strict=True)]
        self.write(f" else {self.summed(summed)})")

    def room_for(self, temps: list[str], size: int) -> str:
        """Return the code of what else must hold before texts of these names, and `size` characters, are joined."""
        return ""

    @staticmethod
    def summed(codes: list[str]) -> str:
        """Return the code of a sum of at least two, from left to right."""
        return f"{'(' * (len(codes) - 2)}{') + '.join([' + '.join(codes[:2]), *codes[2:]])}"

    def _plain_add(self, node: nodes.BinExpr, frame: Frame) -> None:
        super().visit_Add(node, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if self._prints_text(node, frame):
            self.write("(")
        else:
            super()._output_child_pre(node, frame, finalize)

    @staticmethod
    def _prints_text(node: nodes.Expr, frame: Frame) -> bool:
        """Tell whether an expression can only be text, which is printed as it is."""
        escapes = frame.eval_ctx.volatile or frame.eval_ctx.autoescape
        return not escapes and isinstance(node, nodes.Add) and _is_text(_operands(node))

    def _key(self, owner: nodes.Node, key: str, otherwise: str, frame: Frame) -> None:
        temp = self.temporary_identifier()
        self.write(f"({temp}[{key!r}] if type({temp} := ")
        self.visit(owner, frame)
        self.write(f") is dict and {key!r} in {temp} else environment.{otherwise}({self.inspected(temp)}, {key!r}))")


class BoundedCodeGenerator(QuickCodeGenerator):
    """Writes the same program as Jinja, with the guards of `Bounds` around what can grow."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loops: dict[int, int] = {}
        self._bodies: list[int] = []
        self._rounds: set[int] = set()
        self._entered: dict[int, int] = {}
        self._conditions: dict[int, int] = {}
        self._spread: set[int] = set()

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("bounds = context.bounds")
        for name in _NAMES:
            self.writeline(f"{name} = bounds.{name}")

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        weight = self._loops.pop(id(node), None)
        if id(node) in self._conditions:
            self.write(f"looked({self._conditions.pop(id(node))}) and ")
            self.visit(node, *args, **kwargs)
            return None
        if id(node) in self._spread:
            self._spread.remove(id(node))
            self.write("listed(")
            super().visit(node, *args, **kwargs)
            self.write(f", {_ARGUMENT})")
            return None
        if weight is None:
            return super().visit(node, *args, **kwargs)
        self.write("iterated(")
        super().visit(node, *args, **kwargs)
        self.write(f", {weight})")
        return None

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        test = [node.test] if node.test is not None else []
        weight = 4 + _weight([*node.body, *test])
        self._rounds.add(id(node.body))
        if node.recursive:  # `loop(items)` runs it over items that only the call knows: each round charges itself
            self._entered[id(node.body)] = weight
            if node.else_:
                self._entered[id(node.else_)] = _weight(node.else_)
            weight = 4
        self._loops[id(node.iter)] = weight
        for one in test:
            self._conditions[id(one)] = _weight(test) if node.recursive else 0
        super().visit_For(node, frame)

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:
        for block in node.find_all(nodes.Block):  # `self.name()` runs it as often as it is called
            self._entered[id(block.body)] = _weight(block.body)
        super().visit_Template(node, frame)

    def blockvisit(self, nodes: Iterable[Node], frame: Frame) -> None:
        if id(nodes) in self._entered:
            self.writeline(f"bounds.charge({self._entered.pop(id(nodes))})")
        if id(nodes) in self._rounds:
            self._rounds.remove(id(nodes))
            self.writeline("if clock() > bounds.look_at:")
            self.indent()
            self.writeline("bounds.look()")
            self.outdent()
        super().blockvisit(nodes, frame)

    def macro_body(self, node: nodes.Macro | nodes.CallBlock, frame: Frame) -> Any:
        self._bodies.append(_weight([*node.body, *node.defaults]))
        made = super().macro_body(node, frame)
        self._bodies.pop()
        return made

    def push_parameter_definitions(self, frame: Frame) -> None:
        self.writeline(f"bounds.charge({self._bodies[-1]})")
        super().push_parameter_definitions(frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if self._prints_text(node, frame):
            self.write("(")
        elif frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
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

    def room_for(self, temps: list[str], size: int) -> str:
        return f" and room({' + '.join([str(size), *(f'len({temp})' for temp in temps)])})"

    @staticmethod
    def summed(codes: list[str]) -> str:
        made = codes[0]
        for code in codes[1:]:
            made = f"added({made}, {code})"
        return made

    def _plain_add(self, node: nodes.BinExpr, frame: Frame) -> None:
        self._call("added(", [node.left, node.right], frame)
        self.write(")")

    @staticmethod
    def inspected(temp: str) -> str:
        return f"inspected({temp})"

    def signature(self, node: nodes.Call | nodes.Filter | nodes.Test, frame: Frame, extra_kwargs: Any = None) -> None:
        self._spread.update(id(one) for one in (node.dyn_args, node.dyn_kwargs) if one is not None)
        super().signature(node, frame, extra_kwargs)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self.write("grown(")
            super().visit_Getitem(node, frame)
            self.write(")")
        elif isinstance(node.arg, nodes.Const):
            super().visit_Getitem(node, frame)
        else:
            temp = self.temporary_identifier()
            self._call(f"environment.getitem(inspected({temp} := ", [node.node], frame)
            self._call(f"), looked_up({temp}, ", [node.arg], frame)
            self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._nested(node, frame, super().visit_List)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        self._nested(node, frame, super().visit_Tuple)

    def _nested(self, node: nodes.List | nodes.Tuple, frame: Frame, write: Callable[[Any, Frame], None]) -> None:
        is_plain = getattr(node, "ctx", "load") != "load" or all(isinstance(item, nodes.Const) for item in node.items)
        self.write("" if is_plain else "nest(")
        write(node, frame)
        self.write("" if is_plain else ")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("nest({")
        for position, pair in enumerate(node.items):
            self._call(f"looked_up({position}, ", [pair.key], frame)
            self._call("): ", [pair.value], frame)
            self.write(", ")
        self.write("})")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        operands = [node.expr, *(one.expr for one in node.ops)]
        if any(map(_is_small, operands)) and all(one.op in ("eq", "ne") for one in node.ops):
            super().visit_Compare(node, frame)
            return
        self.write("(")
        temp = ""
        for position, operand in enumerate(operands):
            operator = node.ops[position - 1].op if position else ""
            is_sought = position < len(node.ops) and node.ops[position].op in ("in", "notin")
            self.write(f" {operators[operator]} " if operator else "")
            sought, temp = temp, self.temporary_identifier() if is_sought else ""
            self.write(f"({temp} := " if temp else "")
            if operator in ("in", "notin") and not _is_few(operand):
                self._call("searched(", [operand], frame)
                self.write(f", {sought})")
            elif _is_small(operand) or _is_few(operand):
                self.visit(operand, frame)
            else:
                self._call("weighed(", [operand], frame)
                self.write(")")
            self.write(")" if temp else "")
        self.write(")")

    def _call(self, head: str, arguments: list[Any], frame: Frame) -> None:
        self.write(head)
        for position, argument in enumerate(arguments):
            if position:
                self.write(", ")
            self.visit(argument, frame)


def _operands(node: nodes.BinExpr) -> list[nodes.Expr]:
    """Return what a sum adds up, from left to right; the first may be a sum itself when there are many."""
    operands: list[nodes.Expr] = [node.right]
    left = node.left
    while isinstance(left, nodes.Add) and sum(not _is_string(one) for one in operands) < _MAX_SUM:
        operands.append(left.right)
        left = left.left
    return [left, *reversed(operands)]


def _is_string(node: nodes.Node) -> bool:
    """Tell whether a node is a plain string; one that is marked as safe escapes what it is added to."""
    return isinstance(node, nodes.Const) and type(node.value) is str


def _is_text(operands: list[nodes.Expr]) -> bool:
    """Tell whether a sum can only be text, or fail: one of its operands is."""
    others = [one for one in operands if not _is_string(one)]
    return 0 < len(others) < len(operands) and not any(isinstance(one, nodes.Const) for one in others)
