"""The payload of an Anthropic messages request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.contents import Contents
from agentkit_prompts.composition.prefix import breakpoints
from agentkit_prompts.composition.sections import to_parts
from agentkit_prompts.context.frozen import FrozenDict, FrozenList
from agentkit_prompts.context.wire.write_anthropic import OPENING, Turn, anthropic_blocks, anthropic_message
from agentkit_prompts.errors import MediaError
from agentkit_prompts.schemas.provider_tools import anthropic_form

if TYPE_CHECKING:
    from agentkit_prompts.composition.declarations import Declarations
    from agentkit_prompts.templates.rendered import Rendered

__all__ = ["anthropic_payload"]

_CACHE = FrozenDict(type="ephemeral")


def anthropic_payload(composition: Contents) -> dict[str, Any]:
    """Return `{"system": [...], "messages": [...], "tools": [...]}`, without what is empty. What is inside is
    read-only.

    User and assistant take turns: neighbours of one role are merged, tool results come from the user. Blocks that
    would be blank are left out, system messages of the conversation follow the system prompt. At the breakpoints of
    the composition stand cache marks. An output schema becomes `output_config`.

    Raises:
        MediaError: A media part has a type or a place that the API does not take.
    """
    points = breakpoints(composition)
    system = _system(composition.system, [point.offset for point in points if point.after in ("static", "session")])
    turns: list[Turn] = []
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
        payload["tools"] = composition.declarations.derive(_tools)
    if composition.output_schema is not None:
        payload["output_config"] = {"format": {"type": "json_schema", "schema": composition.output_schema}}
    return payload


def _tools(declared: Declarations) -> FrozenList:
    *before, last = [tool.derive(anthropic_form) for tool in declared.tools]
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


def _add(turns: list[Turn], rendered: Rendered) -> None:
    if rendered.media:
        turns.append(("user", tuple(anthropic_blocks(to_parts(rendered)))))
    elif rendered.text.strip():
        turns.append(("user", (FrozenDict(type="text", text=rendered.text),)))


def _messages(turns: Sequence[Turn]) -> list[FrozenDict]:
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


def _unique_ids(turns: list[Turn]) -> list[Turn]:
    """Rename the tool calls whose id an earlier one has: the API wants every id once, models start anew each run."""
    seen: set[str] = set()
    next_of: dict[str, int] = {}
    renamed: dict[str, str] = {}
    for number, (role, blocks) in enumerate(turns):
        if calls := [block["id"] for block in blocks if block["type"] == "tool_use"]:
            renamed = {}
            for own in calls:
                name = own
                while name in seen:
                    next_of[own] = next_of.get(own, 1) + 1
                    name = f"{own}_{next_of[own]}"
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


def _cached(block: Mapping[str, Any]) -> FrozenDict:
    return FrozenDict({**block, "cache_control": _CACHE})
