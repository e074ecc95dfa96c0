"""The code of a configuration, read statement by statement: the constructs that shipped configurations use.

Nothing is imported, opened or called that is not in `config_values`.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

from agentkit_prompts.errors import InContextError
from agentkit_prompts.evaluation.config.config_expressions import Continue, ExpressionReader, Return
from agentkit_prompts.evaluation.config.config_scope import Function, Imported, Unread, variables_of
from agentkit_prompts.evaluation.config.config_sizes import Unreadable
from agentkit_prompts.evaluation.config.config_values import Opened, text_of
from agentkit_prompts.limits import MAX_SOURCE_CHARS

__all__ = ["Interpreter"]

_READ_MODES = frozenset(("r", "rt", "utf-8", "utf8"))


class Interpreter(ExpressionReader, ast.NodeVisitor):
    """Reads files of code; all files share the limits.

    Args:
        read_import: Returns the variables of another file: (module, dots before it) -> variables, or None if it is no
            file of the configuration.
        read_text: Returns the text of a file that the code opens.
    """

    def __init__(
        self, read_import: Callable[[str, int], Mapping[str, Any] | None], read_text: Callable[[str], str]
    ) -> None:
        super().__init__()
        self._read_import = read_import
        self._read_text = read_text
        self._chars = 0

    def run(self, source: str, file: str) -> dict[str, Any]:
        """Return the variables of a file; those that cannot be read are `Unread`.

        Raises:
            InContextError: It is not Python, or exceeds a limit.
        """
        self._chars += len(source)
        if self._chars > MAX_SOURCE_CHARS:
            text = f"{file}: the configuration has more than {MAX_SOURCE_CHARS:,} characters of code"
            raise InContextError(text, path=file, value=MAX_SOURCE_CHARS)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InContextError(f"{file}: is no Python ({error})", path=file) from error
        # An import reads another file in the middle of this one: its scope has to come back afterwards.
        outer, self.scope = self.scope, ChainMap({"__file__": file})
        try:
            for statement in tree.body:
                self._run_statement(statement, file)
            return dict(self.scope)
        finally:
            self.scope = outer

    def _run_statement(self, node: ast.stmt, file: str) -> None:
        """Run a statement of a file. If that fails, the variables that it sets are unread, and the file goes on."""
        scope = self.scope
        # One file lists many datasets, and most users need one of them: a failure costs its own variables only.
        try:
            self.visit(node)
            return
        except InContextError:
            # A limit of the whole configuration is exceeded. It is a ValueError, too.
            raise
        except Unreadable as error:
            reason, name = str(error), error.name
        except (Return, Continue):
            reason, name = "`return` or `continue` outside of a function or loop", None
        except RecursionError:
            reason, name = "it nests or calls itself too deeply", None
        except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError) as error:
            reason, name = str(Unreadable(f"{type(error).__name__}: {error}")), None
        self.scope = scope
        for variable in variables_of(node):
            scope[variable] = Unread(f"{file}, line {node.lineno}: cannot be read: {reason}", file, node.lineno, name)

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self.assign(target, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.assign(node.target, self.operate(node.op, self.visit(node.target), self.visit(node.value)))

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
        raise Continue

    def visit_Assert(self, node: ast.Assert) -> None:
        if not self.visit(node.test):
            raise Unreadable("an assertion fails")

    # `del` of a loop variable is common, because suites collect variables by their names.
    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                self.refuse("Delete of an item")
            self.scope.pop(target.id, None)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        parameters = node.args
        unsupported = (node.decorator_list, parameters.posonlyargs, parameters.kwonlyargs)
        if any(unsupported) or parameters.vararg or parameters.kwarg:
            self.refuse("FunctionDef with decorators, * or /")
        self.scope[node.name] = Function(node, self.scope)

    def visit_Return(self, node: ast.Return) -> None:
        value = None
        if node.value is not None:
            value = self.visit(node.value)
        raise Return(value)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            call = item.context_expr
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                self.refuse("With")
            elif call.func.id == "open":
                self._open(call, item.optional_vars)
            elif call.func.id != "read_base":
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
            if alias.asname is None:
                name = alias.name.partition(".")[0]
                self.scope[name] = Imported(name)
            else:
                self.scope[alias.asname] = Imported(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        variables = self._read_import(module, node.level)
        if variables is None and node.level:
            name = f"{'.' * node.level}{module}"
            raise Unreadable(f"no file for the import of {name}", name)
        for alias in node.names:
            name = alias.asname or alias.name
            if variables is None:
                self.scope[name] = Imported(f"{module}.{alias.name}")
            elif alias.name == "*":
                self._import_all(variables)
            elif alias.name in variables:
                self.scope[name] = variables[alias.name]
            else:
                raise Unreadable(f"{module} has no variable {alias.name!r}", alias.name)

    def _import_all(self, variables: Mapping[str, Any]) -> None:
        # Collections of many files import each file's variables with `*`: each import costs what it copies.
        self.charge(len(variables))
        self.scope.update({name: value for name, value in variables.items() if not name.startswith("_")})
