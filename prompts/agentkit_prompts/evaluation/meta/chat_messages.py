"""Conversion of prompts in the roles of meta templates to chat messages, and of chat messages to such prompts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import takewhile
from typing import Any, TypeAlias, TypeGuard

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.allowed_media import MediaFolder
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.read_parts import PartReader
from agentkit_prompts.errors import (
    ChatTemplateError,
    InContextError,
    MessageError,
    Problem,
    Problems,
    brief,
    raise_problems,
)
from agentkit_prompts.evaluation.meta.role_config import MetaFormat
from agentkit_prompts.evaluation.prompt_list import PromptList, section
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.names import nearest

MediaRoot: TypeAlias = str | os.PathLike[str] | MediaFolder | None
"""Folder of the files that messages may use as media; None to refuse files."""

_CHAT_ROLES: dict[str, tuple[str, ...]] = {
    "system": ("SYSTEM",),
    "user": ("HUMAN", "USER"),
    "assistant": ("BOT", "ASSISTANT"),
    "tool": ("TOOL",),
}
"""Names that meta templates use for a role, in upper or lower case, by the role of a chat message."""

_MESSAGE_KEYS = ("role", "prompt", "content")


@lru_cache(MAX_CACHED)
def _chat_role(name: str) -> str:
    """Return the chat role for the name of a role in a meta template; an unknown name is returned unchanged."""
    return next((role for role, names in _CHAT_ROLES.items() if name.upper() in names), name)


# From a prompt to messages


def chat_messages(prompt: str | PromptList | Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages `{"role", "content"}` of a chat request (AISBench, chat models).

    HUMAN, BOT, SYSTEM and TOOL become user, assistant, system and tool; other roles and other keys are unchanged. Text
    or a list of content parts is one user message. Text at the start of a prompt list is a system message.

    Raises:
        InContextError: The prompt has another form; lists every invalid item.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list | tuple):
        kind = type(prompt).__name__
        text = f"chat messages: expected text, or the result of a meta template, got {kind}"
        raise InContextError(text, name="prompt", value=kind)
    if prompt and all(map(_is_part, prompt)):
        return [{"role": "user", "content": deepcopy(list(prompt))}]
    problems: Problems = []
    messages = [_message(position, item, problems) for position, item in enumerate(prompt)]
    raise_problems(InContextError, "chat messages", problems)
    return messages


def _is_part(item: object) -> bool:
    return isinstance(item, Mapping) and "type" in item and "role" not in item


def _message(position: int, item: object, problems: Problems) -> dict[str, Any]:
    """Return an item as a chat message."""
    if isinstance(item, str):
        # Text at the start of a prompt is an instruction; any other text is a message of the user.
        return {"role": "user" if position else "system", "content": item}
    if not _has_content(item):
        text = f"must be text, or a dict with a role and a prompt, got {brief(item)}"
        problems.append(Problem(f"[{position}]", text))
        return {}
    content = item.get("prompt", item.get("content"))
    other_fields = {name: deepcopy(value) for name, value in item.items() if name not in _MESSAGE_KEYS}
    return {"role": _chat_role(item["role"]), "content": deepcopy(content), **other_fields}


def _has_content(item: object) -> TypeGuard[Mapping[str, Any]]:
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        return False
    return "prompt" in item or "content" in item


def to_messages(
    prompt: str | PromptList | Sequence[Any],
    *,
    root: MediaRoot = None,
    allow_media: bool = False,
) -> tuple[Message, ...]:
    """Return the messages of `chat_messages` as `Message` objects, with media as parts.

    Args:
        prompt: The prompt.
        root: Folder that must contain the files of media after links are resolved. Relative paths start at this folder,
            and the parts contain the bytes of the files. Without a folder, paths are refused.
        allow_media: True to accept every path, and addresses that are not public. Rows and configurations of other
            authors could then send a file of this machine to the model.

    Raises:
        InContextError: A role is unknown in a chat, or a content part cannot be read or is refused; names all problems.
    """
    folder = root
    if folder is not None and not isinstance(folder, MediaFolder):
        folder = MediaFolder(folder)
    messages = chat_messages(prompt)
    try:
        return read_messages(messages, where="messages", is_linked=False, allow_media=allow_media, folder=folder)
    except MessageError as error:
        raise InContextError(str(error), problems=error.problems) from error


# From messages to a prompt


def as_prompt_list(
    messages: Sequence[Message | Mapping[str, Any]], meta: MetaFormat | None, *, ask: bool
) -> PromptList:
    """Return a conversation as a prompt list in the roles of `meta`; with `ask`, the list ends with an empty turn of
    the model.

    Raises:
        ChatTemplateError: A message has no place, or the conversation contains no message to reply to; lists all
            problems.
    """
    roles = _names_of_roles(meta)
    problems: Problems = []
    if not messages:
        problems.append(Problem("messages", "empty; pass at least one user message"))
    items = [_item(f"messages[{position}]", message, roles, problems) for position, message in enumerate(messages)]
    raise_problems(ChatTemplateError, "meta template", problems)
    opening = _count_of_instructions(messages, meta, roles)
    dialogue = _turns(items[opening:])
    if meta is not None:
        raise_problems(ChatTemplateError, "meta template", _problems_of_order(dialogue, meta, roles, ask=ask))
        if ask:
            dialogue.append({"role": roles["assistant"], "prompt": "", "generate": True})
    prompt = PromptList(section("begin", items[:opening]))
    if dialogue:
        prompt += section("round", dialogue)
    return prompt


def _item(place: str, message: object, roles: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """Return a message as a role item; a message without a place becomes an empty item and a problem."""
    if isinstance(message, Message):
        message = {"role": message.role, "content": message.content, "tool_calls": message.tool_calls}
    problem = _problem_of(place, message, roles)
    if problem is not None:
        problems.append(problem)
        return {}
    assert isinstance(message, Mapping)
    content = PartReader(problems, allow_media=True).content(message.get("content"), f"{place}.content")
    if not isinstance(content, str):
        # `text` replaces media by their alt text.
        content = Message("user", content).text
    return {"role": roles[str(message["role"])], "prompt": content}


def _problem_of(place: str, message: object, roles: Mapping[str, str]) -> Problem | None:
    if not isinstance(message, Mapping):
        return Problem(place, f"must be a Message or a dict with role and content, got {type(message).__name__}")
    if message.get("tool_calls"):
        text = "a meta template has no place for tool calls; write them into the message"
        return Problem(f"{place}.tool_calls", text)
    role = message.get("role")
    if isinstance(role, str) and role in roles:
        return None
    text = f"unknown role {role!r}"
    if role in [*_CHAT_ROLES]:
        text = f"the meta template has no role for {role!r}"
    return Problem(f"{place}.role", f"{text}{nearest(str(role), sorted(roles))}")


def _turns(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return role items with neighbouring items of one role joined, because a round contains each role once."""
    turns: list[dict[str, Any]] = []
    for item in items:
        if turns and turns[-1]["role"] == item["role"]:
            turns[-1]["prompt"] += f"\n{item['prompt']}"
        else:
            turns.append(dict(item))
    return turns


