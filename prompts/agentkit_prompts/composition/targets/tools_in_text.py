"""Tools for a chat template that has no place for them: a prompt shows them, and calls and results are text as well."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from agentkit_prompts.composition.contents import Contents
from agentkit_prompts.composition.declarations import Declarations
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.tree.leaves import ToolPrompt

__all__ = ["calls_as_text", "shows_tools", "with_tools_as_text"]


def shows_tools(composition: Contents) -> bool:
    """Whether a prompt of the composition shows the tools in its text."""
    return any(
        isinstance(prompt, ToolPrompt) or "tools" in (prompt.reads or ()) for _, prompt in composition.layers.walk()
    )


def with_tools_as_text(composition: Contents) -> Contents:
    """Return a composition without declared tools, in which calls and results are text of their messages.

    A call is JSON between `<tool_call>` tags, a result the user's, between `<tool_response>` tags.
    """
    return Contents(
        composition.context,
        composition.layers,
        composition.sections,
        composition.counter,
        Declarations((), composition.declarations.output),
        conversation=_as_text(composition.conversation),
        intermediate=_as_text(composition.intermediate),
        trims=composition.trims,
        budget=composition.budget,
    )


def _as_text(messages: Conversation) -> Conversation:
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return messages
    return Conversation(map(calls_as_text, messages))


def calls_as_text(message: Message) -> Message:
    """Return a message whose calls, or the result it is, are text."""
    if message.role == "tool":
        name = f"{message.name}: " if message.name else ""
        return Message("user", f"<tool_response>\n{name}{message.text}\n</tool_response>")
    if not message.tool_calls:
        return message
    return replace(message, content="\n".join([*_texts(message.text), *map(_call, message.tool_calls)]), tool_calls=())


def _texts(text: str) -> Iterable[str]:
    return [text] if text else []


def _call(call: ToolCall) -> str:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = call.arguments
    text = json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"
