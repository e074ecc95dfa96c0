"""What a meta template made of a prompt, as the messages of a chat request and as messages of our own."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast, get_args

from agentkit_prompts.context.messages import Message, Role
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.errors import InContextError, PromptError
from agentkit_prompts.evaluation.meta.chat_roles import chat_role
from agentkit_prompts.evaluation.meta.meta_base import MEDIA
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
            said = deepcopy(item["prompt"] if "prompt" in item else item["content"])
            found.append({"role": chat_role(item["role"]), "content": said, **rest})
        else:
            problems.append(f"item {position} must be text, or a dict with a role and a prompt, got {item!r}"[:200])
    if problems:
        raise refuse("chat messages", problems)
    return found


def to_messages(prompt: str | PromptList | Sequence[Any]) -> tuple[Message, ...]:
    """Return the same as `Message` objects, media as parts; base64 is decoded, so what is none is found here.

    Raises:
        InContextError: A role is none of a chat, or a content part cannot be read; names everything.
    """
    found: list[Message] = []
    problems: list[str] = []
    for position, message in enumerate(chat_messages(prompt)):
        where = f"message {position}"
        content = message["content"]
        before = len(problems)
        if message["role"] not in get_args(Role):
            problems.append(
                f"{where}: role {message['role']!r} is none of a chat; expected {', '.join(get_args(Role))}"
            )
        if not isinstance(content, str | list):
            problems.append(f"{where}: content must be text or a list of parts, got {type(content).__name__}")
            continue
        said: str | tuple[Part, ...] = content if isinstance(content, str) else ()
        if isinstance(content, list):
            read = [_part(part, f"{where}, part {index}", problems) for index, part in enumerate(content)]
            said = tuple(part for part in read if part is not None)
        if len(problems) == before:
            try:
                found.append(Message(cast("Role", message["role"]), said, tool_call_id=message.get("tool_call_id")))
            except PromptError as error:
                problems.append(f"{where}: {error}")
    if problems:
        raise refuse("messages", problems)
    return tuple(found)


def _part(part: object, where: str, problems: list[str]) -> Part | None:
    """Return a content part as ours, or note what is wrong with it."""
    kind = str(part.get("type", "")).removesuffix("_url") if isinstance(part, Mapping) else ""
    if not isinstance(part, Mapping) or kind not in (*MEDIA, "text"):
        problems.append(f"{where}: expected type text, image_url, video_url or audio_url, got {part!r}"[:200])
        return None
    said = part.get("text" if kind == "text" else f"{kind}_url")
    address = said.get("url") if isinstance(said, Mapping) and kind != "text" else said
    if not isinstance(address, str):
        problems.append(f"{where}: a part of type {part['type']!r} needs its {'text' if kind == 'text' else 'url'}")
        return None
    if kind == "text":
        return Text(address)
    head, _, data = address.partition(",")
    try:
        if not address.startswith("data:"):
            return MEDIA[kind](address)  # type: ignore[arg-type]
        media_type, _, coding = head.removeprefix("data:").rpartition(";")
        if coding != "base64":
            problems.append(f"{where}: expected data:TYPE;base64,..., got {address[:40]!r}")
            return None
        return MEDIA[kind](base64.b64decode(data, validate=True), media_type or None)
    except binascii.Error as error:
        problems.append(f"{where}: the {kind} is not base64 ({error}): {data[:40]!r}")
    except PromptError as error:
        problems.append(f"{where}: {error}")
    return None
