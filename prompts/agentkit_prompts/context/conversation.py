"""A conversation as an immutable view (start, stop) of an append-only log.

Appending costs what is new: views share the log, and whatever is derived from a message (its wire form, its token
count) is derived once per log, by the functions used last. Appending to an older view forks the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from pydantic_core import CoreSchema, core_schema

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.errors import MessageError, check_types
from agentkit_prompts.limits import MAX_CACHED_PER_OBJECT

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

__all__ = ["Conversation"]

T = TypeVar("T")
F = TypeVar("F")


_FAILED = object()


class _Folded(NamedTuple):
    """A fold of the messages from `start` to `stop`."""

    start: int
    stop: int
    extend: Callable[..., Any]
    value: Any


@dataclass(frozen=True, slots=True)
class _Joiner:
    """Joins texts. Equal joiners extend the same fold."""

    separator: str

    def __call__(self, text: str | None, texts: list[str]) -> str:
        """Return the text with more texts at its end."""
        if text is not None:
            texts = [text, *texts]
        return self.separator.join(texts)


class _Derived:
    """The values that one function returned for the messages of a log."""

    __slots__ = ("failed", "folded", "totals", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.failed = False
        """True if it raised for some message; it is called again for such a message of a view."""
        self.folded: _Folded | None = None
        """The fold asked for last."""
        self.totals = [0]


class _Log:
    __slots__ = ("derived", "has_parts", "lock", "messages", "pending", "whole")

    def __init__(self, messages: list[Message], has_parts: bool) -> None:
        self.messages = messages
        self.has_parts = has_parts
        """True if the content of some message is not plain text."""
        self.derived: dict[Any, _Derived] = {}
        self.lock = Lock()
        self.whole: list[bool] = []
        """Per message: True if every call up to here has its result, and every result its call."""
        self.pending: set[str] | None = set()
        """Ids of calls still waiting for a result at the end of `whole`; None once something was out of place."""

    def by(self, function: Any) -> _Derived:
        """Return the values of a function. The values of the function used longest ago are dropped."""
        derived = self.derived.get(function)
        if derived is None or len(self.derived) >= MAX_CACHED_PER_OBJECT:
            with self.lock:
                derived = self.derived.pop(function, None) or _Derived()
                if len(self.derived) >= MAX_CACHED_PER_OBJECT:
                    del self.derived[next(iter(self.derived))]
                self.derived[function] = derived
        return derived

    def audit(self, stop: int) -> None:
        """Bring `whole` up to `stop` messages."""
        with self.lock:
            for message in self.messages[len(self.whole) : stop]:
                self._note_calls(message)
                self.whole.append(self.pending is not None and not self.pending)

    def _note_calls(self, message: Message) -> None:
        """Bring `pending` up to the next message."""
        if self.pending is None:
            return
        if message.role == "tool" and message.tool_call_id in self.pending:
            self.pending.remove(message.tool_call_id)
        elif message.role == "tool" or self.pending:
            self.pending = None
        else:
            self.pending = {call.id for call in message.tool_calls}


class _UnreadLog(_Log):
    """A log whose messages are read at their first use."""

    __slots__ = ("_read", "_reading")

    def __init__(self, read: Callable[[], list[Message]]) -> None:
        super().__init__([], False)
        del self.messages, self.has_parts
        self._read = read
        self._reading = Lock()

    def __getattr__(self, name: str) -> Any:
        if name not in ("messages", "has_parts"):
            raise AttributeError(name)
        with self._reading:
            # Another thread can have read them while this one waited for the lock.
            try:
                return object.__getattribute__(self, name)
            except AttributeError:
                messages = self._read()
                self.has_parts, self.messages = _check(messages, 0), messages
        return getattr(self, name)


class Conversation(Sequence[Message]):
    """An immutable sequence of messages.

    Raises:
        MessageError: An item is not a `Message`.
    """

    __slots__ = ("_log", "start", "stop")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        # The check of an abstract class is slow, and most programs pass a list.
        if type(messages) not in (list, tuple):
            check_types(MessageError, "Conversation", messages=(messages, Iterable, "messages"))
        items = list(messages)
        self._log = _Log(items, _check(items, 0))
        self.start = 0
        self.stop = len(items)

    @classmethod
    def _view(cls, log: _Log, start: int, stop: int) -> Conversation:
        view = cls.__new__(cls)
        view._log = log
        view.start = start
        view.stop = stop
        return view

    @classmethod
    def unread(cls, read: Callable[[], list[Message]], count: int) -> Conversation:
        """Return a conversation of `count` messages, which `read` returns when the first of them is used."""
        return cls._view(_UnreadLog(read), 0, count)

    def append(self, *messages: Message) -> Conversation:
        """Return the conversation with `messages` at its end; this one stays as it is."""
        has_parts = _check(messages, len(self))
        log = self._log
        with log.lock:
            # Only the newest view can share the log: an older one would see messages of another branch.
            if self.stop == len(log.messages):
                log.messages.extend(messages)
                log.has_parts = log.has_parts or has_parts
                return Conversation._view(log, self.start, self.stop + len(messages))
        forked = _Log([*self, *messages], log.has_parts or has_parts)
        return Conversation._view(forked, 0, len(forked.messages))

    def window(self, start: int, stop: int) -> Conversation:
        """Return messages `start` to `stop` of this view, sharing its log."""
        size = len(self)
        start, stop = max(0, min(start, size)), max(0, min(stop, size))
        return Conversation._view(self._log, self.start + start, self.start + max(start, stop))

    def until(self, count: int) -> Conversation:
        """Return the first `count` messages, to continue from there.

        Raises:
            MessageError: There are fewer messages, or tool results would be cut from their calls.
        """
        size = len(self)
        if type(count) is not int or not 0 <= count <= size:
            raise MessageError(f"expected a number of messages from 0 to {size}, got {count!r}", name="count")
        before, after = self._borders_of_results(count)
        if after > count:
            choice = f"keep {before} or {after}"
            what = f"the first {count} messages end between tool calls and their results: {choice}"
            raise MessageError(what, value=count)
        return self.window(0, count)

    def _borders_of_results(self, position: int) -> tuple[int, int]:
        """Return the positions before the message that calls and after the last result, for results at `position`."""
        first = last = position
        while last < len(self) and self[last].role == "tool":
            last += 1
        while first > 0 and self[first - 1].role == "tool":
            first -= 1
        return max(0, first - 1), last

    def edited(self, number: int, content: str | Iterable[str | Part]) -> tuple[Conversation, Message]:
        """Return the messages before message `number`, the first of which is 1, and that message with other content.

        Raises:
            MessageError: No message has the number, or it is a tool message or calls tools, which cannot be edited.
        """
        if type(number) is not int or not 1 <= number <= len(self):
            raise MessageError(f"expected the number of a message from 1 to {len(self)}, got {number!r}", name="number")
        old = self[number - 1]
        if old.role == "tool" or old.tool_calls:
            what = f"message {number} is part of a round of tool calls: rewind to a message before it"
            raise MessageError(what, value=number)
        if not isinstance(content, str):
            content = cast("tuple[Part, ...]", tuple(content))
        return self.until(number - 1), Message(old.role, content, name=old.name)

    def derive(self, function: Callable[[Message], T]) -> list[T]:
        """Return `function` of each message, computed once per message and log.

        `function` is the cache key: pass the same object every time. What it raises for a message of this view is
        raised here; messages before the view do not matter.
        """
        log = self._log
        derived = log.by(function)
        values = derived.values
        if len(values) < self.stop:
            with log.lock:
                while len(values) < self.stop:
                    try:
                        values.extend(map(function, log.messages[len(values) : self.stop]))
                    # The values of the messages before this one are kept.
                    except Exception:
                        values.append(_FAILED)
                        derived.failed = True
        shown = values[self.start : self.stop]
        if derived.failed:
            return [function(self[at]) if value is _FAILED else value for at, value in enumerate(shown)]
        return shown

    def folded(self, function: Callable[[Message], T], extend: Callable[[F | None, list[T]], F]) -> F:
        """Return the values of `function`, put together by `extend`. The result of the last call is kept, and grows.

        Args:
            function: Is called once per message.
            extend: Returns the result for an earlier result, or None, and the values of the messages after it. It must
                not change the earlier result. It is compared with the one of the last call.
        """
        start, stop = self.start, self.stop
        derived = self._log.by(function)
        latest = derived.folded
        begin, value = start, None
        if latest is not None and latest.start == start < latest.stop <= stop and latest.extend == extend:
            begin, value = latest.stop, latest.value
        if begin < stop or value is None:
            value = extend(value, self.window(begin - start, stop - start).derive(function))
            derived.folded = _Folded(start, stop, extend, value)
        return value

    def joined(self, function: Callable[[Message], str], separator: str) -> str:
        """Return `function` of each message joined; the result of the last call is kept, and grows."""
        return self.folded(function, _Joiner(separator))

    def totals(self, count: Callable[[Message], int]) -> tuple[list[int], int]:
        """Return running totals of `count` over the log, and the offset of this view in them.

        The sum over messages i to j of the view is `totals[offset + j] - totals[offset + i]`.
        """
        log = self._log
        totals = log.by(count).totals
        if len(totals) <= self.stop:
            with log.lock:
                new = map(count, log.messages[len(totals) - 1 : self.stop])
                totals.extend(islice(accumulate(new, initial=totals[-1]), 1, None))
        return totals, self.start

    def complete(self) -> Conversation:
        """Return the conversation without tool results whose call is missing and calls whose results are.

        No provider accepts such orphans. Text next to an unanswered call is kept. A conversation without orphans is
        returned as it is, and costs the check of its new messages only.
        """
        start, stop = self.start, self.stop
        if start == stop:
            return self
        log = self._log
        if len(log.whole) < stop:
            log.audit(stop)
        # A result at the start of a view has its call before the view.
        if log.whole[stop - 1] and log.messages[start].role != "tool":
            return self
        return Conversation(message for _, message in _without_orphans(list(self)))

    def complete_at(self) -> Sequence[int]:
        """Return, for each message of `complete()`, its index in this conversation."""
        if self.complete() is self:
            return range(len(self))
        return [index for index, _ in _without_orphans(list(self))]

    def total(self, count: Callable[[Message], int]) -> int:
        """Return the sum of `count` over the messages of this view, counting each message once per log."""
        totals = self._log.by(count).totals
        if len(totals) <= self.stop:
            totals, _ = self.totals(count)
        return totals[self.stop] - totals[self.start]

    @property
    def may_have_media(self) -> bool:
        """True if the content of some message may not be plain text. Messages are not read for this."""
        return self._log.has_parts

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Message]:
        return iter(self._log.messages[self.start : self.stop])

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Conversation: ...
    def __getitem__(self, index: int | slice) -> Message | Conversation:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self.window(start, stop)
            return Conversation([self[i] for i in range(start, stop, step)])
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"conversation has {size} messages, no message {index}")
        return self._log.messages[self.start + index % size]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conversation):
            return NotImplemented
        if self._log is other._log and (self.start, self.stop) == (other.start, other.stop):
            return True
        return len(self) == len(other) and list(self) == list(other)

    def __hash__(self) -> int:
        # Equal conversations have equal ends. A hash of all messages would cost more than comparing.
        return hash((len(self), self[-1].text if len(self) else ""))

    def __reduce__(self) -> tuple[type[Conversation], tuple[list[Message]]]:
        return Conversation, (list(self),)

    def __copy__(self) -> Conversation:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Conversation:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        messages = handler.generate_schema(list[Message])
        return core_schema.no_info_wrap_validator_function(
            lambda value, read: value if isinstance(value, cls) else cls(read(value)),
            messages,
            serialization=core_schema.plain_serializer_function_ser_schema(list, return_schema=messages),
        )

    def __repr__(self) -> str:
        return f"Conversation({len(self)} messages)"


def _check(messages: Iterable[object], first: int) -> bool:
    """Refuse what is not a message; return True if the content of some message is not plain text."""
    has_parts = False
    for index, message in enumerate(messages, first):
        if not isinstance(message, Message):
            place = f"conversation[{index}]"
            raise MessageError(f"{place}: expected a Message, got {type(message).__name__}", path=place)
        has_parts = has_parts or type(message.content) is not str
    return has_parts


def _without_orphans(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Yield messages with their index; a call only if all its results follow at once, a result only after its call."""
    for index, message in enumerate(messages):
        if message.role == "tool":
            continue
        if not message.tool_calls:
            yield index, message
            continue
        ids = {call.id for call in message.tool_calls}
        results = _results_after(messages, index, ids)
        if len(results) == len(ids):
            yield index, message
            yield from results.values()
        elif message.content:
            yield index, Message("assistant", message.content)


def _results_after(messages: Sequence[Message], index: int, ids: set[str]) -> dict[str, tuple[int, Message]]:
    """Return the first result of each call that directly follows message `index`, by the id of the call."""
    results: dict[str, tuple[int, Message]] = {}
    for number in range(index + 1, len(messages)):
        message = messages[number]
        if message.role != "tool":
            break
        if message.tool_call_id in ids:
            results.setdefault(message.tool_call_id, (number, message))
    return results
