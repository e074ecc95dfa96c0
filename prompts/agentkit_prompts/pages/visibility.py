"""Visibility of elements of a page: tags, attributes, styles, and names of navigation, footers and banners."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["FOREIGN", "HIDDEN_TAGS", "Visibility", "is_content", "style_of", "visibility_of"]

Visibility: TypeAlias = Literal["shown", "hidden", "doubtful", "invisible", "tiny", "drawing"]
"""Visibility of the text of an element. Text in a hidden element is never seen.

A doubtful element is navigation, a footer, a cookie banner, or hidden by a style sheet. It is left out unless it
contains much text: then its end tag is missing, or a script shows it. An element in an invisible, tiny or drawing
element can be shown again by its style, or because it is a text of a drawing.
"""

HIDDEN_TAGS = frozenset(
    {"script", "style", "template", "noscript", "iframe", "embed", "canvas", "audio", "video", "datalist", "rp"}
    | {"dialog", "noframes", "noembed"}
)
"""Elements that are not seen without an attribute that shows them."""
_CONTENT = frozenset({"main", "article", "section", "blockquote", "figure"})
"""Elements whose footer belongs to them and not to the page."""

FOREIGN = frozenset({"wbr", "source", "track", "keygen", "bgsound"})
"""Elements without an end that the parser ends with their parent."""

_CONTAINERS = frozenset({"div", "aside", "dialog", "form", "footer", "header", "ul", "ol", "p"})
_WHOLE_PAGE = frozenset({"html", "body", "main", "article"})
_NAVIGATION = re.compile(
    r"(?:site-?|page-?|global-?|main-?|primary-?|secondary-?|top-?|bottom-?)?(?:nav|navbar|navigation|footer)"
    r"|breadcrumbs?|colophon|skip-?(?:link|nav|to-?content|to-?main(?:-?content)?)s?"
)
_COOKIES = re.compile(
    r"(?:.*[-_])?(?:cookie|gdpr|ccpa|consent)s?[-_]?(?:(?:consent|law|privacy|policy|info)[-_]?)?"
    r"(?:banner|bar|notice|notification|popup|pop-up|modal|dialog|message|alert|overlay|consent|manager|box|wrapper"
    r"|container|disclaimer|warning)(?:[-_].*)?"
    r"|onetrust-(?:consent-sdk|banner-sdk|pc-sdk)|cybotcookiebotdialog|didomi-host|cc-window|qc-cmp2-container"
    r"|usercentrics-root|sp_message_container.*|iubenda-cs-banner|osano-cm-window|cky-consent.*|truste-consent.*"
)
_GUTTERS = frozenset(
    {"linenos", "linenodiv", "lineno", "gutter", "rouge-gutter", "line-numbers-rows", "hljs-ln-numbers"}
)
_WORDS = re.compile(r"[^\s]+")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SIZE = re.compile(r"(\d++(?:\.\d++)?+|\.\d++)(px|pt|em|rem|ex|ch|vw|%)?+")
_SMALLEST = {"px": 1.0, "pt": 0.75, "%": 5.0}
"""Largest size of text that is too small to see, by its unit; 0.05 for other units."""
_FAR_AWAY = re.compile(r"-\d{4,}(?:\.\d+)?px")


class Style(NamedTuple):
    """Facts of a style that decide about the visibility of an element."""

    is_hidden: bool = False
    is_displayed: bool = False
    """True if `display` is set to another value than `none`."""
    visibility: Visibility | None = None
    font: Visibility | None = None


@lru_cache(maxsize=4096)
def style_of(declarations: str) -> Style:
    """Return the facts of the declarations of a style attribute or a rule."""
    values: dict[str, str] = {}
    for declaration in _COMMENT.sub("", declarations).lower().split(";"):
        name, _, value = declaration.partition(":")
        if value:
            values[name.strip()] = value.replace("!important", "").replace("! important", "").strip()
    display = values.get("display", "")
    visibility = font = None
    if "visibility" in values:
        visibility = _visibility_value(values["visibility"])
    if "font-size" in values:
        font = _font_value(values["font-size"])
    elif values.get("font", "").startswith(("0/", "0 ", "0px")):
        font = "tiny"
    is_hidden = display == "none" or values.get("content-visibility") == "hidden" or _is_far_away(values)
    return Style(is_hidden or _is_camouflaged(values), display not in ("", "none"), visibility, font)


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


def _is_far_away(values: Mapping[str, str]) -> bool:
    if _FAR_AWAY.fullmatch(values.get("text-indent", "")):
        return True
    if values.get("position") not in ("absolute", "fixed"):
        return False
    return any(_FAR_AWAY.fullmatch(values.get(side, "")) for side in ("left", "top", "right", "bottom"))


def _is_camouflaged(values: Mapping[str, str]) -> bool:
    """True if the text has the colour of its background."""
    background = values.get("background-color") or values.get("background")
    color = values.get("color")
    return bool(color and background) and _color(color or "") == _color(background or "")


def _color(value: str) -> str:
    names = {"white": "#ffffff", "black": "#000000", "rgb(255,255,255)": "#ffffff", "rgb(0,0,0)": "#000000"}
    value = value.replace(" ", "")
    if re.fullmatch("#[0-9a-f]{3}", value):
        value = "#" + "".join(digit * 2 for digit in value[1:])
    return names.get(value, value)


def visibility_of(
    tag: str, attributes: Mapping[str, str], parent: Visibility, sheet: Style | None, *, in_content: bool
) -> Visibility:
    """Return the visibility of an element.

    Args:
        tag: Name of the element.
        attributes: Attributes of the element.
        parent: Visibility of the parent, which is not hidden.
        sheet: Facts of the style sheets of the page about the element.
        in_content: True if the element is inside the main content of the page, an article or a section.
    """
    if tag in HIDDEN_TAGS and not _is_shown_again(tag, attributes):
        return "hidden"
    inline = Style()
    if "style" in attributes:
        inline = style_of(attributes["style"])
    if inline.is_hidden or (attributes and _is_left_out(tag, attributes)):
        return "hidden"
    state = _styled_state(tag, parent, inline, sheet)
    is_doubtful = _is_boilerplate(tag, attributes, in_content=in_content) or (
        sheet is not None and tag not in _WHOLE_PAGE and _hides(sheet, inline)
    )
    if not is_doubtful:
        return state
    # Much text can show a doubtful element, but not an element that a person cannot see.
    return "doubtful" if state == "shown" else "hidden"


def _styled_state(tag: str, parent: Visibility, inline: Style, sheet: Style | None) -> Visibility:
    """Return the visibility of an element by the visibility of its parent, and by its styles."""
    state = parent
    if tag == "svg":
        state = "drawing"
    elif parent == "drawing" and tag in ("text", "foreignobject"):
        state = "shown"
    for change in (inline.visibility, inline.font or (sheet and sheet.font)):
        if change is not None and (change != "shown" or state in ("invisible", "tiny")):
            state = change
    return state


def _hides(sheet: Style, inline: Style) -> bool:
    """True if a style sheet hides an element, and its style attribute does not show it."""
    is_displayed = inline.is_displayed or inline.visibility == "shown"
    return (sheet.is_hidden or sheet.visibility == "invisible") and not is_displayed


def _is_shown_again(tag: str, attributes: Mapping[str, str]) -> bool:
    """True if an attribute shows an element whose kind is hidden."""
    if tag == "dialog":
        return "open" in attributes
    return tag == "template" and bool({"shadowrootmode", "shadowroot"} & attributes.keys())


def _is_left_out(tag: str, attributes: Mapping[str, str]) -> bool:
    """True if an attribute hides an element, or marks it as numbers of lines."""
    if "hidden" in attributes and attributes["hidden"].lower() != "until-found":
        return True
    if "popover" in attributes:
        return True
    names = f"{attributes.get('class', '')} {attributes.get('id', '')}"
    if len(names) > 1 and not _GUTTERS.isdisjoint(_words(names)):
        return True
    # Programs set `aria-hidden` on a whole page while they show a dialog; a person sees the page around the dialog.
    return attributes.get("aria-hidden", "").lower() == "true" and tag not in _WHOLE_PAGE


def _is_boilerplate(tag: str, attributes: Mapping[str, str], *, in_content: bool) -> bool:
    """True if the tag, the role or the names of an element mark navigation, a footer or a cookie banner."""
    if tag == "nav" or (tag == "footer" and not in_content):
        return True
    if not attributes:
        return False
    role = attributes.get("role", "").lower()
    if role == "navigation" or (role == "contentinfo" and not in_content):
        return True
    names = f"{attributes.get('class', '')} {attributes.get('id', '')}"
    if in_content or len(names) == 1:
        return False
    if tag == "a":
        return "skip" in names and _is_around_content(names)
    # Generators of documentation write the heading of a section as its id.
    return (tag in _CONTAINERS or "-" in tag) and "section" not in _words(names) and _is_around_content(names)


@lru_cache(maxsize=4096)
def _words(names: str) -> frozenset[str]:
    return frozenset(names.lower().split())


@lru_cache(maxsize=4096)
def _is_around_content(names: str) -> bool:
    return any(len(word) < 80 and (_NAVIGATION.fullmatch(word) or _COOKIES.fullmatch(word)) for word in _words(names))


def is_content(tag: str, attributes: Mapping[str, str]) -> bool:
    """True if an element is the main content of a page, an article or a section."""
    return tag in _CONTENT or attributes.get("role") in ("main", "article")
