"""A prompt list read the way a meta template reads it: first into blocks, then into the turns that each role takes.

The dataset's item has the text, the meta template's role how it is written; where both set a field, the dataset wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextWarning
from agentkit_prompts.evaluation.meta.meta_base import parts_of
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, Pieces, RoleFormat, read_marker
from agentkit_prompts.evaluation.problems import Problem, refuse
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
_Block: TypeAlias = tuple[str, list[tuple[int, Mapping[str, Any]]]]
"""A section, and its items with their positions: all of a dialogue (`round`, `ice`), or one that stands by itself."""


def read_prompt(meta: MetaFormat, items: Sequence[object], *, gen: bool) -> tuple[Script, bool]:
    """Return the turns of a prompt, and whether they end where the model's reply begins.

    With `gen` they stop at the first role of the last round of the last `round` that is marked `generate`; without
    such a role nothing is cut. Role items outside every section are a round of their own.

    Raises:
        InContextError: Sections or items are not what they should be, or a role is unknown; names all of it.
    """
    problems: list[Problem] = []
    blocks = _blocks(items, problems)
    rounds = [index for index, block in enumerate(blocks) if isinstance(block, tuple) and block[0] == "round"]
    last = rounds[-1] if gen and rounds else -1
    script: Script = []
    opened = False
    for index, block in enumerate(blocks):
        if isinstance(block, str):
            script.append(block)
            continue
        section, placed = block
        turns = [turn for position, item in placed if (turn := _turn(meta, position, item, problems)) is not None]
        if section in _DIALOGUES:
            write = _in_rounds if meta.round else _as_it_is
            opened = write(meta, turns, script, gen=index == last)
            if opened:
                break
        else:
            script += turns
    if problems:
        raise refuse("prompt", problems)
    return script, opened


def _in_rounds(meta: MetaFormat, turns: Sequence[Turn], script: Script, *, gen: bool) -> bool:
    """Append the rounds of a dialogue; with `gen`, return whether the last one stopped at the model's reply.

    A role that does not come after the one before it in the template's round begins a new one.
    """
    rounds: list[dict[int, list[Turn]]] = [{}]  # place in the round -> its turn, and those of reserved roles behind it
    previous = -1
    for turn in turns:
        place = meta.order.get(turn.role)
        if place is not None and place <= previous:
            rounds.append({})
        previous = previous if place is None else place
        rounds[-1].setdefault(previous, []).append(turn)
    for round_ in rounds:
        script += round_.get(-1, ())
        for place, entry in enumerate(meta.round):
            if isinstance(entry, str):
                script.append(entry)
                continue
            turn, *behind = round_.get(place) or [
                Turn(entry.role, entry.api_role, entry.begin, entry.prompt, entry.end, entry.generate)
            ]
            script.append(turn)
            if gen and turn.replies and round_ is rounds[-1]:
                turn.opens = True
                return True
            script += behind
    return False


def _as_it_is(meta: MetaFormat, turns: Sequence[Turn], script: Script, *, gen: bool) -> bool:
    """Append the turns in their own order, since the template has no round; else like `_in_rounds`."""
    stops = [number for number, turn in enumerate(turns) if gen and turn.replies]
    script += turns[: stops[-1] + 1] if stops else turns
    for number in stops[-1:]:
        turns[number].opens = True
    return bool(stops)


def _blocks(items: Sequence[object], problems: list[Problem]) -> list[str | _Block]:
    """Cut a prompt list at its markers. Text stands before the dialogue that it is found in."""
    found: list[str | _Block] = []
    stack: list[_Block] = []
    loose: list[_Block] = []
    for position, item in enumerate(items):
        if isinstance(item, str):
            found.append(item)
        elif not isinstance(item, Mapping):
            text = f"item {position} must be text or a dict with a role, got {type(item).__name__}"
            problems.append(Problem(f"[{position}]", text))
        elif "section" in item:
            found += [*loose, *_marker(position, item, stack, problems)]
            loose.clear()
        elif not stack:
            loose = loose or [("round", [])]
            loose[0][1].append((position, item))
        elif stack[-1][0] in _DIALOGUES:
            stack[-1][1].append((position, item))
        else:
            found.append((stack[-1][0], [(position, item)]))
    for name, left in stack:
        if left:
            text = (
                f"prompt: section {name!r} is never closed, so its {len(left)} items are left out; "
                f"add {{'section': {name!r}, 'pos': 'end'}}"
            )
            warn(InContextWarning(text, name=name))
    return [*found, *loose]


def _marker(position: int, item: Mapping[str, Any], stack: list[_Block], problems: list[Problem]) -> Iterable[_Block]:
    """Open or close a section; return the dialogue that this completes."""
    name, pos, place = item["section"], item.get("pos"), f"[{position}]"
    if name not in _SECTIONS:
        text = f"item {position}: unknown section {name!r}{nearest(str(name), _SECTIONS)}"
        problems.append(Problem(f"{place}.section", text))
    elif pos not in ("begin", "end"):
        problems.append(Problem(f"{place}.pos", f"item {position}: a section has pos 'begin' or 'end', got {pos!r}"))
    elif pos == "begin" or (name == "end" and not stack):  # OpenCompass itself opens `end` with pos 'end'
        stack.append((name, []))
    elif not stack or stack[-1][0] != name:
        open_ = f"{stack[-1][0]!r} is open" if stack else "no section is open"
        text = f"item {position} closes section {name!r} while {open_}; open and close them in pairs"
        problems.append(Problem(place, text))
    else:
        block = stack.pop()
        return (block,) if name in _DIALOGUES else ()
    return ()


def _turn(meta: MetaFormat, position: int, item: Mapping[str, Any], problems: list[Problem]) -> Turn | None:
    """Merge the fields of a dataset's item into those of the model's role; None for a role that is unknown."""
    role = _role(meta, position, item, problems)
    if role is None:
        return None
    prompt = item.get("prompt")
    media = parts_of(position, item, problems) if item.get("prompt_mm") else ()
    for key, kind, what in (("api_role", str, "text"), ("generate", bool, "True or False")):
        if key in item and not isinstance(item[key], kind):
            text = f"item {position}: {key} must be {what}, got {item[key]!r}"[:200]
            problems.append(Problem(f"[{position}].{key}", text))
    begin, end = role.begin, role.end
    if "begin" in item:
        begin = read_marker(item["begin"], f"[{position}].begin", problems)
    if "end" in item:
        end = read_marker(item["end"], f"[{position}].end", problems)
    replies = item.get("generate", role.generate)
    if prompt is None:
        prompt = "" if media else role.prompt
        if not (prompt or media or replies):
            text = (
                f"prompt: role {role.role!r} has no prompt in the dataset's template and none in the meta template, so "
                "it is sent empty"
            )
            warn(InContextWarning(text, name=role.role))
    elif not isinstance(prompt, str):
        text = f"item {position}: prompt must be text, got {type(prompt).__name__}"
        problems.append(Problem(f"[{position}].prompt", text))
    return Turn(role.role, item.get("api_role") or role.api_role, begin, prompt, end, replies, tuple(media))


def _role(meta: MetaFormat, position: int, item: Mapping[str, Any], problems: list[Problem]) -> RoleFormat | None:
    """Return the format of an item's role, or of its fallback; without a round a role of any name will do."""
    name, fallback = item.get("role"), item.get("fallback_role")
    for tried in (name, fallback):
        if isinstance(tried, str) and tried in meta.roles:
            return meta.roles[tried]
    if not isinstance(name, str):
        text = f"item {position} has no role; give it one of {', '.join(map(repr, meta.roles))}"
        problems.append(Problem(f"[{position}].role", text))
    elif not meta.round:
        return RoleFormat(name, name)
    elif fallback is None or fallback == name:
        why = "has no fallback_role" if fallback is None else "falls back to itself"
        text = f"item {position}: role {name!r} is unknown and {why}{nearest(name, meta.roles)}"
        problems.append(Problem(f"[{position}].role", text))
    else:
        text = f"item {position}: role {name!r} and its fallback_role {fallback!r} are both unknown"
        problems.append(Problem(f"[{position}].fallback_role", f"{text}{nearest(str(fallback), meta.roles)}"))
    return None
