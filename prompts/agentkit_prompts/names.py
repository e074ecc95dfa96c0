"""Messages about unknown names: they suggest the most similar valid name and list the valid names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from agentkit_prompts.errors import Picklable
from agentkit_prompts.hint_calls import CALLS
from agentkit_prompts.hints import explain_arguments, option_hint
from agentkit_prompts.limits import MAX_NAME_CHARS

_MAX_NAMES = 100
"""Maximum number of valid names that are compared with a name."""
_MAX_LISTED = 12
"""Maximum number of valid names in a message."""

C = TypeVar("C", bound=type)


def similar(name: str, names: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the valid name that is most similar to `name`, if the similarity is at least `likeness` (0 to 1)."""
    # Import late: only errors need this module, and its import is slow.
    from difflib import get_close_matches

    matches = get_close_matches(name[:MAX_NAME_CHARS], list(names)[:_MAX_NAMES], 1, likeness)
    return next(iter(matches), None)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the most similar valid name, and the valid names."""
    valid = list(names)[:_MAX_NAMES]
    if not valid:
        return ""
    listing = ", ".join(sorted(valid)[:_MAX_LISTED])
    if len(valid) > _MAX_LISTED:
        listing += ", ..."
    match = similar(name, valid)
    if match is None:
        return f"; valid names: {listing}"
    return f"; did you mean {match!r}? Valid names: {listing}"


def misnamed(start: str, received: Iterable[Any], names: Iterable[str]) -> list[str]:
    """Return a message for each name in `received` that is not in `names`; each message begins with `start`."""
    valid = list(names)
    return [f"{start} {name!r}{nearest(str(name), valid)}" for name in received if name not in valid]


def unknown_fields(
    where: str, received: Iterable[str], names: Iterable[str], elsewhere: Mapping[str, str] = {}
) -> list[str]:
    """Return one message, which lists the unknown fields and the valid fields; empty if all fields are valid.

    Args:
        where: Name of the class that has the fields; the rows for it in `OPTIONS` are hints.
        received: Names to check.
        names: Valid names.
        elsewhere: Mapping from the name of a field of another object to advice.
    """
    valid = list(names)
    unknown = [name for name in received if name not in valid]
    if not unknown:
        return []
    listing = [_with_advice(where, name, valid, elsewhere) for name in unknown]
    plural = "s" * (len(unknown) > 1)
    return [f"unknown field{plural} {', '.join(listing)}; valid names: {', '.join(sorted(valid))}"]


def _with_advice(where: str, name: str, valid: list[str], elsewhere: Mapping[str, str]) -> str:
    hint = option_hint(where, name)
    if hint is not None:
        return f"{name!r} (use {hint})"
    advice = elsewhere.get(name)
    if advice is None:
        match = similar(name, valid)
        if match is None:
            return repr(name)
        advice = f"did you mean {match!r}?"
    return f"{name!r} ({advice})"


def reject_unknown_fields(error: Callable[[str], Exception], elsewhere: Mapping[str, str] = {}) -> Callable[[C], C]:
    """Return a decorator of dataclasses that raises `error` for unknown keyword arguments; see `unknown_fields`."""

    def decorate(cls: C) -> C:
        dataclass: Any = cls
        dataclass.__init__ = _checked_init(dataclass, error, elsewhere)
        return cls

    return decorate


def _checked_init(
    dataclass: Any, error: Callable[[str], Exception], elsewhere: Mapping[str, str]
) -> Callable[..., None]:
    kind = dataclass.__name__
    places = sum(item.init and not item.kw_only for item in fields(dataclass))
    names = [item.name for item in fields(dataclass) if item.init]

    def explain(problem: TypeError, args: Sequence[Any], options: Mapping[str, Any]) -> Exception | None:
        # `args` starts with the instance.
        if len(args) - 1 > places:
            example = ", ".join(f"{name}=..." for name in names)
            return error(f"{kind}: too many positional arguments; pass fields by name: {kind}({example})")
        unknown = [name for name in options if name not in names]
        if not unknown:
            return TypeError(f"{problem}; use {CALLS[kind]}") if kind in CALLS else None
        problems = unknown_fields(kind, options, names, elsewhere)
        return _named(error(f"{kind}: {'; '.join(problems)}"), unknown)

    init: Callable[..., None] = dataclass.__init__
    return explain_arguments(init, explain)


def _named(error: Exception, names: Iterable[str]) -> Exception:
    """Set the attribute `name` of the error to the unknown fields, and return the error."""
    if isinstance(error, Picklable):
        error.name = ", ".join(names)
    return error
