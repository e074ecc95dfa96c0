"""A conversation: an immutable view (start, stop) of an append-only log of messages.

Views share the log, so an append takes time for the new messages only. The log caches values derived from its messages,
such as wire forms and token counts, for the functions that were used last. An append to an older view copies the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from pydantic_core import CoreSchema, core_schema

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.orphans import without_orphans
from agentkit_prompts.context.parts import Part
from agentkit_prompts.errors import MessageError, brief, check_types
from agentkit_prompts.hints import hinted
from agentkit_prompts.limits import MAX_CACHED_PER_OBJECT

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

T = TypeVar("T")
F = TypeVar("F")


_FAILED = object()
"""Cached instead of the value of a message for which the function raised."""


class _StoredFold(NamedTuple):
    """Result of a fold of the messages of a log from `start` to `stop`."""

    start: int
    stop: int
    extend: Callable[..., Any]
    value: Any


@dataclass(frozen=True, slots=True)
class _Joiner:
    """Extender of a fold that joins texts. Joiners with one separator are equal, so that they extend the same fold."""

    separator: str

    def __call__(self, text: str | None, texts: list[str]) -> str:
        """Return `text`, or nothing if None, followed by `texts`."""
        if text is not None:
            texts = [text, *texts]
        return self.separator.join(texts)


class _CachedValues:
    """Values of one function for the messages of a log, from the first message on."""

    __slots__ = ("failed", "fold", "totals", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.failed = False
        """True if the function raised for a message. It is called again if a view contains this message."""
        self.fold: _StoredFold | None = None
        """The fold that was requested last."""
        self.totals = [0]
        """Running totals: item `n` is the sum of the values of the first `n` messages."""


class _Log:
    """Messages that several views share, and values derived from them."""

    __slots__ = ("cached", "complete_up_to", "has_parts", "lock", "messages", "pending")

    def __init__(self, messages: list[Message], has_parts: bool) -> None:
        self.messages = messages
        self.has_parts = has_parts
        """True if the content of a message is not a `str`."""
        self.cached: dict[Any, _CachedValues] = {}
        """Cached values by the function that returned them."""
        self.lock = Lock()
        self.complete_up_to: list[bool] = []
        """For each message: True if, up to this message, every call has a result and every result has a call."""
        self.pending: set[str] | None = set()
        """Ids of the calls that have no result yet after the last message of `complete_up_to`; None after a misplaced
        message."""

    def values_of(self, function: Any) -> _CachedValues:
        """Return the cached values of a function; if too many functions have values, drop the oldest."""
        derived = self.cached.get(function)
        if derived is None or len(self.cached) >= MAX_CACHED_PER_OBJECT:
            with self.lock:
                derived = self.cached.pop(function, None) or _CachedValues()
                if len(self.cached) >= MAX_CACHED_PER_OBJECT:
                    del self.cached[next(iter(self.cached))]
                self.cached[function] = derived
        return derived

    def check_completeness(self, stop: int) -> None:
        """Compute `complete_up_to` for the first `stop` messages."""
        with self.lock:
            messages = self.messages[len(self.complete_up_to) : stop]
            # Fast path: most messages have no calls.
            if self.pending == set() and not any(m.tool_calls or m.role == "tool" for m in messages):
                self.complete_up_to += [True] * len(messages)
                return
            for message in messages:
                self._note_calls(message)
                self.complete_up_to.append(self.pending is not None and not self.pending)

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
    """A log whose messages are read from a store at their first use."""

    __slots__ = ("_read", "_reading")

    def __init__(self, read: Callable[[], list[Message]]) -> None:
        super().__init__([], False)
        # A missing attribute calls `__getattr__`, which reads the messages.
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


@hinted
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
        """Return a conversation of `count` messages; `read`, which returns them, is called at the first access."""
        return cls._view(_UnreadLog(read), 0, count)

    def append(self, *messages: Message) -> Conversation:
        """Return a conversation with `messages` appended; this conversation is not changed."""
        has_parts = _check(messages, len(self))
        log = self._log
        with log.lock:
            # Only a view that ends at the last message can extend the log. For an older view, the log already contains
            # other next messages.
            if self.stop == len(log.messages):
                log.messages.extend(messages)
                log.has_parts = log.has_parts or has_parts
                return Conversation._view(log, self.start, self.stop + len(messages))
        forked = _Log([*self, *messages], log.has_parts or has_parts)
        return Conversation._view(forked, 0, len(forked.messages))

    def window(self, start: int, stop: int) -> Conversation:
        """Return the view of messages `start` to `stop` of this view; numbers out of range are limited to the range."""
        size = len(self)
        start, stop = max(0, min(start, size)), max(0, min(stop, size))
        return Conversation._view(self._log, self.start + start, self.start + max(start, stop))

    def until(self, count: int) -> Conversation:
        """Return the first `count` messages, to continue the conversation from there.

        Raises:
            MessageError: The conversation is shorter, or the cut would separate tool results from their calls.
        """
        size = len(self)
        if type(count) is not int or not 0 <= count <= size:
            raise MessageError(f"expected a number of messages from 0 to {size}, got {brief(count)}", name="count")
        before, after = self._borders_of_results(count)
        if after > count:
            choice = f"use {before} or {after}"
            reason = f"the first {count} messages end between tool calls and their results: {choice}"
            raise MessageError(reason, value=count)
        return self.window(0, count)

    def _borders_of_results(self, position: int) -> tuple[int, int]:
        """Return the nearest valid cuts: before the calls and after the results of the tool messages at `position`.

        Both are equal to or next to `position` if it is not between calls and results.
        """
        first = last = position
        while last < len(self) and self[last].role == "tool":
            last += 1
        while first > 0 and self[first - 1].role == "tool":
            first -= 1
        return max(0, first - 1), last

    def edited(self, number: int, content: str | Iterable[str | Part]) -> tuple[Conversation, Message]:
        """Return the messages before message `number` (1 is the first), and this message with new content.

        Raises:
            MessageError: The number is out of range, or the message is a tool message or has tool calls, which cannot
                be edited.
        """
        if type(number) is not int or not 1 <= number <= len(self):
            raise MessageError(
                f"expected the number of a message from 1 to {len(self)}, got {brief(number)}", name="number"
            )
        old = self[number - 1]
        if old.role == "tool" or old.tool_calls:
            reason = f"message {number} belongs to a round of tool calls: rewind to an earlier message"
            raise MessageError(reason, value=number)
        if not isinstance(content, str):
            content = cast("tuple[Part, ...]", tuple(content))
        return self.until(number - 1), Message(old.role, content, name=old.name)

    def derive(self, function: Callable[[Message], T]) -> list[T]:
        """Return the values of `function` for the messages; the log caches each value.

        `function` is the cache key: pass the same object every time. An exception for a message of this view is
        raised; exceptions for messages outside the view are ignored.
        """
        log = self._log
        derived = log.values_of(function)
        values = derived.values
        if len(values) < self.stop:
            with log.lock:
                while len(values) < self.stop:
                    try:
                        values.extend(map(function, log.messages[len(values) : self.stop]))
                    # `extend` has stored the values of the messages before the message that raised.
                    except Exception:
                        values.append(_FAILED)
                        derived.failed = True
        view = values[self.start : self.stop]
        if derived.failed:
            return [function(self[at]) if value is _FAILED else value for at, value in enumerate(view)]
        return view

    def fold(self, function: Callable[[Message], T], extend: Callable[[F | None, list[T]], F]) -> F:
        """Return the values of `function` for the messages, combined by `extend`.

        The last result is cached. After an append, `extend` is called with that result and the new values only.

        Args:
            function: Function of a message; its values are cached as by `derive`.
            extend: Function of an earlier result, or None, and of the values of the messages after that result. It
                returns the result for all messages and must not change the earlier result. The cached result is
                used only if `extend` is equal to the function that computed it.
        """
        start, stop = self.start, self.stop
        derived = self._log.values_of(function)
        latest = derived.fold
        begin, value = start, None
        if latest is not None and latest.start == start < latest.stop <= stop and latest.extend == extend:
            begin, value = latest.stop, latest.value
        if begin < stop or value is None:
            value = extend(value, self.window(begin - start, stop - start).derive(function))
            derived.fold = _StoredFold(start, stop, extend, value)
        return value

    def join(self, function: Callable[[Message], str], separator: str) -> str:
        """Return the texts of `function` for the messages, joined by `separator`; cached as by `fold`."""
        return self.fold(function, _Joiner(separator))

    def totals(self, count: Callable[[Message], int]) -> tuple[list[int], int]:
        """Return the running totals of `count` over the log, and the offset of this view in the totals.

        The sum over messages i to j of the view is `totals[offset + j] - totals[offset + i]`.
        """
        log = self._log
        totals = log.values_of(count).totals
        if len(totals) <= self.stop:
            with log.lock:
                new = map(count, log.messages[len(totals) - 1 : self.stop])
                totals.extend(islice(accumulate(new, initial=totals[-1]), 1, None))
        return totals, self.start

    def complete(self) -> Conversation:
        """Return the conversation without calls that lack a result, and without results that lack a call.

        No provider accepts such orphans. The text of a message with removed calls is kept. A message between a call and
        its result follows the result. A conversation without orphans is returned unchanged. The log caches the check,
        so that only new messages are checked.
        """
        start, stop = self.start, self.stop
        if start == stop:
            return self
        log = self._log
        if len(log.complete_up_to) < stop:
            log.check_completeness(stop)
        # A tool result at the start of a view is an orphan, because its call is before the view.
        if log.complete_up_to[stop - 1] and log.messages[start].role != "tool":
            return self
        return Conversation(message for _, message in without_orphans(list(self)))

    def complete_at(self) -> Sequence[int]:
        """Return, for each message of `complete()`, its index in this conversation."""
        if self.complete() is self:
            return range(len(self))
        return [index for index, _ in without_orphans(list(self))]

    def total(self, count: Callable[[Message], int]) -> int:
        """Return the sum of `count` over the messages of this view; the log caches the running totals."""
        totals = self._log.values_of(count).totals
        if len(totals) <= self.stop:
            totals, _ = self.totals(count)
        return totals[self.stop] - totals[self.start]

    @property
    def may_have_media(self) -> bool:
        """True if the content of a message of the log is not a `str`."""
        return self._log.has_parts

    def extends(self, earlier: Conversation) -> bool:
        """True if this conversation is `earlier` with messages appended to it."""
        return self._log is earlier._log and self.start == earlier.start and self.stop >= earlier.stop

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
        # Equal conversations have equal last messages. A hash of all messages would be slower than a comparison.
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
