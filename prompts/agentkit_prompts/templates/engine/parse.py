"""From the text of a template, in Jinja's syntax or as an f-string, to a syntax tree that prompts may use."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from agentkit_prompts.context.parts import MEDIA_OPENING
from agentkit_prompts.errors import TemplateError
from agentkit_prompts.names import nearest
from agentkit_prompts.templates.operations.filters import FILTERS
from agentkit_prompts.templates.operations.is_tests import TESTS

__all__ = ["count_tokens", "levels", "parse", "parse_fstring"]

_MAX_SOURCE = 1_000_000
_MAX_TOKENS = 8_000
_MAX_DEPTH = 60
_MAX_FIELDS = 2_000
_BRACE = re.compile(r"\{\{|\}\}|\{([^{}\n]{0,200})\}|[{}]")
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Block: "{% block %}",
    nodes.Extends: "{% extends %}",
    nodes.FromImport: "{% from ... import %}",
    nodes.Import: "{% import %}",
    nodes.Include: "{% include %}",
    nodes.EvalContextModifier: "{% autoescape %}",
    nodes.ScopedEvalContextModifier: "{% autoescape %}",
}


def count_tokens(most: int) -> type[Extension]:
    """Return an extension that stops a hostile template while it is still being read."""

    class CountTokens(Extension):
        def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
            for count, token in enumerate(stream):
                if count > most:
                    raise TemplateSyntaxError(f"the template has more than {most:,} tokens", token.lineno)
                yield token

    return CountTokens


def levels(tree: nodes.Node) -> Iterator[list[nodes.Node]]:
    """Yield the nodes of a tree by their depth, without recursion."""
    level = [tree]
    while level:
        yield level
        level = [child for node in level for child in node.iter_child_nodes()]


_ENVIRONMENT = Environment(extensions=[count_tokens(_MAX_TOKENS)], autoescape=False, cache_size=0)
"""Parses templates; nothing is rendered with it."""


def parse(source: str, file: str | None, first_line: int) -> nodes.Template:
    """Return the syntax tree of a template.

    Raises:
        TemplateError: It is not a template, is too large, or uses what prompts may not use.
    """
    if len(source) > _MAX_SOURCE:
        raise TemplateError(f"the template is longer than {_MAX_SOURCE:,} characters", file=file, line=first_line)
    try:
        tree = _ENVIRONMENT.parse(source)
    except TemplateSyntaxError as error:
        message = error.message or "syntax error"
        raise TemplateError(message, file=file, line=error.lineno + first_line - 1) from error
    except RecursionError as error:
        raise TemplateError("the template nests too deeply", file=file, line=first_line) from error
    except (ValueError, OverflowError) as error:
        raise TemplateError(f"a number cannot be read: {error}", file=file, line=first_line) from error
    _check(tree, file, first_line)
    return tree


def parse_fstring(source: str, file: str | None, first_line: int) -> nodes.Template:
    """Return the syntax tree of a template in f-string syntax.

    Raises:
        TemplateError: A brace is alone, or a field is not a plain name; the message gives the column.
    """
    items: list[nodes.Expr] = []
    literal = ""
    last = 0
    line = 1
    fields = 0

    def fail(message: str, at: int) -> TemplateError:
        column = at - (source.rfind("\n", 0, at) + 1) + 1
        return TemplateError(f"{message} (column {column})", file=file, line=line + first_line - 1)

    for found in _BRACE.finditer(source):
        text = source[last : found.start()]
        line += text.count("\n")
        literal += text
        last = found.end()
        if found[0] in ("{{", "}}"):
            literal += found[0][0]
            continue
        name = found[1]
        if name is None:
            raise fail(f"a single {found[0]!r}: write {found[0] * 2!r} for the character itself", found.start())
        if not name.isidentifier() or name[:1] == "_":
            raise fail(f"{{{name[:40]}}} is not a plain name: f-string templates take {{name}} only", found.start())
        fields += 1
        if fields > _MAX_FIELDS:
            raise fail(f"the template has more than {_MAX_FIELDS:,} fields", found.start())
        if literal:
            items.append(nodes.TemplateData(literal, lineno=line))
            literal = ""
        items.append(nodes.Name(name, "load", lineno=line))
    literal += source[last:]
    if literal or not items:
        items.append(nodes.TemplateData(literal, lineno=line))
    tree = nodes.Template([nodes.Output(items, lineno=1)], lineno=1)
    _check(tree, file, first_line)
    return tree


def _check(tree: nodes.Template, file: str | None, first_line: int) -> None:
    """Refuse nodes that prompts may not use, unknown filters and tests, and nesting that Python cannot compile."""
    for depth, level in enumerate(levels(tree), start=1):
        for node in level:
            problem = _problem(node)
            if problem is None and depth > _MAX_DEPTH:
                problem = (
                    f"the template nests deeper than {_MAX_DEPTH} levels; join long sums with ~ or split them with set"
                )
            if problem is not None:
                raise TemplateError(problem, file=file, line=node.lineno + first_line - 1)


def _problem(node: nodes.Node) -> str | None:
    refused = _REFUSED.get(type(node))
    if refused is not None:
        return f"{refused} is not part of prompt templates: compose prompts as a tree, for example with WrapPrompt"
    if isinstance(node, nodes.Filter) and node.name not in FILTERS:
        return f"there is no filter {node.name!r}{nearest(node.name, FILTERS)}"
    if isinstance(node, nodes.Test) and node.name not in TESTS:
        return f"there is no test {node.name!r}{nearest(node.name, TESTS)}"
    if isinstance(node, nodes.TemplateData) and MEDIA_OPENING in node.data:
        return f"the template itself holds {MEDIA_OPENING!r}, which opens a media marker: give media as content parts"
    if isinstance(node, nodes.Const) and isinstance(node.value, int) and node.value.bit_length() > 8192:
        return "the number is too large"
    if isinstance(node, nodes.Getattr) and node.attr[:1] == "_":
        return f"{node.attr[:80]!r} is private: templates read public names only"
    return None
