"""Input and output of an extractor: turns and drafts of facts, with the checks of drafts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agentkit_memory.errors import InvalidArgument
from agentkit_memory.store.records import StoredFact
from agentkit_prompts.errors import brief
from agentkit_prompts.names import reject_unknown_fields

MAX_TEXT = 1000
"""Maximum characters of a fact."""
_MAX_REPORTED = 3
"""Maximum number of invalid drafts that an error lists."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of a conversation, as input of an extractor."""

    id: str
    speaker: str
    text: str
    said_at: float
    """Seconds since 1970."""
    new: bool = True
    """False for a turn that was read before, and is passed again as context."""
    role: str = "user"
    """`user` or `assistant`, independent of the name of the speaker."""


@reject_unknown_fields(InvalidArgument)
@dataclass(frozen=True, slots=True)
class FactDraft:
    """A fact that an extractor found.

    Raises:
        InvalidArgument: A field is unknown.
    """

    text: str
    """One sentence that can be understood by itself."""
    sources: Sequence[str]
    """Ids of the turns that the fact was taken from, at least one new turn. The fact is deleted with any source."""
    supersedes: Sequence[str] = ()
    """Ids of known facts that this fact replaces."""
    valid_from: float | None = None
    """Time from which the fact is recalled, in seconds since 1970; None for now."""
    valid_to: float | None = None
    """Time until which the fact is recalled; None for ever."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """JSON values, up to 32 levels deep and 8,192 characters long."""


Extract: TypeAlias = Callable[[Sequence[Turn], Sequence[StoredFact]], Iterable[FactDraft]]
"""Function of the turns of one conversation, in order, that returns drafts of the facts in them.

The second argument contains known facts of the scope that may be related. The function is called in a thread of a
worker, and again with the same turns after a crash. It raises `InvalidArgument` for an invalid answer of its model; any
other exception means that the model is not available now.
"""


def text_error(text: object) -> InvalidArgument:
    """Return the error about a value that is not the text of a fact."""
    advice = ""
    if isinstance(text, FactDraft):
        advice = "; an extractor returns drafts, and a program calls facts.add(text, sources=..., metadata=...)"
    return InvalidArgument(f"a fact needs a text, got {brief(text)}{advice}", name="text")


def type_problems(draft: object) -> str:
    """Return the problems of fields of a draft with wrong types; empty text if all types are right.

    Values are left out, because the problems are stored and logged, and may exist longer than the turns.
    """
    if not isinstance(draft, FactDraft):
        return f"expected a FactDraft, got {type(draft).__name__}"
    problems: list[str] = []

    def expect(is_valid: bool, name: str, expected: str, got: object) -> None:
        if not is_valid:
            problems.append(f"{name}: expected {expected}, got {type(got).__name__}")

    expect(isinstance(draft.text, str), "text", "text", draft.text)
    for name, ids in (("sources", draft.sources), ("supersedes", draft.supersedes)):
        if isinstance(ids, str | bytes) or not isinstance(ids, Sequence):
            expect(False, name, "a sequence of ids", ids)
        elif invalid := [each for each in ids if not isinstance(each, str)]:
            expect(False, name, "ids, which are text", invalid[0])
    for name, at in (("valid_from", draft.valid_from), ("valid_to", draft.valid_to)):
        is_number = isinstance(at, int | float) and not isinstance(at, bool)
        expect(at is None or is_number, name, "seconds since 1970, or None", at)
    expect(isinstance(draft.metadata, Mapping), "metadata", "a mapping", draft.metadata)
    return "; ".join(problems)


def type_error(drafts: Sequence[object]) -> InvalidArgument | None:
    """Return an error that lists the drafts with fields of wrong types; None if all types are right."""
    problems = [f"draft {number}: {each}" for number, draft in enumerate(drafts, 1) if (each := type_problems(draft))]
    if not problems:
        return None
    listed = problems[:_MAX_REPORTED]
    if len(problems) > _MAX_REPORTED:
        listed.append(f"and {len(problems) - _MAX_REPORTED} more")
    return InvalidArgument(f"the extractor returned invalid drafts: {'; '.join(listed)}")


def check_draft(draft: FactDraft, turns: Mapping[str, Turn], known: Collection[str]) -> None:
    """Check the length of a draft, and that it refers to turns and facts of the input. The store checks other fields.

    Raises:
        InvalidArgument: The draft is invalid; the error lists every problem.
    """
    problems = _unknown("turn", draft.sources, turns) + _unknown("known fact", draft.supersedes, known)
    if not problems and not any(turns[source].new for source in draft.sources):
        problems.append("its sources contain no new turn")
    if len(draft.text) > MAX_TEXT:
        problems.append(f"it has {len(draft.text)} characters, at most {MAX_TEXT} are allowed")
    if problems:
        raise InvalidArgument(f"invalid draft of a fact: {'; '.join(problems)}")


def _unknown(noun: str, ids: Sequence[str], known: Collection[str]) -> list[str]:
    return [f"unknown id of a {noun}: {each[:40]!r}" for each in ids if each not in known]
