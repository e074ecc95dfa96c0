"""Reader of messages in the wire forms of OpenAI chat, OpenAI Responses and Anthropic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from agentkit_prompts.context.json_problems import fits_json
from agentkit_prompts.context.messages import Message, Role, ToolCall
from agentkit_prompts.context.opaque import no_opaque
from agentkit_prompts.context.parts import Part, Text, is_plain
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.wire.allowed_media import MediaFolder
from agentkit_prompts.context.wire.foreign_message import ForeignMessage
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.placed_messages import items_of, placed_messages
from agentkit_prompts.context.wire.read_parts import PART_TYPES, PartReader
from agentkit_prompts.context.wire.thought_fields import THOUGHT_FIELDS, take_thought
from agentkit_prompts.context.wire.wire_form import form_of, mappings_in
from agentkit_prompts.context.wire.write_anthropic import OPENING
from agentkit_prompts.errors import MessageError, Problem, Problems, brief, check_types, error_of_problems, kind_of
from agentkit_prompts.names import nearest

_CHAT_KEYS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name", "refusal"))
_CONTENT_KEYS = frozenset(("content", "tool_calls", "refusal", *THOUGHT_FIELDS))
"""Keys of the content of a message; a message must have at least one of these keys."""
_CALLS = ("tool_use", "function_call")
_THOUGHTS = ("thinking", "redacted_thinking")
_STEPS = ("reasoning", "item_reference", "compaction", "container_upload", "search_result")
_STEP_ENDINGS = (
    *("_call", "_call_output", "_tool_use", "_tool_result", "_tools"),
    *("_approval_request", "_approval_response"),
)
"""Suffixes of the types of blocks and items for steps of the provider, such as `web_search_call`."""


def read_messages(
    value: object,
    *,
    where: str = "conversation",
    form: str | None = None,
    owner: Owner | None = None,
    before: Sequence[Message] = (),
    is_linked: bool = True,
    allow_media: bool = False,
    folder: MediaFolder | None = None,
) -> tuple[Message, ...]:
    """Return messages in a wire form as `Message` objects. `Message` objects are returned unchanged.

    An Anthropic message with tool results becomes one tool message per result; items of the Responses form that belong
    to one reply become one message. A tool message gets the name of its call. Arguments that are not JSON are
    unchanged. Unknown keys become opaque data of the provider, see `Message`.

    Args:
        value: Messages, mappings, objects with a `model_dump`, such as the classes of SDKs, or messages of LangChain,
            LlamaIndex or pydantic-ai. Their data without a counterpart are stored in `opaque` and never sent.
        where: Name of the messages in errors.
        form: The wire form: `openai`, `responses` or `anthropic`; None to recognise the form by keys and block types.
        owner: Endpoint and model that sent the messages; by default each endpoint of the form.
        before: Earlier messages, whose calls can have results in `value`.
        is_linked: True if a result without an earlier call is an error. A call without a result is always valid.
        allow_media: True to accept media in local files and at private addresses.
        folder: Folder whose files are accepted as media without `allow_media`.

    Raises:
        MessageError: Names all problems with their places.
    """
    check_types(MessageError, "read_messages", where=(where, str, "text"))
    items = items_of(value, where)
    if all(type(item) is Message for item in items):
        return tuple(cast("list[Message]", items))
    problems: Problems = []
    placed = [*placed_messages(items, where, problems)]
    if owner is None:
        owner = Owner(form or form_of([item for _, item in placed]))
    form = owner.form
    reader = _MessageReader(owner, allow_media, folder, problems)
    for place, item in placed:
        reader.read(item, place)
    if is_linked:
        reader.link(before)
    messages = reader.messages()
    if reader.problems:
        problems = sorted(reader.problems, key=lambda problem: _index(problem, where))
        raise error_of_problems(MessageError, "", problems)
    if form == "anthropic" and messages[:1] == [Message("user", OPENING)]:
        # `anthropic_payload` adds this message, because the API requires a user message at the start.
        del messages[0]
    return tuple(messages)


def read_reply(data: Sequence[Mapping[str, Any]], owner: Owner) -> tuple[Message, ...]:
    """Return the messages of a reply.

    Blocks and items of unknown types, which providers add, are steps of the provider: they are sent back to it.

    Args:
        data: One message, or the items of the Responses form.
        owner: Endpoint and model that sent the reply.

    Raises:
        MessageError: Names all problems with their places.
    """
    problems: Problems = []
    reader = _MessageReader(owner, False, None, problems, is_reply=True)
    for number, item in enumerate(data):
        reader.read(item, f"reply[{number}]")
    messages = reader.messages()
    if problems:
        raise error_of_problems(MessageError, "", problems)
    return tuple(messages)


def _index(problem: Problem, where: str) -> int:
    """Return the index of the message at the place of a problem."""
    return int(problem.place[len(where) + 1 :].partition("]")[0])


@dataclass(slots=True)
class _Draft:
    """A message while it is read."""

    where: str
    role: str = "assistant"
    text: str = ""
    """The content of the message if it is a text; `parts` then contains only a refusal."""
    parts: list[Part] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    call_places: list[str] = field(default_factory=list)
    thinking: list[Thinking] = field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    unknown: dict[str, Any] = field(default_factory=dict)
    """Unknown keys, stored for the provider."""
    opaque: Mapping[str, Any] = field(default_factory=no_opaque)
    """Data of another library, stored and not sent."""
    is_split: bool = False
    """True for the blocks before or after a tool result, which form a message only if they are not empty."""

    @property
    def size(self) -> int:
        """Number of content parts and calls."""
        return bool(self.text) + len(self.parts) + len(self.calls)

    def add_content(self, content: str | tuple[Part, ...]) -> None:
        """Set the text, or add the parts, of the content."""
        if isinstance(content, str):
            self.text = content
        else:
            self.parts += content

    def add_call(self, call: ToolCall, where: str) -> None:
        """Add a tool call; `where` is its place in the input, for errors."""
        self.calls.append(call)
        self.call_places.append(where)

    def message(self, owner: Owner) -> Message:
        """Return the message, whose unknown keys belong to `owner`.

        Raises:
            MessageError: The message is invalid.
        """
        opaque = dict(self.opaque)
        if self.unknown:
            opaque[owner.key(self.unknown)] = self.unknown
        calls, thinking = tuple(self.calls), tuple(self.thinking)
        role = cast("Role", self.role)
        return Message(role, self._content(owner.form), calls, self.tool_call_id, self.name, thinking, opaque=opaque)

    def _content(self, form: str) -> str | tuple[Part, ...]:
        if not self.parts:
            return self.text
        if self.text:
            return (Text(self.text), *self.parts)
        # Except for OpenAI chat, a list of one text block is the usual form of a text.
        if form != "openai" and len(self.parts) == 1 and is_plain(self.parts[0]):
            return self.parts[0].text
        return tuple(self.parts)


class _MessageReader(PartReader):
    """Reader of messages in one wire form. It collects drafts, which become messages after calls and results are
    linked.
    """

    def __init__(
        self,
        owner: Owner,
        allow_media: bool,
        folder: MediaFolder | None,
        problems: Problems,
        *,
        is_reply: bool = False,
    ) -> None:
        super().__init__(problems, owner, allow_media=allow_media, folder=folder)
        self._is_reply = is_reply
        self._drafts: list[_Draft | Message] = []
        self._reply: _Draft | None = None
        """The draft of a reply to which the next item of the Responses form belongs if it is a call or thinking; else
        None.
        """

    def read(self, item: object, where: str) -> None:
        """Read one message or item."""
        if isinstance(item, Message):
            self._add(item)
        elif not isinstance(item, Mapping):
            self.note(where, f"expected a message or its mapping, got {kind_of(item)}")
        elif not self._has_names(item, where):
            return
        elif "role" not in item and isinstance(item.get("type"), str):
            self._read_item(item, where)
        else:
            self._read_mapping(item, where)

    def _has_names(self, item: Mapping[str, Any], where: str) -> bool:
        """Check the type and the id of an item of the Responses form, which are stored; other forms have no ids."""
        count = len(self.problems)
        if self.owner.form == "responses":
            for key in ("type", "id"):
                self._text(item, key, where)
        return len(self.problems) == count

    def link(self, before: Sequence[Message]) -> None:
        """Set the tool name of each result; results without a call and duplicate ids of calls become problems."""
        waiting = _open_calls(before)
        for draft in self._drafts:
            if isinstance(draft, Message):
                waiting |= {call.id: call.name for call in draft.tool_calls}
                waiting.pop(draft.tool_call_id or "", None)
            else:
                self._link_calls(draft, waiting)
                self._link_result(draft, waiting)

    def messages(self) -> list[Message]:
        """Return the messages of the drafts; errors of their fields become problems."""
        messages: list[Message] = []
        for draft in self._drafts:
            if isinstance(draft, Message):
                messages.append(draft)
            elif draft.size or draft.thinking or not draft.is_split:
                try:
                    messages.append(draft.message(self.owner))
                except MessageError as error:
                    self.note(draft.where, str(error))
        return messages

    def _add(self, draft: _Draft | Message) -> None:
        self._drafts.append(draft)
        self._reply = None

    # --- a mapping with a role

    def _read_mapping(self, item: Mapping[str, Any], where: str) -> None:
        role = self._text(item, "role", where)
        name = self._text(item, "name", where)
        tool_call_id = self._text(item, "tool_call_id", where)
        if role is None:
            if item.get("role") is None:
                self.note(f"{where}.role", "missing")
            return
        if not item.keys() & _CONTENT_KEYS:
            self.note(f"{where}.content", f"missing{nearest('content', [key for key in item if isinstance(key, str)])}")
        draft = self._draft(role, where)
        draft.name, draft.tool_call_id = name, tool_call_id
        draft.unknown = self._unknown(item, where)
        if isinstance(item, ForeignMessage):
            draft.opaque = item.opaque
        if role == "developer":
            draft.role, draft.unknown["role"] = "system", role
        if role == "assistant":
            thought = take_thought(draft.unknown, self.owner)
            if thought is not None:
                draft.thinking.append(thought)
        last = self._read_content(item, draft)
        if role == "assistant" and self.owner.form == "responses":
            self._reply = last

    def _draft(self, role: str, where: str) -> _Draft:
        """Return the draft for a message: a new draft, or the draft with the thinking before a reply, if any."""
        draft = self._reply
        if role != "assistant" or draft is None or draft.size:
            draft = _Draft(where, role)
            self._add(draft)
        self._reply = None
        draft.where = where
        return draft

    def _unknown(self, item: Mapping[str, Any], where: str) -> dict[str, Any]:
        if self.owner.form == "responses":
            return self.extras(item, _CHAT_KEYS, where)
        return self.extras(item, _CHAT_KEYS | {"type"}, where)

    def _read_content(self, item: Mapping[str, Any], draft: _Draft) -> _Draft:
        """Read content, refusal and calls of a message; return its last draft, because tool results split a message."""
        where, content = draft.where, item.get("content")
        if isinstance(content, list | tuple):
            for index, block in enumerate(content):
                draft = self._read_block(block, draft, f"{where}.content[{index}]")
        else:
            draft.add_content(self.content(content, f"{where}.content"))
        refusal = self._text(item, "refusal", where)
        if refusal:
            draft.parts.append(Text(refusal, kind="refusal"))
        for index, call in enumerate(self.calls(item.get("tool_calls"), f"{where}.tool_calls")):
            draft.add_call(call, f"{where}.tool_calls[{index}]")
        return draft

    # --- blocks of content, and items of the Responses form

    def _read_block(self, block: object, draft: _Draft, where: str) -> _Draft:
        """Read a content block; return the draft for the next block: after a tool result, a new draft."""
        if isinstance(block, Thinking):
            draft.thinking.append(replace(block, at=draft.size))
            return draft
        if isinstance(block, Mapping):
            if block.get("type") == "tool_result":
                draft.is_split = True
                self._read_result(block, where, "tool_use_id", "content")
                rest = _Draft(where, draft.role, is_split=True)
                self._add(rest)
                return rest
            if self._read_call_or_thinking(block, draft, where):
                return draft
        part = self.part(block, where)
        if part is not None:
            draft.parts.append(part)
        return draft

    def _read_item(self, item: Mapping[str, Any], where: str) -> None:
        """Read an item of the Responses form that is not a message."""
        kind = item["type"]
        if kind == "function_call_output":
            self._read_result(item, where, "call_id", "output")
            return
        reply = self._reply or _Draft(where)
        if not self._read_call_or_thinking(item, reply, where):
            self.note(where, f"unknown type {brief(kind)}{_advice_for_type(kind)}")
        elif self._reply is None:
            self._add(reply)
            self._reply = reply

    def _read_call_or_thinking(self, block: Mapping[str, Any], draft: _Draft, where: str) -> bool:
        """Read a tool call, thinking or a step of the provider; return False for any other block."""
        kind = block.get("type")
        if not isinstance(kind, str):
            return False
        if kind in _CALLS:
            call = self.call(block, where)
            if call is not None:
                draft.add_call(call, where)
        elif kind in _THOUGHTS:
            draft.thinking.append(self._thought(block, draft.size, where))
        elif kind in _STEPS or kind.endswith(_STEP_ENDINGS) or (self._is_reply and kind not in PART_TYPES):
            if fits_json(dict(block), where, self.problems):
                owner = self.owner.key(block)
                opaque = {owner: dict(block)}
                draft.thinking.append(Thinking(_summary(block), owner, at=draft.size, opaque=opaque))
        else:
            return False
        return True

    def _thought(self, block: Mapping[str, Any], at: int, where: str) -> Thinking:
        opaque: dict[str, Any] = {}
        owner, known_keys, text = self.owner.key(block), {"type", "thinking", "signature", "data"}, ""
        if isinstance(block.get("thinking"), list | tuple):
            # Mistral sends thinking as a list of parts.
            known_keys.remove("thinking")
            text = "".join(
                [part["text"] for part in mappings_in(block["thinking"]) if isinstance(part.get("text"), str)]
            )
        else:
            text = self._text(block, "thinking", where) or ""
        if self.extras(block, known_keys, where):
            opaque[owner] = dict(block)
        signature = self._text(block, "signature", where)
        redacted = self._text(block, "data", where)
        return Thinking(text, owner, signature, redacted, at, opaque=opaque)

    def _read_result(self, block: Mapping[str, Any], where: str, id_key: str, content_key: str) -> None:
        """Read the result of a tool call."""
        draft = _Draft(where, "tool", tool_call_id=self._text(block, id_key, where))
        draft.unknown = self.extras(block, {"type", id_key, content_key}, where)
        draft.add_content(self.content(block.get(content_key), f"{where}.{content_key}"))
        self._add(draft)

    def _text(self, item: Mapping[str, Any], key: str, where: str) -> str | None:
        value = item.get(key)
        if value is None or isinstance(value, str):
            return value
        self.note(f"{where}.{key}", f"expected text, got {type(value).__name__}")
        return None

    # --- calls and their results

    def _link_calls(self, draft: _Draft, waiting: dict[str, str]) -> None:
        if draft.role != "assistant":
            # `Message` raises the error for calls in such a message. Their results must not cause a second error.
            self.refused_calls.update([call.id for call in draft.calls])
            return
        for call, place in zip(draft.calls, draft.call_places, strict=True):
            if call.id and call.id in waiting:
                self.note(f"{place}.id", f"{brief(call.id)} is the id of another call; ids must be unique")
            waiting[call.id] = call.name

    def _link_result(self, draft: _Draft, waiting: dict[str, str]) -> None:
        # `Message` raises the error for a tool message without an id.
        if draft.role != "tool" or not draft.tool_call_id:
            return
        if draft.tool_call_id in waiting:
            name = waiting.pop(draft.tool_call_id)
            if draft.name is None:
                draft.name = name
        # If the call was refused, its own problem is already recorded.
        elif draft.tool_call_id not in self.refused_calls:
            self.note(draft.where, f"no earlier call has the id {brief(draft.tool_call_id)}")


def _open_calls(messages: Sequence[Message]) -> dict[str, str]:
    """Return the names, by id, of the calls at the end of the messages that have no result yet."""
    last = len(messages)
    # Only the last message that is not a tool result can have calls without results.
    while last > 0 and messages[last - 1].role == "tool":
        last -= 1
    if last == 0:
        return {}
    calls = {call.id: call.name for call in messages[last - 1].tool_calls}
    for message in messages[last:]:
        calls.pop(message.tool_call_id or "", None)
    return calls


def _summary(block: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item; empty for other steps."""
    if block.get("type") != "reasoning":
        return ""
    parts = [*mappings_in(block.get("summary")), *mappings_in(block.get("content"))]
    return "\n".join([part["text"] for part in parts if isinstance(part.get("text"), str)])


def _advice_for_type(kind: str) -> str:
    return nearest(kind, ("message", "function_call", "function_call_output", *_STEPS))
