"""The one reader of messages from outside: OpenAI chat, OpenAI Responses and Anthropic, recognised by their shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import countOf
from typing import Any, cast

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
"""Keys of which a message has one at least."""
_CHAT_PARTS = frozenset(("image_url", "input_audio", "file", "audio_url", "video_url", "refusal"))
_RESPONSES_PARTS = frozenset(("input_text", "output_text", "input_image", "input_file"))
_ANTHROPIC_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "document"))
_STEPS = ("_call", "_call_output", "_tool_use", "_tool_result", "_approval_request", "_approval_response", "_tools")
"""How the types of blocks end in which a provider writes down a step that it took itself."""
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
    if isinstance(value, str | bytes | Mapping | Message) or not isinstance(value, Iterable):
        problem = Problem(where, f"expected a list of messages, got {type(value).__name__}")
        raise MessageError(str(problem), problems=[problem])
    try:
        items = [item if isinstance(item, Message) else _as_mapping(item) for item in value]
    except Exception as error:  # of the code of what is given, here and below
        problem = Problem(where, _unreadable(error))
        raise MessageError(str(problem), problems=[problem]) from error
    if all(type(item) is Message for item in items):
        return tuple(cast("list[Message]", items))
    form = form or _form(items)
    reader = _Reader(form, allow_media)
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        try:
            reader.read(item, place)
        except Exception as error:
            reader.problems.append(Problem(place, _unreadable(error)))
    found = reader.messages()
    if is_linked:
        found = _linked(found, before, reader.problems, reader.refused_calls)
    if reader.problems:
        problems = sorted(reader.problems, key=lambda problem: _index(problem, where))
        raise MessageError(listed(problems), problems=problems)
    if form == "anthropic" and found and found[0][0] == Message("user", OPENING):
        del found[0]
    return tuple([message for message, _ in found])


def _index(problem: Problem, where: str) -> int:
    """Return the number of the message at fault."""
    return int(problem.place[len(where) + 1 :].partition("]")[0])


def thought_in(message: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the reasoning of a message in the chat form: the key it stands under, and the text."""
    return next(((key, message[key]) for key in REASONING if isinstance(message.get(key), str) and message[key]), None)


def _unreadable(error: Exception) -> str:
    return f"cannot be read: {type(error).__name__}: {error}"


def _as_mapping(item: object) -> object:
    try:
        dump = None if isinstance(item, Mapping | type) else getattr(item, "model_dump", None)
        return dump() if callable(dump) else item
    except Exception:  # what has no fields is refused with its place
        return item


def _form(items: Sequence[object]) -> str:
    """Return the wire form of messages: `openai`, `responses` or `anthropic`."""
    try:
        return _form_of(items)
    except Exception:  # what cannot be looked at is refused with its place
        return "openai"


def _form_of(items: Sequence[object]) -> str:
    mappings = [item for item in items if isinstance(item, Mapping)]
    contents = [item.get("content") for item in mappings]
    blocks = [part for content in contents if isinstance(content, list | tuple) for part in content]
    types = {part["type"] for part in blocks if isinstance(part, Mapping) and isinstance(part.get("type"), str)}
    if types & _RESPONSES_PARTS or any("type" in item and "role" not in item for item in mappings):
        return "responses"
    if types & _ANTHROPIC_BLOCKS or any(isinstance(part, Mapping) and "source" in part for part in blocks):
        return "anthropic"
    is_chat = types & _CHAT_PARTS or any(item.get("tool_calls") or item.get("role") == "tool" for item in mappings)
    is_blocks = bool(types) and all(isinstance(content, list | tuple) for content in contents)
    return "anthropic" if is_blocks and not is_chat else "openai"


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
    kept: dict[str, Any] = field(default_factory=dict)
    """Keys that are unknown."""
    call_places: list[str] = field(default_factory=list)

    def add_call(self, call: ToolCall, where: str) -> None:
        """Add a tool call, which stands at that place."""
        self.calls.append(call)
        self.call_places.append(where)

    @property
    def size(self) -> int:
        """Content parts and calls so far."""
        return (len(self.content) if isinstance(self.content, list) else bool(self.content)) + len(self.calls)


