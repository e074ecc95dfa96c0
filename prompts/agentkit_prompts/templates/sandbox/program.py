"""Compiled prompt templates: their names, their sites, and their rendering."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from io import StringIO
from traceback import walk_tb
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from agentkit_prompts.context.parts import MEDIA_OPENING
from agentkit_prompts.errors import PromptError, TemplateError
from agentkit_prompts.names import nearest
from agentkit_prompts.templates.sandbox.meter import DEFAULT, Limits, Meter
from agentkit_prompts.templates.sandbox.operation_errors import (
    TemplateOperationError,
    UndefinedName,
    UndefinedValue,
    message_of,
)
from agentkit_prompts.templates.sandbox.trace import Trace
from agentkit_prompts.templates.sandbox.values import Site

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.nodes import EvalContext

    from agentkit_prompts.templates.sandbox.static_analysis import Analysis
    from agentkit_prompts.templates.sandbox.template_context import PromptContext

Syntax = Literal["jinja", "fstring", "literal"]

_MAX_PROGRAMS = 1024
_MAX_CACHED_SOURCE = 65_536
_NO_NAMES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Code:
    """The Python function that renders a template."""

    root: Callable[[PromptContext], None]
    context: type[PromptContext]
    eval_context: EvalContext
    filename: str
    lines: list[tuple[int, int]]
    """Pairs of a line of the code and the line of the template from which it was generated, in ascending order."""

    def line_of(self, error: Exception) -> int | None:
        """Return the line of the template at which an error was raised; None if unknown."""
        lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == self.filename]
        position = 0
        if lines:
            position = bisect_right(self.lines, (lines[-1], 1 << 60))
        if position:
            return self.lines[position - 1][1]
        return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Program:
    """A compiled template, shared by all callers with the same source."""

    source: str
    """Text of the template."""
    file: str | None
    limits: Limits
    literal: str | None
    """The whole text if it has nothing to evaluate, else None."""
    names: Mapping[str, int] = field(default_factory=lambda: _NO_NAMES)
    """First line, by name, of the names that the template reads from the context."""
    required: frozenset[str] = frozenset()
    """Names that must be defined."""
    kwargs: Mapping[str, bool] = field(default_factory=lambda: _NO_NAMES)
    """Names that the template reads from `additional_kwargs`; True for a required name."""
    sites: tuple[Site, ...] = ()
    """All `{{ }}` of the template whose values are parts of the text."""
    code: _Code | None = None
    """Function of the template; None for literal text and isolated templates."""
    remote: Callable[[Mapping[str, object]], Trace] | None = None
    """Function that renders an isolated template in its process; None for other templates."""

    def trace(self, values: Mapping[str, object]) -> Trace:
        """Render the template with values by name.

        Raises:
            TemplateError: A value is undefined, has no text, is not allowed, or exceeds the limits.
        """
        if self.remote is not None and self.literal is None:
            return self.remote(values)
        code = self.code
        if code is None:
            texts = [self.literal] if self.literal else []
            # Literal text can have any length, because limits apply only to templates that evaluate something.
            return Trace((), texts, [((None,) * len(texts), ())], sum(map(len, texts)))
        try:
            context = code.context(code.eval_context, values, Meter(self.limits))
            code.root(context)
            return Trace(self.sites, context.texts, context.marks, self.limits.output_chars, context.has_parts)
        except PromptError:
            raise
        except Exception as error:
            raise self._located(code, error, values) from error

    def _located(self, code: _Code, error: Exception, values: Mapping[str, object]) -> TemplateError:
        """Return the TemplateError for an exception of a rendering, with its line in the template."""
        message = _message(error, values, self.names)
        # The class of None, in our messages and in Python's.
        if "NoneType" in message:
            message += self._none_values(values)
        if not isinstance(error, TemplateOperationError):
            return TemplateError(message, file=self.file, line=code.line_of(error))
        return TemplateError(message, file=self.file, line=error.line or code.line_of(error), variable=error.variable)

    def _none_values(self, values: Mapping[str, object]) -> str:
        """Return the end of an error that None causes: the names of the template whose value is None, if any."""
        kwargs = values.get("additional_kwargs")
        names = [name for name in self.names if values.get(name, "") is None]
        if isinstance(kwargs, Mapping):
            names += [f"additional_kwargs.{name}" for name in self.kwargs if kwargs.get(name, "") is None]
        if not names:
            return ""
        values_text = ", ".join([f"{name} is None" for name in names])
        return f"; {values_text}: pass a value, or write {{% if {names[0]} %}} around its use"

    def __repr__(self) -> str:
        return f"Program({self.source[:40]!r})"


def _message(error: Exception, values: Mapping[str, object], names_read: Iterable[str]) -> str:
    match error:
        case UndefinedValue(owner=owner) if isinstance(owner, Mapping):
            # Empty mappings of several names can be the same object.
            owners = [name for name in names_read if values.get(name) is owner]
            if len(owners) != 1:
                return str(error)
            end = error.valid_names
            if not owner:
                end = f": {owners[0]} is empty"
            return f"{owners[0]}.{error.variable} is undefined{end}"
        case UndefinedName():
            names = [name for name in values if isinstance(name, str)]
            return f"{error}{nearest(str(error.variable), names)}"
        case TemplateOperationError():
            return str(error)
        case RecursionError():
            return "the template or its data nests too deeply"
        case MemoryError():
            return "the template needs more memory than available"
    return message_of(error)


def _literal(tree: nodes.Template) -> str | None:
    from jinja2 import nodes

    items = [item for node in tree.body for item in (node.nodes if isinstance(node, nodes.Output) else [node])]
    texts = [item.data for item in items if isinstance(item, nodes.TemplateData)]
    if len(texts) == len(items):
        return "".join(texts)
    return None


def _generate(tree: nodes.Template, analysis: Analysis, file: str | None, first_line: int) -> _Code:
    """Return the Python function of a checked syntax tree.

    Raises:
        TemplateError: Jinja or Python rejects the code, for example because too many loops are nested.
    """
    from jinja2 import TemplateSyntaxError
    from jinja2.nodes import EvalContext

    from agentkit_prompts.templates.sandbox.code_generator import TracingCodeGenerator, runtime_names
    from agentkit_prompts.templates.sandbox.prompt_environment import prompt_environment
    from agentkit_prompts.templates.sandbox.template_context import PromptContext

    environment = prompt_environment()
    filename = f"<template {file or ''}>"
    stream = StringIO()
    generator = TracingCodeGenerator(environment, None, filename, stream, optimized=False, sites=analysis.numbers)
    space: dict[str, Any] = {"environment": environment}
    try:
        generator.visit(tree)
        exec(compile(stream.getvalue(), filename, "exec"), space)
        space.update(runtime_names(generator))
    except TemplateSyntaxError as error:
        raise TemplateError(str(error.message), file=file, line=error.lineno + first_line - 1) from error
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise TemplateError(f"the template cannot be compiled: {error}", file=file, line=first_line) from error
    lines = [(code_line, line + first_line - 1) for line, code_line in generator.debug_info]
    return _Code(space["root"], PromptContext, EvalContext(environment), filename, lines)


def _compile(source: str, syntax: Syntax, file: str | None, first_line: int, limits: Limits) -> Program:
    if syntax != "jinja" and file is not None:
        # The parser of Jinja also omits the line break at the end of a file.
        source = source.removesuffix("\n").removesuffix("\r")
    if syntax == "literal":
        if MEDIA_OPENING in source:
            message = f"the text contains {MEDIA_OPENING!r}, which opens a media marker: pass media as content parts"
            raise TemplateError(message, file=file)
        return Program(source, file, limits, source)
    # Imported here, because a program without templates needs no parser and no code generator.
    from agentkit_prompts.templates.sandbox.parse import parse, parse_fstring
    from agentkit_prompts.templates.sandbox.static_analysis import analyse

    tree = (parse if syntax == "jinja" else parse_fstring)(source, file, first_line)
    literal = _literal(tree)
    if literal is not None:
        return Program(source, file, limits, literal)
    analysis = analyse(tree, first_line)
    code = _generate(tree, analysis, file, first_line)
    names = MappingProxyType(dict(sorted(analysis.names.items())))
    kwargs = MappingProxyType(dict(sorted(analysis.kwargs.items())))
    return Program(source, file, limits, None, names, analysis.required, kwargs, analysis.sites, code)


_compile_cached = lru_cache(maxsize=_MAX_PROGRAMS)(_compile)


def compile_program(
    source: str,
    *,
    syntax: Syntax = "jinja",
    file: str | None = None,
    first_line: int = 1,
    limits: Limits = DEFAULT,
) -> Program:
    """Compile a template, or return its cached program.

    Args:
        source: Text of the template.
        syntax: `jinja`, `fstring` for plain `{name}` fields, or `literal` for text that is never compiled.
        file: Name of the file for error messages; None without a file.
        first_line: Line of the file on which the text starts, counted from 1.
        limits: Maximum work of one rendering.

    Raises:
        TemplateError: The source is not a template, is too large, or uses unsupported syntax.
    """
    if not isinstance(source, str):
        raise TemplateError(f"expected a template as text, got {type(source).__name__}", file=file)
    if syntax not in get_args(Syntax):
        raise TemplateError(f"unknown template syntax {syntax!r}: expected jinja, fstring or literal", file=file)
    if syntax == "literal" or len(source) > _MAX_CACHED_SOURCE:
        return _compile(source, syntax, file, first_line, limits)
    return _compile_cached(source, syntax, file, first_line, limits)
