"""The payload of an Anthropic messages request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.prefix import breakpoints
from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.wire.write_anthropic import OPENING, Turn, anthropic_blocks, anthropic_message
from agentkit_prompts.errors import MediaError
from agentkit_prompts.schemas.provider_tools import anthropic_form

if TYPE_CHECKING:
    from agentkit_prompts.composition.contents import Contents
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["anthropic_payload"]

_CACHE = FrozenDict(type="ephemeral")
_UNMARKED = ("thinking", "redacted_thinking")
"""Blocks on which the API accepts no cache mark."""


def anthropic_payload(composition: Contents) -> dict[str, Any]:
    """Return `{"system": [...], "messages": [...], "tools": [...]}`, without empty fields. Nested values are read-only.

    User and assistant alternate: neighbouring messages of one role are merged, and tool results are sent by the user.
    Blank blocks are omitted, and system messages of the conversation follow the system prompt. The breakpoints of the
    composition become cache marks. An output schema becomes `output_config`.

    Raises:
        MediaError: The API does not accept the type or the place of a media part.
    """
    points = breakpoints(composition)
    borders = [point.offset for point in points if point.after in ("static", "session")]
    turns = composition.conversation.folded(anthropic_message, _with_turns).copy()
    system = _system(composition.system, borders) + turns.system
    if any(point.after == "conversation" for point in points):
        turns.mark_end()
    turns.add_text(composition.user)
    for turn in composition.intermediate.derive(anthropic_message):
        turns.add(turn)
    turns.add_text(composition.closing)
    payload: dict[str, Any] = {}
    if system:
        payload["system"] = system
    return payload | {"messages": turns.opened()} | _declared(composition)


def _declared(composition: Contents) -> dict[str, Any]:
    """Return the fields of the tools and of the output schema."""
    fields: dict[str, Any] = {}
    if composition.tools:
        fields["tools"] = composition.declarations.derive(_tools)
    if composition.output_schema is not None:
        fields["output_config"] = {"format": {"type": "json_schema", "schema": composition.output_schema}}
    return fields


def _with_turns(turns: _Turns | None, new: list[Turn]) -> _Turns:
    """Return the turns followed by new turns; the earlier object is not changed."""
    result = _Turns()
    if turns is not None:
        result = turns.copy()
    for turn in new:
        result.add(turn)
    return result


class _Turns:
    """Builder of the messages of a request: merges neighbouring messages of one role, and makes call ids unique.

    The API requires unique ids, but models count from the start in each run: a repeated id is renamed.
    """

    __slots__ = ("_blocks", "_messages", "_next_of", "_renamed", "_role", "_seen", "system")

    def __init__(self) -> None:
        self.system: list[FrozenDict] = []
        """Blocks of the system messages in the conversation."""
        self._messages: list[FrozenDict] = []
        """All messages except the last message, which has the role `_role` and the blocks `_blocks`, which can grow."""
        self._role = ""
        self._blocks: list[FrozenDict] = []
        self._seen: set[str] = set()
        self._next_of: dict[str, int] = {}
        self._renamed: dict[str, str] = {}
        """New ids of the calls of the latest assistant message."""

    def copy(self) -> _Turns:
        turns = _Turns()
        turns.system, turns._messages = [*self.system], [*self._messages]
        turns._role, turns._blocks = self._role, [*self._blocks]
        turns._seen, turns._next_of, turns._renamed = {*self._seen}, {**self._next_of}, {**self._renamed}
        return turns

    def add(self, turn: Turn) -> None:
        """Add the blocks of one message."""
        role, blocks = turn
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
        """Add text of the user."""
        if rendered.media:
            self.add(("user", tuple(anthropic_blocks(to_parts(rendered)))))
        elif rendered.text.strip():
            self.add(("user", (FrozenDict(type="text", text=rendered.text),)))

    def mark_end(self) -> None:
        """Set a cache mark on the last block that accepts a cache mark."""
        blocks = self._blocks
        at = next((at for at in reversed(range(len(blocks))) if blocks[at]["type"] not in _UNMARKED), None)
        if at is not None:
            blocks[at] = _cached(blocks[at])

    def opened(self) -> list[FrozenDict]:
        """Return the messages, starting with a message of the user."""
        messages = [*self._messages, *self._last()]
        if messages and messages[0]["role"] == "assistant":
            # The API requires a user message at the start.
            opening = FrozenDict(type="text", text=OPENING)
            return [FrozenDict(role="user", content=FrozenList([opening])), *messages]
        return messages

    def _with_own_ids(self, blocks: tuple[FrozenDict, ...]) -> tuple[FrozenDict, ...]:
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        # A result has the id of a call of the latest assistant message.
        key = "tool_use_id"
        if calls:
            key = "id"
            self._rename(calls)
        if not self._renamed:
            return blocks
        return tuple([_renamed(block, key, self._renamed) for block in blocks])

    def _rename(self, calls: Sequence[str]) -> None:
        """Record new ids for the calls of an assistant message whose ids were used before."""
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


def _tools(declared: Declarations) -> FrozenList:
    *before, last = [tool.derive(anthropic_form) for tool in declared.tools]
    return FrozenList([*before, _cached(last)])


def _system(system: Rendered, borders: Iterable[int]) -> list[FrozenDict]:
    """Return the system text as blocks, split and marked at `borders`; a blank piece is joined with its neighbour."""
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
