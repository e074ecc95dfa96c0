"""The one reader of messages from outside: OpenAI chat, OpenAI Responses and Anthropic, recognised by their shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import countOf
from typing import Any, NamedTuple, cast

from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.context.messages import Message, Role, ToolCall
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.read_parts import PartReader
from agentkit_prompts.context.wire.write_anthropic import OPENING
from agentkit_prompts.errors import MessageError, Problem, Problems, check_types, listed
from agentkit_prompts.names import nearest

__all__ = ["REASONING", "read_messages", "thought_in"]

REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names of what a model thought before it answered; senders use any of them."""

_CHAT = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "refusal"))
_SAYING = frozenset(("content", "tool_calls", "refusal", *REASONING))
"""Keys of which a message needs one."""
_CHAT_PARTS = frozenset(("image_url", "input_audio", "file", "audio_url", "video_url", "refusal"))
_RESPONSES_PARTS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_ANTHROPIC_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document"))
_STEPS = ("_call", "_call_output", "_tool_use", "_tool_result", "_approval_request", "_approval_response", "_tools")
"""Ends of the types of blocks that record a step of the provider itself."""
_LANGCHAIN_TYPES = frozenset(("human", "ai", "system", "tool", "AIMessageChunk", "HumanMessageChunk", "remove"))
_LANGCHAIN = ": LangChain's convert_to_openai_messages(messages) writes its messages in a form that is read here"
_OTHER_STEPS = frozenset(("reasoning", "item_reference", "compaction", "container_upload", "search_result"))


def read_messages(
    value: object,
    *,
    where: str = "conversation",
    form: str | None = None,
    before: Sequence[Message] = (),
    is_linked: bool = True,
    allow_media: bool = False,
) -> tuple[Message, ...]:
    """Return messages that came from outside as ours. Messages of ours are returned as they are.

    A message of Anthropic's that answers tool calls becomes a tool message per answer; items of the Responses form
    that belong to one reply become one message. A tool message gets the name of the call that it answers. Arguments
    that are no JSON stay as the model wrote them. Keys that are unknown are kept for the provider, see `Message`.

    Args:
        value: Messages, mappings, or objects with a `model_dump` such as those of the SDKs.
        where: What the messages are called in errors.
        form: The wire form: `openai`, `responses` or `anthropic`; recognised by its shape where it is not given.
        before: The messages in front of these, whose calls they may answer.
        is_linked: Whether every result needs a call in front of it. A call without a result is legal.
        allow_media: Whether media may be in a file of this machine, or at an address that is not public.

    Raises:
        MessageError: Names everything that is wrong, each with its place.
    """
    if type(value) is tuple and countOf(map(type, value), Message) == len(value):
        return value
    check_types(MessageError, "read_messages", where=(where, str, "text"))
    items = _items_of(value, where)
    if all(type(item) is Message for item in items):
        return tuple(cast("list[Message]", items))
    form = form or _form_of(items)
    reader = _Reader(form, allow_media)
    for index, item in enumerate(items):
        reader.read(item, f"{where}[{index}]")
    messages = reader.messages()
    if is_linked:
        messages = _linked(messages, before, reader.problems, reader.refused_calls)
    if reader.problems:
        problems = sorted(reader.problems, key=lambda problem: _index(problem, where))
        raise MessageError(listed(problems), problems=problems)
    if form == "anthropic" and messages and messages[0].message == Message("user", OPENING):
        # The writer of this form added it, because the API wants the first message to come from the user.
        del messages[0]
    return tuple([read.message for read in messages])


def _items_of(value: object, where: str) -> list[object]:
    if isinstance(value, str | bytes | Mapping | Message) or not isinstance(value, Iterable):
        problem = Problem(where, f"expected a list of messages, got {type(value).__name__}")
        raise MessageError(str(problem), problems=[problem])
    return [_as_mapping(item) for item in value]


def _index(problem: Problem, where: str) -> int:
    """Return the number of the message at fault."""
    return int(problem.place[len(where) + 1 :].partition("]")[0])


