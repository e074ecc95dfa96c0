"""Chat messages and the roles of meta templates: messages made of a prompt, and a prompt made of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.read_parts import PartReader
from agentkit_prompts.errors import ChatTemplateError, InContextError, MessageError, Problem, Problems, listed
from agentkit_prompts.evaluation.meta.role_config import MetaFormat
from agentkit_prompts.evaluation.problems import raise_problems
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
    if prompt and all(map(_is_part, prompt)):
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
    raise_problems("chat messages", problems)
    return messages


def _is_part(item: object) -> bool:
    return isinstance(item, Mapping) and "type" in item and "role" not in item


def _message(position: int, item: object) -> dict[str, Any] | None:
    """Return an item as a chat message; None for anything else."""
    if isinstance(item, str):
        # The text before all roles is an instruction; any other text is a message of the user.
        if position == 0:
            return {"role": "system", "content": item}
        return {"role": "user", "content": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        return None
    for key in ("prompt", "content"):
        if key in item:
            rest = {name: deepcopy(value) for name, value in item.items() if name not in _MESSAGE_KEYS}
            return {"role": _chat_role(item["role"]), "content": deepcopy(item[key]), **rest}
    return None


_MESSAGE_KEYS = ("role", "prompt", "content")


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
    conversation = _Conversation(meta)
    for position, message in enumerate(messages):
        conversation.add(f"messages[{position}]", message)
    problems = conversation.problems
    if not messages:
        problems.append(Problem("messages", "empty; give at least one message of the user"))
    elif not problems and meta is not None:
        problems += conversation.problems_of_order(meta, ask=ask)
    if problems:
        raise ChatTemplateError(f"meta template: {listed(problems)}", problems=problems)
    if ask and meta is not None:
        conversation.ask()
    return conversation.prompt_list()


class _Conversation:
    """The items that messages become in the roles of a meta template."""

    def __init__(self, meta: MetaFormat | None) -> None:
        self._meta = meta
        self._roles = _names_of_roles(meta)
        self._begin: list[Item] = []
        self._dialogue: list[dict[str, Any]] = []
        self.problems: Problems = []

    def add(self, place: str, message: object) -> None:
        """Add a message, or a problem if it has no place."""
        if isinstance(message, Message):
            message = {"role": message.role, "content": message.content, "tool_calls": message.tool_calls}
        problem = self._problem_of(place, message)
        if problem is not None:
            self.problems.append(problem)
            return
        assert isinstance(message, Mapping)
        name = self._roles[str(message["role"])]
        text = self._text(f"{place}.content", message.get("content"))
        # A system message before all turns is an instruction for the whole conversation, not a part of a round.
        if message["role"] == "system" and not self._dialogue and self._opens(name):
            self._begin.append({"role": name, "prompt": text})
        # A round has each role once: messages of one role in a row are one turn.
        elif self._dialogue and self._dialogue[-1]["role"] == name:
            self._dialogue[-1]["prompt"] += f"\n{text}"
        else:
            self._dialogue.append({"role": name, "prompt": text})

    def _text(self, place: str, content: object) -> str:
        """Return the text of a content; media are replaced by their names."""
        parts = PartReader(self.problems, allow_media=True).content(content, place)
        if isinstance(parts, str):
            return parts
        return Message("user", parts).text

    def ask(self) -> None:
        """Add the turn in which the model replies."""
        self._dialogue.append({"role": self._roles["assistant"], "prompt": "", "generate": True})

    def prompt_list(self) -> PromptList:
        prompt = PromptList(section("begin", self._begin))
        if self._dialogue:
            prompt += section("round", self._dialogue)
        return prompt

    def _problem_of(self, place: str, message: object) -> Problem | None:
        if not isinstance(message, Mapping):
            text = f"must be a Message or a dict with role and content, got {type(message).__name__}"
            return Problem(place, text)
        if message.get("tool_calls"):
            text = "a meta template has no place for tool calls; write them into the message"
            return Problem(f"{place}.tool_calls", text)
        role = message.get("role")
        if isinstance(role, str) and role in self._roles:
            return None
        text = f"unknown role {role!r}"
        if role in [*_CHAT_ROLES]:
            text = f"the meta template has no role for {role!r}"
        return Problem(f"{place}.role", f"{text}{nearest(str(role), sorted(self._roles))}")

    def _opens(self, name: str) -> bool:
        """True if system messages of a role go before all rounds."""
        return self._meta is None or name not in self._meta.order or name == self._roles.get("user")

    def problems_of_order(self, meta: MetaFormat, *, ask: bool) -> Problems:
        """Return the problems of a conversation that does not fit the round of the template."""
        assistant = self._roles.get("assistant")
        if assistant is None and ask:
            return [Problem("round", "no role is marked generate=True or called BOT; mark the role of the model")]
        if assistant is None:
            return []
        # Reserved roles may be anywhere; without a round all roles may.
        names = [item["role"] for item in self._dialogue if item["role"] in meta.order or not meta.round]
        problems: Problems = []
        if names[:1] == [assistant] and self._asks_first(meta):
            text = (
                f"the conversation starts with {assistant!r}, but a round starts with {self._roles.get('user')!r}; "
                "put a user message first"
            )
            problems.append(Problem("messages[0]", text))
        # The last turn, if there is one, has to be a question.
        if ask and names[-1:] in ([], [assistant]):
            text = "no user message to reply to at the end; add one, or render with add_generation_prompt=False"
            problems.append(Problem("messages[-1]", text))
        return problems

    def _asks_first(self, meta: MetaFormat) -> bool:
        """True if the user comes before the model in a round, or has no turn in it."""
        user_order = meta.order.get(self._roles.get("user", ""), -1)
        return meta.order.get(self._roles["assistant"], 0) > user_order


def _names_of_roles(meta: MetaFormat | None) -> dict[str, str]:
    """Return chat role -> role of the meta template, if it has one; and each role of it by its own name."""
    if meta is None:
        return {role: names[0] for role, names in _CHAT_ROLES.items()}
    roles: dict[str, str] = {}
    for role in meta.roles.values():
        roles.setdefault(_chat_role(role.role), role.role)
        roles.setdefault(_chat_role(role.api_role), role.role)
    roles = {name: role for name, role in roles.items() if name in _CHAT_ROLES}
    # What the round does goes before what its roles are called: the role that replies is the assistant.
    for role in reversed(meta.speakers):
        if role.generate:
            roles["assistant"] = role.role
    answered = (roles.get("assistant"), roles.get("system"))
    for name in meta.order:
        if name not in answered:
            roles.setdefault("user", name)
    # A template without a system role gets the instructions as a text of the user.
    if "user" in roles:
        roles.setdefault("system", roles["user"])
    return {**{name: name for name in meta.roles}, **roles}
