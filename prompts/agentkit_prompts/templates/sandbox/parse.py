"""Parsers of prompt templates in Jinja or f-string syntax. Both return a checked syntax tree of Jinja."""

from __future__ import annotations

import re

from jinja2 import TemplateSyntaxError, nodes

from agentkit_prompts.context.parts import MEDIA_OPENING
from agentkit_prompts.errors import TemplateError
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.names import nearest
from agentkit_prompts.templates.sandbox.bounded_environment import levels
from agentkit_prompts.templates.sandbox.meter import MAX_INT_BITS
from agentkit_prompts.templates.sandbox.operations import OPERATIONS
from agentkit_prompts.templates.sandbox.prompt_environment import prompt_environment

_MAX_FIELDS = 2_000
_BRACE = re.compile(r"\{\{|\}\}|\{([^{}\n]{0,200})\}|[{}]")
_CLOSINGS = {"{{": "}}", "{%": "%}", "{#": "#}"}
_DELIMITER = re.compile(r"\{[{%#]|[}%#]\}")
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Block: "{% block %}",
    nodes.Extends: "{% extends %}",
    nodes.FromImport: "{% from ... import %}",
    nodes.Import: "{% import %}",
    nodes.Include: "{% include %}",
    nodes.EvalContextModifier: "{% autoescape %}",
    nodes.ScopedEvalContextModifier: "{% autoescape %}",
}


def parse(source: str, file: str | None, first_line: int) -> nodes.Template:
    """Return the syntax tree of a template in Jinja syntax.

    Raises:
        TemplateError: The source is not a template, is too large, or uses unsupported syntax.
    """
    try:
        tree = prompt_environment().parse(source)
    except TemplateSyntaxError as error:
        message, line = error.message or "syntax error", error.lineno
        opening = _unclosed(source)
        # The message of Jinja describes the text after the opening, which can be on a later line.
        if opening is not None:
            message = f"{opening[0]!r} is not closed: write {_CLOSINGS[opening[0]]!r} after it"
            line = source.count("\n", 0, opening.start()) + 1
        raise TemplateError(message, file=file, line=line + first_line - 1) from error
    except RecursionError as error:
        raise TemplateError("the template nests too deeply", file=file, line=first_line) from error
    except (ValueError, OverflowError) as error:
        raise TemplateError(f"invalid number: {error}", file=file, line=first_line) from error
    _check(tree, file, first_line)
    return tree


def _unclosed(source: str) -> re.Match[str] | None:
    """Return the first opening such as `{{` that is not closed before the next opening or the end; None if all are."""
    # Text between `{% raw %}` and `{% endraw %}` can contain any opening.
    if "raw" in source:
        return None
    opening: re.Match[str] | None = None
    for match in _DELIMITER.finditer(source):
        if opening is None:
            if match[0] in _CLOSINGS:
                opening = match
        elif match[0] == _CLOSINGS[opening[0]]:
            opening = None
        elif match[0] in _CLOSINGS and opening[0] != "{#":
            return opening
    return opening


def parse_fstring(source: str, file: str | None, first_line: int) -> nodes.Template:
    """Return the syntax tree of a template in f-string syntax.

    Raises:
        TemplateError: A brace is unmatched, or a field is not a plain name; the message contains the column.
    """
    items: list[nodes.Expr] = []
    literal = ""
    last = 0
    line = 1
    fields = 0

    def fail(message: str, offset: int) -> TemplateError:
        column = offset - source.rfind("\n", 0, offset)
        return TemplateError(f"{message} (column {column})", file=file, line=line + first_line - 1)

    for match in _BRACE.finditer(source):
        text = source[last : match.start()]
        line += text.count("\n")
        literal += text
        last = match.end()
        if match[0] in ("{{", "}}"):
            literal += match[0][0]
            continue
        name = match[1]
        if name is None:
            raise fail(f"a single {match[0]!r}: write {match[0] * 2!r} for the character itself", match.start())
        if not name.isidentifier() or name[:1] == "_":
            raise fail(f"{{{name[:40]}}} is not a plain name: f-string templates accept only {{name}}", match.start())
        fields += 1
        if fields > _MAX_FIELDS:
            raise fail(f"the template has more than {_MAX_FIELDS:,} fields", match.start())
        if literal:
            items.append(nodes.TemplateData(literal, lineno=line))
            literal = ""
        items.append(nodes.Name(name, "load", lineno=line))
    literal += source[last:]
    if literal or not items:
        items.append(nodes.TemplateData(literal, lineno=line))
    tree = nodes.Template([nodes.Output(items, lineno=1)], lineno=1)
    tree.set_environment(prompt_environment())
    _check(tree, file, first_line)
    return tree


def _check(tree: nodes.Template, file: str | None, first_line: int) -> None:
    """Reject unsupported nodes, and unknown filters and tests."""
    for level in levels(tree):
        for node in level:
            problem = _problem(node) or _unknown_name(node)
            if problem is not None:
                name = getattr(node, "name", None) or getattr(node, "attr", None)
                raise TemplateError(problem, file=file, line=node.lineno + first_line - 1, name=name)


def _problem(node: nodes.Node) -> str | None:
    match node:
        case nodes.TemplateData() if MEDIA_OPENING in node.data:
            return (
                f"the template itself contains {MEDIA_OPENING!r}, which opens a media marker: pass media as content "
                f"parts"
            )
        case nodes.Const(value=int() as number) if number.bit_length() > MAX_INT_BITS:
            return "the number is too large"
        case nodes.Getattr() | nodes.NSRef() if node.attr[:1] == "_":
            return f"{node.attr[:MAX_SHOWN_CHARS]!r} is private: templates read public names only"
    refused = _REFUSED.get(type(node))
    if refused is not None:
        return f"{refused} is not part of prompt templates: compose prompts as a tree, for example with WrapPrompt"
    return None


def _unknown_name(node: nodes.Node) -> str | None:
    environment = prompt_environment()
    if isinstance(node, nodes.Filter) and node.name not in environment.filters:
        for row in OPERATIONS:
            if row.kind == "filter" and row.is_removed(is_prompt=True) and node.name in row.names.split():
                return f"the filter {node.name!r} is not available in templates: {row.reason}"
        return f"unknown filter {node.name!r}{nearest(node.name, environment.filters)}"
    if isinstance(node, nodes.Test) and node.name not in environment.tests:
        return f"unknown test {node.name!r}{nearest(node.name, environment.tests)}"
    return None
