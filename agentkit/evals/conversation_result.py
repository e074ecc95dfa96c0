"""`ConversationResult`: the result of a conversation of several turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentkit.errors import FailedCall
from agentkit.models.model import Usage
from agentkit.run.engine.run_result import RunResult
from agentkit.run.parts.chain import Output


@dataclass(slots=True, repr=False)
class ConversationResult(RunResult[Output]):
    """Result of a conversation with a simulated user.

    `messages`, `usage`, `steps` and `tool_errors` are of all turns; the other fields are of the last turn.
    """

    turns: tuple[RunResult[Output], ...] = ()
    """Results of the turns, in order."""

    @classmethod
    def of(cls, turns: tuple[RunResult[Output], ...]) -> ConversationResult[Output]:
        """Return the result of at least one turn."""
        last = turns[-1]
        return cls(
            output=last.output,
            messages=tuple([message for turn in turns for message in turn.messages]),
            composition=last.composition,
            usage=sum((turn.usage for turn in turns), Usage()),
            steps=sum(turn.steps for turn in turns),
            finish_reason=last.finish_reason,
            run_id=last.run_id,
            journal=last.journal,
            limit=last.limit,
            turns=turns,
        )

    @property
    def tool_errors(self) -> tuple[FailedCall, ...]:
        """Tool calls of all turns that failed; see `RunResult.tool_errors`."""
        return tuple([error for turn in self.turns for error in turn.tool_errors])


def turns_of(result: RunResult[Any]) -> tuple[RunResult[Any], ...]:
    """Return the results of the turns of a conversation, or the result of a single run."""
    if isinstance(result, ConversationResult):
        return result.turns
    return (result,)
