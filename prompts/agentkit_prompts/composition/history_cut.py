"""`HistoryNode`: a conversation that a budget cuts, the oldest steps first."""

from __future__ import annotations

from agentkit_prompts.composition.cut_order import Node
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tokens.counter import TokenCounter, message_tokens


class HistoryNode(Node):
    """Messages in whole steps: a user's turn with all replies, or a model's calls with their results.
    With `cut="drop"` all messages are one step.

    The newest steps remain. `steps` moves a cut forward to a block border. A border depends only on the messages before
    it, so the start of the history stays the same for several turns, and the provider can cache it.
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

    def tokens(self, count: int) -> int:
        """Count the tokens of the `count` newest steps."""
        if count <= 0:
            return 0
        totals, offset = self._messages.totals(self._count)
        return totals[offset + len(self._messages)] - totals[offset + self._starts[-count]]

    def steps(self, count: int, block: int = 0, minimum: int = 1) -> int:
        """Return the number of steps after the first block border among the `count` newest steps.

        Borders are `block` tokens apart; 0 means no borders. The result is `count` if no border leaves at least
        `minimum` steps.
        """
        if not 0 < count < self.units or not block:
            return max(0, min(count, self.units))
        totals, offset = self._messages.totals(self._count)
        # Count from the first message of the view: its log can start earlier, and equal histories need equal borders.
        base = totals[offset]
        for step in range(self.units - count, self.units - max(1, minimum) + 1):
            here, before = (totals[offset + self._starts[at]] - base for at in (step, step - 1))
            if here // block != before // block:
                return self.units - step
        return count

    def keep(self, steps: int) -> Conversation:
        """Return the messages of the newest `steps`."""
        if steps >= self.units:
            return self._messages
        if steps <= 0:
            return self._messages.window(0, 0)
        return self._messages.window(self._starts[-steps], len(self._messages))
