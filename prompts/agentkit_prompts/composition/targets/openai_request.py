"""The payload of an OpenAI-compatible chat-completions request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.write_openai_chat import Required, media_of_result, openai_part, openai_writer

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.context.conversation import Conversation
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["openai_payload"]

_OFFICIAL = ("openai.com", "azure.com")
"""Ends of the hosts whose limits are those of the provider."""


def openai_payload(
    composition: Contents, provider: str | None = None, required: Required | None = None
) -> dict[str, Any]:
    """Return `{"messages": [...], "tools": [...]}`; no `tools` without tools. What is inside is read-only.

    A tool message is text only there: media that a tool returned follow in a message of the user, each under the name
    that stands for it in the text. An output schema becomes `response_format`. What only one provider understands goes
    with the message when that is `provider`, or when it came in this form from an unknown endpoint.
    """
    messages = _with_media(composition.conversation, provider, required)
    system, user, _ = composition.sections
    if system.text or composition.sends_system:
        # Media are read at each request. Inserting copies a long history once; a sum of lists would copy it twice.
        messages.insert(0, _rendered(system, "system") if system.media else system.derive(_rendered, "system"))
    if user.text or composition.sends_user:
        messages.append(_rendered(user, "user"))
    traffic = composition.intermediate
    if traffic.start < traffic.stop:
        messages += _with_media(traffic, provider, required)
        closing = composition.closing
        if closing.text:
            messages.append(_rendered(closing, "user"))
    payload: dict[str, Any] = {"messages": messages}
    declared = composition.declarations
    if declared.tools:
        is_official: bool | None = provider is None or provider.partition(":")[0].endswith(_OFFICIAL)
        if required == "thought_signature":
            is_official = None
        payload["tools"] = declared.derive(_tools, is_official)
    if declared.output is not None and declared.output.mode == "native":
        schema: dict[str, Any] = {"name": "answer", "schema": declared.output.schema}
        if declared.output.strict:
            schema["strict"] = True
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    return payload


def _tools(declared: Declarations, is_official: bool | None = None) -> FrozenList:
    """Return the wire form of the tools: for the provider, for a server that speaks its protocol, or for Gemini."""
    from agentkit_prompts.schemas.provider_tools import gemini_chat_form, openai_form

    if is_official is None:
        return FrozenList([tool.derive(gemini_chat_form) for tool in declared.tools])
    return FrozenList([tool.derive(openai_form, is_official) for tool in declared.tools])


def _rendered(rendered: Rendered, role: str) -> FrozenDict:
    if rendered.media:
        return FrozenDict(role=role, content=FrozenList(openai_part(part) for part in to_parts(rendered)))
    return FrozenDict(role=role, content=clean(rendered.text))


def _with_media(conversation: Conversation, provider: str | None, required: Required | None) -> list[FrozenDict]:
    """Return the wire form of messages; after the tool messages of a step the media that they show."""
    if conversation.start == conversation.stop:
        return []
    messages = conversation.derive(openai_writer(provider, required))
    if not conversation.may_have_media or not conversation.total(_media_shown):
        return messages
    result: list[FrozenDict] = []
    waiting: list[FrozenDict] = []
    for message, shown in zip(messages, conversation.derive(media_of_result), strict=True):
        if waiting and message["role"] != "tool":
            result.append(FrozenDict(role="user", content=FrozenList(waiting)))
            waiting = []
        result.append(message)
        waiting += shown
    if waiting:
        result.append(FrozenDict(role="user", content=FrozenList(waiting)))
    return result


def _media_shown(message: Message) -> int:
    return len(media_of_result(message))
