"""Histories of a prompt in which placeholders replace old tool results; see `ResultClearing`.

The choice depends only on the messages, the policy and the token counter, and a result that is cleared in one prompt is
cleared in all later prompts: a replay sends the same prompts, and the start of the prompts stays the same between two
clearings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from agentkit_prompts.composition.render_cache import ClearedHistory, RenderCache
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.context.result_clearing import ResultClearing
from agentkit_prompts.tokens.counter import TokenCounter, message_tokens
from agentkit_prompts.tree.layers import Layers

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.rows import HistoryRow

__all__ = [
    "READ_TOOL",
    "cleared_conversation",
    "cleared_histories",
    "cleared_in_row",
    "result_reference",
]

READ_TOOL = "read_cleared_result"
"""Name of the tool that reads a cleared result."""
_MIN_SAVED = 300
"""Minimum characters that a placeholder saves."""
_FAILURES = (" failed: ", " was ", " did not end ", " ran, but ")
"""Texts after the name of a tool at the start of the result of a call that failed, was denied or was cancelled."""


class _Candidate(NamedTuple):
    """A result that is cleared when it is old."""

    step: int
    history: int
    position: int
    tokens: int


def cleared_histories(
    ctx: PromptContext, layers: Layers, counter: TokenCounter, cache: RenderCache | None
) -> tuple[Conversation, Conversation]:
    """Return the conversation and the tool traffic of a context, with placeholders for cleared results."""
    assert ctx.clearing is not None
    views: list[ClearedHistory] = []
    histories = _histories(ctx, layers)
    for number, positions in enumerate(_cleared(ctx.clearing, histories, counter)):
        earlier = None
        if cache is not None and cache.cleared:
            earlier = cache.cleared[number]
        views.append(_view(histories[number], positions, earlier, ctx.clearing, counter))
    if cache is not None:
        cache.cleared = views
    conversation, intermediate = views
    return conversation.shown, intermediate.shown


def cleared_conversation(ctx: PromptContext, first: int, counter: TokenCounter) -> Conversation:
    """Return the conversation with placeholders for the results that a prompt from message `first` does not show.

    Compaction counts its tokens. Its messages have the same indices.
    """
    clearing, window = ctx.clearing, ctx.conversation[first:]
    # Without its orphans, a conversation has other indices.
    if clearing is None or window.complete() is not window:
        return ctx.conversation
    [positions] = _cleared(clearing, [window], counter)
    if not positions:
        return ctx.conversation
    return Conversation([*ctx.conversation[:first], *_view(window, positions, None, clearing, counter).shown])


def cleared_in_row(composition: CallContent, row: HistoryRow) -> dict[int, Message]:
    """Return the results that placeholders replace in a row, by their index in the context."""
    clearing = composition.context.clearing
    if clearing is None or not len(row.history):
        return {}
    histories = _histories(composition.context, composition.layers)
    cleared = _cleared(clearing, histories, composition.counter)
    number = int(row.layer == "intermediate")
    history = histories[number]
    # A budget drops the first messages, so the last messages are sent.
    first = len(history) - len(row.history)
    return {row.indices[at - first]: history[at] for at in sorted(cleared[number]) if at >= first}


def result_reference(message: Message) -> str:
    """Return the id of a result in its placeholder. Models use ids of calls again, so the text is part of the id."""
    content = f"{message.tool_call_id}\0{message.text}"
    return blake2b(content.encode("utf-8", "replace"), digest_size=5).hexdigest()


def _histories(ctx: PromptContext, layers: Layers) -> list[Conversation]:
    """Return the conversation, if it is sent, and the tool traffic, without orphans."""
    conversation = Conversation()
    if layers.conversation:
        conversation = ctx.conversation.complete()
    return [conversation, ctx.intermediate.complete()]


def _cleared(
    clearing: ResultClearing, histories: Sequence[Conversation], counter: TokenCounter
) -> list[frozenset[int]]:
    """Return the positions of the cleared results in each history."""
    walk, count = _Walk(clearing, len(histories)), message_tokens(counter)
    for number, history in enumerate(histories):
        totals, offset = history.totals(count)
        for position, message in enumerate(history):
            if message.role == "assistant":
                walk.before_reply()
                walk.step += bool(message.tool_calls)
            elif message.role == "tool":
                tokens = totals[offset + position + 1] - totals[offset + position]
                if tokens > clearing.over and _can_be_cleared(message, clearing):
                    walk.waiting.append(_Candidate(walk.step, number, position, tokens))
    # The next reply is the reply to this prompt.
    walk.before_reply()
    return [frozenset(positions) for positions in walk.cleared]


class _Walk:
    """Walk over histories, which clears results in the order of the prompts."""

    __slots__ = ("_clearing", "_old", "_tokens", "cleared", "step", "waiting")

    def __init__(self, clearing: ResultClearing, histories: int) -> None:
        self._clearing = clearing
        self._old: list[_Candidate] = []
        """Results that are old enough, but too few to be cleared."""
        self._tokens = 0
        """Tokens of `_old`."""
        self.waiting: deque[_Candidate] = deque()
        self.step = 0
        self.cleared: list[set[int]] = [set() for _ in range(histories)]

    def before_reply(self) -> None:
        """Clear all old results if they have enough tokens together."""
        while self.waiting and self.waiting[0].step <= self.step - self._clearing.keep:
            candidate = self.waiting.popleft()
            self._old.append(candidate)
            self._tokens += candidate.tokens
        if not self._old or self._tokens < self._clearing.batch:
            return
        for candidate in self._old:
            self.cleared[candidate.history].add(candidate.position)
        self._old, self._tokens = [], 0


def _can_be_cleared(message: Message, clearing: ResultClearing) -> bool:
    name = message.name or ""
    if name in clearing.without or (clearing.only is not None and name not in clearing.only):
        return False
    text = message.text
    has_media = not isinstance(message.content, str)
    if len(text) < clearing.start + _MIN_SAVED and not has_media:
        return False
    return not _is_failure(name, text)


def _is_failure(name: str, text: str) -> bool:
    """True for the result of a call that failed, was denied or was cancelled: the model must not try it again."""
    if text.startswith(('{"error": "', "Unknown tool ")):
        return True
    return bool(name) and text.startswith(name) and text.startswith(_FAILURES, len(name))


def _view(
    history: Conversation,
    positions: frozenset[int],
    earlier: ClearedHistory | None,
    clearing: ResultClearing,
    counter: TokenCounter,
) -> ClearedHistory:
    """Return a history with placeholders, which extends the history of the earlier prompt if possible.

    The caches of a conversation, such as its token counts, are then valid for the earlier messages.
    """
    if not positions:
        return ClearedHistory(history, positions, history)
    if earlier is not None and earlier.positions == positions and history.extends(earlier.source):
        added = history[len(earlier.source) :]
        if not len(added):
            return earlier._replace(source=history)
        return ClearedHistory(history, positions, earlier.shown.append(*added))
    messages = list(history)
    for position in positions:
        messages[position] = _placeholder(messages[position], clearing, counter)
    return ClearedHistory(history, positions, Conversation(messages))


def _placeholder(message: Message, clearing: ResultClearing, counter: TokenCounter) -> Message:
    """Return the message that replaces a result. It answers the same call."""
    tokens = message_tokens(counter)(message)
    name = message.name or "the tool"
    text = (
        f"[This result of {name}, {tokens:,} tokens, was removed from the prompt. "
        f'Read it again with {READ_TOOL}(id="{result_reference(message)}").]'
    )
    if clearing.start:
        text = f"{message.text[: clearing.start]}...\n{text}"
    return Message("tool", text, tool_call_id=message.tool_call_id, name=message.name)
