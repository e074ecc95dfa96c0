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
from agentkit_prompts.errors import InContextWarning
from agentkit_prompts.evaluation.problems import Problem, refuse, unknown_names

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
        api: The template is for an API, which takes messages; there `begin` may be a message.

    Raises:
        InContextError: Something about it is wrong; names all of it.
    """
    problems = unknown_names("", "unknown key", config, _META_KEYS)
    known: dict[str, str] = {}
    round_ = _entries(config, "round", known, problems)
    problems += [
        Problem(f"round[{place}]", f"round[{place}] is text, which has no place among messages; give it a role")
        for place, entry in enumerate(round_)
        if api and isinstance(entry, str)
    ]
    reserved = _entries(config, "reserved_roles", known, problems)
    eos = config.get("eos_token_id")
    if not (eos is None or _is_piece(eos) or (isinstance(eos, list | tuple) and all(map(_is_piece, eos)))):
        problems.append(
            Problem("eos_token_id", f"eos_token_id must be a token id, text, or a list of them, got {eos!r}")
        )
    begin = config.get("begin")
    first = begin if api and isinstance(begin, Mapping) else None
    if first is not None and not isinstance(first.get("role"), str):
        text = "begin is a message without a role; give it as {'role': ..., 'prompt': ...}"
        problems.append(Problem("begin.role", text))
    start = read_marker(begin, "begin", problems) if first is None else ()
    end = read_marker(config.get("end"), "end", problems)
    if problems:
        raise refuse("meta template", problems)
    eos = tuple(eos) if isinstance(eos, list | tuple) else eos
    return MetaFormat(start, round_, end, tuple(role for role in reserved if isinstance(role, RoleFormat)), eos, first)


def _entries(
    config: Mapping[str, Any], key: str, known: dict[str, str], problems: list[Problem]
) -> tuple[str | RoleFormat, ...]:
    """Return what a list of roles holds, and note what is wrong with it."""
    entries = config.get(key)
    if not isinstance(entries, list | tuple | None):
        text = f"{key} must be a list, got {type(entries).__name__}; write {key}=[{{'role': ...}}]"
        problems.append(Problem(key, text))
        return ()
    found: list[str | RoleFormat] = []
    for index, entry in enumerate(entries or ()):
        where = f"{key}[{index}]"
        if isinstance(entry, str) and key == "round":
            found.append(entry)
        elif not isinstance(entry, Mapping):
            what = "a dict with a role or text" if key == "round" else "a dict with a role"
            problems.append(Problem(where, f"{where} must be {what}, got {type(entry).__name__}"))
        elif (role := _role(entry, where, problems)) is not None:
            if role.role in known:
                text = f"{where}: role {role.role!r} is there twice (see {known[role.role]}); write it once"
                problems.append(Problem(f"{where}.role", text))
            known.setdefault(role.role, where)
            found.append(role)
    return tuple(found)


def _role(entry: Mapping[str, Any], where: str, problems: list[Problem]) -> RoleFormat | None:
    wrong = unknown_names(where, f"{where}: unknown key", entry, _ROLE_KEYS)
    for key, kinds, what in _FIELDS:
        if not isinstance(entry.get(key), kinds):
            text = f"{where}: {key} must be {what}, got {entry.get(key)!r}"[:200]
            wrong.append(Problem(f"{where}.{key}", text))
    begin, end = (read_marker(entry.get(key), f"{where}.{key}", wrong) for key in ("begin", "end"))
    if wrong:
        problems += wrong
        return None
    if slots := _SLOT.findall(entry.get("prompt") or ""):
        text = (
            f"meta template: {where}: nothing fills {', '.join(slots)} in its own prompt, which is sent as it is; "
            "columns are filled in the template of the dataset"
        )
        warn(InContextWarning(text, name=f"{where}.prompt"))
    name, prompt, generate = entry["role"], entry.get("prompt") or "", entry.get("generate") or False
    return RoleFormat(name, entry.get("api_role") or name, begin, end, prompt, generate)


_FIELDS: tuple[tuple[str, UnionType | type, str], ...] = (
    ("role", str, "text"),
    ("api_role", str | None, "text"),
    ("prompt", str | None, "text"),
    ("generate", bool | None, "True or False"),
)


def read_marker(value: object, where: str, problems: list[Problem]) -> Pieces:
    """Return a marker as pieces, or note that it is neither text nor a list of texts and token ids."""
    found: tuple[Any, ...] = (
        tuple(value) if isinstance(value, list | tuple) else () if value in (None, "") else (value,)
    )
    if all(map(_is_piece, found)) and not isinstance(value, int):
        return found
    text = f"{where} must be text, or a list of texts and token ids, got {value!r}"[:200]
    problems.append(Problem(where, text))
    return ()
