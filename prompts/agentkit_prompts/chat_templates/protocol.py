"""Protocol of a chat template, which converts messages to the text format of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message

Capability = Literal["chat", "completion", "infilling", "python"]
"""A task of a model; only `chat` decorates a prompt with roles."""


FIELDS_ELSEWHERE = {
    "session_len": "use session_len= of CompletionModel, or session_len: under model: of an agent file",
    **dict.fromkeys(("counter", "tokenizer"), "tokens are counted by the counter of the agent: Agent(counter=...)"),
}
"""Right place of options that are not fields of a template, by name."""
TOOLS_IN_PROMPT = (
    "put the tools in the prompt with ToolPrompt, in a prompt file `kind: tools`, and describe there how to write a "
    "call: calls and results are then text"
)
"""Advice for a template without a place for tools."""


class ChatTemplate(Protocol):
    """Chat template of a model: converts a conversation to text.

    A template can also have `capability`, `session_len`, sampling defaults (`temperature`, `top_p`, `top_k`,
    `repetition_penalty`) and `tool_call_format`, like `BaseTemplate`. If it has `variables`, the names of the other
    keyword arguments that `render` reads, further names are errors. With `rewrites_text = False`, a template guarantees
    the same control tokens for all texts.
    """

    @property
    def stop_words(self) -> Sequence[str] | None:
        """Texts that end a reply."""
        ...

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words, bos and eos, and message markers."""
        ...

    def render(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[ToolSpec | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the text of the conversation; with `add_generation_prompt` it ends with the opening of the reply.

        Raises:
            ChatTemplateError: The template has no place for a part of the conversation; names the message.
        """
        ...
