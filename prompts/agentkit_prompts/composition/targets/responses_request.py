"""The payload of an OpenAI Responses request."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_openai_responses import responses_items, responses_writer
from agentkit_prompts.schemas.provider_tools import openai_form

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.tools_and_output import ToolsAndOutput


def responses_payload(composition: CallContent, host: str | None = None, model: str = "") -> dict[str, Any]:
    """Return `{"instructions": ..., "input": [...], "tools": [...]}`, without empty fields. Nested values are
    read-only.

    The system prompt becomes `instructions`, or a system message if it contains media. An output schema becomes
    `text`. Thinking of the endpoint is sent back at its original place.

    Raises:
        MediaError: The format cannot represent a part, or a file cannot be read.
    """
    writer = responses_writer(Owner("responses", host or "", model))
    payload: dict[str, Any] = {}
    items: list[FrozenDict] = []
    for entry in composition.in_order():
        if isinstance(entry, Conversation):
            items += chain.from_iterable(entry.derive(writer))
        elif entry.media:
            items += responses_items(Message(entry.role, to_parts(entry)))
        elif entry.role == "user":
            items += responses_items(Message("user", entry.text))
        elif entry.text:
            payload["instructions"] = clean(entry.text)
    payload["input"] = items
    return payload | _tool_and_output_fields(composition.tools_and_output)


def _tool_and_output_fields(tools_and_output: ToolsAndOutput) -> dict[str, Any]:
    """Return the fields `tools` and `text`; a field without a value is missing."""
    fields: dict[str, Any] = {}
    if tools_and_output.tools:
        fields["tools"] = tools_and_output.derive(_tools)
    output = tools_and_output.output
    if output is not None and output.mode == "native":
        schema = {"type": "json_schema", "name": "answer", "schema": output.schema, "strict": output.strict}
        fields["text"] = {"format": schema}
    return fields


def responses_tool(tool: ToolSpec) -> Mapping[str, Any]:
    """Return the wire form of one tool; `strict` is always written, because the API treats it as true by default."""
    if tool.native is not None:
        return tool.native
    return FrozenDict({"type": "function", "strict": False, **openai_form(tool)["function"]})


def _tools(tools_and_output: ToolsAndOutput) -> FrozenList:
    return FrozenList([tool.derive(responses_tool) for tool in tools_and_output.tools])
