"""The text of a stored message, which is untrusted: the developer did not write it."""

from __future__ import annotations

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Text, neutralise_markers
from agentkit_prompts.templates.spans import Segment


def stored_text(message: Message) -> str:
    """Return the text of a stored message, with a marker for each use of a media part."""
    return "".join([segment.text for segment in stored_segments(message, "")])


def stored_segments(message: Message, pointer: str) -> list[Segment]:
    """Return one segment per part of a message.

    `pointer` is the path of the message in the context, such as `conversation[3]`.
    """
    prompt = pointer.split("[")[0]
    if isinstance(message.content, str):
        return [Segment(neutralise_markers(message.content), f"{pointer}.content", "untrusted", prompt)]
    segments: list[Segment] = []
    for index, part in enumerate(message.content):
        place = f"{pointer}.content[{index}]"
        if isinstance(part, Text):
            segments.append(Segment(neutralise_markers(part.text), place, "untrusted", prompt))
        else:
            segments.append(Segment(part.marker, place, "untrusted", prompt, media=part))
    return segments
