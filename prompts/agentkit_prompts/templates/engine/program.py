"""A compiled template: what it needs, what it prints, and how to run it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from agentkit_prompts.errors import PromptError, TemplateError, nearest
from agentkit_prompts.templates.engine.meter import DEFAULT, Limits
from agentkit_prompts.templates.engine.sites import Site
from agentkit_prompts.templates.engine.trace import Trace
from agentkit_prompts.templates.engine.values import Fault, Piece, UndefinedName

if TYPE_CHECKING:
    from jinja2 import nodes

    from agentkit_prompts.templates.engine.codegen import Code

__all__ = ["Program", "Syntax", "compile_program"]

Syntax = Literal["jinja", "fstring"]

_MOST_PROGRAMS = 1024
_LONGEST_CACHED = 65_536


class Program:
    """A compiled template. Immutable, and shared by everyone who compiles the same source.

    Attributes:
        source: The text it was compiled from.
        literal: The whole text when there is nothing to evaluate, None otherwise.
        names: Names it reads from outside, each with the first line it is read on.
        guarded: Those of `names` that may be missing: they are read under `is defined` or `default` only.
        kwargs: Names it reads off `additional_kwargs`, and whether rendering fails without them.
        sites: Every `{{ }}` whose value shows up in the pieces.
    """

    __slots__ = ("_code", "_limits", "file", "guarded", "kwargs", "literal", "names", "sites", "source")

    _code: Code | None
    _limits: Limits
    source: str
    literal: str | None
    names: Mapping[str, int]
    guarded: frozenset[str]
    kwargs: Mapping[str, bool]
    sites: tuple[Site, ...]
    file: str | None

    def __init__(self, source: str, syntax: Syntax, file: str | None, first_line: int, limits: Limits) -> None:
        # What only compiling needs is imported when the first template is compiled.
        from agentkit_prompts.templates.engine.codegen import generate
        from agentkit_prompts.templates.engine.expressions import CodeError
        from agentkit_prompts.templates.engine.fstring import parse_fstring
        from agentkit_prompts.templates.engine.sandbox import parse
        from agentkit_prompts.templates.engine.sites import analyse

        put = object.__setattr__
        put(self, "source", source)
        put(self, "file", file)
        put(self, "_limits", limits)
        put(self, "_code", None)
        put(self, "names", MappingProxyType({}))
        put(self, "guarded", frozenset())
        put(self, "kwargs", MappingProxyType({}))
        put(self, "sites", ())
        tree = (parse if syntax == "jinja" else parse_fstring)(source, file, first_line)
        put(self, "literal", _literal(tree))
        if self.literal is not None:
            return
        analysis = analyse(tree, first_line)
        put(self, "names", MappingProxyType(dict(sorted(analysis.names.items()))))
        put(self, "guarded", analysis.guarded)
        put(self, "kwargs", MappingProxyType(dict(sorted(analysis.kwargs.items()))))
        put(self, "sites", analysis.sites)
        try:
            put(self, "_code", generate(tree, analysis, file, first_line))
        except CodeError as error:
            raise TemplateError(str(error), file=file, line=error.line + first_line - 1) from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Program is read-only: compile another one to change {name!r}")

    def trace(self, values: Mapping[str, object]) -> Trace:
        """Evaluate the template over named values.

        Raises:
            TemplateError: Something is undefined, has no text, is not allowed, or takes more than the limits.
        """
        code = self._code
        if code is None:
            return Trace.of_literal(self.literal or "")
        trace = Trace(self._limits, code.groups, self.sites)
        try:
            code.run(values.get, trace)
            trace.finish()
        except PromptError:
            raise
        except Exception as error:
            raise self._located(code, error, values) from error
        return trace

    def run(self, values: Mapping[str, object]) -> list[Piece]:
        """Evaluate the template over named values and return its text, cut at every `{{ }}`.

        Raises:
            TemplateError: Something is undefined, has no text, is not allowed, or takes more than the limits.
        """
        return self.trace(values).pieces()

    def _located(self, code: Code, error: Exception, values: Mapping[str, object]) -> TemplateError:
        """Say where in the template an error happened."""
        line = None
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == code.filename and trace.tb_lineno is not None:
                line = code.lines[trace.tb_lineno - 1]
            trace = trace.tb_next
        variable = None
        if isinstance(error, UndefinedName):
            variable = error.variable
            message = f"{error}{nearest(str(variable), [name for name in values if isinstance(name, str)])}"
        elif isinstance(error, Fault):
            variable = error.variable
            message = str(error)
        elif isinstance(error, RecursionError):
            message = "the template or its data nests too deeply"
        elif isinstance(error, MemoryError):
            message = "the template needs more memory than there is"
        else:
            message = f"{type(error).__name__}: {_message(error)}"
        return TemplateError(message, file=self.file, line=line, variable=variable)

    def __repr__(self) -> str:
        return f"Program({self.source[:40]!r})"


def _message(error: Exception) -> str:
    try:
        return str(error)[:500]
    except Exception:  # an exception of the caller's own whose text fails too
        return "(its message cannot be read)"


def _literal(tree: nodes.Template) -> str | None:
    from jinja2 import nodes

    parts: list[str] = []
    for node in tree.body:
        if not isinstance(node, nodes.Output):
            return None
        for item in node.nodes:
            if not isinstance(item, nodes.TemplateData):
                return None
            parts.append(item.data)
    return "".join(parts)


@lru_cache(maxsize=_MOST_PROGRAMS)
def _shared(source: str, syntax: Syntax, file: str | None, first_line: int, limits: Limits) -> Program:
    return Program(source, syntax, file, first_line, limits)


def compile_program(
    source: str,
    *,
    syntax: Syntax = "jinja",
    file: str | None = None,
    first_line: int = 1,
    limits: Limits = DEFAULT,
) -> Program:
    """Compile a template, or return the program that was compiled from it before.

    Args:
        source: Text of the template.
        syntax: `jinja`, or `fstring` for plain `{name}` fields.
        file: Name for error messages.
        first_line: Line of the file on which the text starts, counted from 1.
        limits: How much a run of it may do.

    Raises:
        TemplateError: It is not a template, is too large, or uses what prompts may not use.
    """
    if not isinstance(source, str):
        raise TemplateError(f"a template is text, got {type(source).__name__}", file=file)
    if syntax not in ("jinja", "fstring"):
        raise TemplateError(f"unknown template syntax {syntax!r}: expected 'jinja' or 'fstring'", file=file)
    if len(source) > _LONGEST_CACHED:
        return Program(source, syntax, file, first_line, limits)
    return _shared(source, syntax, file, first_line, limits)
