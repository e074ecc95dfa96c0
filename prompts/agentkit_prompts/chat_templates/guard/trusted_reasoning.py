"""Reasoning tags in earlier replies: trusted if the chat template parses them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, pairwise
from typing import TypeAlias

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.taint_tracking import attempt
from agentkit_prompts.chat_templates.guard.tainted_text import Render, Segments, Tree, untagged, unused
from agentkit_prompts.chat_templates.reasoning_tags import TRUSTED_TAGS
from agentkit_prompts.templates.spans import Segment

_Tags: TypeAlias = list[tuple[int, int]]
"""Start and end of each tag of a block."""


def with_reasoning(render: Render, tree: Tree, tokens: ControlTokens) -> Tree:
    """Return the tree (`{"messages": [...]}`) with the tags of the reasoning at the start of a reply trusted.

    This concerns only tags that are control tokens, and only if they affect `render`, because the template parses
    reasoning in replies.
    """
    messages = tree["messages"]
    for opening, closing in TRUSTED_TAGS:
        if closing not in tokens.anywhere:
            continue
        blocks = [_block(message, opening, closing) for message in messages]
        if any(blocks) and _acts(render, tree, [bool(block) for block in blocks], opening, closing):
            messages = [_with_trusted_tags(*pair) for pair in zip(messages, blocks, strict=True)]
    return {**tree, "messages": messages}


def _block(message: Tree, opening: str, closing: str) -> _Tags:
    """Return the tags of the first block of an assistant message, or none. Its opening tag can be in the prompt."""
    if message["role"] != "assistant":
        return []
    text = message["content"].text
    end = text.find(closing)
    if end < 0:
        return []
    tags = [(end, end + len(closing))]
    start = len(text) - len(text.lstrip())
    inside = 0
    if text.startswith(opening, start):
        inside = start + len(opening)
        tags.insert(0, (start, inside))
    is_nested = text.find(opening, inside, end) >= 0
    return [] if is_nested else tags


def _with_trusted_tags(message: Tree, tags: _Tags) -> Tree:
    if not tags:
        return message
    return {**message, "content": Segments(_trusted_tags(message["content"], tags))}


def _trusted_tags(content: Segments, tags: _Tags) -> Iterator[Segment]:
    """Split the segments at the tags; the text of a tag is trusted."""
    offset = 0
    for segment in content:
        end = offset + len(segment.text)
        borders = [border for tag in tags for border in tag if offset < border < end]
        for begin, stop in pairwise([offset, *borders, end]):
            part = segment._replace(text=segment.text[begin - offset : stop - offset])
            if _is_inside_tag(begin, stop, tags):
                part = part._replace(trust="trusted")
            yield part
        offset = end


def _is_inside_tag(begin: int, stop: int, tags: _Tags) -> bool:
    return any(start <= begin and stop <= last for start, last in tags)


def _acts(render: Render, tree: Tree, where: list[bool], opening: str, closing: str) -> bool:
    """True if tags affect the template: compare a probe with the tags and a probe with private-use characters."""

    def drawn(first: str, last: str) -> str | None:
        # Line breaks and a second closing tag: templates split at the tags and strip the parts.
        probe = f"{first}\n\n a \n\n{last}{last}\n\n b"
        messages = [*tree["messages"]]
        for index in compress(range(len(messages)), where):
            messages[index] = {**messages[index], "content": probe}
        return attempt(render, untagged({**tree, "messages": messages}))

    text = drawn(opening, closing)
    if text is None:
        return False
    stand_ins = unused(text)
    first, last = next(stand_ins, ""), next(stand_ins, "")
    other = drawn(first * len(opening), last * len(closing))
    return other is None or other.replace(first * len(opening), opening).replace(last * len(closing), closing) != text
