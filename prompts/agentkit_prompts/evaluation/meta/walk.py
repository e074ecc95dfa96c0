"""A prompt list read the way a meta template reads it: first into blocks, then into the turns that each role takes.

The dataset's item has the text, the meta template's role how it is written; where both set a field, the dataset wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextWarning, Problem, Problems
from agentkit_prompts.evaluation.meta.meta_base import parts_of
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, Pieces, RoleFormat, read_marker
from agentkit_prompts.evaluation.problems import refuse
from agentkit_prompts.names import nearest

__all__ = ["Script", "Turn", "read_prompt"]

_SECTIONS = ("begin", "round", "ice", "end")
_DIALOGUES = ("round", "ice")


@dataclass(slots=True)
class Turn:
    """The text of one role, and how it is written. `media` are content parts, `prompt` the text beside them."""

    role: str
    api_role: str
    begin: Pieces
    prompt: str
    end: Pieces
    replies: bool
    """Whether the model replies here."""
    media: Sequence[Mapping[str, Any]] = ()
    opens: bool = False
    """Whether the prompt ends here: only the beginning of the turn is written."""


Script: TypeAlias = list[str | Turn]
"""Turns, and texts without a role."""


class _Item(NamedTuple):
    position: int
    item: Mapping[str, Any]


class _Block(NamedTuple):
    """A section, and its items: all of a dialogue (`round`, `ice`), or one that is by itself."""

    section: str
    items: list[_Item]


def read_prompt(meta: MetaFormat, items: Sequence[object], *, gen: bool) -> tuple[Script, bool]:
    """Return the turns of a prompt, and True if they end where the model's reply begins.

    With `gen` they stop at the first role of the last round of the last `round` that is marked `generate`; without
    such a role nothing is cut. Role items outside every section are a round of their own.

    Raises:
        InContextError: Sections or items are invalid, or a role is unknown; lists all of it.
    """
    problems: Problems = []
    blocks = _blocks(items, problems)
    last_round = None
    if gen:
        rounds = [block for block in blocks if isinstance(block, _Block) and block.section == "round"]
        last_round = rounds[-1] if rounds else None
    script: Script = []
    opened = False
    for block in blocks:
        if isinstance(block, str):
            script.append(block)
            continue
        turns = [turn for item in block.items if (turn := _turn(meta, item, problems)) is not None]
        if block.section not in _DIALOGUES:
            script += turns
            continue
        write = _in_rounds if meta.round else _as_it_is
        opened = write(meta, turns, script, gen=block is last_round)
        if opened:
            break
    if problems:
        raise refuse("prompt", problems)
    return script, opened


def _in_rounds(meta: MetaFormat, turns: Sequence[Turn], script: Script, *, gen: bool) -> bool:
    """Append the rounds of a dialogue; with `gen`, return True if the last one stopped at the model's reply."""
    rounds = _rounds(meta, turns)
    for round_ in rounds:
        script += round_.get(_BEFORE, ())
        for place, entry in enumerate(meta.round):
            if isinstance(entry, str):
                script.append(entry)
                continue
            # The template's round is written in full: a role that the dataset leaves out has its default text.
            turn, *following = round_.get(place) or [_default_turn(entry)]
            script.append(turn)
            if gen and turn.replies and round_ is rounds[-1]:
                turn.opens = True
                return True
            script += following
    return False


_BEFORE = -1
"""Place of the turns of reserved roles that come before the first role of a round."""


def _rounds(meta: MetaFormat, turns: Sequence[Turn]) -> list[dict[int, list[Turn]]]:
    """Return, for each round, place in the template's round -> its turn, and turns of reserved roles that follow it.

    A role that does not come after the one before it in the template's round begins a new round.
    """
    rounds: list[dict[int, list[Turn]]] = [{}]
    place = _BEFORE
    for turn in turns:
        order = meta.order.get(turn.role)
        if order is not None:
            if order <= place:
                rounds.append({})
            place = order
        rounds[-1].setdefault(place, []).append(turn)
    return rounds


def _default_turn(role: RoleFormat) -> Turn:
    """Return the turn of a role that the dataset leaves out."""
    return Turn(role.role, role.api_role, role.begin, role.prompt, role.end, role.generate)


def _as_it_is(meta: MetaFormat, turns: Sequence[Turn], script: Script, *, gen: bool) -> bool:
    """Append the turns in their own order, since the template has no round; else like `_in_rounds`."""
    replies = [number for number, turn in enumerate(turns) if turn.replies]
    if not gen or not replies:
        script += turns
        return False
    script += turns[: replies[-1] + 1]
    turns[replies[-1]].opens = True
    return True


