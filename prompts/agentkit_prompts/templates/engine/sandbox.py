"""The Jinja environment that parses templates, and the checks that refuse one before any of it is compiled."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream

from agentkit_prompts.errors import TemplateError, nearest
from agentkit_prompts.templates.engine.filters import FILTERS
from agentkit_prompts.templates.engine.finalise import OPENING
from agentkit_prompts.templates.engine.is_tests import TESTS

__all__ = ["check", "parse"]

_MAX_SOURCE = 1_000_000
_MAX_TOKENS = 8_000
_MAX_DEPTH = 60
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Block: "{% block %}",
    nodes.Extends: "{% extends %}",
    nodes.FromImport: "{% from ... import %}",
    nodes.Import: "{% import %}",
    nodes.Include: "{% include %}",
    nodes.EvalContextModifier: "{% autoescape %}",
    nodes.ScopedEvalContextModifier: "{% autoescape %}",
}


class _CountTokens(Extension):
    """Stops a hostile template while it is still being read."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        """Pass tokens on until there are too many."""
        for count, token in enumerate(stream):
            if count > _MAX_TOKENS:
                raise TemplateSyntaxError(f"the template has more than {_MAX_TOKENS:,} tokens", token.lineno)
            yield token


_ENVIRONMENT = Environment(extensions=[_CountTokens], autoescape=False, cache_size=0)
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
    check(tree, file, first_line)
    return tree


def check(tree: nodes.Template, file: str | None, first_line: int) -> None:
    """Refuse nodes that prompts may not use, unknown filters and tests, and nesting that Python cannot compile."""
    level: list[nodes.Node] = [tree]
    depth = 0
    while level:
        depth += 1
        deeper: list[nodes.Node] = []
        for node in level:
            problem = _problem(node)
            if problem is None and depth > _MAX_DEPTH:
                problem = (
                    f"the template nests deeper than {_MAX_DEPTH} levels; join long sums with ~ or split them with set"
                )
            if problem is not None:
                raise TemplateError(problem, file=file, line=node.lineno + first_line - 1)
            deeper.extend(node.iter_child_nodes())
        level = deeper


def _problem(node: nodes.Node) -> str | None:
    refused = _REFUSED.get(type(node))
    if refused is not None:
        return f"{refused} is not part of prompt templates: compose prompts as a tree, for example with WrapPrompt"
    if isinstance(node, nodes.Filter) and node.name not in FILTERS:
        return f"there is no filter {node.name!r}{nearest(node.name, FILTERS)}"
    if isinstance(node, nodes.Test) and node.name not in TESTS:
        return f"there is no test {node.name!r}{nearest(node.name, TESTS)}"
    if isinstance(node, nodes.TemplateData) and OPENING in node.data:
        return f"the template itself holds {OPENING!r}, which opens a media marker: give media as content parts"
    if isinstance(node, nodes.Const) and isinstance(node.value, int) and node.value.bit_length() > 8192:
        return "the number is too large"
    if isinstance(node, nodes.Getattr) and node.attr[:1] == "_":
        return f"{node.attr[:80]!r} is private: templates read public names only"
    return None
