"""What an extractor is given and what it returns: turns in, drafts of facts out. No model is known here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentkit_memory.errors import FactError
from agentkit_memory.records import Fact

__all__ = ["Extract", "FactDraft", "Turn", "checked"]

LONGEST = 1000
"""Characters of a fact. What is longer is no fact but a text."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that was said in a conversation."""

    id: str
    speaker: str
    text: str
    said_at: float
    """Seconds since 1970."""
    new: bool = True
    """False for a turn that was read before, and is shown again so that those after it can be understood."""


@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact that an extractor found."""

    text: str
    """One sentence that can be understood by itself."""
    sources: Sequence[str]
    """Ids of the turns it was taken from, a new one among them. When one of them goes, so does the fact."""
    supersedes: Sequence[str] = ()
    """Ids of known facts that are true no longer if this one is."""
    valid_from: float | None = None
    """When it begins to be recalled, in seconds since 1970; at once, when it does not say."""
    valid_to: float | None = None
    """When it is no longer recalled."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Anything JSON can hold."""


Extract: TypeAlias = Callable[[Sequence[Turn], Sequence[Fact]], Iterable[FactDraft]]
"""Reads turns of one conversation, in order, and returns what they say that is worth knowing later.

The second argument is what is known of the same scope that could be about the same. It is called from a thread of a
worker; the same turns may be read again after a crash. `ExtractionError` says that the answer is of no use, any other
exception that none can be had now.
"""


def checked(draft: FactDraft, turns: Mapping[str, Turn], known: Collection[str]) -> None:
    """Refuse a draft that speaks of what was not shown; what its words and times may be, the store checks.

    Raises:
        FactError: Says everything that is wrong with it.
    """
    if not isinstance(draft, FactDraft):
        raise FactError(f"expected a FactDraft, got {type(draft).__name__}")
    problems = _unknown("turn", draft.sources, turns) + _unknown("known fact", draft.supersedes, known)
    if not problems and not any(turns[source].new for source in draft.sources):
        problems.append("none of its sources is a new turn")
    if isinstance(draft.text, str) and len(draft.text) > LONGEST:
        problems.append(f"it has {len(draft.text)} characters, at most {LONGEST} make a fact")
    if problems:
        raise FactError(f"a draft of a fact cannot be kept: {'; '.join(problems)}")


def _unknown(what: str, ids: object, shown: Collection[str]) -> list[str]:
    if isinstance(ids, str) or not isinstance(ids, Sequence):
        return [f"expected ids, each of a {what}, got {type(ids).__name__}"]
    return [f"{str(each)[:40]!r} is the id of no {what} that was shown" for each in ids if each not in shown]
