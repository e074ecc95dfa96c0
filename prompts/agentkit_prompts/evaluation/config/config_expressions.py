"""The expressions of a configuration's code: those that shipped configurations use.

Each value and each item of a new container costs a step, so the time to read a configuration is proportional to the
size of its code and its values.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.config.config_scope import Function, Imported, Scope, Unread
from agentkit_prompts.evaluation.config.config_sizes import Unreadable, bounded, is_scalar, key
from agentkit_prompts.evaluation.config.config_values import (
    COMPARISONS,
    FUNCTIONS,
    IMPORTED,
    METHODS,
    OPERATORS,
    TYPES,
    items_of,
    text_of,
)
from agentkit_prompts.limits import MAX_SHOWN_CHARS, MAX_SOURCE_CHARS, MAX_VALUES

__all__ = ["Continue", "ExpressionReader", "Return"]

_MAX_STEPS = 2 * MAX_VALUES
_CHARS_PER_STEP = 64
_BUILTIN = "builtins."
_FUNCTIONS = {**IMPORTED, **{f"{_BUILTIN}{name}": function for name, function in FUNCTIONS.items()}}
_LOOKUPS = frozenset(("append", "get", "setdefault"))
"""Methods that make no new container."""
EXPORT = "export the configuration, mmengine.Config.fromfile(FILE).dump(NEW_FILE), and load the new file"


class Return(Exception):
    """A `return` statement, with its value."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Continue(Exception):
    """A `continue` statement."""


