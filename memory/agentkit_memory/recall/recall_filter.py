"""`RecallFilter`: conditions on the kind, source, time and metadata of recalled items."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias, TypeGuard

from pydantic import AfterValidator, SkipValidation, model_validator
from sqlalchemy import BindParameter, ColumnElement, bindparam, func, or_, select

from agentkit_memory.checks import is_time
from agentkit_memory.database.tables import branches, conversations, document_chunks, documents, items
from agentkit_memory.errors import InvalidArgument
from agentkit_memory.store.item_rows import storable
from agentkit_memory.store.metadata import MAX_DEPTH, read_metadata
from agentkit_memory.store.records import CHUNK, FACT, IMAGE, TURN
from agentkit_prompts.errors import brief
from agentkit_prompts.options import options

if TYPE_CHECKING:
    from agentkit_memory.store.stored_item import StoredItem

_chunk = document_chunks.alias("chunk")
"""Chunks of items in any generation of their documents."""

_KINDS = (CHUNK, IMAGE, TURN, FACT)
# Conditions on numbers and texts, by operator.
_BOUNDS = {
    "gt": lambda value, bound: value > bound,
    "gte": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "lte": lambda value, bound: value <= bound,
}
_LISTS = (list, tuple, set, frozenset)
_OPERATORS = ("eq", "in", *_BOUNDS, "exists")


def _check_texts(value: object) -> object:
    if value is not None and not _is_list_of_texts(value):
        raise InvalidArgument(f"expected a list of texts, or None for all, got {brief(value)}")
    return value


def _check_kinds(value: object) -> object:
    if value is not None and not (_is_list_of_texts(value) and {*value} <= {*_KINDS}):
        words = "'chunk' for documents, 'image', 'turn' for messages, and 'fact'"
        raise InvalidArgument(f"expected a list of the kinds {words}, or None for all, got {brief(value)}")
    return value


def _is_list_of_texts(value: object) -> TypeGuard[Collection[str]]:
    return isinstance(value, _LISTS) and all(isinstance(each, str) for each in value)


def _check_time(at: object) -> object:
    if at is not None and not isinstance(at, datetime) and not is_time(at):
        raise InvalidArgument(f"expected a datetime or seconds since 1970, got {brief(at)}")
    return at


def _check_metadata(metadata: object) -> object:
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"expected a mapping of names to conditions, got {brief(metadata)}")
    problems = [problem for name, condition in metadata.items() for problem in _problems_of(name, condition)]
    if problems:
        raise InvalidArgument("metadata", problems=problems)
    return metadata


def _problems_of(name: object, condition: object) -> Iterator[tuple[str, str]]:
    """Yield position and text of each problem of the condition on one name."""
    place = f"[{brief(name)}]"
    if not isinstance(name, str):
        yield place, "expected a name, which is text"
    elif isinstance(condition, Mapping):
        yield from _problems_of_operators(place, condition)
    else:
        for operator, value in _operators(condition).items():
            if problem := _operand_problem(operator, value):
                yield place, problem


_Metadata: TypeAlias = Annotated[SkipValidation[Mapping[str, object]], AfterValidator(_check_metadata)]
_Time: TypeAlias = Annotated[SkipValidation[datetime | float | None], AfterValidator(_check_time)]


@options(InvalidArgument)
class RecallFilter:
    """Conditions of a recall; an item has to meet every condition.

    Raises:
        InvalidArgument: A condition is invalid; the error names every problem.
    """

    kinds: Annotated[SkipValidation[Collection[str] | None], AfterValidator(_check_kinds)] = None
    """Any of `chunk`, `image`, `turn` (a message) and `fact`."""
    sources: Annotated[SkipValidation[Collection[str] | None], AfterValidator(_check_texts)] = None
    """Sources of documents, and names of conversations."""
    metadata: _Metadata = field(default_factory=dict)
    """Conditions by name: an equal value; a list that contains an equal value; or operators with their operands, such
    as `{"gte": 2020, "lt": 2024}`, `{"exists": False}`, `{"eq": [1, 2]}`, `{"in": ["a", "b"]}`. True is not 1. A
    stored list meets a condition if the list itself or one of its members meets the condition."""
    since: _Time = None
    """Earliest time: when a message was written, or when another item was stored. A time without a zone is UTC."""
    until: _Time = None
    """End of the period: items of this time or later are left out."""

    @model_validator(mode="after")
    def _has_a_period(self) -> Self:
        if self.since is not None and self.until is not None and seconds(self.until) <= seconds(self.since):
            problem = f"expected a time after `since`, got {self.until!r}: nothing could be recalled"
            raise InvalidArgument(problem, problems=[("until", problem)])
        return self

    def allows(self, item: StoredItem) -> bool:
        """Return True if an item meets every condition."""
        if self.kinds is not None and item.kind not in self.kinds:
            return False
        if not self._is_of_sources(item) or not self._is_in_time(item):
            return False
        if not self.metadata:
            return True
        stored = read_metadata(item.meta)
        return all(_meets(stored, name, condition) for name, condition in self.metadata.items())

    def _is_of_sources(self, item: StoredItem) -> bool:
        if self.sources is None:
            return True
        # The source of a message is the name of its conversation.
        if item.kind == TURN:
            return item.conversation in self.sources
        return item.source in self.sources

    def _is_in_time(self, item: StoredItem) -> bool:
        at = item.said_at
        if at is None:
            at = item.created_at
        if self.since is not None and at < seconds(self.since):
            return False
        return self.until is None or at < seconds(self.until)

    def rows(self) -> list[ColumnElement[bool]]:
        """Return the conditions that SQL can check, with the parameter `scopes`: all except the values of metadata."""
        conditions: list[ColumnElement[bool]] = []
        if self.kinds is not None:
            conditions.append(items.c.kind.in_([*self.kinds]))
        if self.sources is not None:
            names: list[str] = [*map(storable, self.sources)]
            scopes: BindParameter[int] = bindparam("scopes", expanding=True)
            named = select(branches.c.id).join(conversations).where(conversations.c.name.in_(names))
            turns = items.c.branch_id.in_(named.where(conversations.c.scope_id.in_(scopes)))
            of_sources = select(documents.c.id).where(documents.c.source.in_(names), documents.c.scope_id.in_(scopes))
            conditions.append(or_(turns, items.c.document_id.in_(of_sources)))
        at = func.coalesce(items.c.said_at, items.c.created_at)
        if self.since is not None:
            conditions.append(at >= seconds(self.since))
        if self.until is not None:
            conditions.append(at < seconds(self.until))
        if any(not isinstance(each, Mapping) or each.get("exists") is not False for each in self.metadata.values()):
            of_chunk = select(_chunk.c.item_id).where(_chunk.c.item_id == items.c.id, _chunk.c.meta != "{}")
            conditions.append(or_(items.c.meta != "{}", of_chunk.exists()))
        return conditions


def seconds(now: datetime | float) -> float:
    """Return a time as seconds since 1970; a time without a zone is UTC."""
    if not isinstance(now, datetime):
        return float(now)
    if now.tzinfo is None:
        now = now.replace(tzinfo=UTC)
    return now.timestamp()


def _problems_of_operators(place: str, condition: Mapping[Any, object]) -> Iterator[tuple[str, str]]:
    if not condition:
        yield place, f"expected one of the operators {', '.join(_OPERATORS)}, got none"
    for operator, value in condition.items():
        if operator not in _OPERATORS:
            yield place, f"unknown operator {operator!r:.80}; expected {', '.join(_OPERATORS)}"
        elif problem := _operand_problem(operator, value):
            yield f"{place}[{operator!r}]", problem
    # An empty range is a mistake: no item would ever be recalled.
    low, high = _bound(condition, ("gt", "gte")), _bound(condition, ("lt", "lte"))
    if low is not None and high is not None and (not _comparable(low, high) or low > high):
        yield place, f"nothing is between {brief(low)} and {brief(high)}"


def _operators(condition: object) -> Mapping[str, Any]:
    """Return a condition as operators with their values: a list means `in`, any other value `eq`."""
    if isinstance(condition, Mapping):
        return condition
    if isinstance(condition, _LISTS):
        return {"in": condition}
    return {"eq": condition}


def _operand_problem(operator: str, value: object) -> str:
    if operator == "exists" and not isinstance(value, bool):
        return f"expected True or False, got {brief(value)}"
    if operator in _BOUNDS and (isinstance(value, bool) or not isinstance(value, int | float | str)):
        return f"expected a number or a text, got {brief(value)}"
    if operator == "in" and (not isinstance(value, _LISTS) or not value):
        return f"expected a list of values, at least one, got {brief(value)}"
    values: Iterable[object] = (value,)
    if isinstance(value, _LISTS):
        values = value
    for each in values:
        if not _is_json(each):
            return f"expected JSON values, at most {MAX_DEPTH} levels deep, got {brief(each)}"
    return ""


def _is_json(value: object, left: int = MAX_DEPTH) -> bool:
    if isinstance(value, list | tuple):
        return left > 0 and all(_is_json(each, left - 1) for each in value)
    if isinstance(value, Mapping):
        return left > 0 and all(isinstance(name, str) and _is_json(each, left - 1) for name, each in value.items())
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _bound(condition: Mapping[str, Any], names: tuple[str, str]) -> Any:
    return next((condition[name] for name in names if name in condition), None)


def _comparable(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    return isinstance(one, str) == isinstance(other, str) and isinstance(one, int | float | str)


def _meets(stored: Mapping[str, object], name: str, condition: object) -> bool:
    """Return True if stored metadata meets every operator of a condition; of a list, the list itself or a member."""
    operators = dict(_operators(condition))
    exists = operators.pop("exists", None)
    if exists is not None and (name in stored) is not exists:
        return False
    if not operators:
        return True
    # A name that is not stored meets no other operator: a missing value is not null.
    if name not in stored:
        return False
    value = stored[name]
    values = [value]
    if isinstance(value, list):
        values += value
    return any(all(_is_met(operator, each, wanted) for operator, wanted in operators.items()) for each in values)


def _is_met(operator: str, value: object, wanted: Any) -> bool:
    if operator == "eq":
        return _same(value, wanted)
    if operator == "in":
        return any(_same(value, each) for each in wanted)
    return _comparable(value, wanted) and _BOUNDS[operator](value, wanted)


def _same(one: Any, other: Any) -> bool:
    """Return True if two values are the same in JSON: 1 is 1.0, and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(other, list | tuple) or isinstance(one, list):
        right = isinstance(one, list) and isinstance(other, list | tuple) and len(one) == len(other)
        return right and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)
