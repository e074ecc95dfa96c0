"""What can be told about a template before it runs: what it reads from outside, and what each `{{ }}` is made of.

One walk over the syntax tree follows values through `set`, `for`, `with`, macros and namespaces. It may say that a
site reads more than it does, never less.
"""

# ruff: noqa: N802 (the visitor calls methods by the name of the node class)

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jinja2 import nodes

from agentkit_prompts.templates.engine.guards import KWARGS, Guard, Path, guards, kwarg_name
from agentkit_prompts.templates.engine.objects import GLOBALS
from agentkit_prompts.templates.engine.unparse import unparse

__all__ = ["Analysis", "Site", "analyse"]

_CELL = "\0"
"""Stands among roots for whatever is ever stored in a namespace."""
_MAPPINGS = {*KWARGS, ("extra",)}
_COUNTERS = frozenset({"depth", "depth0", "first", "index", "index0", "last", "length", "revindex", "revindex0"})
_MOST_PASSES = 10


class Site(NamedTuple):
    """One `{{ }}` of a template."""

    line: int
    """Line in the file, counted from 1."""
    expression: str
    """Short source-like text of the expression."""
    pointer: str
    """Where in the context the value lives, such as `documents[{0}].text`; `{k}` is the k-th loop index of a piece.
    Empty when the expression is more than a path."""
    roots: tuple[str, ...]
    """Outside names the value may depend on, sorted."""

    @property
    def nested(self) -> bool:
        """Whether the value can only come from rendered prompts passed in."""
        return self.roots == ("wrapped_str",)


class Analysis(NamedTuple):
    """What one template reads and prints."""

    names: dict[str, int]
    guarded: frozenset[str]
    kwargs: dict[str, bool]
    sites: tuple[Site, ...]
    numbers: dict[int, int]
    """id of a syntax node -> number of its site."""


class _Loop(NamedTuple):
    """A step of a path that is the index of the k-th loop."""

    k: int


_NONE: frozenset[str] = frozenset()


class _Value(NamedTuple):
    roots: frozenset[str] = _NONE
    path: Path | None = None


_NOTHING = _Value()


class _Scope:
    __slots__ = ("late", "names", "parent")
    late: bool

    def __init__(self, parent: _Scope | None, late: bool = False) -> None:
        self.names: dict[str, _Value] = {}
        self.parent = parent
        self.late = late or (parent is not None and parent.late)


def analyse(tree: nodes.Template, first_line: int) -> Analysis:
    """Follow the values of a template."""
    walk = _Walk(first_line)
    for _ in range(_MOST_PASSES):
        before = walk.state()
        walk.start()
        walk.body(tree.body)
        if walk.state() == before or not walk.has_cells:
            break
    return walk.result()


