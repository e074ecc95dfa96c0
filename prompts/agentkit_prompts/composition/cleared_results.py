"""Histories of a prompt in which placeholders replace old tool results; see `ResultClearing`.

The choice depends only on the messages, the policy and the token counter, and a result that is cleared in one prompt is
cleared in all later prompts: a replay sends the same prompts, and the start of the prompts stays the same between two
clearings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.context.result_clearing import ResultClearing
from agentkit_prompts.tokens.counter import TokenCounter, message_tokens
from agentkit_prompts.tree.layers import Layers

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.render_cache import RenderCache
    from agentkit_prompts.composition.rows import HistoryRow

READ_TOOL = "read_cleared_result"
"""Name of the tool that reads a cleared result."""
_LETTERS = str.maketrans("0123456789", "ghijklmnop")
"""Letters for the digits of an id, which a detector of personal data could read as a telephone number."""
_MIN_SAVED = 300
"""Minimum characters that a placeholder saves."""
_FAILURES = (" failed: ", " was not called", " was cancelled", " did not end within ", " ran, but its result ")
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
    histories = _histories(ctx, layers)
    cleared: Any = None
    if cache is not None:
        # After an error, a half-read state must not be continued.
        cleared, cache.cleared = cache.cleared, None
    if cleared is None or not cleared.is_continued_by(ctx.clearing, counter, histories):
        cleared = _Cleared(ctx.clearing, counter, len(histories))
    cleared.advance(histories)
    if cache is not None:
        cache.cleared = cleared
    conversation, intermediate = cleared.shown
    return conversation, intermediate


def cleared_conversation(ctx: PromptContext, first: int, counter: TokenCounter) -> Conversation:
    """Return the conversation with placeholders for the results that a prompt from message `first` does not show.

    Compaction counts its tokens. Its messages have the same indices.
    """
    clearing, window = ctx.clearing, ctx.conversation[first:]
    # Without its orphans, a conversation has other indices.
    if clearing is None or window.complete() is not window:
        return ctx.conversation
    cleared = _Cleared(clearing, counter, 1)
    cleared.advance([window])
    if not cleared.positions[0]:
        return ctx.conversation
    return Conversation([*ctx.conversation[:first], *cleared.shown[0]])


def cleared_in_row(composition: CallContent, row: HistoryRow) -> dict[int, Message]:
    """Return the results that placeholders replace in a row, by their index in the context."""
    clearing = composition.context.clearing
    if clearing is None or not len(row.history):
        return {}
    histories = _histories(composition.context, composition.layers)
    cleared = _Cleared(clearing, composition.counter, len(histories))
    cleared.advance(histories)
    number = int(row.layer == "intermediate")
    history = histories[number]
    # A budget drops the first messages, so the last messages are sent.
    first = len(history) - len(row.history)
    return {row.indices[at - first]: history[at] for at in sorted(cleared.positions[number]) if at >= first}


def result_reference(message: Message) -> str:
    """Return the id of a result in its placeholder. Models use ids of calls again, so the text is part of the id."""
    content = f"{message.tool_call_id}\0{message.text}"
    return blake2b(content.encode("utf-8", "replace"), digest_size=5).hexdigest().translate(_LETTERS)


def _histories(ctx: PromptContext, layers: Layers) -> list[Conversation]:
    """Return the conversation, if it is sent, and the tool traffic, without orphans."""
    conversation = Conversation()
    if layers.conversation:
        conversation = ctx.conversation.complete()
    return [conversation, ctx.intermediate.complete()]


class _Cleared:
    """The cleared results of histories, which are read in order: first the conversation, then the tool traffic.

    Before each reply of the model, all results that are old enough are cleared if they have enough tokens together. The
    reading continues with the messages that are appended to the last history, so that a step of a run reads only new
    messages.
    """

    __slots__ = (
        "_clearing",
        "_count",
        "_counter",
        "_new",
        "_old",
        "_sources",
        "_step",
        "_tokens",
        "_waiting",
        "positions",
        "shown",
    )

    def __init__(self, clearing: ResultClearing, counter: TokenCounter, histories: int) -> None:
        self._clearing = clearing
        self._counter = counter
        self._count = message_tokens(counter)
        self._sources = [Conversation()] * histories
        """The histories without placeholders."""
        self._step = 0
        """Number of replies with tool calls."""
        self._waiting: deque[_Candidate] = deque()
        self._old: list[_Candidate] = []
        """Results that are old enough, but too few to be cleared."""
        self._tokens = 0
        """Tokens of `_old`."""
        self._new: list[_Candidate] = []
        """Results that were cleared for the latest prompt."""
        self.positions: list[set[int]] = [set() for _ in range(histories)]
        """Indices of the cleared results in each history."""
        self.shown = self._sources
        """The histories with placeholders."""

    def is_continued_by(
        self, clearing: ResultClearing, counter: TokenCounter, histories: Sequence[Conversation]
    ) -> bool:
        """True if the histories are the same with messages appended to the last history."""
        if clearing != self._clearing or counter is not self._counter or len(histories) != len(self._sources):
            return False
        *before, last = zip(histories, self._sources, strict=True)
        is_same = all(len(history) == len(source) and _extends(history, source) for history, source in before)
        return is_same and _extends(*last)

    def advance(self, histories: Sequence[Conversation]) -> None:
        """Read the messages that were appended, and update the histories with placeholders."""
        self._new = []
        for number, history in enumerate(histories):
            self._read(number, history, len(self._sources[number]))
        # The next reply is the reply to this prompt.
        self._before_reply()
        self.shown = [self._with_placeholders(number, history) for number, history in enumerate(histories)]
        self._sources = [*histories]

    def _read(self, number: int, history: Conversation, start: int) -> None:
        totals, offset = history.totals(self._count)
        for position, message in enumerate(history[start:], start):
            if message.role == "assistant":
                self._before_reply()
                self._step += bool(message.tool_calls)
            elif message.role == "tool":
                tokens = totals[offset + position + 1] - totals[offset + position]
                if tokens > self._clearing.over and _can_be_cleared(message, self._clearing):
                    self._waiting.append(_Candidate(self._step, number, position, tokens))

    def _before_reply(self) -> None:
        """Clear all old results if they have enough tokens together."""
        while self._waiting and self._waiting[0].step <= self._step - self._clearing.keep:
            candidate = self._waiting.popleft()
            self._old.append(candidate)
            self._tokens += candidate.tokens
        if not self._old or self._tokens < self._clearing.batch:
            return
        for candidate in self._old:
            self.positions[candidate.history].add(candidate.position)
        self._new += self._old
        self._old, self._tokens = [], 0

    def _with_placeholders(self, number: int, history: Conversation) -> Conversation:
        """Return a history with placeholders, which extends the earlier history if no result of it was cleared now.

        An extended conversation has the caches, such as token counts, of the earlier messages.
        """
        if not self.positions[number]:
            return history
        earlier, appended = self.shown[number], history[len(self._sources[number]) :]
        positions = [candidate.position for candidate in self._new if candidate.history == number]
        if not positions:
            return earlier.append(*appended)
        messages = [*earlier, *appended]
        for position in positions:
            messages[position] = _placeholder(messages[position], self._clearing, self._counter)
        return Conversation(messages)


def _extends(history: Conversation, earlier: Conversation) -> bool:
    return not len(earlier) or history.extends(earlier)


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