class _Reader(PartReader):
    """Reads message by message."""

    def __init__(self, form: str, allow_media: bool) -> None:
        super().__init__([], form, allow_media=allow_media)
        self._form = form
        self._drafts: list[_Draft | Message] = []
        self._reply: _Draft | None = None
        """The reply that the next item of the Responses form may belong to."""

    def messages(self) -> list[tuple[Message, _Draft | None]]:
        """Return the messages read, each with its draft unless it was one of ours."""
        made: list[tuple[Message, _Draft | None]] = []
        for draft in self._drafts:
            if isinstance(draft, Message):
                made.append((draft, None))
                continue
            content = draft.content
            if self._form != "openai" and isinstance(content, list) and [*map(type, content)] == [Text]:
                only = cast("Text", content[0])
                content = content if only.opaque or only.kind == "refusal" else only.text
            try:
                message = Message(
                    cast("Role", draft.role),
                    content if isinstance(content, str) else tuple(content),
                    tuple(draft.calls),
                    draft.tool_call_id,
                    draft.name,
                    tuple(draft.thinking),
                    opaque={self.provider: draft.kept} if draft.kept else {},
                )
            except MessageError as error:
                self.problems.append(Problem(draft.where, str(error)))
                self.refused_calls.update([call.id for call in draft.calls])
            else:
                made.append((message, draft))
        return made

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
        role, name, answers = (self._text(item, key, where) for key in ("role", "name", "tool_call_id"))
        if role is None:
            if item.get("role") is None:
                self.problems.append(Problem(f"{where}.role", "missing"))
            return
        if not item.keys() & _SAYING:
            self.problems.append(Problem(f"{where}.content", f"missing{nearest('content', map(str, item))}"))
        known = _CHAT if self._form == "responses" else _CHAT | {"type"}
        kept = self.extras(item, known, where)
        if role == "developer":
            role, kept["role"] = "system", role
        goes_on = self._reply is not None and role == "assistant" and not self._reply.size
        draft = self._reply if goes_on and self._reply is not None else _Draft(where, role)
        draft.where, draft.name, draft.tool_call_id, draft.kept = where, name, answers, kept
        if role == "assistant" and (thought := thought_in(kept)) is not None:
            key, text = thought
            del kept[key]
            own = {} if key == REASONING[0] else {self.provider: {key: text}}
            draft.thinking.append(Thinking(text, self.provider, opaque=own))
        content, begun = item.get("content"), draft
        if isinstance(content, list | tuple):
            if isinstance(draft.content, str):  # of a message without content, which this one goes on with
                draft.content = []
            draft = self._blocks(content, draft)
        else:
            draft.content = cast("str", self.content(content, f"{where}.content"))
        if refusal := self._text(item, "refusal", where):
            parts = [Text(draft.content)] if isinstance(draft.content, str) and draft.content else draft.content or []
            draft.content = [*cast("list[Part]", parts), Text(refusal, kind="refusal")]
        for index, call in enumerate(self.calls(item.get("tool_calls"), f"{where}.tool_calls")):
            draft.add_call(call, f"{where}.tool_calls[{index}]")
        if not goes_on and (draft is begun or draft.size):
            self._drafts.append(draft)
        self._reply = draft if role == "assistant" and self._form == "responses" else None

    def _blocks(self, blocks: Sequence[Any], draft: _Draft) -> _Draft:
        """Read content part by part; return the draft it ends in: behind the results of tools begins a new one."""
        where = draft.where
        for index, block in enumerate(blocks):
            place = f"{where}.content[{index}]"
            if isinstance(block, Mapping) and block.get("type") == "tool_result":
                if draft.size:
                    self._drafts.append(draft)
                self._result(block, place, ("tool_use_id", "content"))
                draft = _Draft(place, draft.role)
            elif isinstance(block, Mapping) and self._work(block, draft, place):
                continue
            elif (part := self.part(block, place)) is not None:
                cast("list[Part]", draft.content).append(part)
        return draft

    def _work(self, block: Mapping[str, Any], draft: _Draft, where: str) -> bool:
        """Read a tool call, a thought or a step of the provider; return False for anything else."""
        kind = block.get("type")
        if kind in ("tool_use", "function_call"):
            if (call := self.call(block, where)) is not None:
                draft.add_call(call, where)
        elif kind in ("thinking", "redacted_thinking"):
            left = self.extras(block, {"type", "thinking", "signature", "data"}, where)
            text, signature, data = (self._text(block, key, where) for key in ("thinking", "signature", "data"))
            whole = {self.provider: dict(block)} if left else {}
            draft.thinking.append(Thinking(text or "", self.provider, signature, data, draft.size, opaque=whole))
        elif isinstance(kind, str) and (kind in _OTHER_STEPS or kind.endswith(_STEPS)):
            if fits_json(dict(block), where, self.problems):
                texts = [part.get("text") for key in ("summary", "content") for part in _mappings(block.get(key))]
                text = "\n".join([text for text in texts if isinstance(text, str)]) if kind == "reasoning" else ""
                whole = {self.provider: dict(block)}
                draft.thinking.append(Thinking(text, self.provider, at=draft.size, opaque=whole))
        else:
            return False
        return True

    def _item(self, item: Mapping[str, Any], where: str) -> None:
        """Read an item of the Responses form that is no message."""
        if item["type"] == "function_call_output":
            self._result(item, where, ("call_id", "output"))
            return
        draft = self._reply or _Draft(where)
        if not self._work(item, draft, where):
            known = ("message", "function_call", "function_call_output", *_OTHER_STEPS)
            hint = _LANGCHAIN if item["type"] in _LANGCHAIN_TYPES else nearest(item["type"], known)
            self.problems.append(Problem(where, f"unknown type {item['type']!r:.80}{hint}"))
        elif self._reply is None:
            self._drafts.append(draft)
            self._reply = draft

    def _result(self, block: Mapping[str, Any], where: str, keys: tuple[str, str]) -> None:
        """Read what answers a call."""
        answered, content = keys
        draft = _Draft(where, "tool", tool_call_id=self._text(block, answered, where))
        draft.kept = self.extras(block, {"type", *keys}, where)
        read = self.content(block.get(content), f"{where}.{content}")
        draft.content = read if isinstance(read, str) else [*read]
        self._drafts.append(draft)
        self._reply = None

    def _text(self, item: Mapping[str, Any], key: str, where: str) -> str | None:
        value = item.get(key)
        if isinstance(value, str | None):
            return value if value is None else str.__str__(value)
        self.problems.append(Problem(f"{where}.{key}", f"expected text, got {type(value).__name__}"))
        return None


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _linked(
    found: list[tuple[Message, _Draft | None]], before: Sequence[Message], problems: Problems, refused: Collection[str]
) -> list[tuple[Message, _Draft | None]]:
    """Return the messages with the name of the tool at each result; notes ids that fit no call, or two.

    Of results of `refused` calls nothing is noted: what is wrong with those is.
    """
    last = next((at for at in range(len(before), 0, -1) if before[at - 1].role != "tool"), 1)
    before = [before[at] for at in range(last - 1, len(before))]  # nothing in front of the last call is waiting
    waiting: dict[str, str] = {}
    linked: list[tuple[Message, _Draft | None]] = []
    for message, draft in [*((message, None) for message in before), *found]:
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
        linked.append((message, draft))
    return linked[len(before) :]
