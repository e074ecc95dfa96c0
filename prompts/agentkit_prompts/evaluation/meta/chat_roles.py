"""A conversation in the roles of a meta template: which role stands for which chat message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentkit_prompts.chat_templates.guard.control_tokens import tokens_and_markers
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_parts import read_content
from agentkit_prompts.errors import ChatTemplateError, nearest
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, Pieces
from agentkit_prompts.evaluation.prompt_list import Item, PromptList, section

__all__ = ["CHAT_ROLES", "as_prompt_list", "bracketed", "chat_role", "control_tokens"]

CHAT_ROLES: dict[str, tuple[str, ...]] = {
    "system": ("SYSTEM",),
    "user": ("HUMAN", "USER"),
    "assistant": ("BOT", "ASSISTANT"),
    "tool": ("TOOL",),
}
"""Role of a chat message -> names that meta templates have for it, in any case."""


def chat_role(name: str) -> str:
    """Return the chat role that a name of a meta template stands for, or the name itself."""
    return next((role for role, names in CHAT_ROLES.items() if name.upper() in names), name)


def as_prompt_list(
    messages: Sequence[Message | Mapping[str, Any]], meta: MetaFormat | None, *, ask: bool
) -> PromptList:
    """Return a conversation as a prompt list in the roles of `meta`; with `ask` the model's turn is at its end.

    Raises:
        ChatTemplateError: A message has no place, or there is nothing to reply to; names everything.
    """
    roles = _roles(meta)
    problems: list[str] = []
    begin: list[Item] = []
    turns: list[tuple[str, str]] = []
    for position, message in enumerate(messages):
        where = f"messages[{position}]"
        given: Mapping[str, Any] | None = message if isinstance(message, Mapping) else None
        if isinstance(message, Message):
            given = {"role": message.role, "content": message.content, "tool_calls": message.tool_calls}
        if given is None:
            problems.append(f"{where} must be a Message or a dict with role and content, got {type(message).__name__}")
            continue
        role = given.get("role")
        name = roles.get(role) if isinstance(role, str) else None
        if given.get("tool_calls"):
            problems.append(f"{where}: a meta template has no place for tool calls; write them into the message")
        elif name is None:
            is_known = isinstance(role, str) and role in CHAT_ROLES
            why = "the meta template has no role for it" if is_known else "is unknown"
            problems.append(f"{where}: role {role!r}: {why}{nearest(str(role), sorted(roles))}")
        else:
            read = read_content(given.get("content"), f"{where}.content", problems, "", may_read_files=True)
            text = Message("user", read).text
            if role == "system" and not turns and (meta is None or name not in meta.order or name == roles.get("user")):
                begin.append({"role": name, "prompt": text})
            elif turns and turns[-1][0] == name:
                turns[-1] = (name, f"{turns[-1][1]}\n{text}")
            else:
                turns.append((name, text))
    if not messages:
        problems.append("there are no messages; give at least one of the user")
    elif not problems and meta is not None:
        problems += _order(turns, roles, meta, ask=ask)
    if problems:
        raise ChatTemplateError(f"meta template: {'; '.join(problems)}")
    dialogue: list[Item] = [{"role": name, "prompt": text} for name, text in turns]
    if ask and meta is not None:
        dialogue.append({"role": roles["assistant"], "prompt": "", "generate": True})
    return PromptList([*section("begin", begin), *(section("round", dialogue) if dialogue else ())])


def control_tokens(
    meta: MetaFormat | None, stop_words: Sequence[str], text: Callable[[Pieces], str] | None
) -> tuple[str, ...]:
    """Return stop words, the markers around roles, and the tokens in brackets at the beginning and the end of all.

    `text` decodes markers that hold token ids; without it the ids are left out.
    """
    if meta is None:
        return ()

    def written(marker: Pieces) -> str:
        return text(marker) if text else "".join(piece for piece in marker if isinstance(piece, str))

    around = [written(marker) for role in meta.roles.values() for marker in (role.begin, role.end)]
    loose = [entry for entry in meta.round if isinstance(entry, str)]
    edges = [*bracketed(written(meta.begin)), *bracketed(written(meta.end))]
    return tokens_and_markers([*stop_words, *edges], [*around, *loose])


def bracketed(marker: str) -> list[str]:
    """Return the tokens in brackets that a marker holds."""
    return [token for token in tokens_and_markers((), [marker]) if token[0] in "<[" and token[-1] in ">]"]


def _roles(meta: MetaFormat | None) -> dict[str, str]:
    """Return chat role -> role of the meta template, where it has one; and each role of it by its own name."""
    if meta is None:
        return {role: names[0] for role, names in CHAT_ROLES.items()}
    found: dict[str, str] = {}
    for role in meta.roles.values():
        for name in (role.role, role.api_role):
            if (known := chat_role(name)) in CHAT_ROLES:
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


def _order(turns: Sequence[tuple[str, str]], roles: Mapping[str, str], meta: MetaFormat, *, ask: bool) -> list[str]:
    """Return why the order of the roles does not fit a round of the template."""
    assistant = roles.get("assistant")
    if assistant is None:
        return ["no role of the round is marked generate=True or called BOT; mark the one of the model"] * ask
    speakers = [name for name, _ in turns if name in meta.order or not meta.round]
    problems: list[str] = []
    is_early = bool(speakers) and speakers[0] == assistant
    if is_early and meta.order.get(assistant, 0) > meta.order.get(roles.get("user", ""), -1):
        problems.append(
            f"the conversation starts with {assistant!r}, but a round starts with {roles.get('user')!r}; "
            "put a user message first"
        )
    if ask and (not speakers or speakers[-1] == assistant):
        problems.append(
            "there is no user message to reply to at the end; add one, or render with add_generation_prompt=False"
        )
    return problems
