"""The payload of an Anthropic messages request."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.composition.targets.tool_media import IMAGE_TYPES, content_of, image_type, provable, text_of
from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.prompt_context import ToolSpec, per_toolset
from agentkit_prompts.errors import MediaError

if TYPE_CHECKING:
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["OPENING", "anthropic_message", "anthropic_payload", "anthropic_tool"]

OPENING = "(The conversation starts here.)"
"""What the user is taken to have said when a conversation starts with the assistant, which the API does not allow."""

_Turn: TypeAlias = tuple[str, tuple[FrozenDict, ...]]
"""Role and content blocks."""

_CACHE = FrozenDict(type="ephemeral")
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def anthropic_payload(composition: Composition) -> dict[str, Any]:
    """Return `{"system": [...], "messages": [...], "tools": [...]}`, without what is empty. What is inside is
    read-only.

    User and assistant take turns: neighbours of one role are merged, tool results come from the user. Blocks that
    would be blank are left out, system messages of the conversation follow the system prompt. At the breakpoints of
    the composition stand cache marks. An output schema becomes `output_config`.

    Raises:
        MediaError: A media part has a type or a place that the API does not take.
    """
    points = composition.breakpoints
    system = _system(composition.system, [point.offset for point in points if point.after in ("static", "session")])
    turns: list[_Turn] = []
    for role, blocks in composition.conversation.derive(anthropic_message):
        if role == "system":
            system += blocks
        elif blocks:
            turns.append((role, blocks))
    if turns and any(point.after == "conversation" for point in points):
        role, blocks = turns[-1]
        turns[-1] = (role, (*blocks[:-1], _cached(blocks[-1])))
    _add(turns, composition.user)
    if len(composition.intermediate):
        turns += [turn for turn in composition.intermediate.derive(anthropic_message) if turn[1]]
        _add(turns, composition.closing)
    payload: dict[str, Any] = {"system": system} if system else {}
    payload["messages"] = _messages(_unique_ids(turns))
    if composition.tools:
        payload["tools"] = per_toolset(composition.tools, anthropic_tool, _tools)
    if composition.output_schema is not None:
        payload["output_config"] = {"format": {"type": "json_schema", "schema": composition.output_schema}}
    return payload


def anthropic_message(message: Message) -> _Turn:
    """Return the role and the content blocks of one message; no blocks when there is nothing to say."""
    if message.role == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _tool_id(message.tool_call_id or "")}
        content: Any = message.content
        if not isinstance(content, str):
            content = FrozenList(_result_blocks(content))
        if content and not (isinstance(content, str) and content.isspace()):
            result["content"] = content
        return "user", (FrozenDict(result),)
    if message.role == "user":
        return "user", tuple(_blocks(message.parts))
    said = () if not message.text.strip() else (FrozenDict(type="text", text=message.text),)
    calls = [
        FrozenDict(type="tool_use", id=_tool_id(call.id), name=call.name, input=_arguments(call.arguments))
        for call in {call.id: call for call in reversed(message.tool_calls)}.values()  # one result, one call
    ][::-1]
    return message.role, (*said, *calls)


def anthropic_tool(tool: ToolSpec) -> FrozenDict:
    """Return the wire form of one tool."""
    spec: dict[str, Any] = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    schema = tool.parameters
    spec["input_schema"] = schema if schema.get("type") == "object" else FrozenDict({**schema, "type": "object"})
    if tool.strict:
        spec["strict"] = True
    return FrozenDict(spec)


def _tools(tools: tuple[ToolSpec, ...], one: Callable[[ToolSpec], FrozenDict]) -> FrozenList:
    *before, last = [one(tool) for tool in tools]
    return FrozenList([*before, _cached(last)])


def _system(system: Rendered, borders: Iterable[int]) -> list[FrozenDict]:
    """Return the system text as blocks, cut and marked at `borders`; a blank piece goes to its neighbour."""
    if system.media:
        raise MediaError(
            f"{system.media[0].alt}: an Anthropic system prompt is text only; put the prompt into before_input"
        )
    text, start = system.text, 0
    blocks: list[FrozenDict] = []
    for end in borders:
        if text[start:end].strip():
            blocks.append(FrozenDict(type="text", text=text[start:end], cache_control=_CACHE))
            start = end
    if text[start:].strip():
        blocks.append(FrozenDict(type="text", text=text[start:]))
    elif blocks and start < len(text):
        blocks[-1] = FrozenDict({**blocks[-1], "text": blocks[-1]["text"] + text[start:]})
    return blocks


def _add(turns: list[_Turn], rendered: Rendered) -> None:
    if rendered.media:
        turns.append(("user", tuple(_blocks(to_parts(rendered)))))
    elif rendered.text.strip():
        turns.append(("user", (FrozenDict(type="text", text=rendered.text),)))


def _messages(turns: Sequence[_Turn]) -> list[FrozenDict]:
    """Merge turns of the same role."""
    merged: list[tuple[str, list[FrozenDict]]] = []
    for role, blocks in turns:
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        else:
            merged.append((role, list(blocks)))
    if merged and merged[0][0] == "assistant":
        merged.insert(0, ("user", [FrozenDict(type="text", text=OPENING)]))
    return [FrozenDict(role=role, content=FrozenList(blocks)) for role, blocks in merged]


def _unique_ids(turns: list[_Turn]) -> list[_Turn]:
    """Rename the tool calls whose id an earlier one has: the API wants every id once, models start anew each run."""
    seen: set[str] = set()
    renamed: dict[str, str] = {}
    for number, (role, blocks) in enumerate(turns):
        if blocks[-1]["type"] == "tool_use":
            renamed = {}
            for block in blocks:
                if block["type"] == "tool_use":
                    own = name = block["id"]
                    times = 1
                    while name in seen:
                        times += 1
                        name = f"{own}_{times}"
                    seen.add(name)
                    if name != own:
                        renamed[own] = name
            if renamed:
                turns[number] = (role, tuple(_renamed(block, "id", renamed) for block in blocks))
        elif renamed and blocks[0]["type"] == "tool_result":
            turns[number] = (role, tuple(_renamed(block, "tool_use_id", renamed) for block in blocks))
    return turns


def _renamed(block: FrozenDict, key: str, names: dict[str, str]) -> FrozenDict:
    return FrozenDict({**block, key: names[block[key]]}) if block.get(key) in names else block


def _cached(block: FrozenDict) -> FrozenDict:
    return FrozenDict({**block, "cache_control": _CACHE})


def _tool_id(name: str) -> str:
    """Return an id of the characters the API takes; different ids stay different."""
    if name and not _NOT_IN_ID.search(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{_NOT_IN_ID.sub('_', name)}_{digest}"


def _arguments(text: str) -> FrozenDict:
    """Return the arguments as an object; what is none is shown to the model as it wrote it."""
    if not text.strip():
        return FrozenDict()
    try:
        arguments = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        arguments = None
    frozen: FrozenDict = freeze(arguments if isinstance(arguments, dict) else {"invalid_arguments": text})
    return frozen


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _blocks(parts: Iterable[Part]) -> list[FrozenDict]:
    blocks: list[FrozenDict] = []
    for part in parts:
        if not isinstance(part, Text):
            blocks.append(_media(part))
        elif part.text.strip():
            blocks.append(FrozenDict(type="text", text=part.text))
    return blocks


def _result_blocks(parts: Iterable[Part]) -> list[FrozenDict]:
    """Return what a tool returned; media that the API would refuse are told in words."""
    blocks: list[FrozenDict] = []
    for part in parts:
        if isinstance(part, Text):
            text = part.text
        elif (text := text_of(part) or "") == "":
            try:
                blocks.append(_media(provable(part)))
                continue
            except MediaError as error:
                text = f"{part.alt} (not shown: {error})"
        if text.strip():
            blocks.append(FrozenDict(type="text", text=text))
    return blocks


def _media(part: Media) -> FrozenDict:
    if part.kind == "image":
        return FrozenDict(type="image", source=_image(part))
    if part.kind == "file":
        return FrozenDict(type="document", title=part.label, source=_document(part))
    raise MediaError(f"{part.alt}: an Anthropic request cannot carry {part.kind}; describe it in text instead")


def _image(part: Media) -> FrozenDict:
    data, mime = content_of(part)
    if data is None:
        return _url(part)
    if part.media_type is None:
        mime = image_type(data) or mime
    if mime not in IMAGE_TYPES:
        raise MediaError(f"{part.alt}: Anthropic takes {', '.join(sorted(IMAGE_TYPES))}, not {mime}; convert it first")
    return FrozenDict(type="base64", media_type=mime, data=base64.b64encode(data).decode("ascii"))


def _document(part: Media) -> FrozenDict:
    data, mime = content_of(part)
    if mime == "application/octet-stream" and (data is None or data.startswith(b"%PDF-")):
        mime = "application/pdf"
    if mime == "application/pdf":
        if data is None:
            return _url(part)
        return FrozenDict(type="base64", media_type=mime, data=base64.b64encode(data).decode("ascii"))
    if mime.startswith("text/") or mime in ("application/json", "application/xml"):
        if data is None:
            raise MediaError(f"{part.alt}: Anthropic fetches PDFs only; download it and give its bytes")
        try:
            return FrozenDict(type="text", media_type="text/plain", data=data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise MediaError(f"{part.alt}: is not UTF-8 text ({error}); convert it first") from error
    raise MediaError(f"{part.alt}: Anthropic takes PDF and text documents, not {mime}; convert it first")


def _url(part: Media) -> FrozenDict:
    return FrozenDict(type="url", url=str(part.source))
