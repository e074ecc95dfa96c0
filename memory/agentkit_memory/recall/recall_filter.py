"""`RecallFilter`: of what kind, source, time and metadata items have to be to be recalled."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, ColumnElement, bindparam, func, or_, select

from agentkit_memory.checks import is_time
from agentkit_memory.database.tables import branches, conversations, documents, items
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.metadata import MAX_DEPTH, read_metadata
from agentkit_memory.store.records import CHUNK, FACT, IMAGE, TURN
from agentkit_prompts.errors import brief
from agentkit_prompts.names import reject_unknown_fields

if TYPE_CHECKING:
    from agentkit_memory.store.stored_item import StoredItem

__all__ = ["RecallFilter", "seconds"]

_KINDS = (CHUNK, IMAGE, TURN, FACT)
_BOUNDS = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
}
_OPERATORS = ("eq", "in", *_BOUNDS, "exists")


@reject_unknown_fields(InvalidArgument)
@dataclass(frozen=True)
class RecallFilter:
    """What may be recalled; an item has to meet every condition that is given.

    Raises:
        InvalidArgument: A condition is invalid; names every problem.
    """

    kinds: Collection[str] | None = None
    """Any of `chunk`, `image`, `turn` (a message) and `fact`."""
    sources: Collection[str] | None = None
    """Sources of documents, and names of conversations."""
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Name -> value that it has to equal; list of values, one of which it has to equal; or operators with their values:
    `{"gte": 2020, "lt": 2024}`, `{"exists": False}`, `{"eq": [1, 2]}`, `{"in": ["a", "b"]}`. True is not 1."""
    since: datetime | float | None = None
    """Earliest time: of a message when it was written, of other items when they were stored. UTC without a zone."""
    until: datetime | float | None = None
    """The time before which it has to be."""

    def __post_init__(self) -> None:
        problems = []
        for name, known in (("kinds", _KINDS), ("sources", None)):
            given: object = getattr(self, name)
            right = isinstance(given, list | tuple | set | frozenset) and all(isinstance(each, str) for each in given)
            if given is not None and (not right or (known is not None and not {*given} <= {*known})):  # type: ignore[misc]
                wanted = "a list of texts" if known is None else f"a list out of {known}"
                problems.append(f"{name}: expected {wanted}, or None for all, got {brief(given)}")
        problems += _problems(self.metadata)
        times = []
        for name in ("since", "until"):
            at: object = getattr(self, name)
            if at is not None and not (isinstance(at, datetime) or is_time(at)):
                problems.append(f"{name}: expected a datetime or seconds since 1970, got {brief(at)}")
            elif at is not None:
                times.append(seconds(at))
        if not problems and len(times) == 2 and times[1] <= times[0]:
            problems.append(f"until: expected a time after `since`, got {self.until!r}: nothing could be recalled")
        if problems:
            raise InvalidArgument.listing("RecallFilter", problems)

    def allows(self, item: StoredItem) -> bool:
        """Return whether an item meets every condition."""
        if self.kinds is not None and item.kind not in self.kinds:
            return False
        if self.sources is not None and (item.conversation if item.kind == TURN else item.source) not in self.sources:
            return False
        at = item.created_at if item.said_at is None else item.said_at
        if (self.since is not None and at < seconds(self.since)) or (
            self.until is not None and at >= seconds(self.until)
        ):
            return False
        if not self.metadata:
            return True
        stored = read_metadata(item.meta)
        return all(_meets(stored, name, condition) for name, condition in self.metadata.items())

    def rows(self) -> list[ColumnElement[bool]]:
        """Return the conditions that SQL can check, given `scopes`: all but those on metadata."""
        conditions: list[ColumnElement[bool]] = []
        if self.kinds is not None:
            conditions.append(items.c.kind.in_([*self.kinds]))
        if self.sources is not None:
            names: list[str] = [*map(storable, self.sources)]
            scopes: BindParameter[int] = bindparam("scopes", expanding=True)
            of_them = select(branches.c.id).join(conversations).where(conversations.c.name.in_(names))
            turns = items.c.branch_id.in_(of_them.where(conversations.c.scope_id.in_(scopes)))
            these = select(documents.c.id).where(documents.c.source.in_(names), documents.c.scope_id.in_(scopes))
            conditions.append(or_(turns, items.c.document_id.in_(these)))
        at = func.coalesce(items.c.said_at, items.c.created_at)
        if self.since is not None:
            conditions.append(at >= seconds(self.since))
        if self.until is not None:
            conditions.append(at < seconds(self.until))
        if any(not isinstance(each, Mapping) or each.get("exists") is not False for each in self.metadata.values()):
            conditions.append(items.c.meta != "{}")
        return conditions


