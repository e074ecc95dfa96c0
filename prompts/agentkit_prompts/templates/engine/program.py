"""A compiled template: what it needs, what it prints, and how to run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from traceback import walk_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

from agentkit_prompts.context.parts import MEDIA_OPENING
from agentkit_prompts.errors import PromptError, TemplateError
from agentkit_prompts.names import nearest
from agentkit_prompts.templates.engine.trace import Trace
from agentkit_prompts.templates.operations.meter import DEFAULT, Limits
from agentkit_prompts.templates.operations.values import Fault, Site, UndefinedName

if TYPE_CHECKING:
    from jinja2 import nodes

    from agentkit_prompts.templates.engine.codegen import Code

__all__ = ["Program", "Syntax", "compile_program"]

Syntax = Literal["jinja", "fstring", "literal"]

_MAX_PROGRAMS = 1024
_MAX_CACHED_SOURCE = 65_536


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Program:
    """A compiled template, shared by everyone who compiles the same source."""

    source: str
    """The text it was compiled from."""
    file: str | None
    limits: Limits
    literal: str | None
    """The whole text when there is nothing to evaluate, None otherwise."""
    names: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Names it reads from outside, each with the first line it is read on."""
    kwargs: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """Names it reads off `additional_kwargs`, and whether rendering fails without them."""
    sites: tuple[Site, ...] = ()
    """Every `{{ }}` whose value shows up in the pieces."""
    code: Code | None = None
    elsewhere: Callable[[Mapping[str, object]], Trace] | None = None
    """What evaluates it where that is not done in this process."""

    def trace(self, values: Mapping[str, object]) -> Trace:
        """Evaluate the template over named values.

        Raises:
            TemplateError: Something is undefined, has no text, is not allowed, or takes more than the limits.
        """
        if self.elsewhere is not None and self.literal is None:
            return self.elsewhere(values)
        code = self.code
        if code is None:
            return Trace.of_literal(self.literal or "")
        trace = Trace(self.limits, code.groups, self.sites)
        try:
            code.run(values.get, trace)
            trace.finish()
        except PromptError:
            raise
        except Exception as error:
            raise self._located(code, error, values) from error
        return trace

    def _located(self, code: Code, error: Exception, values: Mapping[str, object]) -> TemplateError:
        """Return an error with the line of the template at which it happened."""
        lines = [at for frame, at in walk_tb(error.__traceback__) if at and frame.f_code.co_filename == code.filename]
        line = code.lines[lines[-1] - 1] if lines else None
        variable = error.variable if isinstance(error, Fault) else None
        if isinstance(error, UndefinedName):
            message = f"{error}{nearest(str(variable), [name for name in values if isinstance(name, str)])}"
        elif isinstance(error, Fault):
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

    items = [item for node in tree.body for item in (node.nodes if isinstance(node, nodes.Output) else [node])]
    texts = [item.data for item in items if isinstance(item, nodes.TemplateData)]
    return "".join(texts) if len(texts) == len(items) else None


def _compile(source: str, syntax: Syntax, file: str | None, first_line: int, limits: Limits) -> Program:
    if syntax == "literal":
        if MEDIA_OPENING in source:
            message = f"the text holds {MEDIA_OPENING!r}, which opens a media marker: give media as content parts"
            raise TemplateError(message, file=file)
        return Program(source, file, limits, source)
    # What only compiling needs is imported when the first template is compiled.
    from agentkit_prompts.templates.engine.codegen import generate
    from agentkit_prompts.templates.engine.expressions import CodeError
    from agentkit_prompts.templates.engine.parse import parse, parse_fstring
    from agentkit_prompts.templates.engine.static_analysis import analyse

    tree = (parse if syntax == "jinja" else parse_fstring)(source, file, first_line)
    literal = _literal(tree)
    if literal is not None:
        return Program(source, file, limits, literal)
    found = analyse(tree, first_line)
    try:
        code = generate(tree, found.numbers, file, first_line)
    except CodeError as error:
        raise TemplateError(str(error), file=file, line=error.line + first_line - 1) from error
    names = MappingProxyType(dict(sorted(found.names.items())))
    kwargs = MappingProxyType(dict(sorted(found.kwargs.items())))
    return Program(source, file, limits, None, names, kwargs, found.sites, code)


_shared = lru_cache(maxsize=_MAX_PROGRAMS)(_compile)


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
        syntax: `jinja`, `fstring` for plain `{name}` fields, or `literal` for text that is never compiled.
        file: Name for error messages.
        first_line: Line of the file on which the text starts, counted from 1.
        limits: How much a run of it may do.

    Raises:
        TemplateError: It is not a template, is too large, or uses what prompts may not use.
    """
    if not isinstance(source, str):
        raise TemplateError(f"a template is text, got {type(source).__name__}", file=file)
    if syntax not in get_args(Syntax):
        raise TemplateError(f"unknown template syntax {syntax!r}: expected jinja, fstring or literal", file=file)
    if syntax == "literal" or len(source) > _MAX_CACHED_SOURCE:
        return _compile(source, syntax, file, first_line, limits)
    return _shared(source, syntax, file, first_line, limits)
