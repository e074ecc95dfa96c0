"""The prompters of the LazyLLM document: `AlpacaPrompter`, `ChatPrompter` and `EmptyPrompter`."""

from __future__ import annotations

from typing import Any, ClassVar

from agentkit_prompts.prompters.history import History, Tools
from agentkit_prompts.prompters.prompter import Prompter

_PREAMBLE = (
    "Below is an instruction that describes a task, paired with extra messages such as input that provides further "
    "context if possible. Write a response that appropriately completes the request.\n\n### Instruction:\n"
)


class AlpacaPrompter(Prompter):
    """Prompter whose input fills slots; it rejects history.

    If the instruction is a dict, the block of the `extra_keys` follows its user part.
    """

    layout: ClassVar[str] = "{system}\n{instruction}\n{tools}\n{user}### Response:\n"
    split: ClassVar[str] = "### Response:"

    def instruct(self, system: str, user: str | None, extra: str) -> tuple[str, str]:
        """Insert the introduction of the data set before the system part."""
        if user is None:
            return f"{_PREAMBLE}{system}\n\n{extra}", ""
        return f"{_PREAMBLE}{system}", f"{user}\n\n{extra}" if extra else user


class ChatPrompter(Prompter):
    """Prompter whose input fills the slots of the instruction; without slots, the input is the user message.

    If the instruction is a dict, the block of the `extra_keys` follows its user part.
    """

    layout: ClassVar[str] = "{sos}{system}{instruction}{tools}{eos}\n\n{history}\n{soh}\n{user}{input}\n{eoh}{soa}\n"
    split: ClassVar[str] = "{soa}"

    def instruct(self, system: str, user: str | None, extra: str) -> tuple[str, str]:
        """Add a line break to the instruction and to the block after it."""
        if user is None:
            if not system and not extra:
                return "", ""
            return f"{system}\n{extra}\n", ""
        return system, user + extra


class EmptyPrompter(Prompter):
    """Prompter whose text is the unchanged input; history and tools are contained only in requests."""

    layout: ClassVar[str] = "{tools}{history}{input}"

    def generate_prompt(
        self,
        input: Any = None,
        history: History | None = None,
        tools: Tools | None = None,
        label: str | None = None,
        *,
        show: bool = False,
        return_dict: bool = False,
    ) -> Any:
        """Return the input unchanged, or with `return_dict` a request with the input as last message."""
        # The text ignores history and tools, so they are not checked, and the input can have any type.
        if not return_dict:
            self._log(input, show)
            return input
        return super().generate_prompt(input, history, tools, label, show=show, return_dict=True)
