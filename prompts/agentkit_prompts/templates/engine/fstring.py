"""The f-string syntax: `{name}` with plain names, `{{` and `}}` for braces, nothing else."""

from __future__ import annotations

import re

from jinja2 import nodes

from agentkit_prompts.errors import TemplateError
from agentkit_prompts.templates.engine.sandbox import check

__all__ = ["parse_fstring"]

_BRACE = re.compile(r"\{\{|\}\}|\{([^{}\n]{0,200})\}|[{}]")
_MAX_FIELDS = 2_000


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
    check(tree, file, first_line)
    return tree
