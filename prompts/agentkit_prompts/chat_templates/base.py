"""The protocol of a chat template: messages in, the text that one model was trained on out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from agentkit_prompts.items import ToolSpec
from agentkit_prompts.messages import Message

__all__ = ["Capability", "ChatTemplate"]

Capability = Literal["chat", "completion", "infilling", "python"]
"""What a model can be asked to do; only `chat` decorates a prompt with roles."""


class ChatTemplate(Protocol):
    """How one model wants to hear a conversation, and the sampling defaults that belong to it (LMDeploy document)."""

    session_len: int | None
    """Tokens of context that the model has."""
    top_p: float | None
    top_k: int | None
    temperature: float | None
    repetition_penalty: float | None
    stop_words: Sequence[str] | None
    """What ends a reply."""
    capability: Capability | str | None

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """What only the template may write: stop words, bos and eos, and the markers it puts around messages."""
        ...

    def render(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[ToolSpec | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the text of the conversation; with `add_generation_prompt` it ends where the model's reply begins.

        Raises:
            ChatTemplateError: The template cannot say this conversation; says which message, and why.
        """
        ...
