"""Problems of an evaluation, collected and reported in one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any

from agentkit_prompts.errors import InContextError, Problem, Problems, PromptError, brief
from agentkit_prompts.limits import MAX_LISTED
from agentkit_prompts.names import nearest


def unknown_names(place: str, received: Iterable[Any], names: Iterable[str], problem: str = "unknown key") -> Problems:
    """Return a problem for each name in `received`, the keys at `place`, that is not in `names`."""
    valid = list(names)
    unknown = [str(name) for name in received if name not in valid]
    return inside(place, [Problem(name, f"{problem}{nearest(name, valid)}") for name in unknown])


def wrong_type(place: str, value: object, kinds: type | UnionType, expected: str) -> Problems:
    """Return a problem if the type of a value is not in `kinds`."""
    if isinstance(value, kinds):
        return []
    return [Problem(place, f"must be {expected}, got {brief(value)}")]


def inside(place: str, problems: Iterable[tuple[str, str]]) -> Problems:
    """Return the problems of a part, with places that start at the value that contains the part at `place`."""
    if not place:
        return [Problem(*problem) for problem in problems]
    placed: Problems = []
    for name, text in problems:
        is_key = bool(name) and not name.startswith("[")
        placed.append(Problem(f"{place}.{name}" if is_key else f"{place}{name}", text))
    return placed


def problems_of_error(place: str, error: PromptError) -> Problems:
    """Return the problems of an error about the part at `place`, as `inside` does."""
    return inside(place, error.problems or [(error.name or "", str(error))])


def at_row(number: int, error: InContextError) -> InContextError:
    """Return the error with the number of its row in the message and the path."""
    return InContextError(
        f"row {number}: {error}",
        path=f"rows[{number}]",
        name=error.name,
        value=error.value,
        problems=error.problems,
    )


def some(texts: Sequence[str], separator: str) -> str:
    """Join texts; of a long list, only the first texts and the number of the others."""
    listing = [*texts[:MAX_LISTED]]
    if len(texts) > MAX_LISTED:
        listing.append(f"and {len(texts) - MAX_LISTED:,} more")
    return separator.join(listing)
