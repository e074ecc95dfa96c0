"""The payload of an OpenAI-compatible chat-completions request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from agentkit_prompts.composition.sections import Section, to_parts
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_openai_chat import Required, media_of_result, openai_part, openai_writer

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.tools_and_output import OutputRequest, ToolsAndOutput
    from agentkit_prompts.context.conversation import Conversation

_OFFICIAL = ("openai.com", "azure.com")
"""Suffixes of the host names of OpenAI."""


def openai_payload(
    composition: CallContent, host: str | None = None, model: str = "", required: Required | None = None
) -> dict[str, Any]:
    """Return `{"messages": [...], "tools": [...]}`; no `tools` without tools. Nested values are read-only.

    A tool message can contain only text: media of tool results follow in a user message, each after the name that the
    text of the result uses. An output schema becomes `response_format`. Opaque data are sent only to their owner; data
    of an unknown endpoint with this format are sent to every endpoint.
    """
    writer = openai_writer(Owner("openai", host or "", model), required)
    messages: list[FrozenDict] = []
    for entry in composition.in_order():
        if not isinstance(entry, Section):
            stored = _with_media(entry, writer)
            # Appending would copy a long conversation; the messages before it are few.
            stored[:0] = messages
            messages = stored
        elif entry.role == "user" or entry.media:
            messages.append(_section_message(entry))
        else:
            # The system message is usually the same in each turn, so its wire form is cached. With media it is not
            # cached, because a file can change.
            messages.append(entry.derive(_section_message))
    payload: dict[str, Any] = {"messages": messages}
    tools_and_output = composition.tools_and_output
    if tools_and_output.tools:
        payload["tools"] = tools_and_output.derive(_tools, _form_of_tools(host, required))
    if tools_and_output.output is not None and tools_and_output.output.mode == "native":
        payload["response_format"] = {"type": "json_schema", "json_schema": _answer_schema(tools_and_output.output)}
    return payload


def _answer_schema(output: OutputRequest) -> dict[str, Any]:
    schema: dict[str, Any] = {"name": "answer", "schema": output.schema}
    if output.strict:
        schema["strict"] = True
    return schema


def _form_of_tools(host: str | None, required: Required | None) -> Literal["openai", "compatible", "gemini"]:
    if required == "thought_signature":
        return "gemini"
    is_official = host is None or host.partition(":")[0].endswith(_OFFICIAL)
    return "openai" if is_official else "compatible"


def _tools(tools_and_output: ToolsAndOutput, form: str) -> FrozenList:
    """Return the wire form of the tools: for OpenAI, for a server that is compatible with OpenAI, or for Gemini."""
    from agentkit_prompts.schemas.provider_tools import gemini_chat_form, openai_form

    if form == "gemini":
        return FrozenList([tool.derive(gemini_chat_form) for tool in tools_and_output.tools])
    is_official = form == "openai"
    return FrozenList([tool.derive(openai_form, is_official) for tool in tools_and_output.tools])


def _section_message(section: Section) -> FrozenDict:
    if section.media:
        return FrozenDict(role=section.role, content=FrozenList(openai_part(part) for part in to_parts(section)))
    return FrozenDict(role=section.role, content=clean(section.text))


def _with_media(conversation: Conversation, writer: Callable[[Message], FrozenDict]) -> list[FrozenDict]:
    """Return the wire form of messages; the media of tool messages follow the last tool message of their step."""
    messages = conversation.derive(writer)
    if not conversation.may_have_media or not conversation.total(_media_shown):
        return messages
    result: list[FrozenDict] = []
    waiting: list[FrozenDict] = []
    for message, media in zip(messages, conversation.derive(media_of_result), strict=True):
        if waiting and message["role"] != "tool":
            result.append(FrozenDict(role="user", content=FrozenList(waiting)))
            waiting = []
        result.append(message)
        waiting += media
    if waiting:
        result.append(FrozenDict(role="user", content=FrozenList(waiting)))
    return result


def _media_shown(message: Message) -> int:
    return len(media_of_result(message))