def _count_of_instructions(
    messages: Sequence[Message | Mapping[str, Any]], meta: MetaFormat | None, roles: Mapping[str, str]
) -> int:
    """Return the number of messages at the start that are instructions for the whole conversation.

    A system message before all turns is an instruction, unless the round of the template has a place for it.
    """
    name = roles.get("system")
    if meta is not None and name in meta.order and name != roles.get("user"):
        return 0
    names = [message.role if isinstance(message, Message) else message["role"] for message in messages]
    return len([*takewhile(lambda name: name == "system", names)])


def _problems_of_order(
    dialogue: Sequence[Mapping[str, Any]], meta: MetaFormat, roles: Mapping[str, str], *, ask: bool
) -> Problems:
    """Return the reasons why a dialogue does not fit the round of the template."""
    assistant = roles.get("assistant")
    if assistant is None and ask:
        return [Problem("round", "no role is marked generate=True or called BOT; mark the role of the model")]
    if assistant is None:
        return []
    names = _names_in_round(dialogue, meta)
    problems: Problems = []
    if names[:1] == [assistant] and _asks_first(meta, roles):
        text = f"the conversation starts with {assistant!r}, but a round starts with {roles.get('user')!r}"
        problems.append(Problem("messages[0]", f"{text}; put a user message first"))
    if ask and names[-1:] in ([], [assistant]):
        text = "no user message to reply to at the end; add one, or render with add_generation_prompt=False"
        problems.append(Problem("messages[-1]", text))
    return problems


def _names_in_round(dialogue: Sequence[Mapping[str, Any]], meta: MetaFormat) -> list[str]:
    """Return the roles of the messages, without reserved roles, which can be anywhere in a round."""
    names = [item["role"] for item in dialogue]
    if not meta.round:
        return names
    return [name for name in names if name in meta.order]


def _asks_first(meta: MetaFormat, roles: Mapping[str, str]) -> bool:
    """True if the turn of the user is before the turn of the model in a round, or a round has no turn of the user."""
    user_order = meta.order.get(roles.get("user", ""), -1)
    return meta.order.get(roles["assistant"], 0) > user_order


# Roles


def _names_of_roles(meta: MetaFormat | None) -> dict[str, str]:
    """Return the names of roles in the meta template, by the chat role and by the name itself."""
    if meta is None:
        return {role: names[0] for role, names in _CHAT_ROLES.items()}
    roles = _roles_by_name(meta)
    _add_roles_by_use(roles, meta)
    # Without a system role, instructions are text of the user.
    if "user" in roles:
        roles.setdefault("system", roles["user"])
    return {**{name: name for name in meta.roles}, **roles}


def _add_roles_by_use(roles: dict[str, str], meta: MetaFormat) -> None:
    """Add the assistant, the first role of the round that replies, and the user, the first other role of the round."""
    replying = [role.role for role in meta.speakers if role.generate]
    if replying:
        roles["assistant"] = replying[0]
    taken = (roles.get("assistant"), roles.get("system"))
    for name in meta.order:
        if name not in taken:
            roles.setdefault("user", name)


def _roles_by_name(meta: MetaFormat) -> dict[str, str]:
    """Return the first matching role of the meta template for each chat role."""
    roles: dict[str, str] = {}
    for role in meta.roles.values():
        roles.setdefault(_chat_role(role.role), role.role)
        roles.setdefault(_chat_role(role.api_role), role.role)
    return {name: role for name, role in roles.items() if name in _CHAT_ROLES}