def seconds(now: datetime | float) -> float:
    """Return a time as seconds since 1970; one without a zone is UTC."""
    if isinstance(now, datetime):
        return (now if now.tzinfo is not None else now.replace(tzinfo=UTC)).timestamp()
    return float(now)


def _problems(metadata: object) -> list[str]:
    if not isinstance(metadata, Mapping):
        return [f"metadata: expected a mapping of names to conditions, got {brief(metadata)}"]
    problems = []
    for name, condition in metadata.items():
        where = f"metadata {name!r:.80}"
        if not isinstance(name, str):
            problems.append(f"{where}: expected a name, which is text")
        elif isinstance(condition, Mapping):
            if not condition:
                problems.append(f"{where}: expected one of the operators {', '.join(_OPERATORS)}, got none")
            for operator, value in condition.items():
                if operator not in _OPERATORS:
                    problems.append(f"{where}: unknown operator {operator!r:.80}; expected {', '.join(_OPERATORS)}")
                elif problem := _operand_problem(operator, value):
                    problems.append(f"{where}, {operator}: {problem}")
            low, high = (_limit(condition, names) for names in (("gt", "gte"), ("lt", "lte")))
            if low is not None and high is not None and (not _comparable(low, high) or low > high):
                problems.append(f"{where}: nothing is between {brief(low)} and {brief(high)}")
        elif problem := _operand_problem("in" if isinstance(condition, _LISTS) else "eq", condition):
            problems.append(f"{where}: {problem}")
    return problems


_LISTS = (list, tuple, set, frozenset)


def _operand_problem(operator: str, value: object) -> str:
    if operator == "exists" and not isinstance(value, bool):
        return f"expected True or False, got {brief(value)}"
    if operator in _BOUNDS and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        return f"expected a number or a text, got {brief(value)}"
    if operator == "in" and (not isinstance(value, _LISTS) or not value):
        return f"expected a list of values, at least one, got {brief(value)}"
    wrong = next((each for each in (value if isinstance(value, _LISTS) else (value,)) if not _is_json(each)), None)
    expected = f"expected values that JSON can hold, at most {MAX_DEPTH} levels deep"
    return "" if wrong is None else f"{expected}, got {brief(wrong)}"


def _is_json(value: object, left: int = MAX_DEPTH) -> bool:
    if isinstance(value, list | tuple):
        return left > 0 and all(_is_json(each, left - 1) for each in value)
    if isinstance(value, Mapping):
        return left > 0 and all(isinstance(name, str) and _is_json(each, left - 1) for name, each in value.items())
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _limit(condition: Mapping[str, Any], names: tuple[str, str]) -> Any:
    return next((condition[name] for name in names if name in condition), None)


def _comparable(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    return isinstance(one, str) == isinstance(other, str) and isinstance(one, int | float | str)


def _meets(stored: Mapping[str, object], name: str, condition: Any) -> bool:
    operators: Mapping[str, Any] = condition if isinstance(condition, Mapping) else {}
    if not isinstance(condition, Mapping):
        operators = {"in" if isinstance(condition, _LISTS) else "eq": condition}
    value = stored.get(name)
    for operator, wanted in operators.items():
        if operator == "exists":
            met = (name in stored) is wanted
        elif name not in stored:
            met = False
        elif operator == "eq":
            met = _same(value, wanted)
        elif operator == "in":
            met = any(_same(value, each) for each in wanted)
        else:
            met = _comparable(value, wanted) and _BOUNDS[operator](value, wanted)
        if not met:
            return False
    return True


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON: 1 is 1.0, and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(other, list | tuple) or isinstance(one, list):
        right = isinstance(one, list) and isinstance(other, list | tuple) and len(one) == len(other)
        return right and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)
