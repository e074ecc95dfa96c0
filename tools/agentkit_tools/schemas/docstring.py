"""Docstrings in google, numpy and sphinx style: the prose that describes a tool, and a text per parameter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from textwrap import dedent
from typing import NamedTuple

__all__ = ["read_docstring"]


class Description(NamedTuple):
    """A docstring, split."""

    text: str
    parameters: dict[str, str]


class _Style(NamedTuple):
    """Patterns of one notation; like all here compiled when first needed, then found in the cache of re."""

    section: str
    """A section that is not prose; in sphinx style a field. Its `parameters` or `returns` are set where it has some."""
    item: str
    """The names and the text of one parameter in the body of a section."""
    type: str
    """What in the body of a section is the type of what is returned."""


_ARGUMENTS = r"(?P<parameters> (?:keyword[ ]|other[ ])? (?:arg(?:ument)?s | param(?:eter)?s) | attributes)"
_PARAMETERS = r"(?P<parameters> (?:other[ ])? parameters | attributes)"
_OTHERS = r"""(?P<returns> returns? | yields?) | (?P<remark> note | important | tip | caution | warnings?)
    | receives | raises | exceptions | warns | methods | functions"""
_FIELDS = r"""(?P<parameters> param | parameter | arg | argument | key | keyword | var | ivar | cvar)
    | (?P<returns> returns?) | raises? | except | exception | type | rtype | vartype"""
_NAME = r"(?:-[ ])? [\\*`]* \w+ `*"
_NAMES = rf"(?P<names> {_NAME} (?:, [ ]? {_NAME})*)"
_LINE = r"[ \t]* \n -{3,} [ \t]* $"
_INDENTED = r"(?: \n (?!\S) .*)*"
_TYPE = r"[\w.]+ (?:\[.*?\])?"
_STYLES = (
    # Numpy.
    _Style(
        rf"(?imx)^(?:{_PARAMETERS} | {_OTHERS}) :? {_LINE} (?P<body> (?: \n (?! \S.* \n---) .*)*)",
        rf"(?mx)^{_NAMES} .* (?P<text>{_INDENTED})",
        r"(?m)^\S.*\n?",
    ),
    # Sphinx.
    _Style(
        rf"(?mx)^(?P<body> : (?:{_FIELDS}) \b [^:\n]* : .* (?: \n (?: [ \t]+ \S.* | (?!:) \S.* | (?=\n[ \t\n])) )* )",
        rf"(?sx): [^:]*? (?P<names> {_NAME}) (?:=\w+)? : (?P<text> .*)",
        r"\A:.*?:",
    ),
    # Google.
    _Style(
        rf"(?imx)^(?:{_ARGUMENTS} | {_OTHERS}) : [ \t]* (?=\n[ \t]+\S) (?P<body>{_INDENTED})",
        rf"(?mx)^{_NAMES} [ ]* (?:\(.*?\))? [ ]* : (?P<text> .* {_INDENTED})",
        rf"(?x)\A (?:{_TYPE} (?:[ ]\|[ ]{_TYPE})*)? [ ]* (?:\(.*?\))? : \s",
    ),
)
_ASIDES = "examples?|usage[ ]examples?|see[ ]also|notes|references?|todo"
"""Sections for who reads the code: a model needs none of them to call a tool, and they may be longer than the rest."""
_OPENS_ASIDE = rf"""(?imx)^(?:
    (?P<underlined>{_ASIDES}) [ \t]* \n [-=~^]{{3,}} [ \t]* $
    | (?P<block>{_ASIDES}) ::? [ \t]* (?=\n \s*? [ \t]+ \S)
    | [#]+ [ \t]* (?P<marked>{_ASIDES}) :? [ \t]* $
    | \.\. [ \t]+ rubric:: [ \t]* (?P<rubric>{_ASIDES}) [ \t]* $
    | (?P<directive> \.\. [ \t]+ (?: seealso:: | plot:: | todo:: | \[ [^\]\n]+ \]))
    | (?P<doctest> >>> [ \t])
    )"""
_SECTION = r"(?m)^(?:\S[^\n]*\n[-=~^]{3,}[ \t]*$|:\w+[^\n:]*:|#+[ \t]+\S|\.\.[ \t]+rubric::)"
_ENDS_ASIDE = {"block": r"(?m)^\S", "directive": r"(?m)^\S", "doctest": r"(?m)^[ \t]*$"}
_FOOTNOTE = r"[ \t]?\[[\w#*]{1,40}\]_(?!\w)"


def read_docstring(text: str | None) -> Description:
    """Split a docstring into prose and the descriptions of parameters, whose lists and line breaks stay.

    What a call returns stays in the prose, as one sentence; what it raises, types, examples, notes, references and
    what else there is to see are left out: they are meant for who reads the code.
    """
    if not text or not (text := _without_asides(cleandoc(text))):
        return Description("", {})
    for style in _STYLES:
        if re.search(style.section, text):
            return _parse(text, style)
    return Description(text, {})


def _without_asides(text: str) -> str:
    """Cut the sections out that a model need not read, and the marks that refer to them."""
    kept: list[str] = []
    start, opens = 0, re.compile(_OPENS_ASIDE)
    while (found := opens.search(text, start)) is not None:
        kept.append(text[start : found.start()])
        end = re.compile(_ENDS_ASIDE.get(found.lastgroup or "", _SECTION)).search(text, found.end())
        start = len(text) if end is None else end.start()
    return re.sub(_FOOTNOTE, "", "".join([*kept, text[start:]])).strip()


def _described(style: _Style, body: str) -> Iterator[tuple[str, str]]:
    """Yield the names in a section of parameters, each with its text."""
    for item in re.finditer(style.item, body):
        for name in re.findall(r"\w+", item["names"]):
            yield name, cleandoc(item["text"])


def _parse(text: str, style: _Style) -> Description:
    prose: list[str] = []
    parameters: dict[str, str] = {}
    start = 0
    for section in re.finditer(style.section, text):
        prose.append(text[start : section.start()])
        start, body = section.end(), dedent(section["body"]).strip()
        if section["parameters"]:
            for name, description in _described(style, body):
                parameters.setdefault(name, description)
        else:
            prose.append(_prose(section, body, style))
    parts = [part.strip() for part in [*prose, text[start:]]]
    return Description("\n\n".join(filter(None, parts)), {name: text for name, text in parameters.items() if text})


def _prose(section: re.Match[str], body: str, style: _Style) -> str:
    """Return the text for the model in a section without parameters; "" if it has none."""
    if section["returns"]:
        returned = cleandoc(re.sub(style.type, "", body))
        return f"Returns: {returned}" if returned else ""
    remark = section.groupdict().get("remark")
    return f"{remark}: {body}" if remark else ""
