"""A prompt list read the way a meta template reads it: first into blocks, then into the turns that each role takes.

The dataset's item has the text, the meta template's role how it is written; where both set a field, the dataset wins.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agentkit_prompts.errors import InContextWarning, nearest
from agentkit_prompts.evaluation.meta.meta_base import parts_of
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, Pieces, RoleFormat, read_marker, refuse

__all__ = ["Script", "Turn", "read_prompt"]

_SECTIONS = ("begin", "round", "ice", "end")
_DIALOGUES = ("round", "ice")


@dataclass(slots=True)
class Turn:
    """The text of one role, and how it is written. A turn that `opens` is the model's: only its beginning is written.

    `media` are content parts, `prompt` the text beside them.
    """

    role: str
    api_role: str
    begin: Pieces
    prompt: str
    end: Pieces
    media: tuple[Mapping[str, Any], ...] = ()
    opens: bool = False


Script: TypeAlias = list[str | Turn]
"""Turns, and texts without a role."""


@dataclass(slots=True)
class _Block:
    """Items of one dialogue (`round`, `ice`), or one item that stands by itself (`begin`, `end`)."""

    section: str
    items: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """What the dataset has for one round: by place in the meta template's round."""

    turns: dict[int, Turn] = field(default_factory=dict)
    asides: dict[int, list[Turn]] = field(default_factory=dict)
    """Place -> the turns of reserved roles after it; -1 is the beginning of the round."""
    switched: dict[int, bool] = field(default_factory=dict)
    """Place -> the `generate` of the dataset: whether the model replies there."""


def read_prompt(meta: MetaFormat, items: Sequence[object], *, gen: bool) -> tuple[Script, bool]:
    """Return the turns of a prompt, and whether they end where the model's reply begins.

    With `gen` they stop at the first role of the last round of the last `round` that is marked `generate`; without
    such a role nothing is cut. Role items outside every section are a round of their own.

    Raises:
        InContextError: Sections or items are not what they should be, or a role is unknown; names all of it.
    """
    problems: list[str] = []
    blocks = _blocks(items, problems)
    rounds = [index for index, block in enumerate(blocks) if isinstance(block, _Block) and block.section == "round"]
    last = rounds[-1] if gen and rounds else -1
    reader = _Reader(meta, problems)
    script: Script = []
    opened = False
    for index, block in enumerate(blocks):
        if isinstance(block, str):
            script.append(block)
        elif block.section in _DIALOGUES:
            opened = reader.dialogue(block.items, script, gen=index == last)
            if opened:
                break
        else:
            script += [turn for position, item in block.items if (turn := reader.alone(position, item)) is not None]
    if problems:
        raise refuse("prompt", problems)
    return script, opened


def _blocks(items: Sequence[object], problems: list[str]) -> list[str | _Block]:
    """Cut a prompt list at its markers. Text stands before the dialogue that it is found in."""
    found: list[str | _Block] = []
    stack: list[_Block] = []
    loose: _Block | None = None
    for position, item in enumerate(items):
        if isinstance(item, str):
            found.append(item)
        elif not isinstance(item, Mapping):
            problems.append(f"item {position} must be text or a dict with a role, got {type(item).__name__}")
        elif "section" in item:
            found += [loose] if loose else []
            loose = None
            found += _marker(position, item, stack, problems)
        elif not stack:
            loose = loose or _Block("round")
            loose.items.append((position, item))
        elif stack[-1].section in _DIALOGUES:
            stack[-1].items.append((position, item))
        else:
            found.append(_Block(stack[-1].section, [(position, item)]))
    found += [loose] if loose else []
    for block in stack:
        if block.items:
            warnings.warn(
                f"prompt: section {block.section!r} is never closed, so its {len(block.items)} items are left out; "
                f"add {{'section': {block.section!r}, 'pos': 'end'}}",
                InContextWarning,
                stacklevel=5,
            )
    return found


def _marker(position: int, item: Mapping[str, Any], stack: list[_Block], problems: list[str]) -> Iterable[_Block]:
    """Open or close a section; return the dialogue that this completes."""
    name, pos = item["section"], item.get("pos")
    if name not in _SECTIONS:
        problems.append(f"item {position}: unknown section {name!r}{nearest(str(name), _SECTIONS)}")
    elif pos not in ("begin", "end"):
        problems.append(f"item {position}: a section has pos 'begin' or 'end', got {pos!r}")
    elif pos == "begin" or (name == "end" and not stack):  # OpenCompass itself opens `end` with pos 'end'
        stack.append(_Block(name))
    elif not stack or stack[-1].section != name:
        open_ = f"{stack[-1].section!r} is open" if stack else "no section is open"
        problems.append(f"item {position} closes section {name!r} while {open_}; open and close them in pairs")
    else:
        block = stack.pop()
        return (block,) if name in _DIALOGUES else ()
    return ()


