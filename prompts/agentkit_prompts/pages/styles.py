"""`Style`: facts of CSS declarations that decide about the visibility of an element."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

Visibility: TypeAlias = Literal["shown", "hidden", "doubtful", "invisible", "tiny", "drawing"]
"""Visibility of the text of an element. Text in a hidden element is never seen.

A doubtful element is navigation, a footer or a cookie banner. It is left out unless it contains much text: then its
end tag is missing. An element in an invisible, tiny or drawing
element can be shown again by its style, or because it is a text of a drawing.
"""

Means: TypeAlias = Literal["display", "opacity", "size", "place", "colour"]
"""Means by which a style hides an element: each can be undone by another value of the same property."""

_MAX_VALUE = 200
"""Maximum characters of a value that is read."""
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SIZE = re.compile(r"(\d++(?:\.\d++)?+|\.\d++)(px|pt|em|rem|ex|ch|vw|%)?+")
_SMALLEST = {"px": 1.0, "pt": 0.75, "%": 5.0}
"""Largest size of text that is too small to see, by its unit; 0.05 for other units."""
_AWAY = re.compile(r"-(\d{1,9})(?:\.\d*)?(px|pt|em|rem|vw|vh|%)")
_FAR = {"px": 900, "pt": 700, "em": 50, "rem": 50}
"""Distance from the page at which text is out of sight, by its unit; 101 for other units."""
_ZERO = re.compile(r"(?:0++(?:\.0*+)?|\.0++)(?:px|pt|em|rem|%|vh|vw)?")
_CUT = re.compile(r"inset\((?:5\d|[6-9]\d|\d{3,9})(?:\.\d+)?%|circle\(0\D")
_SHRUNK = re.compile(r"scale(?:3d|x|y)?\(0(?:\.0+)?[,)]")
_MOVED = re.compile(r"translate(?:3d|x|y)?\(([^,)]*)(?:,\s*([^,)]*))?")
_CLEAR = re.compile(r"transparent|#[0-9a-f]{3}0|#[0-9a-f]{6}00|(?:rgb|hsl)a?\(.*[,/]\s*(?:0|0?\.0+|0%)\s*\)")


class Style(NamedTuple):
    """Facts of a style."""

    hides: frozenset[Means] = frozenset()
    shows: frozenset[Means] = frozenset()
    visibility: Visibility | None = None
    font: Visibility | None = None


@lru_cache(maxsize=4096)
def style_of(declarations: str) -> Style:
    """Return the facts of the declarations of a style attribute or a rule."""
    values: dict[str, str] = {}
    for declaration in _COMMENT.sub("", declarations).lower().split(";"):
        name, _, value = declaration.partition(":")
        if value and len(value) <= _MAX_VALUE:
            values[name.strip()] = value.replace("!important", "").replace("! important", "").strip()
    visibility = font = None
    if "visibility" in values:
        visibility = _visibility_value(values["visibility"])
    if "font-size" in values:
        font = _font_value(values["font-size"])
    elif values.get("font", "").startswith(("0/", "0 ", "0px")):
        font = "tiny"
    hides: dict[Means, bool] = {
        "display": values.get("display") == "none" or values.get("content-visibility") == "hidden",
        "opacity": _is_clear(values),
        "size": _has_no_size(values),
        "place": _is_far_away(values),
        "colour": _is_camouflaged(values),
    }
    shows: set[Means] = set()
    if values.get("display", "none") != "none" or visibility == "shown":
        shows.add("display")
    if "opacity" in values:
        shows.add("opacity")
    if not {"height", "max-height", "width", "max-width", "transform", "clip", "clip-path"}.isdisjoint(values):
        shows.add("size")
    hidden: frozenset[Means] = frozenset([means for means, is_hidden in hides.items() if is_hidden])
    return Style(hidden, frozenset(shows) - hidden, visibility, font)


def _visibility_value(value: str) -> Visibility | None:
    if value in ("hidden", "collapse"):
        return "invisible"
    if value == "visible":
        return "shown"
    return None


def _font_value(value: str) -> Visibility | None:
    size = _SIZE.fullmatch(value)
    if size is None:
        return None
    if float(size[1]) <= _SMALLEST.get(size[2] or "px", 0.05):
        return "tiny"
    # A size that is relative to a tiny size is tiny too.
    return None if size[2] in ("em", "%", "ex", "ch") else "shown"


def _is_clear(values: Mapping[str, str]) -> bool:
    """True if the element is transparent, and no animation makes it opaque."""
    value = values.get("opacity", "")
    if not value and values.get("filter", "").replace(" ", "") in ("opacity(0)", "opacity(0%)"):
        value = "0"
    return bool(value) and _ZERO.fullmatch(value) is not None and not _is_animated(values)


def _has_no_size(values: Mapping[str, str]) -> bool:
    """True if the element is clipped or shrunk to nothing, and no animation unfolds it."""
    if _is_animated(values):
        return False
    if _is_clipped(values) or _SHRUNK.search(values.get("transform", "")):
        return True
    if values.get("overflow") not in ("hidden", "clip"):
        return False
    sizes = (values.get(name, "") for name in ("height", "max-height", "width", "max-width"))
    return any(size and _ZERO.fullmatch(size) for size in sizes)


def _is_clipped(values: Mapping[str, str]) -> bool:
    """True if the visible part of the element is empty."""
    clip = values.get("clip", "")
    if clip.startswith("rect(") and len(set(clip[5:-1].replace(",", " ").split())) == 1:
        return True
    return any(_CUT.match(values.get(name, "")) for name in ("clip-path", "-webkit-clip-path"))


def _is_animated(values: Mapping[str, str]) -> bool:
    return any(name.removeprefix("-webkit-").startswith(("animation", "transition")) for name in values)


def _is_far_away(values: Mapping[str, str]) -> bool:
    if any(_is_away(values.get(name, "")) for name in ("text-indent", "margin-left", "margin-top")):
        return True
    moved = _MOVED.search(values.get("transform", ""))
    # An element that is moved by its own size is still near its place.
    if moved is not None and any(_is_away(way or "") for way in moved.groups() if not (way or "").endswith("%")):
        return True
    if values.get("position") not in ("absolute", "fixed", "relative"):
        return False
    return any(_is_away(values.get(side, "")) for side in ("left", "top", "right", "bottom"))


def _is_away(value: str) -> bool:
    distance = _AWAY.fullmatch(value)
    return distance is not None and int(distance[1]) >= _FAR.get(distance[2], 101)


def _is_camouflaged(values: Mapping[str, str]) -> bool:
    """True if the text is transparent, or has the colour of its background."""
    background = values.get("background-color") or values.get("background")
    color = values.get("color", "")
    if _CLEAR.fullmatch(color):
        # A background that is clipped to the text paints the text.
        return not any(name.endswith(("background-clip", "text-shadow", "text-stroke")) for name in values)
    return bool(color and background) and _color(color) == _color(background or "")


def _color(value: str) -> str:
    names = {"white": "#ffffff", "black": "#000000", "rgb(255,255,255)": "#ffffff", "rgb(0,0,0)": "#000000"}
    value = value.replace(" ", "")
    if re.fullmatch("#[0-9a-f]{3}", value):
        value = "#" + "".join(digit * 2 for digit in value[1:])
    return names.get(value, value)
