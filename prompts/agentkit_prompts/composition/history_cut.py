"""`History`: a conversation that a budget cuts, the oldest steps first."""

from __future__ import annotations

from agentkit_prompts.composition.cut_order import Node
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tokens.counter import TokenCounter, message_tokens

__all__ = ["History"]


class History(Node):
    """Messages in whole steps: a user's turn with all replies, or a model's calls with their results.
    With `cut="drop"` all messages are one step.

    The newest steps are kept. If that leaves a choice, the cut moves to a block border, a point that depends only on
    the messages before it, so that the start of the history stays the same over several turns.
    """

    def __init__(
        self, messages: Conversation, counter: TokenCounter, size: Size, *, by_role: str, required: int = 0
    ) -> None:
        self.size = size
        self._messages = messages
        self._count = message_tokens(counter)
        starts = [index for index, message in enumerate(messages) if message.role == by_role]
        if len(messages) and starts[:1] != [0]:
            # The messages before the first turn are a step, too.
            starts = [0, *starts]
        if size.cut == "drop":
            starts = starts[:1]
        self._starts = starts
        self.units = len(self._starts)
        self.required = min(required, self.units)
        if size.cut == "none":
            self.required = self.units

    def tokens(self, kept: int) -> int:
        """Count the messages of the newest steps."""
        if kept <= 0:
            return 0
        totals, offset = self._messages.totals(self._count)
        return totals[offset + len(self._messages)] - totals[offset + self._starts[-kept]]

    def steps(self, kept: int, block: int = 0, least: int = 1) -> int:
        """Return the number of the `kept` newest steps from a block border on, at least `least`.

        Without a border among them, all remain.
        """
        if not 0 < kept < self.units or not block:
            return max(0, min(kept, self.units))
        totals, offset = self._messages.totals(self._count)
        # Counted from the first message of the view, not of its log: the same messages have the same borders.
        base = totals[offset]
        for step in range(self.units - kept, self.units - max(1, least) + 1):
            here, before = (totals[offset + self._starts[at]] - base for at in (step, step - 1))
            if here // block != before // block:
                return self.units - step
        return kept

    def keep(self, steps: int) -> Conversation:
        """Return the newest steps."""
        if steps >= self.units:
            return self._messages
        if steps <= 0:
            return self._messages.window(0, 0)
        return self._messages.window(self._starts[-steps], len(self._messages))
