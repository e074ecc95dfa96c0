"""Reader of the messages of LangChain, also as the dicts that LangChain writes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.foreign_fields import field_of, json_rest, list_of, mapping_of, text_of
from agentkit_prompts.context.wire.foreign_message import ForeignMessage
from agentkit_prompts.errors import Problem, Problems

_LIBRARY = "langchain"
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}
_CHAT_ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}
_USED = frozenset(
    (
        *("type", "content", "role", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "additional_kwargs"),
        *("tool_call_chunks", "chunk_position", "example"),
    )
)
_KWARGS = frozenset(("tool_calls", "function_call", "reasoning_content", "refusal"))
"""Keys of `additional_kwargs` that become parts of a message."""
_MEDIA = ("image", "audio", "video", "file")
_CALLS = ("tool_use", "tool_call", "tool_call_chunk", "function_call", "invalid_tool_call", "input_json_delta")
_STEPS = ("server_tool_call", "server_tool_call_chunk", "server_tool_result", "server_tool_use", "non_standard")
_STEP_ENDINGS = ("_tool_result", "_call")
_ADVICE = {
    "function": "a FunctionMessage has no tool_call_id: use a ToolMessage with the id of its call",
    "remove": "a RemoveMessage is an instruction and not a message: apply it with add_messages of LangGraph first",
}


def read_langchain(item: object, where: str, problems: Problems) -> list[ForeignMessage]:
    """Return one message; none, with a problem, for a class that has no counterpart."""
    kind = field_of(item, "type").removesuffix("MessageChunk").lower()
    if isinstance(item, Mapping) and "content" not in item:
        item = item["data"]
    if kind in _ADVICE:
        problems.append(Problem(where, _ADVICE[kind]))
        return []
    role = _ROLES.get(kind)
    if role is None:
        name = str(field_of(item, "role"))
        role = _CHAT_ROLES.get(name, name)
    rest = json_rest(item, _USED, where, problems)
    kwargs = mapping_of(item, "additional_kwargs", where, problems)
    further = json_rest(kwargs, _KWARGS, f"{where}.additional_kwargs", problems)
    if further:
        rest["additional_kwargs"] = further
    keys: dict[str, Any] = {"role": role, "name": field_of(item, "name")}
    reader = _Content(_is_anthropic(item), where, problems)
    keys["content"] = reader.content(field_of(item, "content"))
    if role == "tool":
        keys["tool_call_id"] = field_of(item, "tool_call_id")
    if role == "assistant":
        keys["content"] = _with_kwargs(keys["content"], kwargs)
        keys["tool_calls"] = _calls(item, kwargs, reader.calls, where, problems)
    if reader.rest:
        rest["content"] = reader.rest
    return [ForeignMessage(where, _LIBRARY, keys, rest)]


def _is_anthropic(item: object) -> bool:
    metadata = field_of(item, "response_metadata")
    return isinstance(metadata, Mapping) and metadata.get("model_provider") == "anthropic"


def _with_kwargs(content: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return content with the thinking and the refusal that an integration stored in `additional_kwargs`."""
    thought, refusal = kwargs.get("reasoning_content"), kwargs.get("refusal")
    blocks = content if isinstance(content, list) else [content]
    blocks = [block for block in blocks if block not in ("", None)]
    if isinstance(thought, str) and thought:
        content = blocks = [Thinking(thought), *blocks]
    if isinstance(refusal, str) and refusal:
        content = [*blocks, {"type": "refusal", "refusal": refusal}]
    return content


def _calls(
    item: object, kwargs: Mapping[str, Any], blocks: list[Any], where: str, problems: Problems
) -> list[dict[str, Any]]:
    """Return the calls of a message: parsed and invalid calls, otherwise the calls in its content or its kwargs."""
    calls = list_of(item, "tool_calls", where, problems) + list_of(item, "invalid_tool_calls", where, problems)
    if not calls:
        calls = list_of(kwargs, "tool_calls", f"{where}.additional_kwargs", problems) or blocks
    if not calls and kwargs.get("function_call"):
        reason = "a function_call has no id: use tool_calls"
        problems.append(Problem(f"{where}.additional_kwargs.function_call", reason))
    return [_call(call) for call in calls]


def _call(call: Any) -> Any:
    if not isinstance(call, Mapping) or "function" in call:
        return call
    arguments = call.get("args", call.get("input", call.get("arguments")))
    return {"id": call.get("call_id", call.get("id")), "name": call.get("name"), "arguments": arguments or {}}


