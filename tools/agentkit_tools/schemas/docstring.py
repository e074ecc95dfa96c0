"""Parser of docstrings in the styles of Google, NumPy and Sphinx: description of a tool and of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from textwrap import dedent
from typing import NamedTuple


class Description(NamedTuple):
    """Parts of a docstring."""

    text: str
    parameters: dict[str, str]


class _Style(NamedTuple):
    """Patterns of one style. They are compiled on first use and cached by `re`."""

    section: str
    """A section that is not prose, or a field of Sphinx. The groups `parameters` and `returns` match its heading."""
    item: str
    """Names and text of one parameter in the body of a section."""
    type: str
    """Type of the return value in the body of a section."""


_ARGUMENTS = r"(?P<parameters> (?:keyword[ ]|other[ ])? (?:arg(?:ument)?s | param(?:eter)?s) | attributes)"
_PARAMETERS = r"(?P<parameters> (?:other[ ])? parameters | attributes)"
_OTHERS = r"""(?P<returns> returns? | yields?) | (?P<remark> note | important | tip | caution | warnings?)
    | receives | raises | exceptions | warns | methods | functions"""
_FIELDS = r"""(?P<parameters> param | parameter | arg | argument | key | keyword | var | ivar | cvar)
    | (?P<returns> returns?) | raises? | except | exception | type | rtype | vartype"""
# The look-behinds start a name at its first character only: a search takes linear time.
_NAME = r"(?:-[ ])? (?<![\\*`]) [\\*`]*+ (?<!\w) \w++ `*+"
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
        rf"(?sx): [^:]*? (?P<names> {_NAME}) (?:=\w++)? : (?P<text> .*)",
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
"""Sections that a model does not need to call a tool; they can be longer than the rest."""
_OPENS_ASIDE = rf"""(?imx)^(?:
    (?P<underlined>{_ASIDES}) [ \t]* \n [-=~^]{{3,}} [ \t]* $
    | (?P<block>{_ASIDES}) ::? [ \t]* (?=\n \s*? [ \t]+ \S)
    | [#]+ [ \t]* (?P<marked>{_ASIDES}) :? [ \t]* $
    | \.\. [ \t]+ rubric:: [ \t]* (?P<rubric>{_ASIDES}) [ \t]* $
    | (?P<directive> \.\. [ \t]+ (?: seealso:: | plot:: | todo:: | \[ [^\]\n]+ \]))
    | (?P<doctest> >>> [ \t])
    )"""
_SECTION = r"(?m)^(?:\S[^\n]*\n[-=~^]{3,}[ \t]*$|:\w++[^\n:]*+:|#+[ \t]+\S|\.\.[ \t]+rubric::)"
_ENDS_ASIDE = {"block": r"(?m)^\S", "directive": r"(?m)^\S", "doctest": r"(?m)^[ \t]*$"}
_FOOTNOTE = r"[ \t]?\[[\w#*]{1,40}\]_(?!\w)"


def read_docstring(text: str | None) -> Description:
    """Split a docstring into prose and the descriptions of parameters. Lists and line breaks are preserved.

    The section of the return value becomes a sentence of the prose. Exceptions, types, examples, notes and references
    are omitted: a model does not need them.
    """
    if not text or not (text := _without_asides(cleandoc(text))):
        return Description("", {})
    for style in _STYLES:
        if re.search(style.section, text):
            return _parse(text, style)
    return Description(text, {})


def _without_asides(text: str) -> str:
    """Remove the sections that a model does not need, and the footnote marks that refer to them."""
    parts: list[str] = []
    start, opens = 0, re.compile(_OPENS_ASIDE)
    while (opening := opens.search(text, start)) is not None:
        parts.append(text[start : opening.start()])
        end = re.compile(_ENDS_ASIDE.get(opening.lastgroup or "", _SECTION)).search(text, opening.end())
        start = len(text) if end is None else end.start()
    return re.sub(_FOOTNOTE, "", "".join([*parts, text[start:]])).strip()


def _descriptions(style: _Style, body: str) -> Iterator[tuple[str, str]]:
    """Yield the names of parameters in a section, each with its text."""
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
            for name, description in _descriptions(style, body):
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
