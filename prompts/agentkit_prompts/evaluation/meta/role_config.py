"""Reader of the configuration of a meta template, which is the format of each role for a model.

The keys `begin`, `round`, `end`, `reserved_roles` and `eos_token_id` are described in the OpenCompass document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import Any, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, brief, raise_problems
from agentkit_prompts.evaluation.problems import inside, unknown_names, wrong_type

Pieces: TypeAlias = tuple[str | int, ...]
"""Text and token ids, in order."""

_SLOT = re.compile(r"\{\w+\}")
_META_KEYS = ("begin", "round", "end", "reserved_roles", "eos_token_id")
_EXPECTED = {"round": "text or a dict with a role", "reserved_roles": "a dict with a role"}
"""Descriptions of valid entries, by the key of the list."""
_ROLE_KEYS = ("role", "api_role", "begin", "prompt", "end", "generate")


@dataclass(frozen=True, slots=True)
class RoleFormat:
    """Format of one role: a turn is `begin`, the text of the dataset (by default `prompt`), and `end`.

    `generate` is True for the role of the model; `api_role` is the name of the role in an API.
    """

    role: str
    api_role: str
    begin: Pieces = ()
    end: Pieces = ()
    prompt: str = ""
    generate: bool = False


@dataclass(frozen=True)
class MetaFormat:
    """A checked meta template. If `round` is empty, the order of turns in the dataset is unchanged."""

    begin: Pieces
    round: tuple[str | RoleFormat, ...]
    end: Pieces
    reserved: tuple[RoleFormat, ...]
    eos_token_id: int | str | tuple[int | str, ...] | None
    first: Mapping[str, Any] | None
    """First message of the conversation with an API; None if the template has none."""

    @cached_property
    def order(self) -> dict[str, int]:
        """Index in the round, by the name of the role."""
        return {entry.role: place for place, entry in enumerate(self.round) if isinstance(entry, RoleFormat)}

    @cached_property
    def speakers(self) -> tuple[RoleFormat, ...]:
        """The roles of the round."""
        return tuple(entry for entry in self.round if isinstance(entry, RoleFormat))

    @cached_property
    def roles(self) -> dict[str, RoleFormat]:
        """All roles by name, the roles of the round first."""
        return {role.role: role for role in (*self.speakers, *self.reserved)}

    @property
    def eos_tokens(self) -> Pieces:
        """The tokens at which a reply ends."""
        if isinstance(self.eos_token_id, tuple):
            return self.eos_token_id
        return () if self.eos_token_id is None else (self.eos_token_id,)

    @property
    def ids(self) -> list[str]:
        """Descriptions of the markers that contain token ids, for errors."""
        holders = {"begin": self.begin, "end": self.end}
        for role in self.roles.values():
            holders |= {f"begin of role {role.role!r}": role.begin, f"end of role {role.role!r}": role.end}
        return [where for where, marker in holders.items() if any(type(piece) is int for piece in marker)]


def read_meta(config: Mapping[str, Any], *, api: bool) -> MetaFormat:
    """Return the checked configuration of a meta template.

    Args:
        config: The `meta_template` of a model, in the form of OpenCompass.
        api: True for an API, which accepts messages only: `begin` can be a message, and every entry must have a role.

    Raises:
        InContextError: The configuration is invalid; lists all problems.
    """
    problems = unknown_names("", config, _META_KEYS)
    entries = _entries(config, "round", problems)
    if api:
        text = "text has no place among messages; add a role"
        problems += [Problem(place, text) for place, entry in entries.items() if isinstance(entry, str)]
    reserved = _entries(config, "reserved_roles", problems)
    problems += _repeated_roles({**entries, **reserved})
    begin, first = config.get("begin"), None
    if api and isinstance(begin, Mapping):
        problems += wrong_type("begin.role", begin.get("role"), str, "text, as in {'role': ..., 'prompt': ...}")
        begin, first = None, begin
    result = MetaFormat(
        begin=read_marker(begin, "begin", problems),
        round=tuple(entries.values()),
        reserved=tuple(role for role in reserved.values() if isinstance(role, RoleFormat)),
        eos_token_id=_eos(config.get("eos_token_id"), problems),
        end=read_marker(config.get("end"), "end", problems),
        first=first,
    )
    raise_problems(InContextError, "meta template", problems)
    return result


def _eos(value: Any, problems: Problems) -> int | str | tuple[int | str, ...] | None:
    """Return the tokens that end a reply, as in the configuration."""
    if value is None or _is_piece(value):
        return value  # type: ignore[no-any-return]  # None, text or a number
    return read_marker(value, "eos_token_id", problems)


def _valid_role(value: Mapping[str, Any], place: str, problems: Problems) -> dict[str, RoleFormat]:
    """Return `{place: role}`; empty, with problems, if the role is invalid."""
    wrong = _problems_of_role(value, place)
    problems += wrong
    if wrong:
        return {}
    return {place: _role(value, place)}


def _entries(config: Mapping[str, Any], key: str, problems: Problems) -> dict[str, str | RoleFormat]:
    """Return the valid entries of the list under `key`, by their places; invalid entries become problems."""
    values = config.get(key)
    if values is None:
        return {}
    if not isinstance(values, list | tuple):
        text = f"must be a list, got {brief(values)}; write {key}=[{{'role': ...}}]"
        problems.append(Problem(key, text))
        return {}
    entries: dict[str, str | RoleFormat] = {}
    for index, value in enumerate(values):
        place = f"{key}[{index}]"
        if isinstance(value, str) and key == "round":
            entries[place] = value
        elif isinstance(value, Mapping):
            entries |= _valid_role(value, place, problems)
        else:
            problems += wrong_type(place, value, Mapping, _EXPECTED[key])
    return entries


def _repeated_roles(entries: Mapping[str, str | RoleFormat]) -> Problems:
    problems: Problems = []
    places: dict[str, str] = {}
    for place, entry in entries.items():
        if isinstance(entry, RoleFormat) and places.setdefault(entry.role, place) != place:
            text = f"{entry.role!r} is there twice (see {places[entry.role]}); write it once"
            problems.append(Problem(f"{place}.role", text))
    return problems


def _problems_of_role(entry: Mapping[str, Any], place: str) -> Problems:
    problems = unknown_names("", entry, _ROLE_KEYS)
    for key, kinds, expected in _FIELDS:
        problems += wrong_type(key, entry.get(key), kinds, expected)
    for key in ("begin", "end"):
        read_marker(entry.get(key), key, problems)
    return inside(place, problems)


def _role(entry: Mapping[str, Any], place: str) -> RoleFormat:
    prompt = entry.get("prompt") or ""
    slots = _SLOT.findall(prompt)
    if slots:
        text = (
            f"meta template: {place}: no value fills {', '.join(slots)} in its prompt, which is sent unchanged; use "
            f"columns in the template of the dataset"
        )
        warn(InContextWarning(text, name=f"{place}.prompt"))
    return RoleFormat(
        role=entry["role"],
        api_role=entry.get("api_role") or entry["role"],
        begin=read_marker(entry.get("begin"), "begin", []),
        end=read_marker(entry.get("end"), "end", []),
        prompt=prompt,
        generate=entry.get("generate") or False,
    )


_FIELDS: tuple[tuple[str, UnionType | type, str], ...] = (
    ("role", str, "text"),
    ("api_role", str | None, "text"),
    ("prompt", str | None, "text"),
    ("generate", bool | None, "True or False"),
)


def read_marker(value: object, place: str, problems: Problems) -> Pieces:
    """Return a marker, which is text or a list of texts and token ids, as pieces; empty, with a problem, if invalid."""
    if value in (None, ""):
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(map(_is_piece, value)):
        return tuple(value)
    problems.append(Problem(place, f"must be text, or a list of texts and token ids, got {brief(value)}"))
    return ()


def _is_piece(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and value >= 0)
