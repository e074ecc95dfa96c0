"""Docstrings in google, numpy and sphinx style: the prose that describes a tool, and a text per parameter."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import NamedTuple

__all__ = ["read_docstring"]

_STYLES = {
    "numpy": r"^(Parameters|Other Parameters|Returns|Yields|Receives|Raises|Warns|Warnings|Attributes|Methods)"
    r"\n-{3,}[ \t]*$",
    "sphinx": r"^:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?)\b[^\n:]*:",
    "google": r"^(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Returns|Yields"
    r"|Receives|Raises|Exceptions|Warns|Attributes|Note|Warning):[ \t]*\n[ \t]+\S",
}
_NAMES = "examples?|usage[ ]examples?|see[ ]also|notes|references?|todo"
"""Sections for who reads the code: a model needs none of them to call a tool, and they may be longer than the rest."""
_OPENS_ASIDE = rf"""(?imx)^(?:
    (?P<underlined>{_NAMES}) [ \t]* \n [-=~^]{{3,}} [ \t]* $
    | (?P<block>{_NAMES}) ::? [ \t]* (?=\n \s*? [ \t]+ \S)
    | [#]+ [ \t]* (?P<marked>{_NAMES}) :? [ \t]* $
    | \.\. [ \t]+ rubric:: [ \t]* (?P<rubric>{_NAMES}) [ \t]* $
    | (?P<directive> \.\. [ \t]+ (?: seealso:: | plot:: | todo:: | \[ [^\]\n]+ \]))
    | (?P<doctest> >>> [ \t])
    )"""
"""Like all patterns here compiled when it is first needed, then found in the cache of re."""
_SECTION = r"(?m)^(?:\S[^\n]*\n[-=~^]{3,}[ \t]*$|:\w+[^\n:]*:|#+[ \t]+\S|\.\.[ \t]+rubric::)"
_ENDS_ASIDE = {"block": r"(?m)^\S", "directive": r"(?m)^\S", "doctest": r"(?m)^[ \t]*$"}
_FOOTNOTE = r"[ \t]?\[[\w#*]{1,40}\]_(?!\w)"


class Description(NamedTuple):
    """A docstring, split."""

    text: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Description:
    """Split a docstring into prose and the descriptions of parameters, whose lists and line breaks stay.

    What a call returns stays in the prose, as one sentence; what it raises, types, examples, notes, references and
    what else there is to see are left out: they are meant for who reads the code.
    """
    if not text or not (text := _without_asides(cleandoc(text))):
        return Description("", {})
    for style, section in _STYLES.items():
        if re.search(section, text, re.MULTILINE):
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


def _parse(text: str, style: str) -> Description:
    from griffe import Docstring, DocstringSectionKind  # 0.1 s to import: only who needs it pays

    kinds = DocstringSectionKind
    parameter_kinds = (kinds.parameters, kinds.other_parameters, kinds.attributes)  # the fields of a class
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in Docstring(text).parse(style, warnings=False):  # type: ignore[arg-type]
        kind = section.kind
        if kind is kinds.text:
            prose.append(section.value.strip())
        elif kind in parameter_kinds:
            for parameter in section.value:
                parameters.setdefault(parameter.name.lstrip("*"), parameter.description.strip())
        elif kind in (kinds.returns, kinds.yields):
            if texts := [item.description.strip() for item in section.value if item.description]:
                prose.append(f"Returns: {' '.join(texts)}")
        elif kind is kinds.admonition:
            admonition = section.value
            prose.append(f"{section.title or admonition.kind.capitalize()}: {admonition.description.strip()}")
    return Description("\n\n".join(part for part in prose if part), {k: v for k, v in parameters.items() if v})
