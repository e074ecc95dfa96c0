"""The code of a configuration, read statement by statement: assignments, loops and functions of its own.

Nothing is imported, opened or called that is not in `config_values`; how much it may do is bounded.
"""

from __future__ import annotations

import ast
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.config.config_scope import Function, Scope, Unread, variables_of
from agentkit_prompts.evaluation.config.config_sizes import Problem, apart, bounded, hashed, together, weigh
from agentkit_prompts.evaluation.config.config_values import (
    COMPARE,
    FUNCTIONS,
    OPERATORS,
    PURE,
    TYPES,
    Imported,
    Opened,
    listed,
    method,
    written,
)

__all__ = ["Interpreter"]

_MAX_SOURCE = 3_000_000
"""Characters of all files of code together: a statement takes some hundred times its length of memory."""
_MAX_STEPS = 2_000_000
_MAX_DEPTH = 60
_MAX_SECONDS = 20.0
"""CPU time of the thread, for what steps do not count: a search through a million values is one."""
_MAKING = (ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Call)
"""Expressions whose value may nest one level deeper than what it is made of."""


class _Leave(Exception):
    """`return`, `break` and `continue`."""

    def __init__(self, kind: str, value: Any = None) -> None:
        self.kind, self.value = kind, value


class Interpreter:
    """Reads files of code; what one does counts for all.

    Args:
        imported: Returns the variables of another file: (names of a module, dots in front of it) -> variables, or None
            where there is no such file.
        opened: Returns the text of a file that the code opens.
    """

    def __init__(self, imported: Callable[[str, int], Mapping[str, Any] | None], opened: Callable[[str], str]) -> None:
        self._imported = imported
        self._opened = opened
        self._steps = 0
        self._chars = 0
        self._depth = 0
        self._end = time.thread_time() + _MAX_SECONDS

    def run(self, source: str, file: str) -> dict[str, Any]:
        """Return the variables of a file; of those that cannot be read `Unread` values.

        Raises:
            InContextError: It is not Python, or does too much.
        """
        self._chars += len(source)
        if self._chars > _MAX_SOURCE:
            text = f"{file}: the configuration has more than {_MAX_SOURCE:,} characters of code"
            raise InContextError(text, path=file, value=_MAX_SOURCE)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InContextError(f"{file}: is no Python ({error})", path=file) from error
        scope: Scope = ChainMap()
        scope["__file__"] = file
        for node in tree.body:
            try:
                self._statement(node, scope)
            except InContextError:
                raise
            except (Problem, _Leave) as error:
                self._unread(node, scope, file, error)
            except RecursionError as error:
                text = f"{file}, line {node.lineno}: is nested too deeply"
                raise InContextError(text, path=file, line=node.lineno) from error
            except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
                self._unread(node, scope, file, Problem(f"{type(error).__name__}: {error}"))
        return dict(scope)

    def _unread(self, node: ast.stmt, scope: Scope, file: str, error: Exception) -> None:
        why = f"cannot be read: {error}" if isinstance(error, Problem) else "leaves what it is not in"
        for name in variables_of(node):
            scope[name] = Unread(f"{file}, line {node.lineno}: {why}", file, node.lineno, getattr(error, "name", None))

    def _step(self, count: int = 1) -> None:
        self._steps += count
        if self._steps > _MAX_STEPS:
            text = f"the configuration takes more than {_MAX_STEPS:,} steps to read"
            raise InContextError(text, value=_MAX_STEPS)
        if time.thread_time() > self._end:
            text = f"the configuration takes more than {_MAX_SECONDS:g} seconds to read"
            raise InContextError(text, value=_MAX_SECONDS)

    def _block(self, nodes: list[ast.stmt], scope: Scope) -> None:
        for node in nodes:
            self._statement(node, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        self._step()
        match node:
            case ast.Assign():
                value = self._value(node.value, scope)
                for target in node.targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign() if node.value is not None:
                self._assign(node.target, self._value(node.value, scope), scope)
            case ast.AugAssign():
                before = self._value(node.target, scope)
                after = self._operator(node.op)(before, self._value(node.value, scope))
                self._assign(node.target, bounded(after), scope)
            case ast.Expr():
                self._value(node.value, scope)
            case ast.For():
                self._for(node, scope)
            case ast.If():
                self._block(node.body if self._value(node.test, scope) else node.orelse, scope)
            case ast.With():
                for item in node.items:
                    self._with(item, scope)
                self._block(node.body, scope)
            case ast.ImportFrom():
                self._import_from(node, scope)
            case ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    scope[name] = Imported(alias.name if alias.asname else name)
            case ast.Delete():
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        scope.pop(target.id, None)
            case ast.FunctionDef() if not node.decorator_list:
                scope[node.name] = Function(node, scope)
            case ast.Return():
                raise _Leave("return", None if node.value is None else self._value(node.value, scope))
            case ast.Break() | ast.Continue():
                raise _Leave("break" if isinstance(node, ast.Break) else "continue")
            case ast.Pass() | ast.AnnAssign() | ast.Global():
                pass
            case ast.Assert():
                if not self._value(node.test, scope):
                    raise Problem("an assertion that does not hold")
            case _:
                raise Problem(f"a statement of kind {type(node).__name__}", type(node).__name__)

    def _with(self, item: ast.withitem, scope: Scope) -> None:
        call = item.context_expr
        if _is_called(call, "read_base"):
            return
        if not _is_called(call, "open") or not isinstance(call, ast.Call) or item.optional_vars is None:
            raise Problem("`with` is for read_base() and for open() of a text file")
        path, *rest = self._items(call.args, scope)
        named = {keyword.arg: self._value(keyword.value, scope) for keyword in call.keywords}
        if [*rest, *named.values()] and not {*rest, *named.values()} <= {"r", "rt", "utf-8", "utf8"}:
            raise Problem("a file is opened for reading text in UTF-8 only")
        self._assign(item.optional_vars, Opened(self._opened(written(path))), scope)

    def _for(self, node: ast.For, scope: Scope) -> None:
        for value in self._over(node.iter, scope):
            self._assign(node.target, value, scope)
            try:
                self._block(node.body, scope)
            except _Leave as leave:
                if leave.kind == "break":
                    return
                if leave.kind == "return":
                    raise
        self._block(node.orelse, scope)

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> None:
        module = node.module or ""
        found = self._imported(module, node.level)
        if found is None:
            if node.level:
                raise Problem(
                    f"there is no file for the import of {'.' * node.level}{module}", f"{'.' * node.level}{module}"
                )
            scope.update({alias.asname or alias.name: Imported(f"{module}.{alias.name}") for alias in node.names})
            return
        for alias in node.names:
            if alias.name == "*":
                scope.update({name: value for name, value in found.items() if not name.startswith("_")})
            elif alias.name in found:
                scope[alias.asname or alias.name] = found[alias.name]
            else:
                raise Problem(f"{module} has no variable {alias.name!r}")

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        match target:
            case ast.Name():
                scope[target.id] = value
            case ast.Tuple() | ast.List():
                values = list(value) if isinstance(value, list | tuple | str) else [value]
                if len(values) != len(target.elts) or any(isinstance(one, ast.Starred) for one in target.elts):
                    raise Problem(f"{len(values)} values for {len(target.elts)} names")
                for one, item in zip(target.elts, values, strict=True):
                    self._assign(one, item, scope)
            case ast.Subscript():
                holder = self._value(target.value, scope)
                if not isinstance(holder, list | dict):
                    raise Problem(f"setting an item of a {type(holder).__name__}")
                weigh(value)
                holder[hashed(self._value(target.slice, scope))] = value
                bounded(holder)
            case _:
                raise Problem(f"assigning to a {type(target).__name__}")

    def _over(self, node: ast.expr, scope: Scope) -> Iterator[Any]:
        for value in listed(self._value(node, scope)):
            self._step()
            yield value

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        self._step()
        try:
            value = bounded(self._evaluated(node, scope))
            if isinstance(value, str | bytes | list | tuple | dict | set):
                self._step(len(value) >> (6 if isinstance(node, ast.Name) else 3))
            if isinstance(node, _MAKING):
                weigh(value)
            return value
        except (Problem, InContextError, _Leave):
            raise
        except Exception as error:
            raise Problem(f"{type(error).__name__}: {error}") from error

    def _evaluated(self, node: ast.expr, scope: Scope) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._named(node.id, scope)
            case ast.List():
                return self._items(node.elts, scope)
            case ast.Tuple():
                return tuple(self._items(node.elts, scope))
            case ast.Set():
                items = self._items(node.elts, scope)
                apart(items)
                return set(map(hashed, items))
            case ast.Dict():
                made: dict[Any, Any] = {}
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is not None:
                        made[hashed(self._value(key, scope))] = self._value(value, scope)
                    elif isinstance(more := self._value(value, scope), dict):
                        made.update(more)
                    else:
                        raise Problem(f"** of a {type(more).__name__}")
                return made
            case ast.JoinedStr():
                return together(self._value(part, scope) for part in node.values)
            case ast.FormattedValue():
                spec = self._value(node.format_spec, scope) if node.format_spec is not None else ""
                return written(self._value(node.value, scope), spec, node.conversion)
            case ast.BinOp():
                return self._operator(node.op)(self._value(node.left, scope), self._value(node.right, scope))
            case ast.UnaryOp():
                return self._operator(node.op)(self._value(node.operand, scope))
            case ast.BoolOp():
                found: Any = None
                for one in node.values:
                    found = self._value(one, scope)
                    if bool(found) is isinstance(node.op, ast.Or):
                        break
                return found
            case ast.Compare():
                return self._compared(node, scope)
            case ast.IfExp():
                return self._value(node.body if self._value(node.test, scope) else node.orelse, scope)
            case ast.Subscript():
                return self._value(node.value, scope)[hashed(self._value(node.slice, scope))]
            case ast.Slice():
                parts = (node.lower, node.upper, node.step)
                return slice(*(None if part is None else self._value(part, scope) for part in parts))
            case ast.Attribute():
                holder = self._value(node.value, scope)
                if isinstance(holder, Imported):
                    return Imported(f"{holder}.{node.attr}")
                raise Problem(f"the attribute {node.attr!r} of a {type(holder).__name__}")
            case ast.Call():
                return self._call(node, scope)
            case ast.ListComp() | ast.GeneratorExp():
                return [self._value(node.elt, inner) for inner in self._generated(node.generators, scope)]
            case ast.SetComp():
                return {hashed(self._value(node.elt, inner)) for inner in self._generated(node.generators, scope)}
            case ast.DictComp():
                inners = self._generated(node.generators, scope)
                return {hashed(self._value(node.key, inner)): self._value(node.value, inner) for inner in inners}
            case ast.Lambda():
                return Function(node, scope)
        raise Problem(f"an expression of kind {type(node).__name__}", type(node).__name__)

    def _named(self, name: str, scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            if name in FUNCTIONS or name in TYPES:
                return Imported(f"builtins.{name}")
            raise Problem(f"the name {name!r}, which is not defined") from None
        if isinstance(value, Unread):
            raise Problem(f"{name!r}, which could not be read ({value.why})", name)
        return value

    def _items(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self._over(node.value, scope)
            else:
                found.append(self._value(node, scope))
        return found

    def _operator(self, node: ast.AST) -> Callable[..., Any]:
        found = OPERATORS.get(type(node))
        if found is None:
            raise Problem(f"the operator {type(node).__name__}", type(node).__name__)
        return found

    def _compared(self, node: ast.Compare, scope: Scope) -> bool:
        left = self._value(node.left, scope)
        for kind, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other, scope)
            if not COMPARE[type(kind)](left, right):
                return False
            left = right
        return True

    def _generated(self, generators: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        first, *rest = generators
        for value in self._over(first.iter, scope):
            inner = scope.new_child()
            self._assign(first.target, value, inner)
            if all(self._value(test, inner) for test in first.ifs):
                if rest:
                    yield from self._generated(rest, inner)
                else:
                    yield inner

    def _call(self, node: ast.Call, scope: Scope) -> Any:
        args = self._items(node.args, scope)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self._value(keyword.value, scope)
            kwargs.update(value if keyword.arg is None else {keyword.arg: value})
        if isinstance(node.func, ast.Attribute):
            holder = self._value(node.func.value, scope)
            if not isinstance(holder, Imported):
                return method(holder, node.func.attr, args, kwargs)
            called: Any = Imported(f"{holder}.{node.func.attr}")
        elif isinstance(node.func, ast.Name) and node.func.id in ("locals", "globals") and not args:
            return {name: value for name, value in scope.maps[0].items() if not isinstance(value, Function)}
        elif isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            return self._is_instance(node, args)
        else:
            called = self._value(node.func, scope)
        if isinstance(called, Function):
            return self._own(called, args, kwargs)
        function = PURE.get(called) if isinstance(called, Imported) else None
        if isinstance(called, Imported) and called.startswith("builtins."):
            function = FUNCTIONS.get(called.removeprefix("builtins."))
        if function is None:
            raise Problem(f"calling {str(called)[:80]!r}: nothing that is imported is run", str(called)[:80])
        return function(*args, **kwargs)

    def _is_instance(self, node: ast.Call, args: list[Any]) -> bool:
        wanted = args[1] if isinstance(args[1], tuple) else (args[1],)
        kinds = [TYPES.get(one.removeprefix("builtins.")) if isinstance(one, Imported) else None for one in wanted]
        if None in kinds:
            raise Problem("isinstance() with a type that is not built in")
        return isinstance(args[0], tuple(kind for kind in kinds if kind))

    def _own(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        given, node = function.node.args, function.node
        if given.vararg or given.kwarg or given.posonlyargs:
            raise Problem("calling a function with * parameters")
        scope = function.scope.new_child()
        names = [one.arg for one in (*given.args, *given.kwonlyargs)]
        defaults = dict(zip(reversed([one.arg for one in given.args]), reversed(given.defaults), strict=False))
        own = {one.arg: value for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value}
        for name, default in {**defaults, **own}.items():
            scope[name] = self._value(default, function.scope)
        scope.update(zip(names, args, strict=False))
        scope.update({name: value for name, value in kwargs.items() if name in names})
        if len(args) > len(given.args) or not {*kwargs} <= {*names} or not {*names} <= scope.maps[0].keys():
            raise Problem("calling a function with other arguments than it has")
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH:
                raise Problem(f"calls nested more than {_MAX_DEPTH} deep")
            if isinstance(node, ast.Lambda):
                return self._value(node.body, scope)
            self._block(node.body, scope)
        except _Leave as leave:
            return leave.value
        finally:
            self._depth -= 1
        return None


def _is_called(node: ast.expr, name: str) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return (isinstance(function, ast.Name) and function.id == name) or (
        isinstance(function, ast.Attribute) and function.attr == name
    )
