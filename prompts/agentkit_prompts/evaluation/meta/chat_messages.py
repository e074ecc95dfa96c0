"""Chat messages and the roles of meta templates: messages made of a prompt, and a prompt made of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.read_parts import PartReader
from agentkit_prompts.errors import ChatTemplateError, InContextError, MessageError, Problem, Problems, listed
from agentkit_prompts.evaluation.meta.role_config import MetaFormat
from agentkit_prompts.evaluation.problems import refuse
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, section
from agentkit_prompts.limits import MAX_CACHED
from agentkit_prompts.names import nearest

__all__ = ["as_prompt_list", "chat_messages", "to_messages"]

_CHAT_ROLES: dict[str, tuple[str, ...]] = {
    "system": ("SYSTEM",),
    "user": ("HUMAN", "USER"),
    "assistant": ("BOT", "ASSISTANT"),
    "tool": ("TOOL",),
}
"""Role of a chat message -> names that meta templates have for it, in any case."""


@lru_cache(MAX_CACHED)
def _chat_role(name: str) -> str:
    """Return the chat role that a name of a meta template stands for, or the name itself."""
    return next((role for role, names in _CHAT_ROLES.items() if name.upper() in names), name)


def chat_messages(prompt: str | PromptList | Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages `{"role", "content"}` of a chat request (AISBench, chat models).

    HUMAN, BOT, SYSTEM and TOOL become user, assistant, system and tool; other roles and other keys stay. Text is one
    message of the user, and so is a list of content parts. Text that begins a prompt list is the system's.

    Raises:
        InContextError: The prompt is not one of these; lists every item that is wrong.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list | tuple):
        kind = type(prompt).__name__
        text = f"chat messages: expected text, or the result of a meta template, got {kind}"
        raise InContextError(text, name="prompt", value=kind)
    if prompt and all(isinstance(part, Mapping) and "type" in part and "role" not in part for part in prompt):
        return [{"role": "user", "content": deepcopy(list(prompt))}]
    messages: list[dict[str, Any]] = []
    problems: Problems = []
    for position, item in enumerate(prompt):
        message = _message(position, item)
        if message is None:
            text = f"must be text, or a dict with a role and a prompt, got {item!r}"[:200]
            problems.append(Problem(f"[{position}]", text))
        else:
            messages.append(message)
    if problems:
        raise refuse("chat messages", problems)
    return messages


def _message(position: int, item: object) -> dict[str, Any] | None:
    """Return an item as a chat message; None for anything else."""
    # Nearly every item is a role and its text: this saves the checks of classes below.
    if type(item) is dict and len(item) == 2 and type(item.get("prompt")) is str and type(item.get("role")) is str:
        return {"role": _chat_role(item["role"]), "content": item["prompt"]}
    if isinstance(item, str):
        # The text before all roles is an instruction; any other text is of the user.
        return {"role": "system" if position == 0 else "user", "content": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        return None
    if "prompt" not in item and "content" not in item:
        return None
    content = item.get("prompt", item.get("content"))
    rest = {key: deepcopy(value) for key, value in item.items() if key not in ("role", "prompt", "content")}
    return {"role": _chat_role(item["role"]), "content": deepcopy(content), **rest}


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
        ChatTemplateError: A message has no place, or there is nothing to reply to; lists everything.
    """
    roles = _roles(meta)
    problems: Problems = []
    begin: list[Item] = []
    turns: list[_Turn] = []
    for position, message in enumerate(messages):
        turn = _read_turn(f"messages[{position}]", message, roles, problems)
        if turn is None:
            continue
        # A system message before all turns is an instruction for the whole conversation, not a part of a round.
        if turn.is_system and not turns and _opens(turn.name, meta, roles):
            begin.append({"role": turn.name, "prompt": turn.text})
        # A round has each role once: messages of one role in a row are one turn.
        elif turns and turns[-1].name == turn.name:
            turns[-1] = turns[-1]._replace(text=f"{turns[-1].text}\n{turn.text}")
        else:
            turns.append(turn)
    if not messages:
        problems.append(Problem("messages", "empty; give at least one message of the user"))
    elif not problems and meta is not None:
        problems += _order([turn.name for turn in turns], roles, meta, ask=ask)
    if problems:
        raise ChatTemplateError(f"meta template: {listed(problems)}", problems=problems)
    reply = roles["assistant"] if ask and meta is not None else None
    return _prompt_list(begin, turns, reply)


