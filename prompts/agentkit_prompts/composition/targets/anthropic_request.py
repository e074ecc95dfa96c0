"""The payload of an Anthropic messages request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.prefix import breakpoints
from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.wire.owner import Owner
from agentkit_prompts.context.wire.write_anthropic import OPENING, RoleAndBlocks, anthropic_blocks, anthropic_writer
from agentkit_prompts.errors import MediaError
from agentkit_prompts.schemas.provider_tools import anthropic_form

if TYPE_CHECKING:
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
    from agentkit_prompts.templates.rendered import Rendered

_CACHE = FrozenDict(type="ephemeral")
_UNMARKED = ("thinking", "redacted_thinking")
"""Types of blocks that the API refuses if they have a cache mark."""


def anthropic_payload(composition: CallContent, host: str | None = None, model: str = "") -> dict[str, Any]:
    """Return `{"system": [...], "messages": [...], "tools": [...]}`, without empty fields. Nested values are read-only.

    Neighbouring messages of one role are merged, because user and assistant must alternate. Tool results are sent by
    the user. Blank blocks are omitted, and system messages of the conversation follow the system prompt. The
    breakpoints of the composition become cache marks. An output schema becomes `output_config`.

    Raises:
        MediaError: The API does not accept the type of a media part, or a system prompt with media.
    """
    writer = anthropic_writer(Owner("anthropic", host or "", model))
    points = breakpoints(composition)
    borders = [point.offset for point in points if point.after in ("static", "session")]
    builder = composition.conversation.fold(writer, _with_messages).copy()
    system = _system(composition.system, borders) + builder.system
    if any(point.after == "conversation" for point in points):
        builder.mark_end()
    builder.add_text(composition.user)
    for message in composition.intermediate.derive(writer):
        builder.add(message)
    builder.add_text(composition.closing)
    payload: dict[str, Any] = {}
    if system:
        payload["system"] = system
    return payload | {"messages": builder.starting_with_user()} | _tool_and_output_fields(composition)


def _tool_and_output_fields(composition: CallContent) -> dict[str, Any]:
    """Return the fields `tools` and `output_config`; a field without a value is missing."""
    fields: dict[str, Any] = {}
    if composition.tools:
        fields["tools"] = composition.tools_and_output.derive(_tools)
    if composition.output_schema is not None:
        fields["output_config"] = {"format": {"type": "json_schema", "schema": composition.output_schema}}
    return fields


def _with_messages(builder: _MessageBuilder | None, new: list[RoleAndBlocks]) -> _MessageBuilder:
    """Return a copy of `builder` (None: without messages) with the messages in `new` added."""
    result = _MessageBuilder()
    if builder is not None:
        result = builder.copy()
    for message in new:
        result.add(message)
    return result


class _MessageBuilder:
    """Builder of the messages of a request: merges neighbouring messages of one role, and renames repeated call ids.

    The API requires unique ids, but some models number their calls from the start again in each run.
    """

    __slots__ = ("_blocks", "_messages", "_next_of", "_renamed", "_role", "_seen", "system")

    def __init__(self) -> None:
        self.system: list[FrozenDict] = []
        """Blocks of the system messages of the conversation."""
        self._messages: list[FrozenDict] = []
        """All messages except the last message, which can still grow: its role is `_role`, its blocks are `_blocks`."""
        self._role = ""
        self._blocks: list[FrozenDict] = []
        self._seen: set[str] = set()
        self._next_of: dict[str, int] = {}
        self._renamed: dict[str, str] = {}
        """New ids of repeated call ids of the latest assistant message, by their old ids."""

    def copy(self) -> _MessageBuilder:
        builder = _MessageBuilder()
        builder.system, builder._messages = [*self.system], [*self._messages]
        builder._role, builder._blocks = self._role, [*self._blocks]
        builder._seen, builder._next_of, builder._renamed = {*self._seen}, {**self._next_of}, {**self._renamed}
        return builder

    def add(self, message: RoleAndBlocks) -> None:
        """Add the blocks of one message, to the last message if its role is equal."""
        role, blocks = message
        if role == "system":
            self.system += blocks
        elif blocks:
            if self._role != role:
                self._messages += self._last()
                self._role, self._blocks = role, []
            self._blocks += self._with_own_ids(blocks)

    def _last(self) -> list[FrozenDict]:
        if not self._blocks:
            return []
        return [FrozenDict(role=self._role, content=FrozenList(self._blocks))]

    def add_text(self, rendered: Rendered) -> None:
        """Add a rendered message of the user; blank text is omitted."""
        if rendered.media:
            self.add(("user", tuple(anthropic_blocks(to_parts(rendered)))))
        elif rendered.text.strip():
            self.add(("user", (FrozenDict(type="text", text=rendered.text),)))

    def mark_end(self) -> None:
        """Set a cache mark on the last block of the last message that accepts a cache mark, if any."""
        blocks = self._blocks
        for index in reversed(range(len(blocks))):
            if blocks[index]["type"] not in _UNMARKED:
                blocks[index] = _cached(blocks[index])
                return

    def starting_with_user(self) -> list[FrozenDict]:
        """Return the messages; before a message of the assistant at the start, a message of the user is inserted."""
        messages = [*self._messages, *self._last()]
        if messages and messages[0]["role"] == "assistant":
            # The API requires a user message at the start.
            opening = FrozenDict(type="text", text=OPENING)
            return [FrozenDict(role="user", content=FrozenList([opening])), *messages]
        return messages

    def _with_own_ids(self, blocks: tuple[FrozenDict, ...]) -> tuple[FrozenDict, ...]:
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        # Blocks without calls can be results; their ids refer to calls of the latest assistant message.
        key = "tool_use_id"
        if calls:
            key = "id"
            self._rename(calls)
        if not self._renamed:
            return blocks
        return tuple([_renamed(block, key, self._renamed) for block in blocks])

    def _rename(self, calls: Sequence[str]) -> None:
        """Choose new ids for the calls of an assistant message whose ids were used before."""
        self._renamed = {}
        for call_id in calls:
            unique = self._unique(call_id)
            if unique != call_id:
                self._renamed[call_id] = unique

    def _unique(self, call_id: str) -> str:
        """Return an id that no earlier call used."""
        unique = call_id
        while unique in self._seen:
            self._next_of[call_id] = self._next_of.get(call_id, 1) + 1
            unique = f"{call_id}_{self._next_of[call_id]}"
        self._seen.add(unique)
        return unique


def _tools(tools_and_output: ToolsAndOutput) -> FrozenList:
    *before, last = [tool.derive(anthropic_form) for tool in tools_and_output.tools]
    return FrozenList([*before, _cached(last)])


def _system(system: Rendered, borders: Iterable[int]) -> list[FrozenDict]:
    """Return the system text as blocks, split and marked at the offsets in `borders`.

    The API refuses a blank block, so a blank piece is a part of its neighbour.
    """
    if system.media:
        raise MediaError(
            f"{system.media[0].alt}: an Anthropic system prompt is text only; put the prompt into before_input",
            name="system",
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


def _renamed(block: FrozenDict, key: str, names: dict[str, str]) -> FrozenDict:
    if block.get(key) not in names:
        return block
    return FrozenDict({**block, key: names[block[key]]})


def _cached(block: Mapping[str, Any]) -> FrozenDict:
    return FrozenDict({**block, "cache_control": _CACHE})