def _blocks(items: Sequence[object], problems: Problems) -> list[str | _Block]:
    """Cut a prompt list at its markers. Text goes before the dialogue that it is found in."""
    blocks: list[str | _Block] = []
    stack: list[_Block] = []
    loose = _Block("round", [])
    for position, item in enumerate(items):
        if isinstance(item, str):
            blocks.append(item)
        elif not isinstance(item, Mapping):
            problems.append(Problem(f"[{position}]", f"must be text or a dict with a role, got {type(item).__name__}"))
        elif "section" in item:
            if loose.items:
                blocks.append(loose)
                loose = _Block("round", [])
            block = _marker(position, item, stack, problems)
            if block is not None:
                blocks.append(block)
        elif not stack:
            loose.items.append(_Item(position, item))
        elif stack[-1].section in _DIALOGUES:
            stack[-1].items.append(_Item(position, item))
        else:
            blocks.append(_Block(stack[-1].section, [_Item(position, item)]))
    _warn_of_open_sections(stack)
    if loose.items:
        blocks.append(loose)
    return blocks


def _warn_of_open_sections(stack: Sequence[_Block]) -> None:
    for name, items in stack:
        if items:
            text = (
                f"prompt: section {name!r} is never closed, so its {len(items)} items are left out; "
                f"add {{'section': {name!r}, 'pos': 'end'}}"
            )
            warn(InContextWarning(text, name=name))


def _marker(position: int, item: Mapping[str, Any], stack: list[_Block], problems: Problems) -> _Block | None:
    """Open or close a section; return the dialogue that this completes."""
    name, pos, place = item["section"], item.get("pos"), f"[{position}]"
    if name not in _SECTIONS:
        problems.append(Problem(f"{place}.section", f"unknown section {name!r}{nearest(str(name), _SECTIONS)}"))
    elif pos not in ("begin", "end"):
        problems.append(Problem(f"{place}.pos", f"must be 'begin' or 'end', got {pos!r}"))
    # OpenCompass itself opens the section `end` with pos 'end'.
    elif pos == "begin" or (name == "end" and not stack):
        stack.append(_Block(name, []))
    elif not stack or stack[-1].section != name:
        current = "no section is open"
        if stack:
            current = f"{stack[-1].section!r} is open"
        problems.append(Problem(place, f"closes section {name!r} while {current}; open and close them in pairs"))
    else:
        block = stack.pop()
        if name in _DIALOGUES:
            return block
    return None


def _turn(meta: MetaFormat, placed: _Item, problems: Problems) -> Turn | None:
    """Merge the fields of a dataset's item into those of the model's role; None for a role that is unknown."""
    item, place = placed.item, f"[{placed.position}]"
    role = _role(meta, placed, problems)
    if role is None:
        return None
    for key, kind, expected in (("api_role", str, "text"), ("generate", bool, "True or False")):
        if key in item and not isinstance(item[key], kind):
            problems.append(Problem(f"{place}.{key}", f"must be {expected}, got {item[key]!r}"[:200]))
    begin, end = role.begin, role.end
    if "begin" in item:
        begin = read_marker(item["begin"], f"{place}.begin", problems)
    if "end" in item:
        end = read_marker(item["end"], f"{place}.end", problems)
    media: tuple[Mapping[str, Any], ...] = ()
    if item.get("prompt_mm"):
        media = tuple(parts_of(placed.position, item, problems))
    replies = item.get("generate", role.generate)
    prompt = item.get("prompt")
    if prompt is None:
        prompt = role.prompt
        if media:
            prompt = ""  # the default text of the role is for items without content
        if not (prompt or media or replies):
            text = (
                f"prompt: role {role.role!r} has no prompt in the dataset's template and none in the meta template, so "
                "it is sent empty"
            )
            warn(InContextWarning(text, name=role.role))
    elif not isinstance(prompt, str):
        problems.append(Problem(f"{place}.prompt", f"must be text, got {type(prompt).__name__}"))
    return Turn(role.role, item.get("api_role") or role.api_role, begin, prompt, end, replies, media)


def _role(meta: MetaFormat, placed: _Item, problems: Problems) -> RoleFormat | None:
    """Return the format of an item's role, or of its fallback; without a round a role of any name will do."""
    place = f"[{placed.position}]"
    name, fallback = placed.item.get("role"), placed.item.get("fallback_role")
    for candidate in (name, fallback):
        if isinstance(candidate, str) and candidate in meta.roles:
            return meta.roles[candidate]
    if not isinstance(name, str):
        problems.append(Problem(f"{place}.role", f"missing; give one of {', '.join(map(repr, meta.roles))}"))
    elif not meta.round:
        return RoleFormat(name, name)
    elif fallback is None:
        text = f"unknown role {name!r} without a fallback_role{nearest(name, meta.roles)}"
        problems.append(Problem(f"{place}.role", text))
    elif fallback == name:
        text = f"unknown role {name!r} that falls back to itself{nearest(name, meta.roles)}"
        problems.append(Problem(f"{place}.role", text))
    else:
        text = f"unknown role {fallback!r}, the fallback of the unknown role {name!r}"
        problems.append(Problem(f"{place}.fallback_role", f"{text}{nearest(str(fallback), meta.roles)}"))
    return None
