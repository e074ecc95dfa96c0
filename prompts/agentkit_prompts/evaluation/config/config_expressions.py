"""Evaluator of the expressions that shipped configurations use.

The evaluation of a node, and the creation of a value, cost steps in proportion to the size of the value. The limit of
steps therefore limits the time to read a configuration.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from agentkit_prompts.context.nested import iter_nodes
from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.config.config_values import (
    BUILTIN,
    COMPARISONS,
    FUNCTIONS,
    METHODS,
    OPERATORS,
    TYPES,
    Imported,
    Unreadable,
    bounded,
    is_scalar,
    items_of,
    join_texts,
    key,
    text_of,
)
from agentkit_prompts.limits import MAX_SHOWN_CHARS, MAX_VALUES

_MAX_STEPS = MAX_VALUES
"""Maximum steps of all files of a configuration. The evaluation of a node is a step, and takes about 1.3
microseconds."""
_ITEMS_PER_STEP = 2
"""Number of items of a container that are copied or read in at most the time of a step."""
_CHARS_PER_STEP = 64
_BITS_OF_QUICK_NUMBER = 400
"""Maximum bits of an integer that costs no steps. The time to write or divide an integer grows with the square of its
bits."""
_SQUARES_PER_STEP = 8
_LOOKUPS = frozenset(("append", "get", "setdefault"))
"""Names of methods that create no container, so that only their arguments cost steps."""
_EXTENDING = frozenset(("extend", "update"))
"""Names of methods that add the items of their arguments to a container."""
_GLOBALS = f"{BUILTIN}globals"
_LOCALS = (f"{BUILTIN}locals", f"{BUILTIN}vars")
_EXPORT = "export the configuration, mmengine.Config.fromfile(FILE).dump(NEW_FILE), and load the new file"

Scope: TypeAlias = ChainMap[str, Any]
"""Variables of a file, a function or a comprehension, followed by the variables of the scopes around it."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Value of a variable that cannot be read. An expression that uses the variable fails with this reason."""

    reason: str
    path: str
    line: int
    name: str | None
    """The construct, method, function or variable that cannot be read, if any."""


class UsesUnread(Unreadable):
    """Raised by the use of a variable that could not be read; `unread` is its value."""

    def __init__(self, unread: Unread) -> None:
        super().__init__(unread.reason, unread.name)
        self.unread = unread


