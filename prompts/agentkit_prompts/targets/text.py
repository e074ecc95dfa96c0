"""A composition as one plain string, each message headed by its role.

Untrusted text cannot pose as another message: where it would put a role at the start of a line, a zero-width space
goes behind the first letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkit_prompts.messages import Message
from agentkit_prompts.rendered import Rendered

if TYPE_CHECKING:
    from agentkit_prompts.composition import Composition, Section

__all__ = ["BLANK", "plain_line", "plain_text", "said_lines"]

BLANK = "\n\n"
"""What stands between messages."""

_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_ROLE = re.compile(rf"(?:\A|[{_BREAKS}])[^\S{_BREAKS}]*(system|user|assistant|tool)[^\S{_BREAKS}]*:", re.IGNORECASE)
_HEAD = re.compile(r"\s*(?:system|user|assistant|tool)\s*:", re.IGNORECASE)
_WORDS = ("system", "user", "assistant", "tool")
_INITIALS = frozenset("sSuUaAtT\u017f")
"""What a role can start with; the long s is an s when case does not count."""


def plain_text(composition: Composition) -> str:
    """Return the messages headed by their roles, blank lines between, media as alt text."""
    lines: list[str] = []
    _add(lines, "system: ", composition.sections[0])
    lines += composition.conversation.derive(plain_line)
    _add(lines, "user: ", composition.sections[1])
    if len(composition.intermediate):
        lines += composition.intermediate.derive(plain_line)
        _add(lines, "user: ", composition.sections[2])
    return BLANK.join(lines)


def said_lines(composition: Composition) -> list[tuple[str, bool]]:
    """Return the lines that `plain_text` joins, each with whether it is a message that the assistant wrote."""
    rendered: tuple[list[str], list[str], list[str]] = ([], [], [])
    for lines, head, section in zip(rendered, ("system: ", "user: ", "user: "), composition.sections, strict=True):
        _add(lines, head, section)
    system, user, closing = ([(line, False) for line in lines] for lines in rendered)
    history, traffic = (
        [(plain_line(message), message.role == "assistant") for message in messages]
        for messages in (composition.conversation, composition.intermediate)
    )
    return [*system, *history, *user, *traffic, *(closing if traffic else [])]


def _add(lines: list[str], head: str, section: Section) -> None:
    for fragment in section.fragments:
        text = _without_roles(fragment.rendered)
        if text:
            lines.append(head + text)
            head = ""


def _without_roles(rendered: Rendered) -> str:
    """Return the plain text with the roles broken that untrusted text forms; worked out once per rendering."""
    known = rendered.roleless
    if known is None:
        known = rendered.roleless = _break_roles(rendered)
    return known


def _break_roles(rendered: Rendered) -> str:
    text = rendered.plain
    if ":" not in text or rendered.is_vouched_for:
        return text
    folded = text.lower() if text.isascii() else text.casefold()
    if not any(word in folded for word in _WORDS):
        return text
    if not any(line.lstrip()[:1] in _INITIALS and _HEAD.match(line) for line in text.splitlines()):
        return text
    untrusted = bytearray(len(text))
    offset = 0
    for segment in rendered.segments():
        size = len(segment.text if segment.media is None else segment.media.alt)
        if segment.trust == "untrusted":
            untrusted[offset : offset + size] = b"\1" * size
        offset += size
    cuts = [found.start(1) + 1 for found in _ROLE.finditer(text) if any(untrusted[found.start(1) : found.end()])]
    return _cut(text, cuts)


def _cut(text: str, cuts: Sequence[int]) -> str:
    parts: list[str] = []
    start = 0
    for cut in cuts:
        parts.append(text[start:cut])
        start = cut
    return "\u200b".join([*parts, text[start:]])


def plain_line(message: Message) -> str:
    """Write a stored message; nothing in it is the developer's."""
    calls = "".join(f"\n[calls {call.name}({call.arguments})]" for call in message.tool_calls)
    text = f"{message.text}{calls}"
    return f"{message.role}: {_cut(text, [found.start(1) + 1 for found in _ROLE.finditer(text)])}"
