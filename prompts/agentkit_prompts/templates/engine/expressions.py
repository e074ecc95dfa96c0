"""Python code for the expressions of a template, and all that this code can call."""

# ruff: noqa: N802, N815 (the visitor calls methods by the name of the node class)

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from jinja2 import nodes
from jinja2.idtracking import Symbols
from jinja2.visitor import NodeVisitor

from agentkit_prompts.templates.engine.trace import emit
from agentkit_prompts.templates.operations import access, finalise, methods, operators
from agentkit_prompts.templates.operations.filters import FILTERS
from agentkit_prompts.templates.operations.is_tests import TESTS
from agentkit_prompts.templates.operations.meter import Meter
from agentkit_prompts.templates.operations.objects import COUNTERS, GLOBALS, UNSET, Loop, Macro, Namespace
from agentkit_prompts.templates.operations.values import Fault, Nothing, Undefined, require

__all__ = ["CodeError", "Expressions", "Frame", "Names", "is_direct"]

_MAX_INLINE = 256
_KEYWORDS = frozenset(keyword.kwlist)


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else 1


def is_direct(name: str) -> bool:
    """Tell whether generated code can read a field of that name by itself."""
    return name.isascii() and name not in _KEYWORDS


class CodeError(Exception):
    """A mistake found while code is made."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Names(Symbols):
    """Jinja's symbol table, with identifiers that Python does not fold together."""

    def _define_ref(self, name: str, load: tuple[str, str | None] | None = None) -> str:
        ident = f"l_{self.level}_{name if name.isascii() else name.encode('utf-8').hex() + '_u'}"
        self.refs[name] = ident
        if load is not None:
            self.loads[ident] = load
        return ident


