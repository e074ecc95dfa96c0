"""How a model wants each role to be written: the configuration of a meta template, read and checked as a whole.

The document: OpenCompass, meta template (`begin`, `round`, `end`, `reserved_roles`, `eos_token_id`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import UnionType
from typing import Any, TypeAlias

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextWarning, Problem, Problems
from agentkit_prompts.evaluation.problems import inside, raise_problems, unknown_names

__all__ = ["MetaFormat", "Pieces", "RoleFormat", "read_marker", "read_meta"]

Pieces: TypeAlias = tuple[str | int, ...]
"""Text and token ids, in order."""

_SLOT = re.compile(r"\{\w+\}")
_META_KEYS = ("begin", "round", "end", "reserved_roles", "eos_token_id")
_ROLE_KEYS = ("role", "api_role", "begin", "prompt", "end", "generate")


@dataclass(frozen=True, slots=True)
class RoleFormat:
    """How one role is written: `begin`, the text of the dataset (else `prompt`), `end`.

    `generate` marks the role of the model, `api_role` is its name in an API.
    """

    role: str
    api_role: str
    begin: Pieces = ()
    end: Pieces = ()
    prompt: str = ""
    generate: bool = False


@dataclass(frozen=True)
class MetaFormat:
    """A meta template that was checked. With an empty `round` the dataset's rounds are taken as they are."""

    begin: Pieces
    round: tuple[str | RoleFormat, ...]
    end: Pieces
    reserved: tuple[RoleFormat, ...]
    eos_token_id: int | str | tuple[int | str, ...] | None
    first: Mapping[str, Any] | None
    """A message that an API's conversation begins with."""

    @cached_property
    def order(self) -> dict[str, int]:
        """Role of the round -> its place there."""
        return {entry.role: place for place, entry in enumerate(self.round) if isinstance(entry, RoleFormat)}

    @cached_property
    def speakers(self) -> tuple[RoleFormat, ...]:
        """The roles of the round."""
        return tuple(entry for entry in self.round if isinstance(entry, RoleFormat))

    @cached_property
    def roles(self) -> dict[str, RoleFormat]:
        """All roles by name, those of the round first."""
        return {role.role: role for role in (*self.speakers, *self.reserved)}

    @property
    def eos_tokens(self) -> Pieces:
        """The tokens at which a reply ends."""
        if self.eos_token_id is None:
            return ()
        if isinstance(self.eos_token_id, tuple):
            return self.eos_token_id
        return (self.eos_token_id,)

    @property
    def ids(self) -> list[str]:
        """Where markers hold token ids."""
        holders = {"begin": self.begin, "end": self.end}
        for role in self.roles.values():
            holders |= {f"begin of role {role.role!r}": role.begin, f"end of role {role.role!r}": role.end}
        return [where for where, marker in holders.items() if any(type(piece) is int for piece in marker)]


def _is_piece(value: object) -> bool:
    return isinstance(value, str) or (type(value) is int and value >= 0)


def read_meta(config: Mapping[str, Any], *, api: bool) -> MetaFormat:
    """Check a configuration and return it in the form that rendering reads.

    Args:
        config: The `meta_template` of a model, as OpenCompass has it.
        api: True for an API, which takes messages; then `begin` may be a message, and every entry needs a role.

    Raises:
        InContextError: Something about it is wrong; lists all of it.
    """
    problems = unknown_names("", config, _META_KEYS)
    places: dict[str, str] = {}
    round_ = _entries(config, "round", places, problems)
    if api:
        for index, entry in enumerate(round_):
            if isinstance(entry, str):
                problems.append(Problem(f"round[{index}]", "text has no place among messages; give it a role"))
    reserved = _entries(config, "reserved_roles", places, problems)
    begin, first = config.get("begin"), None
    if api and isinstance(begin, Mapping):
        first, begin = begin, None
        if not isinstance(first.get("role"), str):
            problems.append(Problem("begin.role", "missing; give a message as {'role': ..., 'prompt': ...}"))
    start = read_marker(begin, "begin", problems)
    eos = _eos(config.get("eos_token_id"), problems)
    end = read_marker(config.get("end"), "end", problems)
    raise_problems("meta template", problems)
    return MetaFormat(start, round_, end, tuple(role for role in reserved if isinstance(role, RoleFormat)), eos, first)


def _eos(value: Any, problems: Problems) -> int | str | tuple[int | str, ...] | None:
    """Return the token at which a reply ends."""
    if value is None or _is_piece(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, list | tuple) and all(map(_is_piece, value)):
        return tuple(value)
    problems.append(Problem("eos_token_id", f"must be a token id, text, or a list of them, got {value!r}"))
    return None


def _entries(
    config: Mapping[str, Any], key: str, places: dict[str, str], problems: Problems
) -> tuple[str | RoleFormat, ...]:
    """Return the entries of a list of roles. `places` has the place of each role that was read before."""
    values = config.get(key)
    if not isinstance(values, list | tuple | None):
        problems.append(Problem(key, f"must be a list, got {type(values).__name__}; write {key}=[{{'role': ...}}]"))
        return ()
    entries: list[str | RoleFormat] = []
    for index, value in enumerate(values or ()):
        place = f"{key}[{index}]"
        if isinstance(value, str) and key == "round":
            entries.append(value)
        elif isinstance(value, Mapping):
            role = _role(value, place, problems)
            if role is not None:
                first_place = places.setdefault(role.role, place)
                if first_place != place:
                    text = f"{role.role!r} is there twice (see {first_place}); write it once"
                    problems.append(Problem(f"{place}.role", text))
                entries.append(role)
        else:
            expected = "a dict with a role"
            if key == "round":
                expected += " or text"
            problems.append(Problem(place, f"must be {expected}, got {type(value).__name__}"))
    return tuple(entries)


def _role(entry: Mapping[str, Any], place: str, problems: Problems) -> RoleFormat | None:
    wrong = unknown_names("", entry, _ROLE_KEYS)
    for key, kinds, expected in _FIELDS:
        if not isinstance(entry.get(key), kinds):
            wrong.append(Problem(key, f"must be {expected}, got {entry.get(key)!r}"[:200]))
    begin = read_marker(entry.get("begin"), "begin", wrong)
    end = read_marker(entry.get("end"), "end", wrong)
    if wrong:
        problems += inside(place, wrong)
        return None
    name, prompt = entry["role"], entry.get("prompt") or ""
    slots = _SLOT.findall(prompt)
    if slots:
        text = (
            f"meta template: {place}: nothing fills {', '.join(slots)} in its own prompt, which is sent as it is; "
            "columns are filled in the template of the dataset"
        )
        warn(InContextWarning(text, name=f"{place}.prompt"))
    return RoleFormat(name, entry.get("api_role") or name, begin, end, prompt, entry.get("generate") or False)


_FIELDS: tuple[tuple[str, UnionType | type, str], ...] = (
    ("role", str, "text"),
    ("api_role", str | None, "text"),
    ("prompt", str | None, "text"),
    ("generate", bool | None, "True or False"),
)


def read_marker(value: object, place: str, problems: Problems) -> Pieces:
    """Return a marker as pieces: a text, or a list of texts and token ids."""
    if value in (None, ""):
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(map(_is_piece, value)):
        return tuple(value)
    problems.append(Problem(place, f"must be text, or a list of texts and token ids, got {value!r}"[:200]))
    return ()
