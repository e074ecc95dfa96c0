"""Conversion between the content blocks of MCP and the parts, documents, messages and results of agentkit."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from agentkit_prompts.context.items import Document
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Audio, File, Image, Media, Part, Text, Url
from agentkit_prompts.errors import MediaError
from agentkit_tools.calling.result_content import Content, to_content
from agentkit_tools.calling.tool_result import ToolResult
from agentkit_tools.errors import MCPServerError, ToolFailure

if TYPE_CHECKING:
    from mcp_types import (
        BlobResourceContents,
        CallToolResult,
        ContentBlock,
        GetPromptResult,
        ReadResourceResult,
        TextResourceContents,
    )

T = TypeVar("T")

_KINDS: dict[str, type[Image | Audio | File]] = {"image": Image, "audio": Audio}
_TYPES = ("text", "image", "audio", "resource", "resource_link")
_FENCE = re.compile(r"\s*```(?:json)?\n(.*)\n```\s*", re.S)
_OWN_SCHEME = "agentkit:"
"""Start of the addresses of files that are no resources: the protocol requires an address for each file."""
_MAX_MEDIA_BYTES = 32 * 1024 * 1024
"""Maximum bytes of media in one result; further media become a note, because no provider accepts more."""
_MIN_MEDIA_BYTES = 64 * 1024
"""Minimum size that a media part counts, because no provider accepts thousands of small parts."""


def readable_blocks(result: Any) -> Any:
    """Return the result of a request, with a text instead of each block whose type the SDK does not know.

    The SDK refuses the whole result of such a call, so that the model would repeat a call that succeeded.
    """
    if not isinstance(result, dict) or not ("content" in result or "structuredContent" in result):
        return result
    blocks = result.get("content")
    if blocks is None:
        return {**result, "content": []}
    if not isinstance(blocks, list) or all(map(_is_known, blocks)):
        return result
    return {**result, "content": [block if _is_known(block) else _as_text(block) for block in blocks]}


def _is_known(block: Any) -> bool:
    return not isinstance(block, dict) or block.get("type") in _TYPES


def _as_text(block: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "text", "text": f"[unknown content: {json.dumps(block, ensure_ascii=False)}]"}


def to_result(answer: CallToolResult, tool: str) -> ToolResult:
    """Convert the result of a server's tool; `value` is its structured content, or else its content.

    A result that is marked as an error becomes an error result with a `ToolFailure`. `finished` sets its call id.
    """
    structured = answer.structured_content
    parts = _parts(answer.content, _blocks)
    # Many servers send a summary as text, and the data only as structured content.
    if structured is not None and not _is_written(structured, parts):
        parts = (*parts, Text(str(to_content(structured))))
    content = _joined(parts)
    if not answer.is_error:
        value = structured
        if value is None:
            value = content
        return ToolResult("", tool, content or "done", "success", value)
    text = content
    if not isinstance(text, str):
        text = "".join(part.text for part in text if isinstance(part, Text))
    failure = ToolFailure(text or f"{tool} failed and gave no reason", structured)
    return ToolResult("", tool, content or failure.message, "error", None, failure)


def _is_written(structured: Any, parts: tuple[Part, ...]) -> bool:
    """True if text parts contain the structured content, so that a model needs no second copy."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    if not texts:
        return False
    if structured == {}:
        return True
    values = [_read(text) for text in texts]
    candidates = [*values, values, texts, _read("\n".join(texts))]
    if structured in candidates:
        return True
    # Servers wrap a value that is not an object: `{"result": [1, 2]}` with the texts "1" and "2".
    if not isinstance(structured, dict) or len(structured) != 1:
        return False
    (value,) = structured.values()
    return value in candidates or value in texts or value == "\n".join(texts)


def _read(text: str) -> Any:
    """Return the JSON data of a text, or of a text that is one code fence; the text itself if it is not JSON."""
    fence = _FENCE.fullmatch(text)
    if fence is not None:
        text = fence[1]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def from_result(result: ToolResult) -> dict[str, Any]:
    """Return the fields of the `CallToolResult` for a result."""
    parts = result.content
    if isinstance(parts, str):
        parts = (Text(parts),)
    fields: dict[str, Any] = {"content": [_block(part) for part in parts], "isError": not result.ok}
    value = result.value
    if isinstance(result.error, ToolFailure):
        value = result.error.payload
    if result.status != "too_large" and value is not None and not isinstance(value, str | Media | Text | list | tuple):
        data = _json_of(result.content, value)
        if isinstance(data, dict):
            fields["structuredContent"] = data
    return fields