class Function:
    """A function that the configuration defines, with the values of its defaults."""

    def __init__(self, node: ast.FunctionDef, scope: Scope, defaults: Sequence[Any]) -> None:
        self.name, self.body, self.scope = node.name, node.body, scope
        self.parameters = [parameter.arg for parameter in node.args.args]
        self.defaults = dict(zip(self.parameters[len(self.parameters) - len(defaults) :], defaults, strict=True))

    # A function is not copied, because its scope contains all variables of the file.
    def __deepcopy__(self, memo: object) -> Function:
        return self

    def variables(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the parameters in a call, by their names."""
        by_position = dict(zip(self.parameters, args, strict=False))
        values = {**self.defaults, **by_position, **kwargs}
        is_complete = values.keys() == set(self.parameters)
        if not is_complete or len(args) > len(self.parameters) or by_position.keys() & kwargs.keys():
            raise Unreadable(f"{self.name}() is called with invalid arguments", self.name)
        return values


class Return(Unreadable):
    """Raised by a `return` statement; `value` is the value of the function."""

    def __init__(self, value: Any) -> None:
        super().__init__("`return` outside of a function")
        self.value = value


class Continue(Unreadable):
    """Raised by a `continue` statement."""


class ExpressionReader(ast.NodeVisitor):
    """Evaluator of expressions, within limits that all files of a configuration share."""

    def __init__(self) -> None:
        self.scope: Scope = ChainMap()
        self._steps = 0
        self._visitors: dict[type[ast.AST], Callable[[Any], Any]] = {}
        """Methods by the class of the node, cached because building the name of a method is slow."""
        self._functions: dict[str, Callable[..., Any]] = {
            **FUNCTIONS,
            # As in Python, the variables themselves and no copy: a configuration can change them, and a copy for each
            # call would make loops quadratic.
            **dict.fromkeys(_LOCALS, lambda: self.scope.maps[0]),
            _GLOBALS: lambda: self.scope.maps[-1],
        }

    def visit(self, node: ast.AST) -> Any:
        """Run a statement, or return the value of an expression."""
        self.charge(1)
        kind = type(node)
        if kind not in self._visitors:
            self._visitors[kind] = getattr(self, f"visit_{kind.__name__}", self.generic_visit)
        return self._visitors[kind](node)

    def generic_visit(self, node: ast.AST) -> NoReturn:
        """Reject a construct that no shipped configuration uses."""
        self.refuse(type(node).__name__)

    def refuse(self, construct: str) -> NoReturn:
        raise Unreadable(f"the construct {construct} is not supported; {_EXPORT}", construct)

    def charge(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            text = f"the configuration takes more than {_MAX_STEPS:,} steps to read; {_EXPORT}"
            raise InContextError(text, value=_MAX_STEPS)

    def new(self, value: Any) -> Any:
        """Count the steps of a new value, and return the value if it is not too large."""
        self.charge(_steps_of(bounded(value)))
        return value

    def optional(self, node: ast.expr | None) -> Any:
        """Return the value of an expression; None for a missing expression."""
        if node is None:
            return None
        return self.visit(node)

    def run_block(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(id=name):
                self.scope[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner, item in zip(targets, items_of(value), strict=True):
                    self.assign(inner, item)
            case ast.Subscript():
                container = self.visit(target.value)
                container[key(self.visit(target.slice))] = value
                bounded(container)
            case _:
                self.refuse(f"assignment to {type(target).__name__}")

    # Names and literals

    def visit_Constant(self, node: ast.Constant) -> Any:
        if not is_scalar(node.value):
            self.refuse(f"Constant {type(node.value).__name__}")
        return bounded(node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        name = node.id
        # A lookup in the maps is much faster than in the `ChainMap`.
        for variables in self.scope.maps:
            if name in variables:
                return _readable(variables[name])
        builtin = Imported(f"{BUILTIN}{name}")
        if builtin in self._functions or builtin in TYPES:
            return builtin
        raise Unreadable(f"the name {name!r} is not defined", name)

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
        return bounded(values)

    def visit_Dict(self, node: ast.Dict) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for name, value in zip(node.keys, node.values, strict=True):
            if name is None:
                self.refuse("Dict with **")
            values[key(self.visit(name))] = self.visit(value)
        return values

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        return self.new(join_texts(map(self.visit, node.values)))

    def visit_FormattedValue(self, node: ast.FormattedValue) -> str:
        if node.format_spec is not None or node.conversion != -1:
            self.refuse("FormattedValue with a format or conversion")
        value = self.visit(node.value)
        self.charge(_steps_of(value))
        return text_of(value)

    # Operators

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.operate(node.op, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self.operate(node.op, self.visit(node.operand))

    def operate(self, operator: ast.AST, *operands: Any) -> Any:
        function = OPERATORS.get(type(operator))
        if function is None:
            self.refuse(type(operator).__name__)
        for operand in operands:
            if isinstance(operand, int):
                self.charge(_steps_of(operand))
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
        value = self.visit(node.left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            other = self.visit(comparator)
            # `is` takes constant time for all values.
            if not isinstance(operator, ast.Is | ast.IsNot):
                self._charge_comparison(value, other, is_search=isinstance(operator, ast.In | ast.NotIn))
            if not COMPARISONS[type(operator)](value, other):
                return False
            value = other
        return True

    def _charge_comparison(self, left: Any, right: Any, *, is_search: bool) -> None:
        items = 1
        if is_search and isinstance(right, list | tuple | range):
            items = len(right)
        elif not is_scalar(right) and not (is_search and isinstance(right, dict | set)):
            raise Unreadable(f"comparing with a {type(right).__name__}")
        if not is_scalar(left):
            raise Unreadable(f"comparing a {type(left).__name__}")
        if is_search and isinstance(right, str):
            self.charge(_steps_of(right))
        # Each item on the right can be compared with the whole text on the left.
        self.charge((1 + _steps_of(left)) * items)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if self.visit(node.test):
            return self.visit(node.body)
        return self.visit(node.orelse)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        container = self.visit(node.value)
        part = node.slice
        # `dict[str, str]` is `dict`: the types inside are hints, which can have any form.
        if isinstance(container, Imported) and (container in TYPES or container.startswith("typing.")):
            return container
        if isinstance(part, ast.Slice):
            bounds = map(self.optional, (part.lower, part.upper, part.step))
            return self.new(container[slice(*bounds)])
        name = key(self.visit(part))
        return _readable(container[name])

    def visit_Attribute(self, node: ast.Attribute) -> Imported:
        value = self.visit(node.value)
        if not isinstance(value, Imported):
            raise Unreadable(f"the attribute {node.attr!r} of a {type(value).__name__}", node.attr)
        return Imported(f"{value}.{node.attr}")

    # Comprehensions

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        return [self.visit(node.elt) for _ in self._comprehend(node.generators)]

    # Configurations use a generator only as an argument, so a list has the same effect.
    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> list[Any]:
        return self.visit_ListComp(node)

    def visit_DictComp(self, node: ast.DictComp) -> dict[Any, Any]:
        return {key(self.visit(node.key)): self.visit(node.value) for _ in self._comprehend(node.generators)}

    def _comprehend(self, generators: list[ast.comprehension]) -> Iterator[None]:
        """Yield once per round of a comprehension, while the scope contains the variables of the round."""
        if not generators:
            yield
            return
        first, *rest = generators
        # Each round has a new scope, because the variables of a comprehension do not exist outside of it.
        outer = self.scope
        for value in self.iterate(first.iter):
            self.scope = outer.new_child()
            self.assign(first.target, value)
            if all(self.visit(test) for test in first.ifs):
                yield from self._comprehend(rest)
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
                return self.call_method(value, node.func.attr, args, kwargs)
            return self._call_imported(Imported(f"{value}.{node.func.attr}"), args, kwargs)
        function = self.visit(node.func)
        if isinstance(function, Function):
            return self._call_function(function, args, kwargs)
        return self._call_imported(function, args, kwargs)

    def _keywords(self, nodes: list[ast.keyword]) -> dict[str, Any]:
        kwargs: dict[str, Any] = {}
        for node in nodes:
            value = self.visit(node.value)
            if node.arg is None:
                self.charge(_steps_of(value))
                kwargs.update(value)
            else:
                kwargs[node.arg] = value
        return kwargs

    def call_method(self, value: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        method = METHODS.get(type(value), {}).get(name)
        if method is None:
            raise Unreadable(f"the method {name!r} of a {type(value).__name__} is not supported; {_EXPORT}", name)
        # The steps of the container were counted at its creation; counting them at each call would make loops
        # quadratic.
        if name in _LOOKUPS:
            result = method(value, *args, **kwargs)
            bounded(value)
            return _readable(result)
        sources = [*args, *kwargs.values()]
        if name in _EXTENDING:
            # The method checks sizes first, so that a container that is too large is an error of the line, not of all
            # files.
            result = method(value, *args, **kwargs)
            self._charge_arguments(name, sources)
            return result
        self._charge_arguments(name, [value, *sources])
        return self.new(method(value, *args, **kwargs))

    def _charge_arguments(self, name: str, values: list[Any]) -> None:
        """Count the steps of the arguments of a call."""
        for value in values:
            if name.endswith("deepcopy"):
                self.charge(sum(1 for _ in iter_nodes(value)))
            else:
                self.charge(_steps_of(value))

    def _call_imported(self, name: object, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if not isinstance(name, Imported) or name not in self._functions:
            label = type(name).__name__
            if isinstance(name, str):
                label = str(name)[:MAX_SHOWN_CHARS]
            raise Unreadable(f"calling {label!r}: imported code is not run; {_EXPORT}", label)
        self._charge_arguments(name, [*args, *kwargs.values()])
        value = self._functions[name](*args, **kwargs)
        if name == _GLOBALS or name in _LOCALS:
            return value
        return self.new(value)

    def _call_function(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        variables = function.variables(args, kwargs)
        outer, self.scope = self.scope, function.scope.new_child(variables)
        try:
            self.run_block(function.body)
        except Return as leave:
            return leave.value
        finally:
            self.scope = outer
        return None


def _steps_of(value: object) -> int:
    """Return the number of steps that take as long as creating or reading a value."""
    if isinstance(value, str):
        return len(value) // _CHARS_PER_STEP
    if isinstance(value, list | tuple | dict | set):
        return len(value) // _ITEMS_PER_STEP
    if isinstance(value, int):
        return (value.bit_length() // _BITS_OF_QUICK_NUMBER) ** 2 // _SQUARES_PER_STEP
    return 0


def _readable(value: Any) -> Any:
    """Return the value of a variable; raise the reason if the variable could not be read."""
    if isinstance(value, Unread):
        raise UsesUnread(value)
    return value
