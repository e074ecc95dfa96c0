"""Code generators for Jinja: `BoundedCodeGenerator` adds checks of limits, `TracingCodeGenerator` also records the
origins of text.

The classes use private parts of `jinja2.compiler`. A test imports these parts, and `pyproject.toml` limits the version
of Jinja.
"""

# ruff: noqa: N802 (the visitor calls methods by the name of the node class)

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.compiler import CodeGenerator, Frame

from agentkit_prompts.templates.sandbox.attributes import attribute, direct_types
from agentkit_prompts.templates.sandbox.operation_errors import false_if_undefined, require

_KEYWORDS = frozenset(keyword.kwlist)


def _is_constant(node: nodes.Node) -> bool:
    """True for a constant or a list of constants. Comparisons with a constant are fast, because a template is short."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_constant, node.items))
    return isinstance(node, nodes.Const)


def _internal_name(name: str, line: int) -> nodes.InternalName:
    """Return a node for a Python name. Its class refuses calls, because only the parser of Jinja creates such nodes."""
    node = object.__new__(nodes.InternalName)
    nodes.Node.__init__(node, name, lineno=line)
    return node


_COUNTERS = {
    "depth": "1",
    "depth0": "0",
    "first": "(not {i})",
    "index": "({i} + 1)",
    "index0": "{i}",
    "last": "({i} == {n} - 1)",
    "length": "{n}",
    "revindex": "({n} - {i})",
    "revindex0": "({n} - {i} - 1)",
}
"""Code of the counters of `loop`, by their name: `i` is the index of the round, `n` the number of rounds."""


def _counters_of(body: Iterable[nodes.Node]) -> list[nodes.Getattr] | None:
    """Return the nodes that read a counter of `loop` in the body of a loop; None if the body also uses `loop` in
    another way.
    """
    counters: list[nodes.Getattr] = []
    stack: list[nodes.Node] = list(body)
    while stack:
        node = stack.pop()
        match node:
            case nodes.Getattr(node=nodes.Name(name="loop")) if node.attr in _COUNTERS:
                counters.append(node)
            case nodes.Name(name="loop"):
                return None
            case nodes.For():
                # The body of an inner loop has a different `loop`.
                stack += [node.iter, *node.else_]
            case nodes.Macro() | nodes.CallBlock() | nodes.Block():
                # These bodies run at another time, so every use of `loop` in them needs the object.
                stack.extend(node.find_all(nodes.Name))
            case _:
                stack.extend(node.iter_child_nodes())
    return counters


class BoundedCodeGenerator(CodeGenerator):
    """Generator of the program of Jinja, with checks around operations whose result or time is not limited.

    Every loop counts its rounds when it starts, and has an index: `for i_1, item in enumerate(rounds(items))`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop_count = 0
        self._loops: list[str] = []
        """Index variables of the enclosing loops, outermost first."""
        self._wrapped: dict[int, str] = {}
        """Name of the function that is called with the value of a node, by the id of the node."""
        self._counters: dict[int, str] = {}
        """Code that replaces the read of a counter of `loop`, by the id of the node."""
        self._indices: dict[int, str] = {}
        """Index variable of a loop, by the id of the body of the loop."""

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("concat = context.concat; str_join = context.join; LoopContext = context.loop")

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        function = self._wrapped.pop(id(node), None)
        if function is None:
            return super().visit(node, *args, **kwargs)
        self.write(f"{function}(")
        super().visit(node, *args, **kwargs)
        self.write(")" * (1 + function.count("(")))
        return None

    # Loops

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        if node.recursive:
            # `loop(items)` runs the body again with other items, so `context.loop` counts the rounds.
            super().visit_For(node, frame)
            return
        self._loop_count += 1
        index, items = f"i_{self._loop_count}", f"s_{self._loop_count}"
        self._indices[id(node.body)] = index
        if node.test is None:
            self._count_without_loop(node, index, items)
        self._wrapped[id(node.iter)] = f"enumerate({items} := context.rounds"
        target = node.target
        node.target = nodes.Tuple([_internal_name(index, node.lineno), target], "store", lineno=node.lineno)
        super().visit_For(node, frame)
        node.target = target

    def _count_without_loop(self, node: nodes.For, index: str, items: str) -> None:
        """Replace `loop.first` and other counters with code, if the loop uses no other field of `loop`.

        A counter object would double the time of a short round.
        """
        for counter in _counters_of(node.body) or ():
            self._counters[id(counter)] = _COUNTERS[counter.attr].format(i=index, n=f"len({items})")
            # Without the name `loop` in the body, Jinja does not create the object.
            counter.node = nodes.Const(None)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        loops = self._loops
        if id(nodes) in self._indices:
            self._loops = [*loops, self._indices.pop(id(nodes))]
        super().blockvisit(nodes, frame)
        self._loops = loops

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        if id(node) in self._counters:
            self.write(self._counters[id(node)])
        else:
            super().visit_Getattr(node, frame)

    # Other statements

    def visit_With(self, node: nodes.With, frame: Frame) -> None:
        # Jinja does not record the line of this statement.
        self.newline(node)
        super().visit_With(node, frame)

    def visit_AssignBlock(self, node: nodes.AssignBlock, frame: Frame) -> None:
        if node.filter is not None:
            # Jinja collects the names in the body of a set block, but not the names in its filter.
            names = [nodes.Name(name.name, "load") for name in node.filter.find_all(nodes.Name)]
            read = nodes.ExprStmt(nodes.Tuple(names, "load")).set_lineno(node.lineno)
            node.body.insert(0, read)
        super().visit_AssignBlock(node, frame)

    # Output

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        # Only text of the template is constant: compilation must not run code of a template.
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible()
        return super()._output_child_to_const(node, frame, finalize)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            # Escaping creates a new text, which is counted.
            self.write("context.meter.result(")
            super()._output_child_pre(node, frame, finalize)
            self.write("context.meter.deep(")
        else:
            self.write("context.shown(")

    def _output_child_post(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        self.write(")))" if frame.eval_ctx.volatile or frame.eval_ctx.autoescape else ")")

    # Expressions

    def signature(self, node: nodes.Call | nodes.Filter | nodes.Test, frame: Frame, extra_kwargs: Any = None) -> None:
        if node.dyn_args is not None:
            self._wrapped[id(node.dyn_args)] = "context.rounds"
        super().signature(node, frame, extra_kwargs)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        # A sum of many operands becomes one call, which joins texts once.
        operands: list[nodes.Expr] = [node.right]
        first = node.left
        while isinstance(first, nodes.Add):
            operands.append(first.right)
            first = first.left
        self.write("context.add(")
        for operand in (first, *reversed(operands)):
            self.visit(operand, frame)
            self.write(", ")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        if frame.eval_ctx.volatile or frame.eval_ctx.autoescape:
            for child in node.nodes:
                self._wrapped[id(child)] = "context.meter.deep"
            self.write("context.meter.result(")
            super().visit_Concat(node, frame)
            self.write(")")
        else:
            super().visit_Concat(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        is_slice = isinstance(node.arg, nodes.Slice)
        if is_slice:
            self.write("context.meter.result(")
        elif not isinstance(node.arg, nodes.Const):
            self._wrapped[id(node.arg)] = "context.meter.deep"
        super().visit_Getitem(node, frame)
        self.write(")" if is_slice else "")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        if all(isinstance(pair.key, nodes.Const) and isinstance(pair.key.value, str) for pair in node.items):
            super().visit_Dict(node, frame)
            return
        self.write("context.mapping((")
        for pair in node.items:
            self.write("(")
            self.visit(pair.key, frame)
            self.write(", ")
            self.visit(pair.value, frame)
            self.write("), ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        operands = [node.expr, *(operand.expr for operand in node.ops)]
        is_containment = [False, *(operand.op in ("in", "notin") for operand in node.ops)]
        # In a chain such as `a == b == 1`, a constant is compared only with its neighbours.
        is_chain = len(node.ops) > 1
        if is_chain or any(is_containment) or not any(map(_is_constant, operands)):
            for operand, is_container in zip(operands, is_containment, strict=True):
                if not _is_constant(operand):
                    self._wrapped[id(operand)] = "context.inside" if is_container else "context.meter.deep"
        super().visit_Compare(node, frame)


class TracingCodeGenerator(BoundedCodeGenerator):
    """Generator of programs that append texts and marks to the context, instead of yielding text.

    Args:
        sites: Numbers of the sites of printed expressions, by the id of the node of the expression.
    """

    def __init__(self, *args: Any, sites: dict[int, int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sites = sites
        self._called: set[int] = set()
        self.fields: set[str] = set()
        """Names of the fields that the program reads directly, from values whose class is in `direct_types(name)`."""

    def write_commons(self) -> None:
        # Names that are the same in all renderings are not assigned here; see `runtime_names`.
        self.writeline("resolve = context.resolve_or_missing; texts = context.texts; mark = context.marks.append")
        self.writeline("concat = context.concat; str_join = context.join; LoopContext = context.loop")

    # Output

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        if frame.buffer is not None:
            super().visit_Output(node, frame)
            return
        texts: list[str] = []
        sites: list[int | None] = []
        for item in node.nodes:
            if isinstance(item, nodes.TemplateData):
                texts.append(repr(item.data))
                sites.append(None)
            else:
                texts.append(self._evaluated(item, frame))
                sites.append(self._sites[id(item)])
        self._write_output(texts, sites)

    def _write_output(self, texts: list[str], sites: list[int | None]) -> None:
        """Write code that appends the texts directly if all values are plain `str`, else by `context.emit`."""
        values = [text for text, site in zip(texts, sites, strict=True) if site is not None]
        if not values:
            self.writeline(f"texts += ({', '.join(texts)},); mark(({tuple(sites)!r}, ()))")
            return
        mark = f"({tuple(sites)!r}, {self._index()})"
        self.writeline(f"if {' and '.join([f'type({value}) is str' for value in values])}:")
        self.indent()
        self.writeline(f"texts += ({', '.join(texts)},); mark({mark})")
        self.outdent()
        self.writeline(f"else: context.emit({mark}, ({', '.join(texts)},))")

    def _evaluated(self, node: nodes.Expr, frame: Frame) -> str:
        """Write code that stores the value of an expression in a variable, and return the name of the variable."""
        variable = self.temporary_identifier()
        self.writeline(f"{variable} = ", node)
        is_counter = id(node) in self._counters
        self.write("str(" if is_counter else "(")
        self.visit(node, frame)
        self.write(")")
        return variable

    def _index(self) -> str:
        """Return code for a tuple of the indices of the enclosing loops."""
        return f"({''.join([f'{index}, ' for index in self._loops])})"

    def start_write(self, frame: Frame, node: nodes.Node | None = None) -> None:
        if frame.buffer is not None:
            super().start_write(frame, node)
            self.write("context.shown(")
        else:
            site = self._sites[id(node)]
            self.writeline(f"context.emit((({site},), {self._index()}), (", node)

    def end_write(self, frame: Frame) -> None:
        if frame.buffer is not None:
            self.write(")")
            super().end_write(frame)
        else:
            self.write(",))")

    # Expressions

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:
        if isinstance(node.node, nodes.Getattr):
            self._called.add(id(node.node))
        super().visit_Call(node, frame, forward_caller=forward_caller)

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:
        if id(node) in self._called:
            self.write("context.method(")
            self.visit(node.node, frame)
            self.write(f", {node.attr!r})")
            return
        name = node.attr
        if id(node) in self._counters or not name.isascii() or name in _KEYWORDS or name[:1] == "_":
            super().visit_Getattr(node, frame)
            return
        self.fields.add(name)
        variable = self.temporary_identifier()
        self.write(f"({variable}.{name} if type({variable} := ")
        self.visit(node.node, frame)
        self.write(f") in a_{name} else attribute({variable}, {name!r}))")

    def visit_Or(self, node: nodes.BinExpr, frame: Frame) -> None:
        # The left side can be undefined: `{{ depth or 1 }}` is 1 without a depth.
        self._wrapped[id(node.left)] = "default"
        super().visit_Or(node, frame)

    def visit_Assign(self, node: nodes.Assign, frame: Frame) -> None:
        for target in node.find_all(nodes.NSRef):
            self.writeline("require(", node)
            self.visit(nodes.Name(target.name, "load", lineno=node.lineno), frame)
            self.write(")")
        super().visit_Assign(node, frame)


def runtime_names(generator: TracingCodeGenerator) -> dict[str, Any]:
    """Return the values of names in the generated code that Jinja does not define, such as functions and sets of
    classes.
    """
    names = {f"a_{name}": direct_types(name) for name in generator.fields}
    # Jinja assigns `self` by calling `TemplateReference`. Prompt templates have no blocks, so `self` is a usual name.
    named_self = lambda context: context.resolve("self")  # noqa: E731
    return {
        **names,
        "attribute": attribute,
        "cond_expr_undefined": Undefined,
        "default": false_if_undefined,
        "require": require,
        "undefined": generator.environment.undefined,
        "TemplateReference": named_self,
    }
