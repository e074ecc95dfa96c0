"""Chat messages and the roles of meta templates: messages made of a prompt, and a prompt made of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.read_parts import PartReader
from agentkit_prompts.errors import ChatTemplateError, InContextError, MessageError, Problems
from agentkit_prompts.evaluation.meta.role_config import MetaFormat
from agentkit_prompts.evaluation.problems import Problem, placed, refuse
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, section
from agentkit_prompts.names import nearest

__all__ = ["as_prompt_list", "chat_messages", "to_messages"]

_CHAT_ROLES: dict[str, tuple[str, ...]] = {
    "system": ("SYSTEM",),
    "user": ("HUMAN", "USER"),
    "assistant": ("BOT", "ASSISTANT"),
    "tool": ("TOOL",),
}
"""Role of a chat message -> names that meta templates have for it, in any case."""


@lru_cache(maxsize=256)
def _chat_role(name: str) -> str:
    """Return the chat role that a name of a meta template stands for, or the name itself."""
    return next((role for role, names in _CHAT_ROLES.items() if name.upper() in names), name)


def chat_messages(prompt: str | PromptList | Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages `{"role", "content"}` of a chat request (AISBench, chat models).

    HUMAN, BOT, SYSTEM and TOOL become user, assistant, system and tool; other roles and other keys stay. Text is one
    message of the user, and so is a list of content parts. Text that begins a prompt list is the system's.

    Raises:
        InContextError: The prompt is not one of these; names every item that is wrong.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list | tuple):
        raise InContextError(
            f"chat messages: expected text, or what a meta template returned, got {type(prompt).__name__}",
            name="prompt",
            value=type(prompt).__name__,
        )
    if prompt and all(isinstance(part, Mapping) and "type" in part and "role" not in part for part in prompt):
        return [{"role": "user", "content": deepcopy(list(prompt))}]
    found: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for position, item in enumerate(prompt):
        if type(item) is dict and len(item) == 2 and type(item.get("prompt")) is str and type(item.get("role")) is str:
            found.append({"role": _chat_role(item["role"]), "content": item["prompt"]})
        elif isinstance(item, str):
            found.append({"role": "system" if position == 0 else "user", "content": item})
        elif (
            isinstance(item, Mapping) and isinstance(item.get("role"), str) and ("prompt" in item or "content" in item)
        ):
            rest = {key: deepcopy(value) for key, value in item.items() if key not in ("role", "prompt", "content")}
            content = deepcopy(item["prompt"] if "prompt" in item else item["content"])
            found.append({"role": _chat_role(item["role"]), "content": content, **rest})
        else:
            text = f"item {position} must be text, or a dict with a role and a prompt, got {item!r}"[:200]
            problems.append(Problem(f"[{position}]", text))
    if problems:
        raise refuse("chat messages", problems)
    return found


def to_messages(prompt: str | PromptList | Sequence[Any]) -> tuple[Message, ...]:
    """Return the same as `Message` objects, media as parts; base64 is decoded.

    Raises:
        InContextError: A role is unknown in a chat, or a content part cannot be read; names everything.
    """
    try:
        return read_messages(chat_messages(prompt), where="messages", is_linked=False, allow_media=True)
    except MessageError as error:
        raise InContextError(
            str(error),
            problems=error.problems,
        ) from error


def as_prompt_list(
    messages: Sequence[Message | Mapping[str, Any]], meta: MetaFormat | None, *, ask: bool
) -> PromptList:
    """Return a conversation as a prompt list in the roles of `meta`; with `ask` the model's turn is at its end.

    Raises:
        ChatTemplateError: A message has no place, or there is nothing to reply to; names everything.
    """
    roles = _roles(meta)
    problems: list[Problem] = []
    begin: list[Item] = []
    turns: list[tuple[str, str]] = []
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        given: Mapping[str, Any] | None = message if isinstance(message, Mapping) else None
        if isinstance(message, Message):
            given = {"role": message.role, "content": message.content, "tool_calls": message.tool_calls}
        if given is None:
            text = f"{where} must be a Message or a dict with role and content, got {type(message).__name__}"
            problems.append(Problem(where, text))
            continue
        role = given.get("role")
        name = roles.get(role) if isinstance(role, str) else None
        if given.get("tool_calls"):
            text = f"{where}: a meta template has no place for tool calls; write them into the message"
            problems.append(Problem(f"{where}.tool_calls", text))
        elif name is None:
            is_known = isinstance(role, str) and role in _CHAT_ROLES
            why = "the meta template has no role for it" if is_known else "is unknown"
            text = f"{where}: role {role!r}: {why}{nearest(str(role), sorted(roles))}"
            problems.append(Problem(f"{where}.role", text))
        else:
            wrong: Problems = []
            read = PartReader(wrong, allow_media=True).content(given.get("content"), f"{where}.content")
            problems += placed(map(str, wrong))
            text = read if isinstance(read, str) else Message("user", read).text
            if role == "system" and not turns and (meta is None or name not in meta.order or name == roles.get("user")):
                begin.append({"role": name, "prompt": text})
            elif turns and turns[-1][0] == name:
                turns[-1] = (name, f"{turns[-1][1]}\n{text}")
            else:
                turns.append((name, text))
    if not messages:
        problems.append(Problem("messages", "there are no messages; give at least one of the user"))
    elif not problems and meta is not None:
        problems += _order(turns, roles, meta, ask=ask)
    if problems:
        texts = "; ".join([problem.text for problem in problems])
        raise ChatTemplateError(f"meta template: {texts}", problems=problems)
    dialogue: list[Item] = [{"role": name, "prompt": text} for name, text in turns]
    if ask and meta is not None:
        dialogue.append({"role": roles["assistant"], "prompt": "", "generate": True})
    return PromptList([*section("begin", begin), *(section("round", dialogue) if dialogue else ())])


def _roles(meta: MetaFormat | None) -> dict[str, str]:
    """Return chat role -> role of the meta template, where it has one; and each role of it by its own name."""
    if meta is None:
        return {role: names[0] for role, names in _CHAT_ROLES.items()}
    found: dict[str, str] = {}
    for role in meta.roles.values():
        for name in (role.role, role.api_role):
            if (known := _chat_role(name)) in _CHAT_ROLES:
                found.setdefault(known, role.role)
    replies = [role.role for role in meta.speakers if role.generate]
    if replies:
        found["assistant"] = replies[0]
    asks = [role.role for role in meta.speakers if role.role not in (found.get("assistant"), found.get("system"))]
    if asks:
        found.setdefault("user", asks[0])
    if "user" in found:
        found.setdefault("system", found["user"])
    return {**{name: name for name in meta.roles}, **found}


def _order(turns: Sequence[tuple[str, str]], roles: Mapping[str, str], meta: MetaFormat, *, ask: bool) -> list[Problem]:
    """Return why the order of the roles does not fit a round of the template."""
    assistant = roles.get("assistant")
    if assistant is None:
        text = "no role of the round is marked generate=True or called BOT; mark the one of the model"
        return [Problem("round", text)] * ask
    speakers = [name for name, _ in turns if name in meta.order or not meta.round]
    problems: list[Problem] = []
    is_early = bool(speakers) and speakers[0] == assistant
    if is_early and meta.order.get(assistant, 0) > meta.order.get(roles.get("user", ""), -1):
        text = f"the conversation starts with {assistant!r}, but a round starts with {roles.get('user')!r}"
        problems.append(Problem("messages[0]", f"{text}; put a user message first"))
    if ask and (not speakers or speakers[-1] == assistant):
        text = "there is no user message to reply to at the end; add one, or render with add_generation_prompt=False"
        problems.append(Problem("messages[-1]", text))
    return problems
