"""A composition as one plain string, each message headed by its role.

Untrusted text cannot pose as another message: where it would put a role at the start of a line, a zero-width space
goes behind the first letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentkit_prompts.composition.contents import Contents
from agentkit_prompts.context.messages import Message
from agentkit_prompts.templates.rendered import Rendered

if TYPE_CHECKING:
    from agentkit_prompts.composition.sections import Section

__all__ = ["BLANK", "lines_by_author", "plain_line", "plain_text"]

BLANK = "\n\n"
"""What stands between messages, and between the prompts of one."""

_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_ROLE = re.compile(rf"(?:\A|[{_BREAKS}])[^\S{_BREAKS}]*(system|user|assistant|tool)[^\S{_BREAKS}]*:", re.IGNORECASE)
_HEAD = re.compile(r"\s*(?:system|user|assistant|tool)\s*:", re.IGNORECASE)
_WORDS = ("system", "user", "assistant", "tool")
_SHORT = 400
_FEW = 100
_NEAR = 40
"""Characters in front of a colon to look at."""
_LONGEST = max(map(len, _WORDS))
"""Where fewer of those are no blanks, a role may be cut off at their beginning."""
_INITIALS = frozenset("sSuUaAtT\u017f")
"""What a role can start with; the long s is an s when case does not count."""


def plain_text(composition: Contents) -> str:
    """Return the messages headed by their roles, blank lines between, media as alt text."""
    system, user, closing = composition.sections
    pieces = [BLANK, "system: ", system.derive(_section_text)] if composition.sends_system else []
    if len(composition.conversation):
        pieces += (BLANK, composition.conversation.joined(plain_line, BLANK))
    if composition.sends_user:
        pieces += (BLANK, "user: ", *_pieces(user))
    if len(composition.intermediate):
        pieces += (BLANK, composition.intermediate.joined(plain_line, BLANK))
        if closing.text:
            pieces += (BLANK, "user: ", *_pieces(closing))
    return "".join(pieces[1:])


def lines_by_author(composition: Contents) -> list[tuple[str, bool]]:
    """Return the lines that `plain_text` joins, each with whether it is a message that the assistant wrote."""
    heads = ("system: ", "user: ", "user: ")
    sent = (composition.sends_system, composition.sends_user, bool(composition.sections[2].text))
    system, user, closing = (
        [(head + section.derive(_section_text), False)] if is_sent else []
        for head, section, is_sent in zip(heads, composition.sections, sent, strict=True)
    )
    history, traffic = (
        [(plain_line(message), message.role == "assistant") for message in messages]
        for messages in (composition.conversation, composition.intermediate)
    )
    return [*system, *history, *user, *traffic, *(closing if traffic else [])]


def _section_text(section: Section) -> str:
    return "".join(_pieces(section))


def _pieces(section: Section) -> list[str]:
    """Return the text of a message in pieces; each fragment is looked through for roles once."""
    pieces: list[str] = []
    for _, _, rendered, _ in section.fragments:
        text = rendered.derive(_without_roles)
        if text:
            pieces += (BLANK, text) if pieces else (text,)
    return pieces


def _without_roles(rendered: Rendered) -> str:
    """Return the plain text with the roles broken that untrusted text forms."""
    text = rendered.plain
    if ":" not in text or rendered.is_trusted or not _may_form_role(text):
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


def _may_form_role(text: str) -> bool:
    """Whether some colon has a role right before it: no role is in a short text, or few colons are in a long one."""
    if len(text) < _SHORT:
        folded = text.casefold()
        if "user" not in folded and "system" not in folded and "assistant" not in folded and "tool" not in folded:
            return False
    at = text.find(":")
    for _ in range(_FEW):
        if at < 0:
            return False
        before = text[max(0, at - _NEAR) : at].rstrip()
        if (at > _NEAR and len(before) < _LONGEST) or before.casefold().endswith(_WORDS):
            break
        at = text.find(":", at + 1)
    return any(line.lstrip()[:1] in _INITIALS and _HEAD.match(line) for line in text.splitlines())


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