class ExpressionReader(ast.NodeVisitor):
    """Computes the values of expressions, within limits that all files of a configuration share."""

    def __init__(self) -> None:
        self.scope: Scope = ChainMap()
        self._steps = 0

    def visit(self, node: ast.AST) -> Any:
        """Run a statement, or return the value of an expression."""
        self.charge(1)
        return super().visit(node)

    def generic_visit(self, node: ast.AST) -> NoReturn:
        """Refuse a construct that no shipped configuration uses."""
        self.refuse(type(node).__name__)

    def refuse(self, construct: str) -> NoReturn:
        raise Unreadable(f"the construct {construct} is not supported; {EXPORT}", construct)

    def charge(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            text = f"the configuration takes more than {_MAX_STEPS:,} steps to read; {EXPORT}"
            raise InContextError(text, value=_MAX_STEPS)

    def new(self, value: Any) -> Any:
        """Charge for a new value, and return it if it is not too large."""
        bounded(value)
        if isinstance(value, str):
            self.charge(len(value) // _CHARS_PER_STEP)
        elif isinstance(value, list | tuple | dict | set):
            self.charge(len(value))
        return value

    def run_block(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.scope[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                values = items_of(value)
                if len(values) != len(targets):
                    raise Unreadable(f"{len(values)} values for {len(targets)} names")
                for one, item in zip(targets, values, strict=True):
                    self.assign(one, item)
            case ast.Subscript():
                container = self.visit(target.value)
                if not isinstance(container, list | dict):
                    raise Unreadable(f"an item of a {type(container).__name__} cannot be set")
                container[key(self.visit(target.slice))] = value
                bounded(container)
            case _:
                self.refuse(f"assignment to {type(target).__name__}")

    def visit_Constant(self, node: ast.Constant) -> Any:
        if not is_scalar(node.value):
            self.refuse(f"Constant {type(node.value).__name__}")
        return bounded(node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        return self._variable(node.id, self.scope)

    def _variable(self, name: str, scope: Mapping[str, Any]) -> Any:
        if name not in scope:
            if name in FUNCTIONS or name in TYPES:
                return Imported(f"{_BUILTIN}{name}")
            raise Unreadable(f"the name {name!r} is not defined", name)
        value = scope[name]
        if isinstance(value, Unread):
            raise Unreadable(f"{name!r}, which could not be read ({value.reason})", name)
        return value

    def visit_List(self, node: ast.List) -> list[Any]:
        return self._items(node.elts)

    def visit_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._items(node.elts))

    def _items(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                values += self.iterate(node.value)
            else:
                values.append(self.visit(node))
        return bounded(values)  # type: ignore[no-any-return]

    def visit_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for name, value in zip(node.keys, node.values, strict=True):
            if name is None:
                self.refuse("Dict with **")
            values[key(self.visit(name))] = self.visit(value)
        return values

    def visit_JoinedStr(self, node: ast.JoinedStr) -> str:
        parts: list[str] = []
        size = 0
        for value in node.values:
            parts.append(self.visit(value))
            size += len(parts[-1])
            if size > MAX_SOURCE_CHARS:
                raise Unreadable(f"an f-string of more than {MAX_SOURCE_CHARS:,} characters")
        return str(self.new("".join(parts)))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> str:
        if node.format_spec is not None or node.conversion != -1:
            self.refuse("FormattedValue with a format or conversion")
        return text_of(self.visit(node.value))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.operate(node.op, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self.operate(node.op, self.visit(node.operand))

    def operate(self, operator: ast.AST, *operands: Any) -> Any:
        function = OPERATORS.get(type(operator))
        if function is None:
            self.refuse(type(operator).__name__)
        return self.new(function(*operands))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        is_or = isinstance(node.op, ast.Or)
        value: Any = None
        for operand in node.values:
            value = self.visit(operand)
            if bool(value) is is_or:
                break
        return value

    def visit_Compare(self, node: ast.Compare) -> bool:
        left = self.visit(node.left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.visit(comparator)
            self._check_comparison(operator, left, right)
            if not COMPARISONS[type(operator)](left, right):
                return False
            left = right
        return True

    def _check_comparison(self, operator: ast.cmpop, left: Any, right: Any) -> None:
        # Identity costs nothing, whatever the values are.
        if isinstance(operator, ast.Is | ast.IsNot):
            return
        items = 1
        if isinstance(operator, ast.In | ast.NotIn):
            items = _compared_items(left, right)
        elif not is_scalar(right):
            raise Unreadable(f"comparing with a {type(right).__name__}")
        if not is_scalar(left):
            raise Unreadable(f"comparing a {type(left).__name__}")
        # Each item of the right side may be compared with all characters of the left one.
        steps = 1
        if isinstance(left, str):
            steps += len(left) // _CHARS_PER_STEP
        self.charge(steps * items)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if self.visit(node.test):
            return self.visit(node.body)
        return self.visit(node.orelse)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if _is_call(node.value, "globals"):
            # `globals()[name]` in a loop would otherwise copy all variables each time.
            return self._variable(text_of(self.visit(node.slice)), self.scope.maps[-1])
        container = self.visit(node.value)
        if isinstance(node.slice, ast.Slice):
            bounds = [None if bound is None else self.visit(bound) for bound in _bounds(node.slice)]
            return self.new(container[slice(*bounds)])
        return container[key(self.visit(node.slice))]

    def visit_Attribute(self, node: ast.Attribute) -> Imported:
        value = self.visit(node.value)
        if not isinstance(value, Imported):
            raise Unreadable(f"the attribute {node.attr!r} of a {type(value).__name__}", node.attr)
        return Imported(f"{value}.{node.attr}")

    def visit_ListComp(self, node: ast.ListComp) -> list[Any]:
        return [self.visit(node.elt) for _ in self._comprehend(node.generators)]

    # A generator is used once in configurations, as an argument, so a list has the same effect.
    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> list[Any]:
        return [self.visit(node.elt) for _ in self._comprehend(node.generators)]

    def visit_DictComp(self, node: ast.DictComp) -> dict[Any, Any]:
        return {key(self.visit(node.key)): self.visit(node.value) for _ in self._comprehend(node.generators)}

    def _comprehend(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Yield for each round of a comprehension, with its variables in the scope."""
        first, *rest = generators
        # Each round has its own scope, so that the variables of a comprehension stay inside it.
        outer = self.scope
        for value in self.iterate(first.iter):
            self.scope = outer.new_child()
            self.assign(first.target, value)
            if all(self.visit(test) for test in first.ifs):
                if rest:
                    yield from self._comprehend(rest)
                else:
                    yield
            self.scope = outer
        self.scope = outer

    def iterate(self, node: ast.expr) -> Iterator[Any]:
        for value in items_of(self.visit(node)):
            self.charge(1)
            yield value

    # Calls

    def visit_Call(self, node: ast.Call) -> Any:
        args = self._items(node.args)
        kwargs = self._keywords(node.keywords)
        if isinstance(node.func, ast.Attribute):
            value = self.visit(node.func.value)
            if not isinstance(value, Imported):
                return self._call_method(value, node.func.attr, args, kwargs)
            return self._call_imported(Imported(f"{value}.{node.func.attr}"), args, kwargs)
        # These three read the scope or a type, so no function of their arguments alone can compute them.
        if _is_call(node, "locals"):
            return self._variables(self.scope.maps[0])
        if _is_call(node, "globals"):
            return self._variables(self.scope.maps[-1])
        if _is_call(node, "isinstance"):
            return _is_instance(*args)
        function = self.visit(node.func)
        if isinstance(function, Function):
            return self._call_function(function, args, kwargs)
        return self._call_imported(function, args, kwargs)

    def _variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in self.new(variables).items() if not isinstance(value, Function)}

    def _keywords(self, nodes: list[ast.keyword]) -> dict[str, Any]:
        kwargs: dict[str, Any] = {}
        for node in nodes:
            value = self.visit(node.value)
            if node.arg is None:
                kwargs.update(value)
            else:
                kwargs[node.arg] = value
        return kwargs

    def _call_method(self, value: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        kind = type(value)
        if isinstance(value, str):
            kind = str  # an imported name is a text, too
        methods = METHODS.get(kind, {})
        if name not in methods:
            raise Unreadable(f"the method {name!r} of a {type(value).__name__} is not supported; {EXPORT}", name)
        result = methods[name](value, *args, **kwargs)
        # These return or extend a container that was paid for: charging for it again would make loops quadratic.
        if name in _LOOKUPS:
            bounded(value)
            return result
        if name == "extend":
            self.charge(len(args[0]))
        return self.new(result)

    def _call_imported(self, name: object, args: list[Any], kwargs: dict[str, Any]) -> Any:
        function = None
        if isinstance(name, Imported):
            function = _FUNCTIONS.get(name)
        if function is None:
            shown = type(name).__name__
            if isinstance(name, str):
                shown = str(name)[:MAX_SHOWN_CHARS]
            raise Unreadable(f"calling {shown!r}: nothing that is imported is run; {EXPORT}", shown)
        for argument in args:
            if isinstance(argument, list | tuple | dict | set):
                self.charge(len(argument))
        return self.new(function(*args, **kwargs))

    def _call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        parameters = function.node.args
        names = [parameter.arg for parameter in parameters.args]
        if len(args) > len(names) or not kwargs.keys() <= set(names[len(args) :]):
            raise Unreadable(f"{function.node.name}() is called with other arguments than it has", function.node.name)
        outer, self.scope = self.scope, function.scope
        try:
            # Defaults are computed at each call and not once: none of them can have an effect.
            defaults = [self.visit(default) for default in parameters.defaults]
            values = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
            values.update(zip(names, args, strict=False))
            values.update(kwargs)
            if values.keys() != set(names):
                raise Unreadable(f"{function.node.name}() is called with fewer arguments than it needs")
            self.scope = function.scope.new_child(values)
            self.run_block(function.node.body)
        except Return as leave:
            return leave.value
        finally:
            self.scope = outer
        return None


def _compared_items(value: Any, container: Any) -> int:
    """Return the number of items that a value may be compared with to find it in a container."""
    if isinstance(container, list | tuple | range):
        return len(container)
    if isinstance(container, dict | set):
        key(value)
    elif not is_scalar(container):
        raise Unreadable(f"comparing with a {type(container).__name__}")
    return 1


def _is_call(node: ast.expr, name: str) -> bool:
    """True if an expression calls a built-in function without arguments, or `isinstance`."""
    match node:
        case ast.Call(func=ast.Name(id=called)):
            return called == name and (not node.args or name == "isinstance")
    return False


def _bounds(node: ast.Slice) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    return node.lower, node.upper, node.step


def _is_instance(value: object, kinds: object) -> bool:
    types = []
    if not isinstance(kinds, tuple):
        kinds = (kinds,)
    for kind in kinds:
        name = str(kind).removeprefix(_BUILTIN)
        if not isinstance(kind, Imported) or name not in TYPES:
            raise Unreadable("isinstance() with a type that is not built in", "isinstance")
        types.append(TYPES[name])
    return isinstance(value, tuple(types))
