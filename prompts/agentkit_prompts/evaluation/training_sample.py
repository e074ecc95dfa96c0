"""Fine-tuning row of the messages of a prompt and the true answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkit_prompts.chat_templates.protocol import ChatTemplate
from agentkit_prompts.composition.compose import compose
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, UserInput
from agentkit_prompts.tree.layers import Layers


def training_sample(
    messages: Sequence[Message],
    text_of_prompt: Callable[[], str],
    reply: str,
    template: ChatTemplate | None,
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a fine-tuning row. A template that only completes text gets the text of the prompt, not the messages.

    Args:
        messages: Messages of the prompt.
        text_of_prompt: Function that returns the prompt as text.
        reply: The true answer.
        template: The chat template, if any.
        kwargs: Other values that the template reads.
    """
    composition = compose(Layers(), PromptContext(user_input=UserInput(""), conversation=messages))
    if getattr(template, "capability", "chat") != "completion":
        return composition.to_sample(reply, template, reply_only=True, **kwargs)
    sample = composition.to_sample(reply, None, reply_only=True, **kwargs)
    text = text_of_prompt()
    spans = []
    if reply:
        spans = [[len(text), len(text + reply)]]
    return {**sample, "text": text + reply, "loss_spans": spans}
