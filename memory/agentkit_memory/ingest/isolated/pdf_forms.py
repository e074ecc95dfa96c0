"""Values of form fields and texts of annotations of a PDF page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_HIDDEN = 2 | 32
"""Flags of an annotation that a viewer does not show."""
_PASSWORD = 1 << 13
"""Flag of a text field whose value a viewer shows as stars."""
_PUSH_BUTTON = 1 << 16
_MAX_ANNOTATIONS = 10_000
_MAX_PARENTS = 30
_NOTES = frozenset(
    {"/Text", "/FreeText", "/Highlight", "/Underline", "/StrikeOut", "/Squiggly", "/Caret", "/Ink", "/Line", "/Square"}
    | {"/Circle", "/Polygon", "/PolyLine", "/Stamp", "/FileAttachment"}
)
"""Annotations whose content a person wrote."""


def field_values(page: Any) -> str:
    """Return a line "NAME: VALUE" for each form field of a page that has a value."""
    # A field can have several widgets on a page.
    lines: dict[str, None] = {}
    for widget in _annotations(page, "/Widget"):
        value = _value(widget)
        if value:
            lines[f"{_name(widget)}: {value}".removeprefix(": ")] = None
    return "\n".join(lines)


def note_texts(page: Any) -> str:
    """Return a line "[note of AUTHOR] TEXT" for each annotation with a text."""
    lines = []
    for annotation in _annotations(page, *_NOTES):
        text = _text(annotation.get("/Contents"))
        author = " ".join(_text(annotation.get("/T")).split())
        label = f"[note of {author}]" if author else "[note]"
        if text.strip():
            lines.append(f"{label} {text.strip()}")
    return "\n\n".join(lines)


def _annotations(page: Any, *kinds: str) -> Iterator[Any]:
    annotations = _resolved(page.get("/Annots"))
    if not isinstance(annotations, list):
        return
    for each in annotations[:_MAX_ANNOTATIONS]:
        annotation = _resolved(each)
        if not hasattr(annotation, "get") or annotation.get("/Subtype") not in kinds:
            continue
        flags = _resolved(annotation.get("/F"))
        if not (isinstance(flags, int) and flags & _HIDDEN):
            yield annotation


def _value(widget: Any) -> str:
    kind = _inherited(widget, "/FT")
    flags = _inherited(widget, "/Ff")
    flags = flags if isinstance(flags, int) else 0
    if kind == "/Btn":
        return _button_value(widget, flags)
    if kind == "/Sig" or (flags & _PASSWORD and kind == "/Tx"):
        return ""
    value = _inherited(widget, "/V")
    if isinstance(value, list):
        return ", ".join(filter(None, (_choice(widget, each) for each in value)))
    return _choice(widget, value)


def _button_value(widget: Any, flags: int) -> str:
    """Return the state of a check box or a radio button that is set; empty text if it is not set."""
    if flags & _PUSH_BUTTON:
        return ""
    value = _inherited(widget, "/V")
    state = _resolved(widget.get("/AS"))
    if state is None:
        state = value
    elif "/Parent" in widget and "/T" not in widget and state == "/Off":
        # A radio button that is not chosen, of a group with another choice.
        return ""
    elif state == "/Off" and value is not None:
        # Programs that fill forms often set the value only.
        state = value
    if not isinstance(state, str) or state == "/Off":
        return ""
    return _option(widget, state.removeprefix("/"))


def _option(widget: Any, state: str) -> str:
    """Return the export value of a state that is the position of an option."""
    options = _inherited(widget, "/Opt")
    if isinstance(options, list) and state.isdecimal() and int(state) < len(options):
        return _text(options[int(state)]) or state
    return state


def _choice(widget: Any, value: Any) -> str:
    """Return a value as the field shows it: options can have an export value and another text."""
    text = _text(value)
    options = _inherited(widget, "/Opt")
    if isinstance(options, list):
        for option in map(_resolved, options):
            if isinstance(option, list) and len(option) > 1 and _text(option[0]) == text:
                return _text(option[1])
    return text


def _name(widget: Any) -> str:
    """Return the label that a viewer shows for a field, or the names of the field and its parents."""
    label = _text(_inherited(widget, "/TU")).strip()
    if label:
        return " ".join(label.split())
    names: list[str] = []
    node = widget
    for _ in range(_MAX_PARENTS):
        name = _text(node.get("/T"))
        if name:
            names.insert(0, name)
        node = _resolved(node.get("/Parent"))
        if not hasattr(node, "get"):
            break
    return ".".join(names)


def _inherited(widget: Any, key: str) -> Any:
    node = widget
    for _ in range(_MAX_PARENTS):
        if key in node:
            return _resolved(node.get(key))
        node = _resolved(node.get("/Parent"))
        if not hasattr(node, "get"):
            break
    return None


def _resolved(value: Any) -> Any:
    return value.get_object() if hasattr(value, "get_object") else value


def _text(value: Any) -> str:
    value = _resolved(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "get_data"):
        return _text(value.get_data())
    return str(value).removeprefix("/") if isinstance(value, str | int | float) else ""
