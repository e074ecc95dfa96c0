"""Static analysis of a template: the names that it reads from the context, and the origin of each `{{ }}`.

A walk over the syntax tree follows values through `set`, `for`, `with`, macros and namespaces. The roots of a value are
the context names on which it can depend: never too few, but for example after a macro more than necessary.
"""

# ruff: noqa: N802 (the visitor calls methods by the name of the node class)

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from jinja2 import nodes

from agentkit_prompts.templates.sandbox.operations import FUNCTIONS
from agentkit_prompts.templates.sandbox.values import Site

_COUNTERS = frozenset(("depth", "depth0", "first", "index", "index0", "last", "length", "revindex", "revindex0"))
"""Fields of `loop` that do not depend on the items of the loop."""

_Path: TypeAlias = tuple[Any, ...]
"""The steps of `a.b[0]`: names, keys, positions and loop indices."""

_CELL = "\0"
"""Root that replaces the roots of all values stored in namespaces or passed to macros."""
_KWARGS = (("additional_kwargs",), ("user_input", "additional_kwargs"))
_KWARG = "additional_kwargs."
_MAPPINGS = {*_KWARGS, ("extra",)}
_LOOSE = frozenset({"d", "default", "defined", "undefined"})
"""Names of filters and tests whose value can be undefined."""
_MAX_PASSES = 10
"""Maximum number of walks. Each walk can find roots that later statements store in namespaces or macros."""


class Analysis(NamedTuple):
    """Names that a template reads, and expressions that it prints."""

    names: dict[str, int]
    """First line, by name, of the names that are read from the context."""
    required: frozenset[str]
    """Names that must be defined."""
    kwargs: dict[str, bool]
    """Names that are read from the additional kwargs; True for a required name."""
    sites: tuple[Site, ...]
    """The printed expressions, in order."""
    numbers: dict[int, int]
    """Index in `sites`, by the id of the syntax node of the expression."""


class _Loop(NamedTuple):
    """Step of a path: the index of the round of the k-th enclosing loop."""

    k: int


_NO_ROOTS: frozenset[str] = frozenset()


class _Value(NamedTuple):
    """Static description of a value: its roots, and its path in the context; None if it is not a plain path."""

    roots: frozenset[str] = _NO_ROOTS
    path: _Path | None = None


_NOTHING = _Value()


def analyse(tree: nodes.Template, first_line: int) -> Analysis:
    """Return the names and sites of a template; the walk is repeated until no new roots are found."""
    walk = _Walk(first_line)
    for _ in range(_MAX_PASSES):
        before = walk.state()
        walk.start()
        walk.body(tree.body)
        if walk.state() == before or not walk.has_cells:
            break
    return walk.result()


