"""Token counters: a protocol, and a fast estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Protocol, runtime_checkable

from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, MediaKind, Part, Text

MESSAGE_OVERHEAD = 4
"""Tokens of the role and delimiters of each message."""

MEDIA_TOKENS: dict[MediaKind, int] = {"image": 800, "audio": 1_000, "video": 4_000, "file": 2_000}
"""Estimated tokens of a media part, by its kind. All counters use this estimate, because tokenizers count only text."""


@runtime_checkable
class TokenCounter(Protocol):
    """Counter of the tokens of a text.

    `count` counts a control token in a text as plain text. A counter can also define `count_prompt(text)`, for text of
    a chat template, in which each control token is one token.
    """

    @property
    def name(self) -> str:
        """Name of the counter in tables, such as `cl100k_base`."""
        ...

    @property
    def estimated(self) -> bool:
        """True if the counts are an estimate."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`."""
        ...


class EstimateCounter:
    """Counter that estimates: a quarter of a token per ASCII character, one token per CJK character. It is fast and
    needs no files.
    """

    name = "estimate"
    estimated = True

    def count(self, text: str) -> int:
        """Return the estimate; only empty text has 0 tokens."""
        if text.isascii():
            return (len(text) + 3) >> 2
        size = len(text)
        # A CJK character has two bytes beyond the first: (2 * 1 + 3 * 2) / 8 is one token.
        beyond_ascii = len(text.encode("utf-8", "surrogatepass")) - size
        return (2 * size + 3 * beyond_ascii + 7) >> 3


ESTIMATE = EstimateCounter()
"""The default counter."""


def is_counter(value: object) -> bool:
    """True if a value is a token counter; a `str` with its method `count` and a class are not."""
    return not isinstance(value, type) and hasattr(value, "estimated") and callable(getattr(value, "count", None))


def prompt_count(counter: TokenCounter) -> Callable[[str], int]:
    """Return the function that counts the tokens of text of a chat template: `count_prompt`, else `count`."""
    count: Callable[[str], int] = getattr(counter, "count_prompt", counter.count)
    return count


COUNTER_EXPECTED = (
    'expected a TokenCounter, such as TokenizersCounter("tokenizer.json"), TiktokenCounter() or an object with name, '
    "estimated and count(text) -> int"
)


def media_tokens(media: Iterable[Media]) -> int:
    """Return the estimated tokens of the media parts."""
    return sum(MEDIA_TOKENS[part.kind] for part in media)


def tool_tokens(tools: tuple[ToolSpec, ...], counter: TokenCounter) -> int:
    """Return the tokens of the JSON texts of tool specs, and their overhead."""
    count = counter.count
    return sum([count(tool.json) for tool in tools]) + MESSAGE_OVERHEAD * len(tools)


def thinking_tokens(message: Message, counter: TokenCounter) -> int:
    """Return the tokens of the thinking texts of a message."""
    return sum(counter.count(thought.text) for thought in message.thinking)


def message_tokens(counter: TokenCounter) -> Callable[[Message], int]:
    """Return the function that counts a whole message: text, media, tool calls, thinking and overhead.

    The functions for one counter are equal, because conversations cache the counts of messages by function.
    """
    return MethodType(_tokens_of, counter)


def _tokens_of_part(part: Part, counter: TokenCounter) -> int:
    if isinstance(part, Text):
        return counter.count(part.text)
    return MEDIA_TOKENS[part.kind]


def _tokens_of(counter: TokenCounter, message: Message) -> int:
    content, count = message.content, counter.count
    if type(content) is str and not message.tool_calls and not message.thinking:
        return MESSAGE_OVERHEAD + count(content)
    total = MESSAGE_OVERHEAD + sum(_tokens_of_part(part, counter) for part in message.parts)
    for call in message.tool_calls:
        total += MESSAGE_OVERHEAD + count(call.name) + count(call.arguments)
    if message.thinking:
        total += thinking_tokens(message, counter)
    return total
