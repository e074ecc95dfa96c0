"""Problems of an evaluation, collected and reported in one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agentkit_prompts.errors import InContextError, PromptError
from agentkit_prompts.names import nearest

__all__ = ["Problem", "at_row", "placed", "problems_of_error", "refuse", "unknown_names"]


class Problem(NamedTuple):
    """One problem of a configuration, a template or a prompt."""

    place: str
    """Place of the problem: a key, column, item or role, such as ``infer_cfg['retriever']`` or ``round[0]``."""
    text: str
    """Description for the error message, with the place."""


def refuse(subject: str, problems: Sequence[Problem]) -> InContextError:
    """Return the error that lists all problems of `subject`."""
    texts = "; ".join([problem.text for problem in problems])
    return InContextError(f"{subject}: {texts}" if subject else texts, problems=problems)


def unknown_names(place: str, what: str, given: Iterable[Any], names: Iterable[str]) -> list[Problem]:
    """Return a problem for each of `given` that is not in `names`.

    Args:
        place: Place of the names; may be empty.
        what: Start of the message, such as ``unknown key``.
        given: Names to check.
        names: Valid names.
    """
    valid = list(names)
    prefix = f"{place}." if place else ""
    return [
        Problem(f"{prefix}{name}", f"{what} {name!r}{nearest(str(name), valid)}") for name in given if name not in valid
    ]


def placed(texts: Iterable[str]) -> list[Problem]:
    """Return texts such as ``messages[0].content: expected text`` as problems."""
    return [Problem(text.partition(": ")[0], text) for text in texts]


def at_row(number: int, error: InContextError) -> InContextError:
    """Return an error with the position of its row."""
    return InContextError(
        f"row {number}: {error}",
        path=f"rows[{number}]",
        name=error.name,
        value=error.value,
        problems=error.problems,
    )


def problems_of_error(place: str, error: PromptError) -> list[Problem]:
    """Return the problems that `error` lists, as problems of the part at `place`."""
    inner = error.problems or ((error.name or "", str(error)),)
    return [Problem(f"{place}.{name}" if name else place, f"{place}: {text}") for name, text in inner]
