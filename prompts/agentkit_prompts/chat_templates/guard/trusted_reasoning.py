"""The tags of reasoning in earlier replies: they are the model's own, where its chat template acts on them."""

from __future__ import annotations

from collections.abc import Iterator

from agentkit_prompts.chat_templates.guard.control_tokens import ControlTokens
from agentkit_prompts.chat_templates.guard.taint_tracking import attempt
from agentkit_prompts.chat_templates.guard.tainted_text import Render, Run, Runs, Tree, untagged, unused
from agentkit_prompts.chat_templates.reasoning_tags import TRUSTED_TAGS

__all__ = ["with_reasoning"]


def with_reasoning(render: Render, tree: Tree, tokens: ControlTokens) -> Tree:
    """Return the tree (`{"messages": [...]}`) with the tags of the reasoning that a reply begins with trusted.

    They are the model's own. Only tags that are control tokens matter, and only where `render` acts on them, as a
    template does that parses reasoning out of replies; otherwise the tree comes back.
    """
    tags = [pair for pair in TRUSTED_TAGS if pair[1] in tokens.anywhere]
    messages = tree["messages"]
    for opening, closing in tags:
        found = [_block(message, opening, closing) for message in messages]
        if any(found) and _acts(render, tree, [block is not None for block in found], opening, closing):
            messages = [
                {**message, "content": Runs(_trusted_tags(message["content"], block))} if block else message
                for message, block in zip(messages, found, strict=True)
            ]
    return tree if messages is tree["messages"] else {**tree, "messages": messages}


def _block(message: Tree, opening: str, closing: str) -> list[tuple[int, int]] | None:
    """Return where the tags of the first block of an assistant message stand; its opening may be in the prompt."""
    if message["role"] != "assistant":
        return None
    text = message["content"].text
    end = text.find(closing)
    if end < 0:
        return None
    start = len(text) - len(text.lstrip())
    found = [(end, end + len(closing))]
    if text.startswith(opening, start):
        found.insert(0, (start, start + len(opening)))
    return None if text.find(opening, found[0][1] if len(found) == 2 else 0, end) >= 0 else found


def _trusted_tags(content: Runs, tags: list[tuple[int, int]]) -> Iterator[Run]:
    """Cut the runs at the tags; what is inside one is not tainted."""
    borders = [border for tag in tags for border in tag]
    offset = 0
    for run in content:
        end = offset + len(run.text)
        inside = [border for border in borders if offset < border < end]
        for begin, stop in zip([offset, *inside], [*inside, end], strict=True):
            is_tag = any(start <= begin and stop <= last for start, last in tags)
            yield Run(run.text[begin - offset : stop - offset], run.pointer, run.is_tainted and not is_tag)
        offset = end


def _acts(render: Render, tree: Tree, where: list[bool], opening: str, closing: str) -> bool:
    """Whether tags make a difference: a probe is drawn with them, and with characters that no template knows."""

    def drawn(first: str, last: str) -> str | None:
        probe = f"{first}\n\n a \n\n{last}{last}\n\n b"
        messages = [
            {**message, "content": probe} if is_here else message
            for message, is_here in zip(tree["messages"], where, strict=True)
        ]
        return attempt(render, untagged({**tree, "messages": messages}))

    text = drawn(opening, closing)
    if text is None:
        return False
    stand_ins = unused(text)
    first, last = next(stand_ins, ""), next(stand_ins, "")
    other = drawn(first * len(opening), last * len(closing))
    return other is None or other.replace(first * len(opening), opening).replace(last * len(closing), closing) != text
