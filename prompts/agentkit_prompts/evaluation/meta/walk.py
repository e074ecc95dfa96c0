"""Reader of a prompt list for a meta template: it splits the list into sections, and converts their items to turns.

An item of the dataset contains the text of a turn, the role in the meta template its format. If both set a field, the
item has precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, raise_problems
from agentkit_prompts.evaluation.meta.meta_base import parts_of
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, Pieces, RoleFormat, read_marker
from agentkit_prompts.evaluation.problems import wrong_type
from agentkit_prompts.names import nearest

_SECTIONS = ("begin", "round", "ice", "end")
_DIALOGUES = ("round", "ice")


@dataclass(slots=True)
class FormattedTurn:
    """Text of one role and its format. `media` contains content parts, `prompt` the text before them."""

    role: str
    api_role: str
    begin: Pieces
    prompt: str
    end: Pieces
    replies: bool
    """True for a turn of the model."""
    media: Sequence[Mapping[str, Any]] = ()
    opens: bool = False
    """True if the prompt ends with this turn, of which only `begin` is written, so that the model continues it."""


Script: TypeAlias = list[str | FormattedTurn]
"""Turns, and texts without a role."""


class _Item(NamedTuple):
    """A role item of a prompt list, and its index in the list."""

    position: int
    fields: Mapping[str, Any]


class _Section(NamedTuple):
    """A section of a prompt list: all items of a dialogue (`round`, `ice`), or one item of `begin` or `end`."""

    name: str
    items: list[_Item]


def read_prompt(meta: MetaFormat, items: Iterable[object], *, gen: bool) -> Script:
    """Return the turns of a prompt.

    With `gen`, the turns end at the turn of the model in the last round of the last section `round`. Without such a
    turn all turns are returned. Role items outside of sections form a section `round`.

    Raises:
        InContextError: Sections or items are invalid, or a role is unknown; lists all problems.
    """
    splitter = _SectionSplitter()
    splitter.cut(items)
    problems = splitter.problems
    script: Script = []
    for section in splitter.sections:
        if isinstance(section, str):
            script.append(section)
            continue
        turns = _turns(meta, section, problems)
        is_cut = gen and section is splitter.last_round and _cut_at_reply(meta, turns)
        script += turns
        # Items after the reply are not sent, so errors in them are not reported.
        if is_cut:
            break
    raise_problems(InContextError, "prompt", problems)
    return script


# Sections


@dataclass
class _SectionSplitter:
    """Splitter of a prompt list, at its section markers, into texts and sections.

    A section is added when its end is read, so texts inside a dialogue are before the dialogue.
    """

    sections: list[str | _Section] = field(default_factory=list)
    last_round: _Section | None = None
    problems: Problems = field(default_factory=list)
    _open: list[_Section] = field(default_factory=list)
    _loose: list[_Item] = field(default_factory=list)
    """Items outside of every section, since the last marker."""

    def cut(self, items: Iterable[object]) -> None:
        for position, item in enumerate(items):
            if isinstance(item, str):
                # A text is added immediately, before the dialogue that contains it.
                self.sections.append(item)
            elif not isinstance(item, Mapping):
                self.problems += wrong_type(f"[{position}]", item, Mapping, "text or a dict with a role")
            elif "section" in item:
                self._end_loose()
                self._mark(f"[{position}]", item)
            else:
                self._add(_Item(position, item))
        for section in self._open:
            _warn_of_open_section(section)
        self._end_loose()

    def _add(self, item: _Item) -> None:
        if not self._open:
            self._loose.append(item)
        elif self._open[-1].name in _DIALOGUES:
            self._open[-1].items.append(item)
        else:
            self.sections.append(_Section(self._open[-1].name, [item]))

    def _mark(self, place: str, marker: Mapping[str, Any]) -> None:
        """Open or close a section."""
        name, pos = marker["section"], marker.get("pos")
        problem = _problem_of_marker(place, name, pos)
        if problem is not None:
            self.problems.append(problem)
        # Templates of OpenCompass also open the section `end` by the pos 'end'.
        elif pos == "begin" or (name == "end" and not self._open):
            self._open.append(_Section(name, []))
        elif self._open and self._open[-1].name == name:
            self._complete(self._open.pop())
        else:
            current = "no section"
            if self._open:
                current = repr(self._open[-1].name)
            text = f"closes section {name!r} while {current} is open; open and close them in pairs"
            self.problems.append(Problem(place, text))

    def _end_loose(self) -> None:
        if self._loose:
            self._complete(_Section("round", self._loose))
            self._loose = []

    def _complete(self, section: _Section) -> None:
        # The items of `begin` and `end` were added one by one.
        if section.name in _DIALOGUES:
            self.sections.append(section)
        if section.name == "round":
            self.last_round = section


def _problem_of_marker(place: str, name: object, pos: object) -> Problem | None:
    if name not in _SECTIONS:
        return Problem(f"{place}.section", f"unknown section {name!r}{nearest(str(name), _SECTIONS)}")
    if pos not in ("begin", "end"):
        return Problem(f"{place}.pos", f"must be 'begin' or 'end', got {pos!r}")
    return None


def _warn_of_open_section(section: _Section) -> None:
    name, items = section
    if items:
        text = (
            f"prompt: section {name!r} is never closed, so its {len(items)} items are dropped; add {{'section': "
            f"{name!r}, 'pos': 'end'}}"
        )
        warn(InContextWarning(text, name=name))


# Rounds


def _turns(meta: MetaFormat, section: _Section, problems: Problems) -> Script:
    """Return the turns of a section; a dialogue is completed to rounds if the meta template has a round."""
    turns: list[FormattedTurn] = []
    for item in section.items:
        turn = _turn(meta, item, problems)
        if turn is not None:
            turns.append(turn)
    if section.name in _DIALOGUES and meta.round:
        return _in_rounds(meta, turns)
    return [*turns]


def _in_rounds(meta: MetaFormat, turns: Iterable[FormattedTurn]) -> Script:
    """Return the turns of a dialogue, completed by the missing entries of the round of the meta template."""
    script: Script = []
    place = 0
    for turn in turns:
        order = meta.order.get(turn.role)
        # A reserved role is not in the round, so its turn stays where it is in the dataset.
        if order is not None:
            # A role that is not after the previous role in the round starts a new round.
            if order < place:
                script += _defaults(meta.round[place:])
                place = 0
            script += _defaults(meta.round[place:order])
            place = order + 1
        script.append(turn)
    return script + _defaults(meta.round[place:])


def _defaults(entries: Iterable[str | RoleFormat]) -> Script:
    """Return turns with the default text for entries of a round that are missing in the dataset."""
    script: Script = []
    for entry in entries:
        if isinstance(entry, str):
            script.append(entry)
        else:
            script.append(
                FormattedTurn(entry.role, entry.api_role, entry.begin, entry.prompt, entry.end, entry.generate)
            )
    return script


def _cut_at_reply(meta: MetaFormat, script: Script) -> bool:
    """Cut a dialogue after the turn of the model in its last round; return False if the model has no turn there."""
    for turn in _last_round(meta, [turn for turn in script if isinstance(turn, FormattedTurn)]):
        if turn.replies:
            turn.opens = True
            position = next(number for number, entry in enumerate(script) if entry is turn)
            del script[position + 1 :]
            return True
    return False


def _last_round(meta: MetaFormat, turns: list[FormattedTurn]) -> list[FormattedTurn]:
    """Return the turns of the last round; if the meta template has no round, all turns in reverse order."""
    if not meta.round:
        return turns[::-1]
    # Each round contains all roles of the round, so the last turns of these roles form the last round.
    return [turn for turn in turns if turn.role in meta.order][-len(meta.order) :]


# Turns


def _turn(meta: MetaFormat, item: _Item, problems: Problems) -> FormattedTurn | None:
    """Return the turn of an item, with the format of its role; None for an unknown role, with a problem."""
    fields, place = item.fields, f"[{item.position}]"
    role = _role(meta, item, problems)
    if role is None:
        return None
    for key, (kinds, expected) in _FIELDS.items():
        if key in fields:
            problems += wrong_type(f"{place}.{key}", fields[key], kinds, expected)
    turn = FormattedTurn(
        role=role.role,
        api_role=fields.get("api_role") or role.api_role,
        begin=_marker(item, "begin", role.begin, problems),
        prompt=role.prompt,
        end=_marker(item, "end", role.end, problems),
        replies=fields.get("generate", role.generate),
        media=tuple(parts_of(item.position, fields, problems)),
    )
    if fields.get("prompt") is None:
        _use_default_text(turn)
    else:
        turn.prompt = fields["prompt"]
    return turn


_FIELDS: dict[str, tuple[Any, str]] = {
    "api_role": (str, "text"),
    "generate": (bool, "True or False"),
    "prompt": (str | None, "text"),
}
"""Types, and their name in errors, by the key of an item."""


def _use_default_text(turn: FormattedTurn) -> None:
    """Keep the default text of the role; warn if the role has none, unless the model writes the turn."""
    # The default text is for items without content, and media are content.
    if turn.media:
        turn.prompt = ""
    elif not (turn.prompt or turn.replies):
        text = (
            f"prompt: role {turn.role!r} has no prompt in the dataset's template or in the meta template, so it is "
            f"sent empty"
        )
        warn(InContextWarning(text, name=turn.role))


def _marker(item: _Item, key: str, default: Pieces, problems: Problems) -> Pieces:
    """Return the marker `begin` or `end` of an item, else of its role. If the item sets it to None, it is empty."""
    if key not in item.fields:
        return default
    return read_marker(item.fields[key], f"[{item.position}].{key}", problems)


def _role(meta: MetaFormat, item: _Item, problems: Problems) -> RoleFormat | None:
    """Return the format of the role of an item, else of its fallback role; None, with a problem, if both are unknown.

    If the meta template has no round, any role is valid.
    """
    name, fallback = item.fields.get("role"), item.fields.get("fallback_role")
    for candidate in (name, fallback):
        if isinstance(candidate, str) and candidate in meta.roles:
            return meta.roles[candidate]
    if isinstance(name, str) and not meta.round:
        return RoleFormat(name, name)
    problems.append(_unknown_role(f"[{item.position}]", name, fallback, meta.roles))
    return None


def _unknown_role(place: str, name: object, fallback: object, roles: Mapping[str, RoleFormat]) -> Problem:
    if not isinstance(name, str):
        return Problem(f"{place}.role", f"missing; valid roles: {', '.join(map(repr, roles))}")
    if fallback is None:
        return Problem(f"{place}.role", f"unknown role {name!r} without a fallback_role{nearest(name, roles)}")
    if fallback == name:
        return Problem(f"{place}.role", f"unknown role {name!r} that falls back to itself{nearest(name, roles)}")
    text = f"unknown role {fallback!r}, the fallback of the unknown role {name!r}{nearest(str(fallback), roles)}"
    return Problem(f"{place}.fallback_role", text)
