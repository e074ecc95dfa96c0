"""What a meta template made of a prompt, as the messages of a chat request and as messages of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.errors import InContextError, MessageError
from agentkit_prompts.evaluation.meta.chat_roles import chat_role
from agentkit_prompts.evaluation.meta.role_config import refuse
from agentkit_prompts.evaluation.prompt_list import PromptList

__all__ = ["chat_messages", "to_messages"]


def chat_messages(prompt: str | PromptList | Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages `{"role", "content"}` of a chat request (AISBench, chat models).

    HUMAN, BOT, SYSTEM and TOOL become user, assistant, system and tool; other roles and other keys stay. Text is one
    message of the user, and so is a list of content parts. Text that begins a prompt list is the system's.

    Raises:
        InContextError: The prompt is none of these; names every item that is wrong.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list | tuple):
        raise InContextError(
            f"chat messages: expected text, or what a meta template returned, got {type(prompt).__name__}"
        )
    if prompt and all(isinstance(part, Mapping) and "type" in part and "role" not in part for part in prompt):
        return [{"role": "user", "content": deepcopy(list(prompt))}]
    found: list[dict[str, Any]] = []
    problems: list[str] = []
    for position, item in enumerate(prompt):
        if isinstance(item, str):
            found.append({"role": "system" if position == 0 else "user", "content": item})
        elif (
            isinstance(item, Mapping) and isinstance(item.get("role"), str) and ("prompt" in item or "content" in item)
        ):
            rest = {key: deepcopy(value) for key, value in item.items() if key not in ("role", "prompt", "content")}
            content = deepcopy(item["prompt"] if "prompt" in item else item["content"])
            found.append({"role": chat_role(item["role"]), "content": content, **rest})
        else:
            problems.append(f"item {position} must be text, or a dict with a role and a prompt, got {item!r}"[:200])
    if problems:
        raise refuse("chat messages", problems)
    return found


def to_messages(prompt: str | PromptList | Sequence[Any]) -> tuple[Message, ...]:
    """Return the same as `Message` objects, media as parts; base64 is decoded.

    Raises:
        InContextError: A role is unknown in a chat, or a content part cannot be read; names everything.
    """
    try:
        return read_messages(chat_messages(prompt), where="messages", is_linked=False, may_read_files=True)
    except MessageError as error:
        raise InContextError(str(error)) from error
