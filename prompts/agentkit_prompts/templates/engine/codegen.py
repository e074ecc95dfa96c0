"""Turns the syntax tree of a template into one Python function that appends text and marks to a trace.

Scopes are Jinja's own (its symbol tables are used as they are). Every name in the code made is one of `_RUNTIME` of
the expressions, a local, or a number: text of the template gets into the code as `repr` only.
"""

# ruff: noqa: N802 (the visitor calls methods by the name of the node class)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jinja2 import nodes

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.templates.engine.expressions import CodeError, Expressions, Frame, Names, is_direct
from agentkit_prompts.templates.engine.loop_bodies import fields_read, only_reads, prints_by_rounds, size, uses_of_loop
from agentkit_prompts.templates.engine.trace import LOOP, ROUND, Group
from agentkit_prompts.templates.operations.objects import COUNTERS, GLOBALS
from agentkit_prompts.templates.operations.values import Undefined

__all__ = ["Code", "generate"]

_MAX_APPENDS = 4
"""Of more texts, a tuple takes less time."""
_SPECIAL = ("caller", "kwargs", "varargs")


class Code(NamedTuple):
    """The function made of a template."""

    run: Callable[..., None]
    """`run(values.get, trace)` fills a trace."""
    groups: tuple[Group, ...]
    """What each output statement prints: literals as text, expressions as the number of their site."""
    filename: str
    """Name its frames have in a traceback."""
    lines: list[int]
    """The template line of each of its lines."""


def generate(tree: nodes.Template, numbers: Mapping[int, int], file: str | None, first_line: int) -> Code:
    """Compile a checked template; `numbers` has the number of each site by the id of its node.

    Raises:
        TemplateError: Python refuses the code, for example because too many loops are nested in each other.
    """
    maker = _Generator(numbers)
    maker.template(tree)
    filename = f"<template {file or ''}>"
    space: dict[str, Any] = maker.constants
    try:
        exec(compile("\n".join(maker.code), filename, "exec"), space)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise TemplateError(f"the template cannot be compiled: {error}", file=file, line=first_line) from error
    lines = [line + first_line - 1 for line in maker.lines]
    return Code(space["root"], tuple(maker.groups), filename, lines)


