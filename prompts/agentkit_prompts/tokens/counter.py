"""Counting tokens: a protocol, and a fast estimate that is marked as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MethodType
from typing import Protocol, runtime_checkable

from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, MediaKind, Part, Text

__all__ = [
    "COUNTER_EXPECTED",
    "ESTIMATE",
    "MESSAGE_OVERHEAD",
    "EstimateCounter",
    "TokenCounter",
    "is_counter",
    "media_tokens",
    "message_tokens",
    "prompt_count",
    "thinking_tokens",
    "tool_tokens",
]

MESSAGE_OVERHEAD = 4
"""Tokens a chat format spends around each message: role, delimiters."""

MEDIA_TOKENS: dict[MediaKind, int] = {"image": 800, "audio": 1_000, "video": 4_000, "file": 2_000}
"""Tokens one media part is taken to cost. No tokenizer sees media, so this is an estimate with every counter."""


@runtime_checkable
class TokenCounter(Protocol):
    """Counts the tokens of text.

    One that has a method `count_prompt(text)` too is asked by it for texts that a chat template wrote, in which each
    control token is one token, and not the text that it is for `count`.
    """

    @property
    def name(self) -> str:
        """Name for tables, such as `cl100k_base`."""
        ...

    @property
    def estimated(self) -> bool:
        """Whether the counts are an estimate."""
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of `text`."""
        ...


class EstimateCounter:
    """About a quarter of a token per ASCII character and one per CJK character; takes no time and no files."""

    name = "estimate"
    estimated = True

    def count(self, text: str) -> int:
        """Return the estimate, 0 only for empty text."""
        if text.isascii():
            return (len(text) + 3) >> 2
        size = len(text)
        # A CJK character has two bytes beyond the first: (2 * 1 + 3 * 2) / 8 is one token.
        beyond_ascii = len(text.encode("utf-8", "surrogatepass")) - size
        return (2 * size + 3 * beyond_ascii + 7) >> 3


ESTIMATE = EstimateCounter()
"""The default counter."""


def is_counter(given: object) -> bool:
    """Return whether this counts tokens; a text has a `count` too, of something else."""
    return hasattr(given, "estimated") and callable(getattr(given, "count", None))


def prompt_count(counter: TokenCounter) -> Callable[[str], int]:
    """Return what counts the tokens of a text that a chat template wrote."""
    count: Callable[[str], int] = getattr(counter, "count_prompt", counter.count)
    return count


COUNTER_EXPECTED = (
    'expected a TokenCounter, such as TokenizersCounter("tokenizer.json"), TiktokenCounter() or an object with name, '
    "estimated and count(text) -> int"
)


def media_tokens(media: Iterable[Media]) -> int:
    """Return what the media parts are taken to cost."""
    return sum(MEDIA_TOKENS[part.kind] for part in media)


def tool_tokens(tools: tuple[ToolSpec, ...], counter: TokenCounter) -> int:
    """Return what the tool specs cost as JSON."""
    count = counter.count
    return sum([count(tool.json) for tool in tools]) + MESSAGE_OVERHEAD * len(tools)


def thinking_tokens(message: Message, counter: TokenCounter) -> int:
    """Return what the thoughts of a message cost, as far as they are in words."""
    return sum(counter.count(thought.text) for thought in message.thinking)


def message_tokens(counter: TokenCounter) -> Callable[[Message], int]:
    """Return the function that counts a whole message: text, media, tool calls and overhead.

    The functions of one counter are equal, so that conversations count each message once.
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