class _Content:
    """Reader of the content of one message.

    Attributes:
        calls: Blocks of calls. LangChain repeats them in `tool_calls`.
        rest: Data of blocks without a counterpart, by the index of the block.
    """

    def __init__(self, is_anthropic: bool, where: str, problems: Problems) -> None:
        self.calls: list[Mapping[str, Any]] = []
        self.rest: dict[str, Any] = {}
        self._signed_by = "anthropic" if is_anthropic else _LIBRARY
        self._where = where
        self._problems = problems

    def content(self, content: Any) -> Any:
        """Return text, or blocks for the reader of parts."""
        if not isinstance(content, list | tuple):
            return content
        blocks: list[Any] = []
        for index, block in enumerate(content):
            blocks += self._block(block, index)
        if len(blocks) == 1 and isinstance(blocks[0], str):
            return blocks[0]
        return blocks

    def _block(self, block: Any, index: int) -> list[Any]:
        kind = field_of(block, "type")
        if not isinstance(block, Mapping) or not isinstance(kind, str):
            return [block]
        if kind == "text" and isinstance(block.get("text"), str):
            self._keep(block, ("type", "text", "cache_control"), index)
            return [block["text"]]
        if kind in _MEDIA and not isinstance(block.get("source"), Mapping) and kind not in block:
            return [self._media(block, kind, index)]
        if kind == "text-plain":
            return [self._plain_file(block, index)]
        if kind in ("reasoning", "thinking", "redacted_thinking"):
            return [self._thought(block, kind, index)]
        if kind in _CALLS:
            if kind != "input_json_delta":
                self.calls.append(block)
            return []
        if kind in _STEPS or kind.endswith(_STEP_ENDINGS):
            if not fits_json(dict(block), f"{self._where}.content[{index}]", self._problems):
                return []
            return [Thinking("", _LIBRARY, opaque={_LIBRARY: dict(block)})]
        return [block]

    def _keep(self, block: Mapping[str, Any], used: tuple[str, ...], index: int) -> None:
        rest = json_rest(block, frozenset(used), f"{self._where}.content[{index}]", self._problems)
        if rest:
            self.rest[str(index)] = rest

    def _media(self, block: Mapping[str, Any], kind: str, index: int) -> dict[str, Any]:
        """Return a media block of either version of LangChain's standard blocks."""
        used = ("type", "source_type", "url", "base64", "data", "file_id", "mime_type", "filename", "extras")
        metadata = block.get("metadata")
        name = block.get("filename")
        for names in (block.get("extras"), metadata):
            if name is None and isinstance(names, Mapping):
                name = names.get("filename") or names.get("name")
        self._keep(block, used if block.get("source_type") != "id" else (*used, "id"), index)
        media = {"type": kind, "media_type": block.get("mime_type"), "filename": name}
        if block.get("source_type") == "text":
            return media | {"data": _base64(block.get("text") or block.get("data") or "")}
        media["file_id"] = block.get("file_id")
        if block.get("source_type") == "id":
            media["file_id"] = block.get("id")
        media["data"] = block.get("base64", block.get("data"))
        media["url"] = block.get("url")
        return media

    def _plain_file(self, block: Mapping[str, Any], index: int) -> dict[str, Any]:
        self._keep(block, ("type", "text", "base64", "url", "file_id", "mime_type", "title"), index)
        data = block.get("base64")
        if data is None:
            data = _base64(block.get("text"))
        media = {"type": "file", "media_type": block.get("mime_type", "text/plain"), "filename": block.get("title")}
        return media | {"data": data, "url": block.get("url"), "file_id": block.get("file_id")}

    def _thought(self, block: Mapping[str, Any], kind: str, index: int) -> Thinking:
        signature = text_of(block, "signature") or text_of(block.get("extras"), "signature")
        provider = self._signed_by if kind == "reasoning" else "anthropic"
        text = text_of(block, "reasoning") or text_of(block, "thinking")
        parts = list_of(block, "summary", f"{self._where}.content[{index}]", self._problems)
        if parts:
            text = "\n".join([text_of(part, "text") for part in parts])
        self._keep(block, ("type", "reasoning", "thinking", "signature", "summary", "data", "extras"), index)
        return Thinking(text, provider, signature or None, text_of(block, "data") or None)


def _base64(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")
