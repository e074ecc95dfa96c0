"""`PromptContext`: everything a prompt may be rendered from, in one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from operator import attrgetter, countOf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypedDict, Unpack, final

from pydantic import ConfigDict

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import Derived
from agentkit_prompts.context.items import (
    Document,
    Example,
    Fact,
    RecalledMessage,
    Selection,
    ToolSpec,
    Trust,
    short_form,
)
from agentkit_prompts.context.json_form import Data
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.nonces import nonce_of, without_nonce
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.read_fields import (
    NO_DATA,
    NO_MESSAGES,
    Reader,
    items_of,
    make_item,
    one_of,
    read_as,
    read_conversation,
    read_data,
    read_names,
    unknown,
)
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.context.user_input import UserInput
from agentkit_prompts.errors import ContextError, Problem, Problems

__all__ = [
    "CONTEXT_NAMES",
    "Document",
    "Example",
    "Fact",
    "PromptContext",
    "RecalledMessage",
    "Selection",
    "ToolSpec",
    "Trust",
    "UserInput",
]


if TYPE_CHECKING:

    class _Elements(TypedDict, total=False):
        elements: _Documents

    class _Given(_Elements, total=False):
        """What a context can be made anew of."""

        user_input: _Input
        conversation: _Messages
        recalled: _Recalled
        documents: _Documents
        knowledge: _Facts
        summary: str | None
        tools: _Tools
        examples: _Examples
        intermediate: _Messages
        locale: str | None
        now: datetime | None
        session_key: str | None
        extra: Mapping[str, Any]
        selections: Iterable[Selection]
        kept_kwargs: Iterable[str]


_Input: TypeAlias = "UserInput | str | Part | Iterable[str | Part] | Mapping[str, Any]"
_Messages: TypeAlias = Iterable[Message | Mapping[str, Any]]
_Documents: TypeAlias = Iterable[Document | str | Mapping[str, Any]]
_Recalled: TypeAlias = Iterable[RecalledMessage | Mapping[str, Any]]
_Facts: TypeAlias = Iterable[Fact | str | Mapping[str, Any]]
_Tools: TypeAlias = Iterable[ToolSpec | Mapping[str, Any]]
_Examples: TypeAlias = Iterable[Example | Mapping[str, Any]]

_put = object.__setattr__
_MISSING: Any = object()
_NOTHING: tuple[Any, ...] = ()


def _user_input(value: Any, place: str, problems: Problems) -> Any:
    if type(value) is str:
        return UserInput(value)
    if isinstance(value, UserInput):
        return value
    if value is _MISSING:
        problems.append(Problem(place, "missing"))
        return None
    given = value if isinstance(value, Mapping) else {"input": value}
    return make_item(UserInput, given, place, problems, ["additional_info"])


def _session_key(value: Any, place: str, problems: Problems) -> Any:
    text = _text(value, place, problems)
    if isinstance(text, str) and not text.strip():
        problems.append(Problem(place, "is empty, so that its fences are no secret: give one, or None"))
    return text


class _WithNonce(Derived):
    __slots__ = ("_nonce",)

    _nonce: str


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, init=False, repr=False)
class PromptContext(_WithNonce):
    """The one input of every prompt: a value. What it holds reaches templates as it is, never dumped or copied.

    Documents, facts, recalled and other messages, examples and tools may be given as mappings of their fields,
    documents and facts also as text. `elements` is another name of `documents`. `TypeAdapter(PromptContext)` writes it
    as JSON and reads it back. `allow_media=True` lets messages in the form of a provider name media in files of this
    machine, or at addresses that are not public; it is not a field.

    Raises:
        ContextError: Something has the wrong type, or there is no such field; names all problems with their places.
    """

    __repr__ = short_repr

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    _full = short_form("", elements="documents")

    user_input: UserInput
    """What the user sent now. Text, parts or a mapping are accepted."""
    conversation: Conversation = NO_MESSAGES
    """Messages before this turn."""
    recalled: tuple[RecalledMessage, ...] = ()
    """Messages of earlier conversations, recalled for this turn, best first."""
    documents: tuple[Document, ...] = ()
    """Documents recalled for this turn, best first."""
    knowledge: tuple[Fact, ...] = ()
    """Facts recalled for this turn."""
    summary: str | None = None
    """What stands for the messages before `conversation` that are not shown."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools the model may call."""
    examples: tuple[Example, ...] = ()
    """Worked examples a selector may choose from."""
    intermediate: Conversation = NO_MESSAGES
    """Tool calls and results of this turn so far."""
    locale: str | None = None
    """Language tag, such as `en` or `zh-CN`, that picks the text of a template."""
    now: datetime | None = None
    """The time of the turn. Injected: templates have no clock."""
    extra: Data = field(default_factory=lambda: NO_DATA, hash=False)
    """Anything else the developer wants in reach of templates; trusted."""
    session_key: str | None = field(default=None, repr=False)
    """Secret of the session that fences derive their nonce from; templates cannot read it."""
    selections: tuple[Selection, ...] = ()
    """Which examples were chosen for which prompt, see `prepare`; used while input and pool stay the same."""
    kept_kwargs: tuple[str, ...] = ()
    """Names of the additional kwargs that did not come with this input: the session keeps them in force."""

    def __init__(
        self,
        *,
        user_input: _Input = _MISSING,
        conversation: _Messages = NO_MESSAGES,
        recalled: _Recalled = _NOTHING,
        documents: _Documents = _NOTHING,
        knowledge: _Facts = (),
        summary: str | None = None,
        tools: _Tools = (),
        examples: _Examples = (),
        intermediate: _Messages = NO_MESSAGES,
        locale: str | None = None,
        now: datetime | None = None,
        session_key: str | None = None,
        extra: Mapping[str, Any] = NO_DATA,
        selections: Iterable[Selection] = (),
        kept_kwargs: Iterable[str] = (),
        allow_media: bool = False,
        **others: Unpack[_Elements],
    ) -> None:
        problems: Problems = []
        read_messages: Reader = read_conversation
        if others or allow_media is not False:
            documents = _by_other_name(documents, others, problems)
            if not isinstance(allow_media, bool):
                problems.append(Problem("allow_media", f"expected True or False, got {type(allow_media).__name__}"))
            elif allow_media:
                read_messages = _read_with_media
        if type(user_input) is not UserInput:
            user_input = _user_input(user_input, "user_input", problems)
        if type(conversation) is not Conversation:
            conversation = read_messages(conversation, "conversation", problems)
        if recalled is not _NOTHING and (
            type(recalled) is not tuple or countOf(map(type, recalled), RecalledMessage) != len(recalled)
        ):
            recalled = _recalled(recalled, "recalled", problems)
        if documents is not _NOTHING and (
            type(documents) is not tuple or countOf(map(type, documents), Document) != len(documents)
        ):
            documents = _documents(documents, "documents", problems)
        if knowledge is not _NOTHING and (
            type(knowledge) is not tuple or countOf(map(type, knowledge), Fact) != len(knowledge)
        ):
            knowledge = _facts(knowledge, "knowledge", problems)
        if summary is not None:
            summary = _text(summary, "summary", problems)
        if tools is not _NOTHING and (type(tools) is not tuple or countOf(map(type, tools), ToolSpec) != len(tools)):
            tools = _tools(tools, "tools", problems)
        if examples is not _NOTHING and (
            type(examples) is not tuple or countOf(map(type, examples), Example) != len(examples)
        ):
            examples = _examples(examples, "examples", problems)
        if type(intermediate) is not Conversation:
            intermediate = read_messages(intermediate, "intermediate", problems)
        if locale is not None:
            locale = _text(locale, "locale", problems)
        if now is not None:
            now = _time(now, "now", problems)
        if extra is not NO_DATA:
            extra = read_data(extra, "extra", problems)
        if session_key is not None:
            session_key = _session_key(session_key, "session_key", problems)
        if selections is not _NOTHING and (
            type(selections) is not tuple or countOf(map(type, selections), Selection) != len(selections)
        ):
            selections = _selections(selections, "selections", problems)
        if kept_kwargs is not _NOTHING:
            kept_kwargs = read_names(kept_kwargs, "kept_kwargs", problems)
        if problems:
            raise ContextError("PromptContext", problems)
        _put(self, "__class__", _Unfrozen)
        made: Any = self
        made.user_input = user_input
        made.conversation = conversation
        made.recalled = recalled
        made.documents = documents
        made.knowledge = knowledge
        made.summary = summary
        made.tools = tools
        made.examples = examples
        made.intermediate = intermediate
        made.locale = locale
        made.now = now
        made.extra = extra
        made.session_key = session_key
        made.selections = selections
        made.kept_kwargs = kept_kwargs
        if session_key is not None:
            made._nonce = nonce = nonce_of(session_key)
            for name in _UNTRUSTED:
                setattr(made, name, _without_nonce(getattr(made, name), name, nonce, problems))
            if problems:
                raise ContextError("PromptContext", problems)
        made.__class__ = PromptContext

    @property
    def view(self) -> MappingProxyType[str, Any]:
        """Read-only mapping of the names a template can use to their values, built once."""
        try:
            view: MappingProxyType[str, Any] = self._derived
        except AttributeError:
            names = {
                "user_input": self.user_input,
                "conversation": self.conversation,
                "recalled": self.recalled,
                "documents": self.documents,
                "knowledge": self.knowledge,
                "summary": self.summary,
                "tools": self.tools,
                "examples": self.examples,
                "intermediate": self.intermediate,
                "locale": self.locale,
                "now": self.now,
                "extra": self.extra,
                "additional_kwargs": self.user_input.additional_kwargs,
            }
            view = MappingProxyType(names)
            _put(self, "_derived", view)
        return view

    @property
    def nonce(self) -> str | None:
        """The nonce of the fences of the session, which templates cannot read; None without a session key."""
        if self.session_key is None:
            return None
        try:
            return self._nonce
        except AttributeError:  # a copy, or one that was stored
            _put(self, "_nonce", nonce_of(self.session_key))
            return self._nonce

    def evolve(self, *, allow_media: bool = False, **changes: Unpack[_Given]) -> Self:
        """Return a copy with some fields replaced, which are checked. Raises like the class."""
        given: Mapping[str, Any] = changes
        if allow_media is not False or "session_key" in given or not _READERS.keys() >= given.keys():
            kept = {name: getattr(self, name) for name in CONTEXT_FIELDS if name not in given}
            if "elements" in given:
                kept.pop("documents", None)
            return type(self)(**kept, **given, allow_media=allow_media)
        problems: Problems = []
        values = [*_values(self)]
        nonce = self.nonce
        for name, value in given.items():
            read = _READERS[name](value, name, problems)
            if nonce is not None and name in _UNTRUSTED:
                read = _without_nonce(read, name, nonce, problems)
            values[_PLACES[name]] = read
        if problems:
            raise ContextError("PromptContext", problems)
        copy: Any = object.__new__(_Unfrozen)
        if nonce is not None:
            copy._nonce = nonce
        for name, value in zip(CONTEXT_FIELDS, values, strict=True):
            setattr(copy, name, value)
        copy.__class__ = PromptContext
        frozen: Self = copy
        return frozen


