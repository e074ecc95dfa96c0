"""What an extractor is given and what it returns: turns in, drafts of facts out. No model is known here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentkit_memory.errors import ExtractionError, FactError
from agentkit_memory.store.records import StoredFact

__all__ = ["Extract", "FactDraft", "Turn", "checked", "misshapen", "wrong_types"]

LONGEST = 1000
"""Characters of a fact. What is longer is no fact but a text."""
_TOLD = 3
"""Drafts of one answer of which it is told what is wrong with them."""


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


Extract: TypeAlias = Callable[[Sequence[Turn], Sequence[StoredFact]], Iterable[FactDraft]]
"""Reads turns of one conversation, in order, and returns what they say that is worth knowing later.

The second argument is what is known of the same scope that could be about the same. It is called from a thread of a
worker; the same turns may be read again after a crash. `ExtractionError` says that the answer is of no use, as one is
whose drafts have fields of other types than theirs; any other exception says that none can be had now.
"""


def misshapen(draft: object) -> str:
    """Say what of a draft is of another type than it should be, and of which; nothing if all is as it should be.

    The values are not told: this is kept and logged, also when what they were taken from has been erased.
    """
    if not isinstance(draft, FactDraft):
        return f"expected a FactDraft, got {type(draft).__name__}"
    problems: list[str] = []

    def expect(right: bool, name: str, what: str, got: object) -> None:
        if not right:
            problems.append(f"{name}: expected {what}, got {type(got).__name__}")

    expect(isinstance(draft.text, str), "text", "text", draft.text)
    for name, ids in (("sources", draft.sources), ("supersedes", draft.supersedes)):
        if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
            expect(False, name, "a sequence of ids", ids)
        elif wrong := [each for each in ids if not isinstance(each, str)]:
            expect(False, name, "ids, which are text", wrong[0])
    for name, at in (("valid_from", draft.valid_from), ("valid_to", draft.valid_to)):
        seconds = at is None or (isinstance(at, int | float) and not isinstance(at, bool))
        expect(seconds, name, "seconds since 1970, or None", at)
    expect(isinstance(draft.metadata, Mapping), "metadata", "a mapping", draft.metadata)
    return "; ".join(problems)


def wrong_types(drafts: Sequence[object]) -> ExtractionError | None:
    """Return an error that says what is misshapen of an answer, if anything is."""
    problems = [f"draft {number}: {wrong}" for number, draft in enumerate(drafts, 1) if (wrong := misshapen(draft))]
    if not problems:
        return None
    more = f"; and {len(problems) - _TOLD} more" if len(problems) > _TOLD else ""
    return ExtractionError(f"the extractor returned what are no drafts of facts: {'; '.join(problems[:_TOLD])}{more}")


def checked(draft: FactDraft, turns: Mapping[str, Turn], known: Collection[str]) -> None:
    """Refuse a draft that speaks of what was not shown; what its words and times may be, the store checks.

    Its fields have the types they should have.

    Raises:
        FactError: Says everything that is wrong with it.
    """
    problems = _unknown("turn", draft.sources, turns) + _unknown("known fact", draft.supersedes, known)
    if not problems and not any(turns[source].new for source in draft.sources):
        problems.append("none of its sources is a new turn")
    if len(draft.text) > LONGEST:
        problems.append(f"it has {len(draft.text)} characters, at most {LONGEST} make a fact")
    if problems:
        raise FactError(f"a draft of a fact cannot be kept: {'; '.join(problems)}")


def _unknown(what: str, ids: Sequence[str], shown: Collection[str]) -> list[str]:
    return [f"{each[:40]!r} is the id of no {what} that was shown" for each in ids if each not in shown]