class _Reader:
    """Reads the items of a dataset in the roles of a meta template."""

    __slots__ = ("meta", "problems", "roles")

    def __init__(self, meta: MetaFormat, problems: list[str]) -> None:
        self.meta = meta
        self.problems = problems
        self.roles = meta.roles

    def alone(self, position: int, item: Mapping[str, Any]) -> Turn | None:
        """Return the turn of an item that belongs to no round."""
        role = self._role(position, item)
        return self._turn(role, item, position) if role is not None else None

    def dialogue(self, items: Sequence[tuple[int, Mapping[str, Any]]], script: Script, *, gen: bool) -> bool:
        """Append the rounds of a dialogue; with `gen`, return whether the last one stopped at the model's reply."""
        if not self.meta.round:
            return self._as_it_is(items, script, gen=gen)
        rounds = self._rounds(items)
        last = rounds[-1]
        opening = [
            place
            for place, entry in enumerate(self.meta.round)
            if isinstance(entry, RoleFormat) and last.switched.get(place, entry.generate)
        ]
        stop = opening[0] if gen and opening else -1
        for round_ in rounds:
            script += round_.asides.get(-1, ())
            for place, entry in enumerate(self.meta.round):
                if isinstance(entry, str):
                    script.append(entry)
                    continue
                turn = round_.turns.get(place) or self._turn(entry, {}, -1)
                script.append(turn)
                if place == stop and round_ is last:
                    turn.opens = True
                    return True
                script += round_.asides.get(place, ())
        return False

    def _rounds(self, items: Sequence[tuple[int, Mapping[str, Any]]]) -> list[_Round]:
        """Cut a dialogue into rounds: a role that does not come after the one before it begins a new one."""
        rounds = [_Round()]
        previous = -1
        for position, item in items:
            role = self._role(position, item)
            if role is None:
                continue
            turn = self._turn(role, item, position)
            place = self.meta.order.get(role.role)
            if place is None:
                rounds[-1].asides.setdefault(previous, []).append(turn)
                continue
            if place <= previous:
                rounds.append(_Round())
            rounds[-1].turns[place] = turn
            if "generate" in item:
                rounds[-1].switched[place] = bool(item["generate"])
            previous = place
        return rounds

    def _as_it_is(self, items: Sequence[tuple[int, Mapping[str, Any]]], script: Script, *, gen: bool) -> bool:
        """Append the items in their own order: the meta template has no round."""
        turns = [(item, turn) for position, item in items if (turn := self.alone(position, item)) is not None]
        stops = [number for number, (item, turn) in enumerate(turns) if item.get("generate", self._replies(turn.role))]
        last = stops[-1] if gen and stops else len(turns)
        script += [turn for _, turn in turns[: last + 1]]
        if last < len(turns):
            turns[last][1].opens = True
        return last < len(turns)

    def _replies(self, role: str) -> bool:
        return role in self.roles and self.roles[role].generate

    def _role(self, position: int, item: Mapping[str, Any]) -> RoleFormat | None:
        """Return the format of an item's role, or of its fallback; without a round a role of any name will do."""
        name, fallback = item.get("role"), item.get("fallback_role")
        for tried in (name, fallback):
            if isinstance(tried, str) and tried in self.roles:
                return self.roles[tried]
        if not isinstance(name, str):
            self.problems.append(f"item {position} has no role; give it one of {', '.join(map(repr, self.roles))}")
        elif not self.meta.round:
            return RoleFormat(name, name)
        elif fallback is None or fallback == name:
            why = "has no fallback_role" if fallback is None else "falls back to itself"
            self.problems.append(f"item {position}: role {name!r} is unknown and {why}{nearest(name, self.roles)}")
        else:
            self.problems.append(
                f"item {position}: role {name!r} and its fallback_role {fallback!r} are both unknown"
                f"{nearest(str(fallback), self.roles)}"
            )
        return None

    def _turn(self, role: RoleFormat, item: Mapping[str, Any], position: int) -> Turn:
        """Merge the fields of a dataset's item into those of the model's role."""
        prompt = item.get("prompt")
        media = parts_of(position, item, self.problems) if item.get("prompt_mm") else ()
        if not isinstance(prompt, str) and prompt is not None:
            self.problems.append(f"item {position}: prompt must be text, got {type(prompt).__name__}")
            prompt = ""
        for key, kind, what in (("api_role", str, "text"), ("generate", bool, "True or False")):
            if key in item and not isinstance(item[key], kind):
                self.problems.append(f"item {position}: {key} must be {what}, got {item[key]!r}"[:200])
        if prompt is None:
            prompt = "" if media else role.prompt
        begin = self._marker(item, "begin", role.begin, position)
        end = self._marker(item, "end", role.end, position)
        return Turn(role.role, item.get("api_role") or role.api_role, begin, prompt, end, tuple(media))

    def _marker(self, item: Mapping[str, Any], key: str, default: Pieces, position: int) -> Pieces:
        return read_marker(item[key], f"item {position}: {key}", self.problems) if key in item else default
