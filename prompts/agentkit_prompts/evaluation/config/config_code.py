"""Interpreter of the code of a configuration, for the statements that shipped configurations use.

The code can call only functions of the configuration and functions of `config_values`; no module is imported.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.config.config_expressions import (
    Continue,
    ExpressionReader,
    Function,
    Return,
    Unread,
    UsesUnread,
)
from agentkit_prompts.evaluation.config.config_values import Imported, Opened, Unreadable, key, text_of
from agentkit_prompts.limits import MAX_SOURCE_CHARS

_READ_MODES = frozenset(("r", "rt", "utf-8", "utf8"))
_CHANGING = frozenset(
    (
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault"),
        *("sort", "update"),
    )
)
"""Methods that change the object that they are called on."""


class Interpreter(ExpressionReader, ast.NodeVisitor):
    """Interpreter of the files of one configuration, which share the limits.

    Args:
        read_import: Function that returns the variables of an imported file for the name of a module and its number of
            leading dots; None if the module is not a file of the configuration.
        read_text: Function that returns the text of a file that the code opens.
    """

    def __init__(
        self, read_import: Callable[[str, int], Mapping[str, Any] | None], read_text: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._read_import = read_import
        self._read_text = read_text
        self._chars = 0

    def run(self, source: str, file: str) -> dict[str, Any]:
        """Return the variables of a file; the values of unreadable variables are `Unread` objects.

        Raises:
            InContextError: The file is not Python, or exceeds a limit.
        """
        self._chars += len(source)
        if self._chars > MAX_SOURCE_CHARS:
            text = f"{file}: the configuration has more than {MAX_SOURCE_CHARS:,} characters of code"
            raise InContextError(text, path=file, value=MAX_SOURCE_CHARS)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InContextError(f"{file}: is not valid Python ({error})", path=file) from error
        # An import calls this method for another file, so the scope of the importing file is restored.
        outer, self.scope = self.scope, ChainMap({"__file__": file})
        try:
            for statement in tree.body:
                self._run_statement(statement, file)
            variables = self.scope.maps[0]
            # A variable with `globals()` contains itself, and is no part of the configuration. A key that is no text,
            # such as of `globals()[1] = 2`, is no variable.
            return {
                name: value for name, value in variables.items() if isinstance(name, str) and value is not variables
            }
        finally:
            self.scope = outer

    def _run_statement(self, node: ast.stmt, file: str) -> None:
        """Run a statement of a file. If the statement fails, its variables become `Unread`."""
        scope = self.scope
        # A file can define many datasets, of which most users need one, so a failure must not affect the others.
        try:
            self.visit(node)
        except InContextError:
            # A limit of the whole configuration is exceeded.
            raise
        except Exception as error:
            self.scope = scope
            reason = _reason_of(error)
            unread = Unread(f"{file}, line {node.lineno}: cannot be read: {reason}", file, node.lineno, reason.name)
            if isinstance(reason, UsesUnread):
                # The first statement that failed is the only one to correct.
                unread = reason.unread
            scope.update(dict.fromkeys(_variables_of(node), unread))

    # Variables

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self.assign(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # The annotation is a hint, which can have any form.
        if node.value is not None:
            self.assign(node.target, self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        value = self.visit(node.target)
        more = self.visit(node.value)
        # As in Python, `+=` changes a list; a new list for each item would make loops quadratic.
        if isinstance(value, list) and isinstance(node.op, ast.Add):
            self.call_method(value, "extend", [more], {})
        else:
            value = self.operate(node.op, value, more)
        self.assign(node.target, value)

    # `del` of a loop variable is common, because suites collect variables by their names.
    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            match target:
                case ast.Name(id=name):
                    self.scope.pop(name, None)
                case ast.Subscript():
                    container = self.visit(target.value)
                    # To delete the first item of a list takes as long as to copy the list.
                    if not isinstance(container, dict):
                        self.refuse("Delete of an item of a list")
                    del container[key(self.visit(target.slice))]
                case _:
                    self.refuse(f"Delete of {type(target).__name__}")

    # Control flow

    def visit_Expr(self, node: ast.Expr) -> None:
        self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if self.visit(node.test):
            self.run_block(node.body)
        else:
            self.run_block(node.orelse)

    def visit_For(self, node: ast.For) -> None:
        if node.orelse:
            self.refuse("For with else")
        for value in self.iterate(node.iter):
            self.assign(node.target, value)
            try:
                self.run_block(node.body)
            except Continue:
                continue

    def visit_Continue(self, node: ast.Continue) -> None:
        raise Continue("`continue` outside of a loop")

    def visit_Assert(self, node: ast.Assert) -> None:
        if not self.visit(node.test):
            raise Unreadable("an assertion fails")

    # Functions

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        parameters = node.args
        unsupported = (node.decorator_list, parameters.posonlyargs, parameters.kwonlyargs)
        if any((*unsupported, parameters.vararg, parameters.kwarg)):
            self.refuse("FunctionDef with decorators, * or /")
        defaults = [self.visit(default) for default in parameters.defaults]
        self.scope[node.name] = Function(node, self.scope, defaults)

    def visit_Return(self, node: ast.Return) -> None:
        raise Return(self.optional(node.value))

    # Files

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            match item.context_expr:
                case ast.Call(func=ast.Name(id="open")) as call:
                    self._open(call, item.optional_vars)
                case ast.Call(func=ast.Name(id="read_base")):
                    pass
                case _:
                    self.refuse("With")
        self.run_block(node.body)

    def _open(self, call: ast.Call, target: ast.expr | None) -> None:
        path, *modes = [self.visit(argument) for argument in call.args]
        modes += [self.visit(keyword.value) for keyword in call.keywords]
        if target is None or not all(isinstance(mode, str) and mode in _READ_MODES for mode in modes):
            raise Unreadable("a file can be opened only to read text in UTF-8, with a name", "open")
        self.assign(target, Opened(self._read_text(text_of(path))))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name.partition(".")[0]
            self.scope[alias.asname or name] = Imported(alias.name if alias.asname else name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        variables = self._read_import(module, node.level)
        if variables is not None:
            self._import_variables(node.names, variables, module)
        elif node.level:
            name = f"{'.' * node.level}{module}"
            raise Unreadable(f"no file for the import of {name}", name)
        else:
            names = {alias.asname or alias.name: Imported(f"{module}.{alias.name}") for alias in node.names}
            self.scope.update(names)

    def _import_variables(self, names: list[ast.alias], variables: Mapping[str, Any], module: str) -> None:
        for alias in names:
            if alias.name == "*":
                # Collections import the variables of many files with `*`, so each import is charged for its copies.
                self.charge(len(variables))
                self.scope.update({name: value for name, value in variables.items() if not name.startswith("_")})
            elif alias.name in variables:
                self.scope[alias.asname or alias.name] = variables[alias.name]
            else:
                raise Unreadable(f"{module} has no variable {alias.name!r}", alias.name)


def _reason_of(error: Exception) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, RecursionError):
        return Unreadable("it nests or calls itself too deeply")
    name = type(error).__name__
    text = str(error)
    if not text:
        return Unreadable(name)
    return Unreadable(f"{name}: {text}")


def _variables_of(node: ast.AST) -> set[str]:
    """Return the variables that a statement can set or change."""
    names: set[str] = set()
    # More names than necessary are harmless, because an `Unread` variable is an error only at its use. A name too few
    # would leave an old value, and cause a wrong prompt.
    for inner in ast.walk(node):
        names |= _names_changed_by(inner)
    return names


def _names_changed_by(node: ast.AST) -> set[str]:
    """Return the variables that a node sets or changes, without the nodes inside it."""
    match node:
        case ast.alias():
            return {node.asname or node.name.partition(".")[0]}
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in _CHANGING:
            return {name}
        case ast.Subscript(ctx=ast.Store() | ast.Del()):
            return {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
    return set()
