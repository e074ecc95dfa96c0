"""A composition as one plain string, each message headed by its role.

Untrusted text cannot pose as another message: where it would put a role at the start of a line, a zero-width space
goes behind the first letter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentkit_prompts.composition.contents import Contents
from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.context.messages import Message
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import insert_breaks

if TYPE_CHECKING:
    from agentkit_prompts.composition.sections import Section

__all__ = ["headed_lines", "plain_line", "plain_text"]

_BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
_ROLE = re.compile(rf"(?:\A|[{_BREAKS}])[^\S{_BREAKS}]*(system|user|assistant|tool)[^\S{_BREAKS}]*:", re.IGNORECASE)
_HEAD = re.compile(r"\s*(?:system|user|assistant|tool)\s*:", re.IGNORECASE)


def plain_text(composition: Contents) -> str:
    """Return the messages headed by their roles, blank lines between, media as alt text."""
    system, user, closing = composition.sections
    pieces = [SEPARATOR, "system: ", system.derive(_section_text)] if composition.sends_system else []
    if len(composition.conversation):
        pieces += (SEPARATOR, composition.conversation.joined(plain_line, SEPARATOR))
    if composition.sends_user:
        pieces += (SEPARATOR, "user: ", *_pieces(user))
    if len(composition.intermediate):
        pieces += (SEPARATOR, composition.intermediate.joined(plain_line, SEPARATOR))
        if closing.text:
            pieces += (SEPARATOR, "user: ", *_pieces(closing))
    return "".join(pieces[1:])


def headed_lines(composition: Contents) -> list[tuple[str, bool]]:
    """Return the lines that `plain_text` joins, each with whether it is a message that the assistant wrote."""
    system, user, closing = composition.sections
    lines = [("system: " + _section_text(system), False)] if composition.sends_system else []
    lines += [(plain_line(message), message.role == "assistant") for message in composition.conversation]
    if composition.sends_user:
        lines.append(("user: " + _section_text(user), False))
    lines += [(plain_line(message), message.role == "assistant") for message in composition.intermediate]
    if composition.closing.text:
        lines.append(("user: " + _section_text(closing), False))
    return lines


def _section_text(section: Section) -> str:
    return "".join(_pieces(section))


def _pieces(section: Section) -> list[str]:
    """Return the text of a message in pieces; each fragment is looked through for roles once."""
    pieces: list[str] = []
    for _, _, rendered, _ in section.fragments:
        text = rendered.derive(_without_roles)
        if text:
            pieces += (SEPARATOR, text) if pieces else (text,)
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
    return insert_breaks(
        text, [found.start(1) + 1 for found in _ROLE.finditer(text) if any(untrusted[found.start(1) : found.end()])]
    )


def _may_form_role(text: str) -> bool:
    """Whether some line may open with a role."""
    folded = text.casefold()
    if "user" not in folded and "system" not in folded and "assistant" not in folded and "tool" not in folded:
        return False
    return any(map(_HEAD.match, text.splitlines()))


def plain_line(message: Message) -> str:
    """Write a stored message; nothing in it is the developer's."""
    calls = "".join(f"\n[calls {call.name}({call.arguments})]" for call in message.tool_calls)
    text = f"{message.text}{calls}"
    return f"{message.role}: {insert_breaks(text, [found.start(1) + 1 for found in _ROLE.finditer(text)])}"