_PLAIN_SETTING = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
_Unfrozen: Any = type("_Unfrozen", (PromptContext,), _PLAIN_SETTING)
"""The class of a context while it is made: filling the fields of a frozen one takes four times as long."""


def _without_nonce(value: Any, place: str, nonce: str, problems: Problems) -> Any:
    """Return a value of a field without the nonce; the code of what the user gave may fail."""
    return read_as(partial(without_nonce, nonce=nonce), value, place, problems)


def _by_other_name(documents: _Documents, others: Mapping[str, Any], problems: Problems) -> Any:
    """Return the documents, which may be given as `elements`."""
    for name, value in others.items():
        if name != "elements":
            problems.append(Problem("", unknown(name, CONTEXT_FIELDS)))
        elif documents is not _NOTHING:
            problems.append(Problem(name, "another name of documents, which are given too: pass one of them"))
        else:
            return _documents(value, name, problems)
    return documents


_text = one_of(str)
_time = one_of(datetime)
_documents = items_of(Document, from_text=True)
_recalled = items_of(RecalledMessage)
_facts = items_of(Fact, from_text=True)
_tools = items_of(ToolSpec)
_examples = items_of(Example)
_selections = items_of(Selection)
_READERS: Mapping[str, Reader] = {
    "user_input": _user_input,
    "conversation": read_conversation,
    "recalled": _recalled,
    "documents": _documents,
    "knowledge": _facts,
    "summary": _text,
    "tools": _tools,
    "examples": _examples,
    "intermediate": read_conversation,
    "locale": _text,
    "now": _time,
    "extra": read_data,
    "session_key": _session_key,
    "selections": _selections,
    "kept_kwargs": read_names,
}
_read_with_media: Reader = partial(read_conversation, allow_media=True)
_HIDDEN = ("session_key", "selections", "kept_kwargs")
"""Fields that templates cannot read."""
CONTEXT_FIELDS = tuple(item.name for item in fields(PromptContext))
_UNTRUSTED = frozenset(CONTEXT_FIELDS).difference(_HIDDEN, ("now", "extra"))
"""Fields that hold what others wrote: of the nonce of a fence they hold no copy."""
CONTEXT_NAMES: frozenset[str] = frozenset({*CONTEXT_FIELDS, "additional_kwargs"}.difference(_HIDDEN))
"""The names every template can read."""
_PLACES: Mapping[str, int] = {name: at for at, name in enumerate(CONTEXT_FIELDS)}
_values: Callable[[PromptContext], tuple[Any, ...]] = attrgetter(*CONTEXT_FIELDS)