class _Generator(Expressions):
    def __init__(self, numbers: Mapping[int, int]) -> None:
        super().__init__()
        self.numbers = numbers
        self.code: list[str] = []
        self.lines: list[int] = []
        self.level = 0
        self.line = 1
        self.outside: dict[str, str] = {}
        self.literals: set[str] = set()
        self.groups: list[Group] = []

    # writing

    def write(self, text: str, node: nodes.Node | None = None) -> None:
        """Write one line of code that belongs to the line of a node."""
        if node is not None:
            self.line = node.lineno
        self.code.append("    " * self.level + text)
        self.lines.append(self.line)

    def block(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        before = len(self.code)
        for node in body:
            self.visit(node, frame)
        if len(self.code) == before:
            self.write("pass")

    # frames

    def template(self, tree: nodes.Template) -> None:
        frame = Frame(Names())
        frame.symbols.analyze_node(tree)
        self.write("def root(get, trace, type=type, str=str):")  # a local takes less time than a builtin
        self.level += 1
        self.write("meter = trace.meter")
        self.write("texts = trace.texts")
        self.write("marks = trace.marks")
        start = len(self.code)
        self.enter(frame)
        self.block(tree.body, frame)
        head = [
            f"    {ident} = get({name!r}, {self.constant('u', Undefined(name))})"
            for name, ident in self.outside.items()
        ]
        self.code[start:start] = head
        self.lines[start:start] = [1] * len(head)
        self.constants["literals"] = frozenset(self.literals)

    def enter(self, frame: Frame) -> None:
        """Write the loads of a frame: what its names are when it starts."""
        for ident, (action, name) in frame.symbols.loads.items():
            if action == "param":
                continue
            if action == "alias":
                self.write(f"{ident} = {name}")
            elif action == "resolve":
                self.write(f"{ident} = {self.resolve(name)}")
            else:
                name = next(key for key, value in frame.symbols.refs.items() if value == ident)
                self.write(f"{ident} = {self.constant('u', Undefined(name))}")

    def resolve(self, name: str) -> str:
        """Return the variable that holds a name from outside."""
        if name in GLOBALS:
            return f"g_{name}"
        if name not in self.outside:
            self.outside[name] = f"c_{len(self.outside)}"
        return self.outside[name]

    # statements

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        items: list[str | nodes.Node] = []
        for item in node.nodes:
            if not isinstance(item, nodes.TemplateData):
                items.append(item)
            elif items and isinstance(items[-1], str):
                items[-1] += item.data
            elif item.data:
                items.append(item.data)
        self.output(
            [(item, None) if isinstance(item, str) else (item, self.printed(item, frame)) for item in items], frame
        )

    def printed(self, node: nodes.Node, frame: Frame) -> str:
        """Return the code of an expression that is printed: a counter is made text on the spot."""
        code = self.expression(node, frame)
        if not frame.loop or not isinstance(node, nodes.Getattr) or node.attr not in COUNTERS:
            return code
        return f"str({code})" if isinstance(node.node, nodes.Name) and node.node.name == "loop" else code

    def output(self, items: list[tuple[str | nodes.Node, str | None]], frame: Frame) -> None:
        """Write literals (text, None) and expressions (node, code) out."""
        if frame.buffer is not None:
            self.write(f"{frame.buffer}.extend((")
            for item, code in items:
                if isinstance(item, str):
                    self.literals.add(item)
                    self.write(f"{item!r},")
                else:
                    temp = self.fresh("t")
                    self.write(f"{temp} if type({temp} := {code}) is str else text_kept(meter, {temp}),", item)
            self.write("))")
            return
        number = len(self.groups)
        self.groups.append(tuple(item if isinstance(item, str) else self.numbers[id(item)] for item, _ in items))
        indices = frame.indices  # empty outside loops
        index = f"({', '.join(indices)})" if len(indices) > 1 else "".join(indices)
        texts: list[str] = []
        temps: list[str] = []
        for item, code in items:
            if isinstance(item, str):
                texts.append(repr(item))
            elif code and code.isidentifier():  # a variable, which nothing printed can change
                self.line = item.lineno
                temps.append(code)
                texts.append(code)
            else:
                temps.append(self.fresh("t"))
                texts.append(temps[-1])
                self.write(f"{temps[-1]} = {code}", item)
        if temps:
            self.write(f"if {' and '.join(f'type({temp}) is str' for temp in temps)}:")
            self.level += 1
        if len(texts) > _MAX_APPENDS:
            self.write(f"texts.extend(({', '.join(texts)}))")
        else:
            self.write("; ".join([f"texts.append({text})" for text in texts]))
        mark = f"({number}, {index})" if index and not frame.has_rounds else number if index else ~number
        self.write(f"marks.append({mark})")
        if temps:
            self.level -= 1
            self.write(f"else: emit(trace, {number}, {index or None}, ({', '.join(temps)},))")

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:
        self.line = node.lineno
        self.store(node.target, self.expression(node.node, frame), frame)

    def store(self, target: nodes.Node, code: str, frame: Frame) -> None:
        if isinstance(target, nodes.Name):
            self.write(f"{frame.symbols.ref(target.name)} = {code}")
        elif isinstance(target, nodes.NSRef):
            self.write(f"set_name({frame.symbols.ref(target.name)}, {target.attr!r}, {code})")
        elif isinstance(target, nodes.Tuple):
            temps = [self.fresh("p") for _ in target.items]
            pair = self.fresh("p")
            self.write(f"{pair} = {code}")
            plain = f"type({pair}) is tuple and len({pair}) == {len(temps)}"
            self.write(f"({', '.join(temps)},) = {pair} if {plain} else unpack(meter, {pair}, {len(temps)})")
            for item, temp in zip(target.items, temps, strict=True):
                self.store(item, temp, frame)
        else:
            raise AssertionError(type(target))

    def captured(self, node: nodes.AssignBlock | nodes.FilterBlock, frame: Frame) -> str:
        """Write the body of a block into a buffer; return the code of its text, filtered."""
        inner = frame.inner(self.fresh("b"))
        inner.symbols.analyze_node(node)
        if node.filter is not None:  # Jinja's symbol tables forget the filter of a set block
            for name in node.filter.find_all(nodes.Name):
                inner.symbols.load(name.name)
        self.enter(inner)
        self.write(f"{inner.buffer} = []", node)
        self.block(node.body, inner)
        inner.printed = f"concat(meter, literals, {inner.buffer})"
        return self.expression(node.filter, inner) if node.filter is not None else inner.printed

    def visit_AssignBlock(self, node: nodes.AssignBlock, frame: Frame) -> None:
        self.store(node.target, self.captured(node, frame), frame)

    def visit_FilterBlock(self, node: nodes.FilterBlock, frame: Frame) -> None:
        self.output([(node, self.captured(node, frame))], frame)

    def visit_If(self, node: nodes.If, frame: Frame) -> None:
        self.line = node.lineno
        self.write(f"if {self.expression(node.test, frame)}:")
        self.nested(node.body, frame)
        for one in node.elif_:
            self.line = one.lineno
            self.write(f"elif {self.expression(one.test, frame)}:")
            self.nested(one.body, frame)
        if node.else_:
            self.write("else:")
            self.nested(node.else_, frame)

    def nested(self, body: Iterable[nodes.Node], frame: Frame) -> None:
        self.level += 1
        self.block(body, frame)
        self.level -= 1

    def visit_With(self, node: nodes.With, frame: Frame) -> None:
        self.line = node.lineno
        inner = frame.inner()
        inner.symbols.analyze_node(node)
        codes = [self.expression(value, frame) for value in node.values]
        self.enter(inner)
        for target, code in zip(node.targets, codes, strict=True):
            self.store(target, code, inner)
        self.block(node.body, inner)

    def visit_ExprStmt(self, node: nodes.ExprStmt, frame: Frame) -> None:
        self.write(self.expression(node.node, frame), node)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        self.line = node.lineno
        for name in node.find_all(nodes.Name):
            if name.ctx == "store" and name.name == "loop":
                raise CodeError("`loop` cannot be assigned to", name.lineno)
        uses = uses_of_loop(node.body)
        counters = not node.recursive and all(use in COUNTERS for use in uses)
        deep = len(frame.indices)
        weight = 2 + sum(size(one, deep) for one in node.body) + (4 + size(node.test) if node.test is not None else 0)
        items, index, length = self.fresh("s"), self.fresh("i"), self.fresh("n")
        inner = frame.inner()
        inner.loop = (index, length) if counters else None
        source = None if node.recursive else self.expression(node.iter, frame)
        inner.symbols.declare_parameter("loop")
        inner.symbols.analyze_node(node, for_branch="body")
        recursion = self.fresh("r")
        if node.recursive:
            inner.buffer = self.fresh("b")
            inner.indices = ()
            inner.known = {}
            self.write(f"def {recursion}(source, depth):", node)
            self.level += 1
            self.write(f"{inner.buffer} = []")
            source = "source"
        self.write(f"{items} = meter.items({source}, {weight})", node)
        original = index
        if node.test is not None:
            original = self.filter_items(node, node.test, frame, items)
        if counters and any("{n}" in COUNTERS[use] for use in uses):
            self.write(f"{length} = len({items})")
        if not counters:
            recurse = recursion if node.recursive else "None"
            depth = "depth" if node.recursive else "0"
            listed = items if node.test is None else f"[item for at, item in {items}]"
            self.write(f"{inner.symbols.ref('loop')} = Loop({listed}, {recurse}, {depth})")
        if inner.buffer is None:
            inner.indices = (*frame.indices, original)
        target, unpack = self.target(node.target, inner)
        read = [name for name in fields_read(node) if is_direct(name)]
        kind, is_known = self.fresh("k"), self.fresh("e")
        if read:
            self.write(f"{kind} = {is_known} = None")
            inner.known = {**inner.known, **{(target, name): is_known for name in read}}
        round_of = target if node.test is None else f"({original}, {target})"
        inner.has_rounds = inner.indices == (index,) and prints_by_rounds(node)
        if inner.has_rounds:
            self.write(f"{index} = -1; marks.append({LOOP!r})")
        if inner.has_rounds or (index == original and inner.buffer is not None and not uses and counters):
            self.write(f"for {round_of} in {items}:")
        else:
            self.write(f"for {index}, {round_of} in enumerate({items}):")
        self.level += 1
        if inner.has_rounds:
            self.write(f"{index} += 1; marks.append({ROUND!r})")
        if read:
            tests = " and ".join([f"{kind} in {self.readable(name)}" for name in read])
            self.write(f"if type({target}) is not {kind}: {kind} = type({target}); {is_known} = {tests}")
        if not only_reads(node.body):
            self.write("if clock() > meter.look_at: meter.look()")
        if not counters:
            self.write(f"{inner.symbols.ref('loop')}.index0 = {index}")
        for temp, pattern in unpack:
            self.store(pattern, temp, inner)
        self.enter(inner)
        self.block(node.body, inner)
        self.level -= 1
        if node.else_:
            other = frame.inner(inner.buffer)
            other.indices = () if node.recursive else frame.indices
            other.symbols.analyze_node(node, for_branch="else")
            self.write(f"if not {items}:")
            self.level += 1
            self.enter(other)
            self.block(node.else_, other)
            self.level -= 1
        if node.recursive:
            self.write(f"return concat(meter, literals, {inner.buffer})")
            self.level -= 1
            self.output([(node, f"{recursion}({self.expression(node.iter, frame)}, 0)")], frame)

    def target(self, target: nodes.Node, frame: Frame) -> tuple[str, list[tuple[str, nodes.Node]]]:
        """Return what a for loop assigns to, and what is unpacked from it inside."""
        if isinstance(target, nodes.Name):
            return frame.symbols.ref(target.name), []
        temp = self.fresh("p")
        return temp, [(temp, target)]

    def filter_items(self, node: nodes.For, condition: nodes.Node, frame: Frame, items: str) -> str:
        """Write the loop that keeps (index, item) where the test of a for loop holds; return an index name."""
        test = frame.inner()
        test.symbols.analyze_node(node, for_branch="test")
        kept, at = self.fresh("k"), self.fresh("o")
        self.write(f"{kept} = []")
        target, unpack = self.target(node.target, test)
        self.write(f"for {at}, {target} in enumerate({items}):")
        self.level += 1
        self.write("if clock() > meter.look_at: meter.look()")
        for temp, pattern in unpack:
            self.store(pattern, temp, test)
        self.enter(test)
        self.write(f"if {self.expression(condition, test)}: {kept}.append(({at}, {target}))")
        self.level -= 1
        self.write(f"{items} = {kept}")
        return at

    def visit_Macro(self, node: nodes.Macro, frame: Frame) -> None:
        self.write(f"{frame.symbols.ref(node.name)} = {self.macro(node, node.name, frame)}", node)

    def visit_CallBlock(self, node: nodes.CallBlock, frame: Frame) -> None:
        macro = self.macro(node, "caller", frame)
        self.output([(node, self.called(node.call, frame, macro))], frame)

    def macro(self, node: nodes.Macro | nodes.CallBlock, name: str, frame: Frame) -> str:
        """Write the function of a macro; return the code that makes the macro of it."""
        inner = frame.inner(self.fresh("b"))
        inner.indices = ()
        inner.known = {}
        inner.loop = None
        inner.symbols.analyze_node(node)
        params = [inner.symbols.ref(argument.name) for argument in node.args]
        names = tuple(argument.name for argument in node.args)
        used = {found.name for found in node.find_all(nodes.Name) if found.ctx == "load"}
        takes = [special in used and special not in names for special in _SPECIAL]
        if "caller" in names and len(node.defaults) < len(names) - names.index("caller"):
            raise CodeError("the argument `caller` of a macro needs a default", node.lineno)
        extra = [
            inner.symbols.declare_parameter(special) for special, take in zip(_SPECIAL, takes, strict=True) if take
        ]
        inner.symbols.analyze_node(node)
        function = self.fresh("m")
        self.write(f"def {function}({', '.join([*params, *extra])}):", node)
        self.level += 1
        self.write(f"meter.charge({1 + sum(map(size, node.body))})")
        self.write(f"{inner.buffer} = []")
        self.enter(inner)
        first = len(names) - len(node.defaults)
        for at, param in enumerate(params):
            if at < first:
                missing = Undefined(names[at], hint=f"the argument {names[at]!r} of macro {name!r} was not given")
                code = self.constant("u", missing)
            else:
                code = self.expression(node.defaults[at - first], inner)
            self.write(f"if {param} is UNSET: {param} = {code}")
        self.block(node.body, inner)
        self.write(f"return concat(meter, literals, {inner.buffer})")
        self.level -= 1
        return f"Macro({function}, {name!r}, {names!r}, {tuple(takes)!r})"
