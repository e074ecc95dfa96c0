"""A composition as one plain string; each message starts with its role.

Untrusted text cannot imitate another message or a tool call: if one of its lines starts with a role or with `[calls`, a
zero-width space is inserted after the first character.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentkit_prompts.composition.sections import SEPARATOR, Section
from agentkit_prompts.context.messages import Message
from agentkit_prompts.templates.line_heads import MESSAGE
from agentkit_prompts.templates.rendered import Rendered

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent


def plain_text(composition: CallContent) -> str:
    """Return the messages, each after its role, separated by blank lines; media are replaced by their alt text."""
    pieces: list[str] = []
    for entry in composition.in_order():
        if not isinstance(entry, Section):
            pieces += (SEPARATOR, entry.join(plain_line, SEPARATOR))
        elif entry.role == "system":
            # The system message is usually the same in each turn, so it is cached.
            pieces += (SEPARATOR, "system: ", entry.derive(_section_text))
        else:
            pieces += (SEPARATOR, "user: ", *_pieces(entry))
    return "".join(pieces[1:])


class HeadedLine(NamedTuple):
    """One message of `plain_text`."""

    text: str
    is_reply: bool
    """True if the assistant wrote the message."""


def headed_lines(composition: CallContent) -> list[HeadedLine]:
    """Return the messages that `plain_text` joins."""
    lines: list[HeadedLine] = []
    for entry in composition.in_order():
        if not isinstance(entry, Section):
            lines += [HeadedLine(plain_line(message), message.role == "assistant") for message in entry]
        else:
            lines.append(HeadedLine(f"{entry.role}: {_section_text(entry)}", False))
    return lines


def _section_text(section: Section) -> str:
    return "".join(_pieces(section))


def _pieces(section: Section) -> list[str]:
    """Return the text of a message in pieces; the text of each prompt is cached in its rendering."""
    pieces: list[str] = []
    for _, _, rendered in section.fragments:
        text = rendered.derive(_without_roles)
        if text:
            pieces += (SEPARATOR, text)
    return pieces[1:]


def _without_roles(rendered: Rendered) -> str:
    """Return the plain text of a rendering; in untrusted text, roles and tool calls at line starts are broken."""
    return MESSAGE.without_forged(rendered).plain


def plain_line(message: Message) -> str:
    """Format a stored message; all of its text is untrusted."""
    text = MESSAGE.broken(message.text)
    for call in message.tool_calls:
        text += f"\n[calls {MESSAGE.broken(f'{call.name}({call.arguments})')}]"
    return f"{message.role}: {text}"