def _json_of(content: Content, value: Any) -> Any:
    """Return the JSON data of a value; None if it has no JSON form, such as bytes that are text."""
    # Read the content, not the value: an iterator in the value is exhausted.
    try:
        if not isinstance(content, str):
            content = to_content(value)
        return json.loads(str(content))
    except ValueError:
        return None


def to_documents(answer: ReadResourceResult) -> tuple[Document, ...]:
    """Return the texts of a resource as untrusted documents, with their address as id and source.

    Raises:
        MCPServerError: A part of the resource is neither text nor bytes of UTF-8 text.
    """
    documents = []
    for item in answer.contents:
        text = getattr(item, "text", None)
        if text is None:
            try:
                text = base64.b64decode(item.blob, validate=True).decode()  # type: ignore[union-attr]
            except (ValueError, MediaError) as error:
                kind = item.mime_type or "an unknown type"
                text = f"resource {item.uri}: is not text ({kind}); read it with `parts`"
                raise MCPServerError(text, name=item.uri) from error
        metadata = {}
        if item.mime_type:
            metadata["mime_type"] = item.mime_type
        documents.append(Document(text, id=item.uri, source=item.uri, metadata=metadata))
    return tuple(documents)


def to_parts(answer: ReadResourceResult) -> tuple[Part, ...]:
    """Return a resource as parts. Media that are too large or cannot be decoded become a note."""
    return _parts(answer.contents, _contents)


def to_messages(answer: GetPromptResult) -> tuple[Message, ...]:
    """Return the messages of a server's prompt."""
    return tuple(Message(message.role, _joined(_parts([message.content], _blocks))) for message in answer.messages)


def to_content_of_blocks(blocks: Iterable[ContentBlock]) -> Content:
    """Return the content of a message from its texts, images and audio."""
    return _joined(_parts(blocks, _blocks))


def _joined(parts: tuple[Part, ...]) -> Content:
    """Return parts that are all texts as lines, and other parts unchanged."""
    if all(isinstance(part, Text) for part in parts):
        return "\n".join(part.text for part in parts if isinstance(part, Text))
    return parts


def _parts(items: Iterable[T], convert: Callable[[T, int], tuple[Part, ...]]) -> tuple[Part, ...]:
    """Convert items to parts. `convert` receives an item and the maximum bytes of its media."""
    max_bytes = _MAX_MEDIA_BYTES
    parts: list[Part] = []
    for item in items:
        converted = convert(item, max_bytes)
        parts += converted
        for part in converted:
            if isinstance(part, Media) and isinstance(part.source, bytes):
                max_bytes -= max(len(part.source), _MIN_MEDIA_BYTES)
    return tuple(parts)


def _blocks(block: ContentBlock, max_bytes: int) -> tuple[Part, ...]:
    if block.type == "text":
        return (Text(block.text),)
    if block.type == "resource_link":
        link = f"resource: {block.name} at {block.uri}"
        if block.description:
            link += f": {block.description}"
        return (Text(f"[{link}]"),)
    if block.type == "resource":
        contents = _contents(block.resource, max_bytes)
        if block.resource.uri.startswith(_OWN_SCHEME):
            return contents
        # Without the address, a model can neither cite the resource nor pass it to another tool.
        return (Text(f"[resource: {block.resource.uri}]"), *contents)
    return (_media(block.data, block.mime_type, None, max_bytes),)


def _contents(item: TextResourceContents | BlobResourceContents, max_bytes: int) -> tuple[Part, ...]:
    text = getattr(item, "text", None)
    if text is not None:
        return (Text(text),)
    return (_media(item.blob, item.mime_type, item.uri, max_bytes),)  # type: ignore[union-attr]


def _media(data: str, mime: str | None, uri: str | None, max_bytes: int) -> Part:
    name = None
    if uri:
        name = uri.rstrip("/").rpartition("/")[2]
    kind = _KINDS.get((mime or "").partition("/")[0], File)
    size = len(data) * 3 // 4
    if size > max_bytes:
        return Text(f"[{kind.__name__.lower()} of {size:,} bytes omitted: the media of the result are too large]")
    try:
        return kind(base64.b64decode(data, validate=True), media_type=mime, name=name)
    except (ValueError, MediaError):
        return Text(f"[{kind.__name__.lower()} omitted: its base64 cannot be decoded]")


def _block(part: Part) -> Mapping[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    if isinstance(part.source, Url):
        return {"type": "resource_link", "uri": str(part.source), "name": part.label}
    try:
        data = base64.b64encode(part.read()).decode("ascii")
    except MediaError as error:
        return {"type": "text", "text": f"{part.alt} (cannot be read: {error})"}
    if part.kind in ("image", "audio"):
        return {"type": part.kind, "data": data, "mimeType": part.mime}
    uri = f"{_OWN_SCHEME}{part.id}/{part.label}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": part.mime, "blob": data}}