class _Walk:
    def __init__(self, first_line: int) -> None:
        self.shift = first_line - 1
        self.stored: set[str] = set()
        self.bound: dict[str, set[str]] = {}
        self.arguments: set[str] = set()
        self.has_cells = False
        self.start()

    def start(self) -> None:
        self.scope = _Scope(None)
        self.loops = 0
        self.names: dict[str, int] = {}
        self.needed: set[str] = set()
        self.kwargs: dict[str, bool] = {}
        self.found: list[tuple[nodes.Node, str, _Value]] = []
        self.buffer: set[str] | None = None
        self.guards: frozenset[Guard] = frozenset()
        self.in_macro = False

    def state(self) -> tuple[Any, ...]:
        return (len(self.stored), len(self.arguments), sum(map(len, self.bound.values())), len(self.bound))

    def result(self) -> Analysis:
        sites: list[Site] = []
        numbers: dict[int, int] = {}
        for node, label, value in self.found:
            roots = value.roots
            if _CELL in roots:
                roots = (roots | self.stored) - {_CELL}
            numbers[id(node)] = len(sites)
            pointer = _pointer(value.path) if value.path is not None else ""
            sites.append(Site(node.lineno + self.shift, label, pointer, tuple(sorted(roots))))
        return Analysis(self.names, frozenset(self.names) - self.needed, self.kwargs, tuple(sites), numbers)

    # scopes

    @contextmanager
    def inner(self, *, late: bool = False) -> Iterator[_Scope]:
        outer = self.scope
        self.scope = _Scope(outer, late)
        try:
            yield self.scope
        finally:
            self.scope = outer

    @contextmanager
    def buffered(self) -> Iterator[set[str]]:
        outer, self.buffer = self.buffer, set()
        try:
            yield self.buffer
        finally:
            self.buffer = outer

    @contextmanager
    def guarding(self, keys: Iterable[Guard]) -> Iterator[None]:
        outer = self.guards
        self.guards = outer | frozenset(keys)
        try:
            yield
        finally:
            self.guards = outer

    def lookup(self, name: str, line: int, guarded: bool = False) -> _Value:
        scope: _Scope | None = self.scope
        late = self.scope.late
        while scope is not None:
            if name in scope.names:
                value = scope.names[name]
                return _Value(value.roots | self.bound.get(name, set())) if late else value
            scope = scope.parent
        if name in GLOBALS:
            if name == "namespace":
                self.has_cells = True
                return _Value(frozenset({_CELL}))
            return _NOTHING
        line += self.shift
        self.names[name] = min(line, self.names.get(name, line))
        if not guarded and ("name", name) not in self.guards:
            self.needed.add(name)
        if late and name in self.bound:
            return _Value(frozenset({name, *self.bound[name]}))
        return _Value(frozenset({name}), (name,))

    def bind(self, name: str, value: _Value) -> None:
        self.scope.names[name] = value
        self.bound.setdefault(name, set()).update(value.roots)

    def assign(self, target: nodes.Node, value: _Value) -> None:
        if isinstance(target, nodes.Name):
            self.bind(target.name, value)
        elif isinstance(target, nodes.NSRef):
            self.has_cells = True
            self.lookup(target.name, target.lineno)
            self.stored |= value.roots - {_CELL}
            if self.in_macro:
                self.stored |= self.arguments - {_CELL}
        else:
            for item in target.iter_child_nodes():
                self.assign(item, _Value(value.roots))

    # statements

    def body(self, statements: Iterable[nodes.Node]) -> None:
        for node in statements:
            getattr(self, f"visit_{type(node).__name__}")(node)

    def site(self, node: nodes.Node, label: str, value: _Value) -> None:
        if self.buffer is not None:
            self.buffer |= value.roots
        else:
            self.found.append((node, label, value))

    def visit_Output(self, node: nodes.Output) -> None:
        for item in node.nodes:
            if not isinstance(item, nodes.TemplateData):
                self.site(item, unparse(item), self.value(item))

    def visit_Assign(self, node: nodes.Assign) -> None:
        self.assign(node.target, self.value(node.node))

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> None:
        with self.inner(), self.buffered() as roots:
            self.body(node.body)
            if node.filter is not None:
                roots |= self.value(node.filter).roots
        self.assign(node.target, _Value(frozenset(roots)))

    def visit_If(self, node: nodes.If) -> None:
        branches: list[dict[str, _Value]] = []
        before = self.scope.names
        passed: frozenset[Guard] = frozenset()
        for test, statements in [(node.test, node.body), *[(one.test, one.body) for one in node.elif_]]:
            with self.guarding(passed):
                self.value(test)
                self.scope.names = dict(before)
                with self.guarding(guards(test, True, self.path)):
                    self.body(statements)
            branches.append(self.scope.names)
            passed |= guards(test, False, self.path)
        self.scope.names = dict(before)
        with self.guarding(passed):
            self.body(node.else_)
        branches.append(self.scope.names)
        self.scope.names = dict(before)
        for name in {name: None for branch in branches for name in branch}:
            values = [branch[name] if name in branch else self.lookup(name, node.lineno, True) for branch in branches]
            first = values[0]
            if any(value != first for value in values):
                first = _Value(frozenset().union(*(value.roots for value in values)))
            self.scope.names[name] = first

    def visit_For(self, node: nodes.For) -> None:
        source = self.value(node.iter)
        recursive = bool(node.recursive)
        path = source.path
        if path is not None:
            path = None if path in _MAPPINGS or recursive or self.buffer is not None else (*path, _Loop(self.loops))
        item = _Value(source.roots, path)
        with self.inner():
            self.assign(node.target, item)
            held: frozenset[Guard] = frozenset()
            if node.test is not None:
                self.value(node.test)
                held = guards(node.test, True, self.path)
            self.bind("loop", _Value(source.roots))
            self.loops += 1
            with self.guarding(held):
                if recursive:
                    self.recursive(node, source)
                else:
                    self.body(node.body)
            self.loops -= 1
        with self.inner():
            self.body(node.else_)

    def recursive(self, node: nodes.For, source: _Value) -> None:
        outer = self.in_macro
        self.in_macro = True
        with self.buffered() as roots:
            self.body(node.body)
        self.in_macro = outer
        self.site(node, f"for ... in {unparse(node.iter)} recursive", _Value(source.roots | roots))

    def visit_With(self, node: nodes.With) -> None:
        values = [self.value(item) for item in node.values]
        with self.inner():
            for target, value in zip(node.targets, values, strict=True):
                self.assign(target, value)
            self.body(node.body)

    def macro(self, node: nodes.Macro | nodes.CallBlock) -> frozenset[str]:
        outer, self.in_macro = self.in_macro, True
        with self.inner(late=True), self.buffered() as roots:
            for item in node.defaults:
                roots |= self.value(item).roots
            for argument in node.args:
                self.scope.names[argument.name] = _Value(frozenset({_CELL}))
            for name in ("caller", "kwargs", "varargs"):
                self.scope.names.setdefault(name, _Value(frozenset({_CELL})))
            self.body(node.body)
        self.in_macro = outer
        return frozenset(roots)

    def visit_Macro(self, node: nodes.Macro) -> None:
        self.has_cells = True
        self.bind(node.name, _Value(frozenset(self.bound.get(node.name, set()))))
        self.bind(node.name, _Value(self.macro(node) | self.bound[node.name]))

    def visit_CallBlock(self, node: nodes.CallBlock) -> None:
        self.has_cells = True
        body = self.macro(node)
        self.arguments |= body
        self.site(node, unparse(node.call), _Value(self.value(node.call).roots | body))

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> None:
        with self.inner(), self.buffered() as roots:
            self.body(node.body)
            roots |= self.value(node.filter).roots
        self.site(node, f"filter {node.filter.name}", _Value(frozenset(roots)))

    def visit_ExprStmt(self, node: nodes.ExprStmt) -> None:
        self.value(node.node)

    # expressions

    def value(self, node: nodes.Node, guarded: bool = False) -> _Value:
        """Return what an expression reads; `guarded` when it may be undefined where it stands."""
        match node:
            case nodes.Name():
                return self.lookup(node.name, node.lineno, guarded)
            case nodes.Getattr():
                if isinstance(node.node, nodes.Name) and node.node.name == "loop" and node.attr in _COUNTERS:
                    self.lookup("loop", node.lineno)
                    return _NOTHING
                return self.step(self.value(node.node), node.attr, guarded)
            case nodes.Getitem():
                source = self.value(node.node)
                if isinstance(node.arg, nodes.Const) and type(node.arg.value) in (str, int):
                    return self.step(source, node.arg.value, guarded)
                return _Value(source.roots | self.value(node.arg).roots)
            case nodes.Filter() | nodes.Test():
                loose = node.name in ("default", "d", "defined", "undefined")
                roots = self.value(node.node, loose).roots if node.node is not None else _NONE
                return _Value(roots | self.given(node))
            case nodes.Call():
                return self.call(node)
            case nodes.And() | nodes.Or():
                left = self.value(node.left).roots
                with self.guarding(guards(node.left, isinstance(node, nodes.And), self.path)):
                    return _Value(left | self.value(node.right).roots)
            case nodes.CondExpr():
                roots = self.value(node.test).roots
                with self.guarding(guards(node.test, True, self.path)):
                    roots = self.value(node.expr1).roots
                if node.expr2 is not None:
                    with self.guarding(guards(node.test, False, self.path)):
                        roots |= self.value(node.expr2).roots
                return _Value(roots)
            case _:
                roots = _NONE
                for item in node.iter_child_nodes():
                    roots |= self.value(item).roots
                return _Value(roots)

    def path(self, node: nodes.Node) -> Path | None:
        """Return the path of an expression that is asked about, not used."""
        return self.value(node, guarded=True).path

    def step(self, source: _Value, key: str | int, guarded: bool) -> _Value:
        if source.path is None:
            return _Value(source.roots)
        path = (*source.path, key)
        name = kwarg_name(path)
        if name is not None:
            self.kwarg(name, not guarded)
        return _Value(source.roots, path)

    def kwarg(self, name: str, required: bool) -> None:
        self.kwargs[name] = self.kwargs.get(name, False) or (required and ("kwarg", name) not in self.guards)

    def given(self, node: nodes.Filter | nodes.Test | nodes.Call) -> frozenset[str]:
        roots = _NONE
        for item in [*node.args, *[pair.value for pair in node.kwargs], node.dyn_args, node.dyn_kwargs]:
            if item is not None:
                roots |= self.value(item).roots
        return roots

    def call(self, node: nodes.Call) -> _Value:
        roots = self.given(node)
        if isinstance(node.node, nodes.Getattr):
            source = self.value(node.node.node)
            if node.node.attr == "get" and source.path in KWARGS:
                key = node.args[0].value if node.args and isinstance(node.args[0], nodes.Const) else None
                if isinstance(key, str):
                    self.kwarg(key, False)
            return _Value(roots | source.roots)
        self.arguments |= roots
        return _Value(roots | self.value(node.node).roots)


def _pointer(path: Path) -> str:
    made = ""
    for step in path:
        if isinstance(step, _Loop):
            made += f"[{{{step.k}}}]"
        elif isinstance(step, int):
            made += f"[{step}]"
        elif step.isidentifier():
            made += f".{step}" if made else step
        else:
            made += f"[{step!r}]".replace("{", "{{").replace("}", "}}")
    return made
