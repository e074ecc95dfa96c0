"""`EmptyPrompter`: says what it is given and nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

from agentkit_prompts.prompters.base import Prompter
from agentkit_prompts.prompters.turns import History, Tools

__all__ = ["EmptyPrompter"]


class EmptyPrompter(Prompter):
    """The text it generates is the input itself, whatever that is; history and tools are in the request only."""

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
        """Return the input, or with `return_dict` a request whose last message it is."""
        if not return_dict:
            if show or self._show:
                self._log(input)
            return input
        return super().generate_prompt(input, history, tools, label, show=show, return_dict=True)
