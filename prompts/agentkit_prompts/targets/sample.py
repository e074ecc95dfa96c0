"""A composition and the reply to it as one row of a fine-tuning set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import PromptError
from agentkit_prompts.messages import Message
from agentkit_prompts.targets.openai import openai_message, openai_payload
from agentkit_prompts.targets.text import BLANK, plain_line, said_lines

if TYPE_CHECKING:
    from agentkit_prompts.composition import Composition

__all__ = ["sample"]

_HEAD = "assistant: "


def sample(composition: Composition, reply: Message | str) -> dict[str, Any]:
    """Return `{"messages": [...], "tools": [...], "text": "...", "loss_spans": [[start, end], ...]}`; no `tools` when
    there are none.

    `messages` are in the form of a chat-completions request, the reply last. `text` is the same as plain text, and
    the spans, in characters of it, are what the assistant said: content and tool calls, in the history, in this turn
    and in the reply, without the role in front.

    Raises:
        PromptError: The reply is not one of an assistant.
    """
    if isinstance(reply, str):
        reply = Message("assistant", reply)
    if not isinstance(reply, Message) or reply.role != "assistant":
        got = f"a {reply.role} message" if isinstance(reply, Message) else type(reply).__name__
        raise PromptError(f"to_sample: expected the reply of an assistant, got {got}")
    payload = openai_payload(composition)
    row: dict[str, Any] = {"messages": [*payload["messages"], openai_message(reply)]}
    if "tools" in payload:
        row["tools"] = payload["tools"]
    lines = [*said_lines(composition), (plain_line(reply), True)]
    spans: list[list[int]] = []
    start = 0
    for line, said in lines:
        end = start + len(line)
        if said and line != _HEAD:
            spans.append([start + len(_HEAD), end])
        start = end + len(BLANK)
    return {**row, "text": BLANK.join([line for line, _ in lines]), "loss_spans": spans}
