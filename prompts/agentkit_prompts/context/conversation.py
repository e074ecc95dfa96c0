"""A conversation as an immutable view (start, stop) of an append-only log.

Appending costs time for new messages only: views share the log, and values derived from a message (wire form, token
count) are computed once per log, for the functions used last. Appending to an older view forks the log.
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
    """Joiner of texts. Equal joiners extend the same fold."""

    separator: str

    def __call__(self, text: str | None, texts: list[str]) -> str:
        """Return the text followed by more texts."""
        if text is not None:
            texts = [text, *texts]
        return self.separator.join(texts)


class _Derived:
    """Values that one function returned for the messages of a log."""

    __slots__ = ("failed", "folded", "totals", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.failed = False
        """True if the function raised for a message; it is called again for such a message of a view."""
        self.folded: _Folded | None = None
        """The last requested fold."""
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
        """Per message: True if every call up to this message has a result, and every result has a call."""
        self.pending: set[str] | None = set()
        """Ids of calls without a result at the end of `whole`; None after the first misplaced message."""

    def by(self, function: Any) -> _Derived:
        """Return the values of a function, and drop the values of the least recently used function."""
        derived = self.derived.get(function)
        if derived is None or len(self.derived) >= MAX_CACHED_PER_OBJECT:
            with self.lock:
                derived = self.derived.pop(function, None) or _Derived()
                if len(self.derived) >= MAX_CACHED_PER_OBJECT:
                    del self.derived[next(iter(self.derived))]
                self.derived[function] = derived
        return derived

    def audit(self, stop: int) -> None:
        """Extend `whole` to `stop` messages."""
        with self.lock:
            for message in self.messages[len(self.whole) : stop]:
                self._note_calls(message)
                self.whole.append(self.pending is not None and not self.pending)

    def _note_calls(self, message: Message) -> None:
        """Update `pending` with the next message."""
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
            # Another thread can have read the messages while this thread waited for the lock.
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
        """Return a conversation of `count` messages, which `read` returns at the first access."""
        return cls._view(_UnreadLog(read), 0, count)

    def append(self, *messages: Message) -> Conversation:
        """Return a conversation with `messages` appended; this conversation is not changed."""
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
            MessageError: The conversation is shorter, or tool results would be separated from their calls.
        """
        size = len(self)
        if type(count) is not int or not 0 <= count <= size:
            raise MessageError(f"expected a number of messages from 0 to {size}, got {count!r}", name="count")
        before, after = self._borders_of_results(count)
        if after > count:
            choice = f"use {before} or {after}"
            reason = f"the first {count} messages end between tool calls and their results: {choice}"
            raise MessageError(reason, value=count)
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
        """Return the messages before message `number` (1 is the first), followed by that message with new content.

        Raises:
            MessageError: The number is out of range, or the message is a tool message or has tool calls, which cannot
                be edited.
        """
        if type(number) is not int or not 1 <= number <= len(self):
            raise MessageError(f"expected the number of a message from 1 to {len(self)}, got {number!r}", name="number")
        old = self[number - 1]
        if old.role == "tool" or old.tool_calls:
            reason = f"message {number} belongs to a round of tool calls: rewind to an earlier message"
            raise MessageError(reason, value=number)
        if not isinstance(content, str):
            content = cast("tuple[Part, ...]", tuple(content))
        return self.until(number - 1), Message(old.role, content, name=old.name)

    def derive(self, function: Callable[[Message], T]) -> list[T]:
        """Return `function` of each message, computed once per message and log.

        `function` is the cache key: pass the same object every time. An exception for a message of this view is raised
        here; exceptions for messages outside the view are ignored.
        """
        log = self._log
        derived = log.by(function)
        values = derived.values
        if len(values) < self.stop:
            with log.lock:
                while len(values) < self.stop:
                    try:
                        values.extend(map(function, log.messages[len(values) : self.stop]))
                    # The values of the messages before this message stay stored.
                    except Exception:
                        values.append(_FAILED)
                        derived.failed = True
        view = values[self.start : self.stop]
        if derived.failed:
            return [function(self[at]) if value is _FAILED else value for at, value in enumerate(view)]
        return view

    def folded(self, function: Callable[[Message], T], extend: Callable[[F | None, list[T]], F]) -> F:
        """Return the values of `function`, combined by `extend`. The last result is stored and extended by later calls.

        Args:
            function: Is called once per message.
            extend: Returns the result for an earlier result, or None, and the values of the messages after it. It must
                not change the earlier result. A fold is reused if `extend` is equal.
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
        """Return the joined values of `function`; the last result is stored and extended by later calls."""
        return self.folded(function, _Joiner(separator))

    def totals(self, count: Callable[[Message], int]) -> tuple[list[int], int]:
        """Return running totals of `count` over the log, and the offset of this view in the totals.

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
        """Return the conversation without tool results that have no call, and without calls that have no result.

        No provider accepts such orphans. Text next to an unanswered call is kept. A conversation without orphans is
        returned unchanged; only its new messages are checked.
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
        """True if the content of a message might not be plain text. Stored messages are not read for this check."""
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

    def __add__(self, messages: Iterable[Message]) -> Conversation:
        """Return the conversation with more messages at the end; see `append`."""
        if not isinstance(messages, Iterable):
            return NotImplemented
        return self.append(*messages)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conversation):
            return NotImplemented
        if self._log is other._log and (self.start, self.stop) == (other.start, other.stop):
            return True
        return len(self) == len(other) and list(self) == list(other)

    def __hash__(self) -> int:
        # Equal conversations have equal last messages. A hash of all messages would cost more than a comparison.
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
    """Check that all items are messages; return True if the content of a message is not plain text."""
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
