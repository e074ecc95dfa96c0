"""Visibility of elements of a page: tags, attributes, styles, and names of navigation, footers and banners."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from agentkit_prompts.pages.styles import Style, Visibility, style_of

HIDDEN_TAGS = frozenset(
    {"script", "style", "template", "noscript", "iframe", "embed", "canvas", "audio", "video", "datalist", "rp"}
    | {"dialog", "noframes", "noembed"}
)
"""Elements that are not seen without an attribute that shows them."""
CONTENT = frozenset({"main", "article", "section", "blockquote", "figure"})
"""Elements whose footer belongs to them and not to the page."""

JUDGED_ATTRIBUTES = frozenset(
    {"class", "id", "style", "role", "hidden", "popover", "aria-hidden", "open", "shadowrootmode", "shadowroot"}
)
"""Attributes that decide about the visibility of an element."""

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
_MARK = re.compile(
    "nav|foot|crumb|colophon|skip|cookie|gdpr|ccpa|consent|onetrust|didomi|cc-window|qc-cmp|usercentrics|sp_message"
    "|iubenda|osano|cky|line|gutter|katex-html|mathjax_preview"
)
"""Parts of names that are compared with the names of navigation, banners, gutters and copies of formulas; most names
have no such part."""
_READ_ALOUD = re.compile(
    r"(?:^|[\s_-])(?:sr[_-]only|visually[_-]?hidden|screen[_-]?reader|assistive|katex-mathml)", re.IGNORECASE
)
"""Classes of text that only screen readers read."""


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
    if inline.hides or (attributes and _is_left_out(tag, attributes)):
        return "hidden"
    if sheet == Style() or tag in _WHOLE_PAGE:
        # Scripts hide a whole page until it is complete.
        sheet = None
    if sheet is not None and _is_read_aloud(tag, attributes):
        # Text for screen readers is text for people.
        sheet = None
    if sheet is not None and sheet.hides - inline.shows:
        return "hidden"
    state = _styled_state(tag, parent, inline, sheet)
    if not _is_boilerplate(tag, attributes, in_content=in_content):
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
    sheet = sheet or Style()
    for change in (inline.visibility or sheet.visibility, inline.font or sheet.font):
        if change is not None and (change != "shown" or state in ("invisible", "tiny")):
            state = change
    return state


def _is_shown_again(tag: str, attributes: Mapping[str, str]) -> bool:
    """True if an attribute shows an element whose kind is hidden."""
    if tag == "dialog":
        return "open" in attributes
    return tag == "template" and bool({"shadowrootmode", "shadowroot"} & attributes.keys())


def _is_read_aloud(tag: str, attributes: Mapping[str, str]) -> bool:
    """True if the name of an element marks text for screen readers, such as the readable copy of a formula."""
    return tag == "mjx-assistive-mml" or _READ_ALOUD.search(attributes.get("class", "")) is not None


def _is_left_out(tag: str, attributes: Mapping[str, str]) -> bool:
    """True if an attribute hides an element, or marks it as numbers of lines."""
    if "hidden" in attributes and attributes["hidden"].lower() != "until-found":
        return True
    if "popover" in attributes:
        return True
    names = _marked_names(attributes)
    if names and not _GUTTERS.isdisjoint(_words(names)):
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
    names = "" if in_content else _marked_names(attributes)
    if not names:
        return False
    if tag == "a":
        return "skip" in names and _is_around_content(names)
    # Generators of documentation write the heading of a section as its id.
    return (tag in _CONTAINERS or "-" in tag) and "section" not in _words(names) and _is_around_content(names)


def _marked_names(attributes: Mapping[str, str]) -> str:
    """Return the class and the id of an element if they can mark navigation, a banner or a gutter; else empty text."""
    names = f"{attributes.get('class', '')} {attributes.get('id', '')}"
    return names if is_marked(names) else ""


@lru_cache(maxsize=4096)
def is_marked(names: str) -> bool:
    """True if the class or the id of an element can mark navigation, a banner, a gutter or a copy of a formula."""
    return _MARK.search(names.lower()) is not None


@lru_cache(maxsize=4096)
def _words(names: str) -> frozenset[str]:
    return frozenset(names.lower().split())


@lru_cache(maxsize=4096)
def _is_around_content(names: str) -> bool:
    return any(len(word) < 80 and (_NAVIGATION.fullmatch(word) or _COOKIES.fullmatch(word)) for word in _words(names))


def is_content_role(attributes: Mapping[str, str]) -> bool:
    """True if the role of an element is the main content of a page or an article."""
    return attributes.get("role") in ("main", "article")