def thought_in(message: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return key and text of the reasoning of a message in the chat form."""
    for key in REASONING:
        text = message.get(key)
        if isinstance(text, str) and text:
            return key, text
    return None


def _as_mapping(item: object) -> object:
    """Return objects of the SDKs as mappings, any other value as it is."""
    if isinstance(item, Mapping | type | Message):
        return item
    dump = getattr(item, "model_dump", None)
    if callable(dump):
        return dump()
    return item


def _form_of(items: Sequence[object]) -> str:
    """Return the wire form of messages: `openai`, `responses` or `anthropic`."""
    mappings = _mappings(items)
    contents = [item.get("content") for item in mappings]
    blocks = list(chain.from_iterable(map(_mappings, contents)))
    types = _types_of(blocks)
    if types & _RESPONSES_PARTS or any(map(_is_item, mappings)):
        return "responses"
    if types & _ANTHROPIC_BLOCKS or any("source" in part for part in blocks):
        return "anthropic"
    if types & _CHAT_PARTS or any(map(_is_of_chat, mappings)):
        return "openai"
    # Text blocks alone are in both forms. Only Anthropic writes every message as blocks.
    if types and all(isinstance(content, list | tuple) for content in contents):
        return "anthropic"
    return "openai"


def _types_of(blocks: Iterable[Mapping[str, Any]]) -> set[str]:
    types = [block.get("type") for block in blocks]
    return {kind for kind in types if isinstance(kind, str)}


def _is_item(item: Mapping[str, Any]) -> bool:
    """True for an item of the Responses form that is no message."""
    return "type" in item and "role" not in item


def _is_of_chat(item: Mapping[str, Any]) -> bool:
    """True for a message that only the chat form has."""
    return bool(item.get("tool_calls")) or item.get("role") == "tool"


class _Read(NamedTuple):
    """A message that was read, and its draft, unless it was a `Message` before."""

    message: Message
    draft: _Draft | None


@dataclass(slots=True)
class _Draft:
    """A message while it is read."""

    where: str
    role: str = "assistant"
    content: list[Part] | str = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thinking: list[Thinking] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    unknown: dict[str, Any] = field(default_factory=dict)
    """Keys that only the provider knows."""
    call_places: list[str] = field(default_factory=list)

    def add_call(self, call: ToolCall, where: str) -> None:
        """Add the tool call at a place."""
        self.calls.append(call)
        self.call_places.append(where)

    @property
    def size(self) -> int:
        """Number of content parts and calls so far."""
        if isinstance(self.content, list):
            return len(self.content) + len(self.calls)
        return bool(self.content) + len(self.calls)

    def add_part(self, part: Part) -> None:
        """Add a part to content that may be text until now."""
        if isinstance(self.content, str):
            self.content = [Text(self.content)] if self.content else []
        self.content.append(part)

    def message(self, form: str) -> Message:
        """Return the message.

        Raises:
            MessageError: It is invalid.
        """
        content: Any = self.content
        if isinstance(content, list):
            content = tuple(content)
            if form != "openai" and len(content) == 1 and _is_plain(content[0]):
                # One text block is how these forms write text.
                content = content[0].text
        return Message(
            cast("Role", self.role),
            content,
            tuple(self.calls),
            self.tool_call_id,
            self.name,
            tuple(self.thinking),
            opaque={form: self.unknown} if self.unknown else {},
        )


def _is_plain(part: Part) -> bool:
    return isinstance(part, Text) and part.kind == "text" and not part.opaque


class _Reader(PartReader):
    """Reads message by message."""

    def __init__(self, form: str, allow_media: bool) -> None:
        super().__init__([], form, allow_media=allow_media)
        self._form = form
        self._drafts: list[_Draft | Message] = []
        self._reply: _Draft | None = None
        """The reply that the next item of the Responses form may belong to."""

    def messages(self) -> list[_Read]:
        """Return the messages read."""
        messages: list[_Read] = []
        for draft in self._drafts:
            if isinstance(draft, Message):
                messages.append(_Read(draft, None))
                continue
            try:
                messages.append(_Read(draft.message(self._form), draft))
            except MessageError as error:
                self.problems.append(Problem(draft.where, str(error)))
                self.refused_calls.update([call.id for call in draft.calls])
        return messages

    def read(self, item: object, where: str) -> None:
        """Read one message or item."""
        if isinstance(item, Message):
            self._drafts.append(item)
            self._reply = None
        elif not isinstance(item, Mapping):
            self.problems.append(Problem(where, f"expected a message or its mapping, got {type(item).__name__}"))
        elif "role" not in item and isinstance(item.get("type"), str):
            self._item(item, where)
        else:
            self._message(item, where)

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = self._text(item, "role", where)
        name = self._text(item, "name", where)
        tool_call_id = self._text(item, "tool_call_id", where)
        if role is None:
            if item.get("role") is None:
                self.problems.append(Problem(f"{where}.role", "missing"))
            return
        if not item.keys() & _SAYING:
            self.problems.append(Problem(f"{where}.content", f"missing{nearest('content', map(str, item))}"))
        read_keys = _CHAT if self._form == "responses" else _CHAT | {"type"}
        unknown = self.extras(item, read_keys, where)
        if role == "developer":
            role, unknown["role"] = "system", role
        continued = self._thoughts_before(role)
        draft = continued or _Draft(where, role)
        draft.where, draft.name, draft.tool_call_id, draft.unknown = where, name, tool_call_id, unknown
        if role == "assistant":
            self._take_thought(draft)
        last = self._read_content(item, draft)
        # Results of tools were added as messages of their own; the rest of a message of results can be empty.
        if continued is None and (last is draft or last.size):
            self._drafts.append(last)
        self._reply = None
        if role == "assistant" and self._form == "responses":
            self._reply = last

    def _thoughts_before(self, role: str) -> _Draft | None:
        """Return the draft of thoughts that come before their message in the Responses form."""
        if role == "assistant" and self._reply is not None and not self._reply.size:
            return self._reply
        return None

    def _take_thought(self, draft: _Draft) -> None:
        """Move the reasoning of a message in the chat form from its unknown keys to its thoughts."""
        thought = thought_in(draft.unknown)
        if thought is None:
            return
        key, text = thought
        del draft.unknown[key]
        opaque: dict[str, Any] = {}
        if key != REASONING[0]:
            # The writer uses the first name, unless the opaque data has another one.
            opaque[self.provider] = {key: text}
        draft.thinking.append(Thinking(text, self.provider, opaque=opaque))

    def _read_content(self, item: Mapping[str, Any], draft: _Draft) -> _Draft:
        """Read content, refusal and calls of a message; return the draft that they end in."""
        where = draft.where
        content = item.get("content")
        if isinstance(content, list | tuple):
            if isinstance(draft.content, str):
                draft.content = []
            draft = self._blocks(content, draft)
        else:
            draft.content = cast("str", self.content(content, f"{where}.content"))
        refusal = self._text(item, "refusal", where)
        if refusal:
            draft.add_part(Text(refusal, kind="refusal"))
        for index, call in enumerate(self.calls(item.get("tool_calls"), f"{where}.tool_calls")):
            draft.add_call(call, f"{where}.tool_calls[{index}]")
        return draft

    def _blocks(self, blocks: Sequence[Any], draft: _Draft) -> _Draft:
        """Read content part by part; return the draft that it ends in: a new one begins after a tool result."""
        where = draft.where
        for index, block in enumerate(blocks):
            place = f"{where}.content[{index}]"
            if isinstance(block, Mapping):
                if block.get("type") == "tool_result":
                    if draft.size:
                        self._drafts.append(draft)
                    self._result(block, place, ("tool_use_id", "content"))
                    draft = _Draft(place, draft.role)
                    continue
                if self._work(block, draft, place):
                    continue
            part = self.part(block, place)
            if part is not None:
                draft.add_part(part)
        return draft

    def _work(self, block: Mapping[str, Any], draft: _Draft, where: str) -> bool:
        """Read a tool call, a thought or a step of the provider; return False for any other block."""
        kind = block.get("type")
        if not isinstance(kind, str):
            return False
        if kind in ("tool_use", "function_call"):
            call = self.call(block, where)
            if call is not None:
                draft.add_call(call, where)
        elif kind in ("thinking", "redacted_thinking"):
            draft.thinking.append(self._thought(block, draft.size, where))
        elif kind in _OTHER_STEPS or kind.endswith(_STEPS):
            if fits_json(dict(block), where, self.problems):
                text = _summary(block)
                draft.thinking.append(Thinking(text, self.provider, at=draft.size, opaque={self.provider: dict(block)}))
        else:
            return False
        return True

    def _thought(self, block: Mapping[str, Any], at: int, where: str) -> Thinking:
        unknown = self.extras(block, {"type", "thinking", "signature", "data"}, where)
        text = self._text(block, "thinking", where) or ""
        signature = self._text(block, "signature", where)
        redacted = self._text(block, "data", where)
        opaque = {self.provider: dict(block)} if unknown else {}
        return Thinking(text, self.provider, signature, redacted, at, opaque=opaque)

    def _item(self, item: Mapping[str, Any], where: str) -> None:
        """Read an item of the Responses form that is no message."""
        if item["type"] == "function_call_output":
            self._result(item, where, ("call_id", "output"))
            return
        draft = self._reply or _Draft(where)
        if not self._work(item, draft, where):
            self.problems.append(Problem(where, f"unknown type {item['type']!r:.80}{_advice_for_type(item['type'])}"))
        elif self._reply is None:
            self._drafts.append(draft)
            self._reply = draft

    def _result(self, block: Mapping[str, Any], where: str, keys: tuple[str, str]) -> None:
        """Read the result of a call; `keys` are the keys of the id of the call and of the content."""
        id_key, content_key = keys
        draft = _Draft(where, "tool", tool_call_id=self._text(block, id_key, where))
        draft.unknown = self.extras(block, {"type", *keys}, where)
        content = self.content(block.get(content_key), f"{where}.{content_key}")
        draft.content = content if isinstance(content, str) else [*content]
        self._drafts.append(draft)
        self._reply = None

    def _text(self, item: Mapping[str, Any], key: str, where: str) -> str | None:
        value = item.get(key)
        if value is None or isinstance(value, str):
            return value
        self.problems.append(Problem(f"{where}.{key}", f"expected text, got {type(value).__name__}"))
        return None


def _mappings(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list | tuple):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def _summary(block: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item; other steps have none."""
    if block.get("type") != "reasoning":
        return ""
    texts = [part.get("text") for key in ("summary", "content") for part in _mappings(block.get(key))]
    return "\n".join([text for text in texts if isinstance(text, str)])


def _advice_for_type(kind: str) -> str:
    if kind in _LANGCHAIN_TYPES:
        return _LANGCHAIN
    return nearest(kind, ("message", "function_call", "function_call_output", *_OTHER_STEPS))


def _open_calls(messages: Sequence[Message]) -> dict[str, str]:
    """Return id and name of the calls at the end of messages that have no result yet."""
    last = len(messages)
    # Calls before the last message that is no result have all their results.
    while last > 0 and messages[last - 1].role == "tool":
        last -= 1
    calls = {call.id: call.name for call in messages[last - 1].tool_calls} if last else {}
    for message in messages[last:]:
        calls.pop(message.tool_call_id or "", None)
    return calls


def _linked(
    messages: list[_Read], before: Sequence[Message], problems: Problems, refused: Collection[str]
) -> list[_Read]:
    """Return the messages with the name of the tool in each result; note results without a call, and repeated ids.

    Results of `refused` calls are not noted: the problem of their call is.
    """
    waiting = _open_calls(before)
    linked: list[_Read] = []
    for message, draft in messages:
        for index, call in enumerate(message.tool_calls):
            if draft is not None and call.id and call.id in waiting:
                problems.append(Problem(f"{draft.call_places[index]}.id", f"{call.id!r:.80} is the id of another call"))
            waiting[call.id] = call.name
        if message.role == "tool":
            name = waiting.pop(message.tool_call_id or "", None)
            if draft is not None and name is None and message.tool_call_id not in refused:
                problems.append(Problem(draft.where, f"no call before it has the id {message.tool_call_id!r:.80}"))
            elif draft is not None and message.name is None:
                message = replace(message, name=name)
        linked.append(_Read(message, draft))
    return linked
