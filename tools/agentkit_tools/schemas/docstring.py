"""Docstrings in google, numpy and sphinx style: the prose that describes a tool, and a text per parameter."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import NamedTuple

__all__ = ["Description", "read_docstring"]

_STYLES = {
    "numpy": r"^(Parameters|Other Parameters|Returns|Yields|Raises|Examples?|Notes?)\n-{3,}[ \t]*$",
    "sphinx": r"^:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?)\b[^\n:]*:",
    "google": r"^(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Returns|Yields"
    r"|Receives|Raises|Exceptions|Warns|Examples?|Attributes):[ \t]*\n[ \t]+\S",
}


class Description(NamedTuple):
    """A docstring, split."""

    text: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Description:
    """Split a docstring into prose and the descriptions of parameters.

    What a call returns stays in the prose, as one sentence; what it raises, examples and types are left out: they are
    meant for who reads the code.
    """
    if not text or not (text := cleandoc(text)):
        return Description("", {})
    for style, section in _STYLES.items():
        if re.search(section, text, re.MULTILINE):  # compiled when it is first needed, then found in the cache of re
            return _parse(text, style)
    return Description(text.strip(), {})


def _parse(text: str, style: str) -> Description:
    from griffe import Docstring, DocstringSectionKind  # 0.1 s to import: only who needs it pays

    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in Docstring(text).parse(style, warnings=False):  # type: ignore[arg-type]
        kind = section.kind
        if kind is DocstringSectionKind.text:
            prose.append(section.value.strip())
        elif kind in (DocstringSectionKind.parameters, DocstringSectionKind.other_parameters):
            for parameter in section.value:
                parameters.setdefault(parameter.name.lstrip("*"), _one_line(parameter.description))
        elif kind in (DocstringSectionKind.returns, DocstringSectionKind.yields):
            if texts := [_one_line(item.description) for item in section.value if item.description]:
                prose.append(f"Returns: {' '.join(texts)}")
        elif kind is DocstringSectionKind.admonition:
            admonition = section.value
            prose.append(f"{section.title or admonition.kind.capitalize()}: {_one_line(admonition.description)}")
    return Description("\n\n".join(part for part in prose if part), {k: v for k, v in parameters.items() if v})


def _one_line(text: str) -> str:
    return re.sub(r"[ \t]*\n[ \t]*", " ", text.strip())
