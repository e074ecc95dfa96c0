"""Fonts of a PDF page whose characters are unknown: their codes are numbers of glyphs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_MAX_FORMS = 200
"""Maximum form objects of a page whose fonts are examined."""
_GLYPH_NUMBER = re.compile(
    r"/(?:[a-tv-z]|c[0-9]_|cid|gid|glyph|index|char|uni_)[_.]?(?=[a-f]*[0-9])[0-9a-f]{1,5}", re.IGNORECASE
)
"""Names of glyphs that are decimal or hexadecimal numbers. A name of the letter u and digits is a Unicode character.
The names a1 to a206 of the font ZapfDingbats are signs, and no letters either."""

_CHARACTER_SET = re.compile(r"/(?:GBK?2?K?|GBpc|ETen(?:ms)?|90ms|Uni[A-Za-z0-9]+)-(?:EUC|B5|RKSJ|UCS2|UTF16|[HV]\Z)")
"""Encodings by name that the library decodes. It returns wrong characters for other encodings."""
_SYMBOLIC = 4
"""Flag of a font whose characters are not Latin, or not in a standard encoding."""


@dataclass(slots=True)
class PageFonts:
    """The ids of font objects of a page, also of its form objects, whose codes are not characters."""

    unmapped: set[int] = field(default_factory=set)
    """Fonts without a character map."""
    doubtful: set[int] = field(default_factory=set)
    """Fonts without a character map whose codes often are characters: only their text shows it."""


def page_fonts(page: Any) -> PageFonts:
    """Return the fonts of a page whose codes are not characters, or perhaps not."""
    fonts = PageFonts()
    seen: set[int] = set()
    waiting = [_resources(page)]
    while waiting and len(seen) < _MAX_FORMS:
        resources = waiting.pop()
        if id(resources) in seen:
            continue
        seen.add(id(resources))
        for font in _values(resources, "/Font"):
            if _is_unmapped(font):
                fonts.unmapped.add(id(font))
            elif _is_doubtful(font):
                fonts.doubtful.add(id(font))
        for form in _values(resources, "/XObject"):
            if form.get("/Subtype") == "/Form" and "/Resources" in form:
                waiting.append(form["/Resources"].get_object())
    return fonts


def _resources(page: Any) -> Any:
    """Return the resources of a page, which its parents can contain."""
    node = page
    for _ in range(50):
        if "/Resources" in node:
            return node["/Resources"].get_object()
        if "/Parent" not in node:
            break
        node = node["/Parent"].get_object()
    return {}


def _values(resources: Any, name: str) -> list[Any]:
    names = _object(resources, name)
    if not hasattr(names, "values"):
        return []
    values = [each.get_object() for each in names.values()]
    return [value for value in values if hasattr(value, "get")]


def _object(holder: Any, name: str) -> Any:
    """Return the value of a dictionary, or None."""
    value = holder.get(name) if hasattr(holder, "get") else None
    return value.get_object() if value is not None else None


def _is_unmapped(font: Any) -> bool:
    """Return True if the codes of a font cannot be read as characters."""
    to_unicode = _object(font, "/ToUnicode")
    if to_unicode is not None:
        return hasattr(to_unicode, "get_data") and not _has_mappings(to_unicode)
    encoding = _object(font, "/Encoding")
    if font.get("/Subtype") == "/Type0":
        # An embedded encoding leads to numbers of glyphs too.
        return encoding is None or hasattr(encoding, "get_data") or not _CHARACTER_SET.match(str(encoding))
    differences = _object(encoding, "/Differences")
    if not isinstance(differences, list):
        return False
    names = [str(each) for each in differences if isinstance(each, str) and each != "/.notdef"]
    numbers = [name for name in names if _GLYPH_NUMBER.fullmatch(name)]
    return len(numbers) > len(names) / 2


def _is_doubtful(font: Any) -> bool:
    """Return True if the codes of a font are the codes of its font program, which is not read."""
    if "/ToUnicode" in font or "/Encoding" in font or font.get("/Subtype") not in ("/TrueType", "/Type3"):
        return False
    flags = _object(_object(font, "/FontDescriptor"), "/Flags")
    return not isinstance(flags, int) or bool(flags & _SYMBOLIC)


def _has_mappings(to_unicode: Any) -> bool:
    data = to_unicode.get_data()
    return b"bfchar" in data or b"bfrange" in data or b"usecmap" in data or b"cidrange" in data