@dataclass(slots=True)
class Frame:
    """A scope while code is made."""

    symbols: Names
    buffer: str | None = None
    """Name of the list that takes text; None where pieces are collected."""
    indices: tuple[str, ...] = ()
    """Names of the index variables of the loops around."""
    has_rounds: bool = False
    """Whether the rounds of the one loop around are marked, so that a mark in it needs no index."""
    loop: tuple[str, str] | None = None
    """Names of index and length of the loop whose counters stand for `loop`, when there is no loop object."""
    known: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By the variable of an item and a field of it, the variable that is true where the field can be read directly.
    Functions have none of those around them: they may run in another loop, in which the item is another."""
    printed: str = ""
    """Code of what a chain of filters gets where the template gives it nothing: the text of its block."""

    def inner(self, buffer: str | None = None) -> Frame:
        return replace(self, symbols=Names(parent=self.symbols), buffer=buffer or self.buffer, printed="")


class Expressions(NodeVisitor):
    """Visits an expression and returns its code."""

    def __init__(self) -> None:
        self.count = 0
        self.constants: dict[str, Any] = dict(_RUNTIME)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    def constant(self, prefix: str, value: Any) -> str:
        name = self.fresh(prefix)
        self.constants[name] = value
        return name

    def expression(self, node: nodes.Node, frame: Frame) -> str:
        code: str = self.visit(node, frame)
        return code

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """Refuse what nobody thought of."""
        raise CodeError(f"{type(node).__name__} is not part of prompt templates", node.lineno)

    def visit_Name(self, node: nodes.Name, frame: Frame) -> str:
        return frame.symbols.ref(node.name)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> str:
        value = node.value
        if type(value) is float and (value != value or value in (float("inf"), float("-inf"))):
            return self.constant("k", value)
        return repr(value)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> str:
        return repr(node.data)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> str:
        return self.nested_in(node, f"({''.join(self.expression(item, frame) + ', ' for item in node.items)})")

    def visit_List(self, node: nodes.List, frame: Frame) -> str:
        return self.nested_in(node, f"[{', '.join(self.expression(item, frame) for item in node.items)}]")

    @staticmethod
    def nested_in(node: nodes.List | nodes.Tuple, code: str) -> str:
        """Return the code of a literal, its nesting checked where a value from elsewhere stands in it."""
        return code if all(isinstance(item, nodes.Const) for item in node.items) else f"meter.nest({code})"

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> str:
        pairs = [f"({self.expression(item.key, frame)}, {self.expression(item.value, frame)})" for item in node.items]
        return f"mapping(meter, ({''.join(pair + ', ' for pair in pairs)}))"

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> str:
        source = node.node
        if isinstance(source, nodes.Name) and source.name == "loop" and frame.loop and node.attr in COUNTERS:
            return COUNTERS[node.attr].format(i=frame.loop[0], n=frame.loop[1])
        code = self.expression(source, frame)
        name = node.attr
        if not is_direct(name):
            return f"attribute(meter, {code}, {name!r})"
        test = f"{frame.known[code, name]} or " if (code, name) in frame.known else ""
        temp = code
        if not isinstance(source, nodes.Name):
            temp = self.fresh("t")
            code = f"({temp} := {code})"
        test += f"type({code}) in {self.readable(name)}"
        return f"({temp}.{name} if {test} else attribute(meter, {temp}, {name!r}))"

    def readable(self, name: str) -> str:
        """Return the variable that holds the classes off which a field can be read directly."""
        self.constants[f"a_{name}"] = access.readable(name)
        return f"a_{name}"

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> str:
        source = self.expression(node.node, frame)
        if isinstance(node.arg, nodes.Slice):
            part = node.arg
            bounds = [self.expression(item, frame) if item else "None" for item in (part.start, part.stop, part.step)]
            return f"slice_of(meter, {source}, {', '.join(bounds)})"
        return f"element(meter, {source}, {self.expression(node.arg, frame)})"

    def function(self, prefix: str, name: str, table: dict[str, Callable[..., Any]]) -> str:
        ident = f"{prefix}_{list(table).index(name)}"
        self.constants[ident] = table[name]
        return ident

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> str:
        value = self.expression(node.node, frame) if node.node is not None else frame.printed
        return f"{self.function('f', node.name, FILTERS)}(meter, {value}{self.arguments(node, frame)})"

    def visit_Test(self, node: nodes.Test, frame: Frame) -> str:
        value = self.expression(node.node, frame)
        if node.name == "defined":
            return f"(not isinstance({value}, undefined))"
        return f"{self.function('q', node.name, TESTS)}(meter, {value}{self.arguments(node, frame)})"

    def arguments(self, node: nodes.Filter | nodes.Test, frame: Frame) -> str:
        args, kwargs = self.given(node, frame)
        return (f", *{args}" if args != "()" else "") + (f", **{kwargs}" if kwargs != "{}" else "")

    def given(
        self, node: nodes.Filter | nodes.Test | nodes.Call, frame: Frame, caller: str | None = None
    ) -> tuple[str, str]:
        """Return the code of the tuple and the dict of arguments."""
        args = "".join(self.expression(item, frame) + ", " for item in node.args)
        if node.dyn_args is not None:
            args += f"*meter.items({self.expression(node.dyn_args, frame)}, 4), "
        pairs = [f"{pair.key!r}: {self.expression(pair.value, frame)}" for pair in node.kwargs]
        if caller is not None:
            pairs.append(f"'caller': {caller}")
        if node.dyn_kwargs is not None:
            pairs.append(f"**keywords(meter, {self.expression(node.dyn_kwargs, frame)})")
        return f"({args})", f"{{{', '.join(pairs)}}}"

    def visit_Call(self, node: nodes.Call, frame: Frame) -> str:
        return self.called(node, frame, None)

    def called(self, node: nodes.Call, frame: Frame, caller: str | None) -> str:
        args, kwargs = self.given(node, frame, caller)
        if isinstance(node.node, nodes.Getattr):
            target = self.expression(node.node.node, frame)
            return f"call_method(meter, {target}, {node.node.attr!r}, {args}, {kwargs})"
        return f"call(meter, {self.expression(node.node, frame)}, {args}, {kwargs})"

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> str:
        return f"join(meter, {', '.join(self.expression(item, frame) for item in node.nodes)})"

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> str:
        left = self.expression(node.expr, frame)
        parts: list[str] = []
        for at, one in enumerate(node.ops):
            right = self.expression(one.expr, frame)
            kept = right
            if at + 1 < len(node.ops):
                kept = self.fresh("t")
                right = f"({kept} := {right})"
            if one.op == "notin":
                parts.append(f"(not compare_in(meter, {left}, {right}))")
            elif one.op in ("eq", "ne") and isinstance(one.expr, nodes.Const) and _size(one.expr.value) < _MAX_INLINE:
                parts.append(f"({left} {'==' if one.op == 'eq' else '!='} {right})")
            else:
                parts.append(f"compare_{one.op}(meter, {left}, {right})")
            left = kept
        return parts[0] if len(parts) == 1 else f"({' and '.join(parts)})"

    def visit_CondExpr(self, node: nodes.CondExpr, frame: Frame) -> str:
        if node.expr2 is not None:
            other = self.expression(node.expr2, frame)
        else:
            hint = "the inline if was false and has no else"
            other = self.constant("u", Nothing("else", hint=hint))
        return f"({self.expression(node.expr1, frame)} if {self.expression(node.test, frame)} else {other})"

    def visit_And(self, node: nodes.And, frame: Frame) -> str:
        return f"({self.expression(node.left, frame)} and {self.expression(node.right, frame)})"

    def visit_Or(self, node: nodes.Or, frame: Frame) -> str:
        return f"({self.expression(node.left, frame)} or {self.expression(node.right, frame)})"

    def visit_Not(self, node: nodes.Not, frame: Frame) -> str:
        return f"(not {self.expression(node.node, frame)})"

    def visit_Neg(self, node: nodes.Neg, frame: Frame) -> str:
        return f"negative(meter, {self.expression(node.node, frame)})"

    def visit_Pos(self, node: nodes.Pos, frame: Frame) -> str:
        return f"positive(meter, {self.expression(node.node, frame)})"

    def binary(self, node: nodes.BinExpr, frame: Frame) -> str:
        number = list(operators.BINARY).index(node.operator)
        return f"binary_{number}(meter, {self.expression(node.left, frame)}, {self.expression(node.right, frame)})"

    visit_Add = visit_Sub = visit_Mul = visit_Div = visit_FloorDiv = visit_Mod = visit_Pow = binary


def _set_name(target: Any, name: str, value: Any) -> None:
    if type(target) is not Namespace:
        require(target)
        raise Fault(f"only a namespace can be assigned to, not {type(target).__name__}")
    if name[:1] == "_":
        raise Fault(f"{name[:80]!r} is private: templates use public names only", name[:80])
    target.names[name] = value


def _unpack(meter: Meter, value: Any, count: int) -> Any:
    items = meter.items(value)
    if len(items) != count:
        raise Fault(f"{type(value).__name__} has {len(items)} items where {count} are unpacked")
    return items


def _mapping(meter: Meter, pairs: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    meter.charge(8 + 8 * len(pairs))
    for key, value in pairs:
        if not isinstance(key, str):
            meter.key(key, len(made))
        made[key] = value
    return meter.nest(made)


def _keywords(meter: Meter, value: Any) -> dict[str, Any]:
    require(value)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise Fault("** takes a mapping whose keys are text")
    meter.charge(16 * len(value))
    return value


_RUNTIME: dict[str, Any] = {
    "__builtins__": {"enumerate": enumerate, "isinstance": isinstance, "len": len, "tuple": tuple, "type": type},
    "Loop": Loop,
    "Macro": Macro,
    "UNSET": UNSET,
    "clock": monotonic,
    "attribute": access.attribute,
    "call": methods.call,
    "call_method": methods.call_method,
    "concat": finalise.concat,
    "element": access.element,
    "emit": emit,
    "join": operators.join,
    "keywords": _keywords,
    "mapping": _mapping,
    "negative": operators.negative,
    "positive": operators.positive,
    "set_name": _set_name,
    "slice_of": access.slice_of,
    "str": str,
    "text_kept": finalise.text_kept,
    "undefined": Undefined,
    "unpack": _unpack,
    **{f"binary_{number}": run for number, run in enumerate(operators.BINARY.values())},
    **{f"compare_{name}": run for name, run in operators.COMPARE.items()},
    **{f"g_{name}": function for name, function in GLOBALS.items()},
}
"""Names of the generated code. There are no other builtins in its reach."""
