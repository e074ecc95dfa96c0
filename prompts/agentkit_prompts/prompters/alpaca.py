"""`AlpacaPrompter`: one instruction and one reply, in the words of the Alpaca data set."""

from __future__ import annotations

from typing import ClassVar

from agentkit_prompts.prompters.base import Prompter

__all__ = ["AlpacaPrompter"]

_PREAMBLE = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides further "
    "context if possible. Write a response that appropriately completes the request.\n\n### Instruction:\n"
)


class AlpacaPrompter(Prompter):
    """Everything the user sends goes into slots; there is no history.

    With an instruction in two parts the block of the `extra_keys` follows the user's part.
    """

    layout: ClassVar[str] = "{system}\n{instruction}\n{tools}\n{user}### Response:\n"
    split: ClassVar[str] = "### Response:"

    def instruct(self, system: str, user: str | None, extra: str) -> tuple[str, str]:
        """Put the words of the data set in front of the system part."""
        if user is None:
            return f"{_PREAMBLE}{system}\n\n{extra}", ""
        return f"{_PREAMBLE}{system}", f"{user}\n\n{extra}" if extra else user