def _prompt_list(begin: Sequence[Item], turns: Sequence[_Turn], reply: str | None) -> PromptList:
    """Return the items of a conversation, and the turn in which the role `reply` replies."""
    dialogue: list[Item] = [{"role": turn.name, "prompt": turn.text} for turn in turns]
    if reply is not None:
        dialogue.append({"role": reply, "prompt": "", "generate": True})
    prompt = PromptList(section("begin", begin))
    if dialogue:
        prompt += section("round", dialogue)
    return prompt


class _Turn(NamedTuple):
    """A message of a conversation: the role of the meta template, and the text."""

    name: str
    text: str
    is_system: bool


def _read_turn(place: str, message: object, roles: Mapping[str, str], problems: Problems) -> _Turn | None:
    """Return a message as a turn; None if it has no place."""
    if isinstance(message, Message):
        message = {"role": message.role, "content": message.content, "tool_calls": message.tool_calls}
    if not isinstance(message, Mapping):
        text = f"must be a Message or a dict with role and content, got {type(message).__name__}"
        problems.append(Problem(place, text))
        return None
    role = message.get("role")
    if message.get("tool_calls"):
        text = "a meta template has no place for tool calls; write them into the message"
        problems.append(Problem(f"{place}.tool_calls", text))
        return None
    if not isinstance(role, str) or role not in roles:
        problem = f"unknown role {role!r}"
        if role in [*_CHAT_ROLES]:
            problem = f"the meta template has no role for {role!r}"
        problems.append(Problem(f"{place}.role", f"{problem}{nearest(str(role), sorted(roles))}"))
        return None
    content = PartReader(problems, allow_media=True).content(message.get("content"), f"{place}.content")
    text = content if isinstance(content, str) else Message("user", content).text
    return _Turn(roles[role], text, role == "system")


def _opens(name: str, meta: MetaFormat | None, roles: Mapping[str, str]) -> bool:
    """True if the first system message goes before all rounds."""
    return meta is None or name not in meta.order or name == roles.get("user")


def _roles(meta: MetaFormat | None) -> dict[str, str]:
    """Return chat role -> role of the meta template, if it has one; and each role of it by its own name."""
    if meta is None:
        return {role: names[0] for role, names in _CHAT_ROLES.items()}
    roles: dict[str, str] = {}
    for role in meta.roles.values():
        for name in (role.role, role.api_role):
            chat_role = _chat_role(name)
            if chat_role in _CHAT_ROLES:
                roles.setdefault(chat_role, role.role)
    replying = next((role.role for role in meta.speakers if role.generate), None)
    if replying is not None:
        roles["assistant"] = replying
    answered = (roles.get("assistant"), roles.get("system"))
    asking = next((role.role for role in meta.speakers if role.role not in answered), None)
    if asking is not None:
        roles.setdefault("user", asking)
    if "user" in roles:
        roles.setdefault("system", roles["user"])
    return {**{name: name for name in meta.roles}, **roles}


def _order(names: Sequence[str], roles: Mapping[str, str], meta: MetaFormat, *, ask: bool) -> Problems:
    """Return a problem if the order of the roles does not fit a round of the template."""
    assistant, user = roles.get("assistant"), roles.get("user")
    if assistant is None:
        if not ask:
            return []
        return [Problem("round", "no role is marked generate=True or called BOT; mark the role of the model")]
    speakers = [name for name in names if name in meta.order or not meta.round]
    problems: Problems = []
    user_order = meta.order.get(user or "", -1)
    if speakers and speakers[0] == assistant and meta.order.get(assistant, 0) > user_order:
        text = f"the conversation starts with {assistant!r}, but a round starts with {user!r}; put a user message first"
        problems.append(Problem("messages[0]", text))
    if ask and (not speakers or speakers[-1] == assistant):
        text = "no user message to reply to at the end; add one, or render with add_generation_prompt=False"
        problems.append(Problem("messages[-1]", text))
    return problems
