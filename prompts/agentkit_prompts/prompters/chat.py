"""`ChatPrompter`: a conversation, each turn between the tokens of the model."""

from __future__ import annotations

from typing import ClassVar

from agentkit_prompts.prompters.base import Prompter

__all__ = ["ChatPrompter"]


class ChatPrompter(Prompter):
    """What the user sends fills the slots of the instruction; without a slot it is the user's message.

    With an instruction in two parts the block of the `extra_keys` follows the user's part.
    """

    layout: ClassVar[str] = "{sos}{system}{instruction}{tools}{eos}\n\n{history}\n{soh}\n{user}{input}\n{eoh}{soa}\n"
    split: ClassVar[str] = "{soa}"

    def instruct(self, system: str, user: str | None, extra: str) -> tuple[str, str]:
        """Close the instruction and the block behind it with a line break each."""
        if user is None:
            return (f"{system}\n{extra}\n" if system or extra else ""), ""
        return system, user + extra