class _Walk:
    """Walk over a syntax tree. `stored`, `bound` and `arguments` collect roots over all walks."""

    def __init__(self, first_line: int) -> None:
        self.shift = first_line - 1
        self.stored: set[str] = set()
        self.bound: dict[str, set[str]] = {}
        self.arguments: set[str] = set()
        self.has_cells = False
        self.start()

    def start(self) -> None:
        self.scope: dict[str, _Value] = {}
        self.loops = 0
        self.names: dict[str, int] = {}
        self.required: set[str] = set()
        self.kwargs: dict[str, bool] = {}
        self.printed_values: list[tuple[nodes.Node, _Value]] = []
        self.buffer: set[str] | None = None
        self.defined = _NO_ROOTS
        """Names that enclosing tests prove to be defined; of additional kwargs, as `additional_kwargs.NAME`."""
        self.in_macro = False
        self.is_deferred = False
        """True in the body of a macro, which runs at its call: names can get other values before."""

    def state(self) -> tuple[Any, ...]:
        return (len(self.stored), len(self.arguments), sum(map(len, self.bound.values())), len(self.bound))

    def result(self) -> Analysis:
        sites: list[Site] = []
        numbers: dict[int, int] = {}
        for node, value in self.printed_values:
            roots = value.roots
            if _CELL in roots:
                roots = (roots | self.stored) - {_CELL}
            numbers[id(node)] = len(sites)
            pointer = ""
            if value.path is not None:
                pointer = _pointer(value.path)
            sites.append(Site(node.lineno + self.shift, pointer, tuple(sorted(roots))))
        return Analysis(self.names, frozenset(self.required), self.kwargs, tuple(sites), numbers)

    # scopes

    @contextmanager
    def with_state(self, **state: Any) -> Iterator[None]:
        """Set attributes of the walk in the context, and restore their values after it."""
        outer = {name: getattr(self, name) for name in state}
        vars(self).update(state)
        try:
            yield
        finally:
            vars(self).update(outer)

    def inner_scope(self) -> AbstractContextManager[None]:
        return self.with_state(scope=dict(self.scope))

    def with_defined(self, names: frozenset[str]) -> AbstractContextManager[None]:
        return self.with_state(defined=self.defined | names)

    def lookup(self, name: str, line: int, is_optional: bool = False) -> _Value:
        """Return the value of a name, and record the name if it is read from the context.

        `is_optional` is True if the name is not required to be defined.
        """
        value = self.scope.get(name)
        if value is not None:
            if self.is_deferred:
                return _Value(value.roots | self.bound.get(name, set()))
            return value
        line += self.shift
        self.names[name] = min(line, self.names.get(name, line))
        if not is_optional and name not in self.defined and name not in FUNCTIONS:
            self.required.add(name)
        if self.is_deferred and name in self.bound:
            return _Value(frozenset({name, *self.bound[name]}))
        return _Value(frozenset({name}), (name,))

    def bind(self, name: str, value: _Value) -> None:
        self.scope[name] = value
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

    def site(self, node: nodes.Node, value: _Value) -> None:
        if self.buffer is not None:
            self.buffer |= value.roots
        else:
            self.printed_values.append((node, value))

    def visit_Output(self, node: nodes.Output) -> None:
        for item in node.nodes:
            if not isinstance(item, nodes.TemplateData):
                self.site(item, self.value(item))

    def visit_Assign(self, node: nodes.Assign) -> None:
        self.assign(node.target, self.value(node.node))

    def printed(self, body: Iterable[nodes.Node], chain: nodes.Filter | None = None, **state: Any) -> _Value:
        """Return the value of the text that a block prints, after a chain of filters if any."""
        roots: set[str] = set()
        with self.with_state(scope=dict(self.scope), buffer=roots, **state):
            self.body(body)
            if chain is not None:
                roots |= self.value(chain).roots
        return _Value(frozenset(roots))

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> None:
        self.assign(node.target, self.printed(node.body, node.filter))

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> None:
        self.site(node, self.printed(node.body, node.filter))

    def visit_If(self, node: nodes.If) -> None:
        before = self.scope
        branches: list[dict[str, _Value]] = []
        passed = _NO_ROOTS
        for branch in (node, *node.elif_):
            with self.with_defined(passed):
                self.value(branch.test)
                branches.append(self.branch(before, branch.body, self.proven_names(branch.test, True)))
            passed |= self.proven_names(branch.test, False)
        branches.append(self.branch(before, node.else_, passed))
        self.scope = dict(before)
        for name in {name: None for branch in branches for name in branch}:
            self.scope[name] = self.merged(name, branches, node.lineno)

    def branch(
        self, scope: dict[str, _Value], statements: Iterable[nodes.Node], defined: frozenset[str]
    ) -> dict[str, _Value]:
        """Return the scope after the statements of one branch of `if`."""
        self.scope = dict(scope)
        with self.with_defined(defined):
            self.body(statements)
        return self.scope

    def merged(self, name: str, branches: list[dict[str, _Value]], line: int) -> _Value:
        """Return the value of a name after `if`, with the roots of its values in all branches."""
        values = [branch[name] if name in branch else self.lookup(name, line) for branch in branches]
        if all(value == values[0] for value in values):
            return values[0]
        return _Value(_NO_ROOTS.union(*(value.roots for value in values)))

    def visit_For(self, node: nodes.For) -> None:
        source = self.value(node.iter)
        path = source.path
        if path is not None:
            plain = path not in _MAPPINGS and not node.recursive and self.buffer is None
            path = (*path, _Loop(self.loops)) if plain else None
        item = _Value(source.roots, path)
        with self.inner_scope():
            self.assign(node.target, item)
            defined = _NO_ROOTS
            if node.test is not None:
                self.value(node.test)
                defined = self.proven_names(node.test, True)
            self.bind("loop", _Value(source.roots))
            with self.with_state(loops=self.loops + 1, defined=self.defined | defined):
                if node.recursive:
                    self.site(node, _Value(source.roots | self.printed(node.body, in_macro=True).roots))
                else:
                    self.body(node.body)
        with self.inner_scope():
            self.body(node.else_)

    def visit_With(self, node: nodes.With) -> None:
        values = [self.value(item) for item in node.values]
        with self.inner_scope():
            for target, value in zip(node.targets, values, strict=True):
                self.assign(target, value)
            self.body(node.body)

    def macro(self, node: nodes.Macro | nodes.CallBlock) -> frozenset[str]:
        roots: set[str] = set()
        with self.with_state(in_macro=True, is_deferred=True, scope=dict(self.scope), buffer=roots):
            roots |= self.roots(node.defaults)
            for name in ("caller", "kwargs", "varargs", *(argument.name for argument in node.args)):
                self.scope[name] = _Value(frozenset({_CELL}))
            self.body(node.body)
        return frozenset(roots)

    def visit_Macro(self, node: nodes.Macro) -> None:
        self.has_cells = True
        self.bind(node.name, _Value(frozenset(self.bound.get(node.name, set()))))
        self.bind(node.name, _Value(self.macro(node) | self.bound[node.name]))

    def visit_CallBlock(self, node: nodes.CallBlock) -> None:
        self.has_cells = True
        body = self.macro(node)
        self.arguments |= body
        self.site(node, _Value(self.value(node.call).roots | body))

    def visit_ExprStmt(self, node: nodes.ExprStmt) -> None:
        self.value(node.node)

    # expressions

    def value(self, node: nodes.Node, is_optional: bool = False) -> _Value:
        """Return the value of an expression; `is_optional` is True if the value is not required to be defined."""
        match node:
            case nodes.Name():
                return self.lookup(node.name, node.lineno, is_optional)
            case nodes.Getattr() | nodes.Getitem():
                return self.attribute_or_item(node, is_optional)
            case nodes.Filter() | nodes.Test():
                value = _NOTHING
                if node.node is not None:
                    value = self.value(node.node, node.name in _LOOSE)
                return _Value(value.roots | self.argument_roots(node))
            case nodes.Call():
                return self.call(node)
            case nodes.And() | nodes.Or():
                return self.and_or(node, is_optional)
            case nodes.CondExpr():
                return self.conditional(node)
            case _:
                return _Value(self.roots(node.iter_child_nodes()))

    def attribute_or_item(self, node: nodes.Getattr | nodes.Getitem, is_optional: bool) -> _Value:
        """Return the value of `a.b` or `a[b]`."""
        if isinstance(node, nodes.Getattr):
            if isinstance(node.node, nodes.Name) and node.node.name == "loop" and node.attr in _COUNTERS:
                self.lookup("loop", node.lineno)
                return _NOTHING
            return self.step(self.value(node.node), node.attr, is_optional)
        source = self.value(node.node)
        if isinstance(node.arg, nodes.Const) and type(node.arg.value) in (str, int):
            return self.step(source, node.arg.value, is_optional)
        return _Value(source.roots | self.value(node.arg).roots)

    def and_or(self, node: nodes.And | nodes.Or, is_optional: bool) -> _Value:
        # The left side of `or` can be undefined.
        is_or = isinstance(node, nodes.Or)
        roots = self.value(node.left, is_or).roots
        with self.with_defined(self.proven_names(node.left, not is_or)):
            return _Value(roots | self.value(node.right, is_or and is_optional).roots)

    def conditional(self, node: nodes.CondExpr) -> _Value:
        self.value(node.test)
        with self.with_defined(self.proven_names(node.test, True)):
            roots = self.value(node.expr1).roots
        if node.expr2 is not None:
            with self.with_defined(self.proven_names(node.test, False)):
                roots |= self.value(node.expr2).roots
        return _Value(roots)

    def roots(self, expressions: Iterable[nodes.Node | None]) -> frozenset[str]:
        return _NO_ROOTS.union(*(self.value(item).roots for item in expressions if item is not None))

    def defined_name(self, test: nodes.Test) -> frozenset[str]:
        """Return the name, or the additional kwarg, that a test such as `x is defined` tests; else nothing."""
        path = self.value(test.node, is_optional=True).path
        if path is not None and len(path) == 1:
            return frozenset(path)
        return _kwarg(path)

    def proven_names(self, test: nodes.Node, outcome: bool) -> frozenset[str]:
        """Return the names that are certainly defined if a test has this outcome."""
        match test:
            case nodes.Test() if test.name == ("defined" if outcome else "undefined"):
                return self.defined_name(test)
            case nodes.Not():
                return self.proven_names(test.node, not outcome)
            case nodes.And() | nodes.Or() if isinstance(test, nodes.And) is outcome:
                return self.proven_names(test.left, outcome) | self.proven_names(test.right, outcome)
            case nodes.Compare() if len(test.ops) == 1 and test.ops[0].op == ("in" if outcome else "notin"):
                return self.proven_kwarg(test.ops[0].expr, test.expr)
            case nodes.Call(node=nodes.Getattr(attr="get") as method) if outcome and test.args:
                return self.proven_kwarg(method.node, test.args[0])
        return _NO_ROOTS

    def proven_kwarg(self, holder: nodes.Node, key: nodes.Node) -> frozenset[str]:
        path = self.value(holder, is_optional=True).path
        if path is not None and isinstance(key, nodes.Const):
            return _kwarg((*path, key.value))
        return _NO_ROOTS

    def step(self, source: _Value, key: str | int, is_optional: bool) -> _Value:
        if source.path is None:
            return _Value(source.roots)
        path = (*source.path, key)
        for name in _kwarg(path):
            self.kwarg(name.removeprefix(_KWARG), not is_optional)
        return _Value(source.roots, path)

    def kwarg(self, name: str, required: bool) -> None:
        required = required and _KWARG + name not in self.defined
        self.kwargs[name] = self.kwargs.get(name, False) or required

    def argument_roots(self, node: nodes.Filter | nodes.Test | nodes.Call) -> frozenset[str]:
        return self.roots([*node.args, *[pair.value for pair in node.kwargs], node.dyn_args, node.dyn_kwargs])

    def call(self, node: nodes.Call) -> _Value:
        roots = self.argument_roots(node)
        if isinstance(node.node, nodes.Getattr):
            return _Value(roots | self.method(node, node.node))
        self.arguments |= roots
        if not self.is_function(node.node):
            return _Value(roots | self.value(node.node).roots)
        if node.node.name != "namespace":
            return _Value(roots)
        self.has_cells = True
        return _Value(roots | {_CELL})

    def method(self, node: nodes.Call, method: nodes.Getattr) -> frozenset[str]:
        """Return the roots of the owner of a method, and record the optional name of `additional_kwargs.get(NAME)`."""
        if self.is_function(method.node):
            return _NO_ROOTS
        owner = self.value(method.node)
        if method.attr == "get" and owner.path in _KWARGS and node.args and isinstance(node.args[0], nodes.Const):
            key = node.args[0].value
            if isinstance(key, str):
                self.kwarg(key, False)
        return owner.roots

    def is_function(self, node: nodes.Node) -> TypeGuard[nodes.Name]:
        """True if the node is the name of a function of templates, and no variable has this name."""
        return isinstance(node, nodes.Name) and node.name in FUNCTIONS and node.name not in self.scope


def _pointer(path: _Path) -> str:
    pointer = ""
    for step in path:
        if isinstance(step, _Loop):
            pointer += f"[{{{step.k}}}]"
        elif isinstance(step, int):
            pointer += f"[{step}]"
        elif step.isidentifier():
            pointer += f".{step}" if pointer else step
        else:
            pointer += f"[{step!r}]".replace("{", "{{").replace("}", "}}")
    return pointer


def _kwarg(path: _Path | None) -> frozenset[str]:
    """Return `additional_kwargs.NAME` in a set if the path leads to an additional kwarg; else an empty set."""
    if path is None or path[:-1] not in _KWARGS or not isinstance(path[-1], str):
        return _NO_ROOTS
    return frozenset({_KWARG + path[-1]})
