"""`PromptContext`: all input of prompts in one frozen value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, TypedDict, Unpack, cast, final

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
    labelled_apart,
    short_form,
)
from agentkit_prompts.context.json_form import Data
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.nonces import nonce_of, without_nonce
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.read_fields import (
    NO_DATA,
    NO_MESSAGES,
    ItemsReader,
    Reader,
    make_item,
    one_of,
    read_conversation,
    read_conversation_with_media,
    read_data,
    read_names,
    unknown_field,
)
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.context.user_input import UserInput
from agentkit_prompts.errors import ContextError, Problem, Problems

__all__ = [
    "CONTEXT_FIELDS",
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

_Input: TypeAlias = "UserInput | str | Part | Iterable[str | Part] | Mapping[str, Any]"
_Messages: TypeAlias = Iterable[Message | Mapping[str, Any]]
_Documents: TypeAlias = Iterable[Document | str | Mapping[str, Any]]

if TYPE_CHECKING:

    class _Values(TypedDict, total=False):
        """Types that type checkers accept for the fields of a context, except the input."""

        elements: _Documents
        conversation: _Messages
        recalled: Iterable[RecalledMessage | Mapping[str, Any]]
        documents: _Documents
        knowledge: Iterable[Fact | str | Mapping[str, Any]]
        summary: str | None
        tools: Iterable[ToolSpec | Mapping[str, Any]]
        examples: Iterable[Example | Mapping[str, Any]]
        intermediate: _Messages
        locale: str | None
        now: datetime | None
        session_key: str | None
        extra: Mapping[str, Any]
        selections: Iterable[Selection]
        kept_kwargs: Iterable[str]

    class _Changes(_Values, total=False):
        user_input: _Input


def _read_user_input(value: Any, place: str, problems: Problems) -> Any:
    if type(value) is str:
        return UserInput(value)
    if isinstance(value, UserInput):
        return value
    data = value if isinstance(value, Mapping) else {"input": value}
    return make_item(UserInput, data, place, problems, ["additional_info"])


def _read_session_key(value: Any, place: str, problems: Problems) -> Any:
    key = _read_text(value, place, problems)
    if isinstance(key, str) and not key.strip():
        problems.append(
            Problem(place, "must not be empty: a fence derived from it could be guessed; pass a key or None")
        )
    return key


_read_text = one_of(str)


class _Declaration(NamedTuple):
    """Reader, trust and visibility of a field."""

    read: Reader
    trust: Trust
    hidden: bool


def _read_by(read: Reader, *, trust: Trust = "untrusted", hidden: bool = False) -> dict[str, _Declaration]:
    """Return the metadata of a field.

    Args:
        read: Reader of a value for the field; it also checks the value.
        trust: Trust of its text. Copies of the fence nonce are removed from untrusted fields.
        hidden: True if templates cannot read the field.
    """
    return {"declaration": _Declaration(read, trust, hidden)}


class _WithNonce(Derived):
    __slots__ = ("_nonce",)

    _nonce: str


@final
@dataclass(frozen=True, init=False, repr=False)
class PromptContext(_WithNonce):
    """Input of every prompt: a frozen value. Templates receive its values unchanged, never dumped or copied.

    Documents, facts, messages, examples and tools can be mappings of their fields; documents and facts can also be
    text. `elements` is another name of `documents`. `TypeAdapter(PromptContext)` writes it as JSON and reads it back.
    `allow_media=True` accepts media in local files or at private addresses in messages of a provider format; it is not
    a field.

    Raises:
        ContextError: A value has the wrong type, or a field is unknown; names all problems with their places.
    """

    __repr__ = short_repr

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    _full = short_form("", elements="documents")

    user_input: UserInput = field(metadata=_read_by(_read_user_input))
    """Input of this turn: text, parts or a mapping."""
    conversation: Conversation = field(default=NO_MESSAGES, metadata=_read_by(read_conversation))
    """Messages before this turn."""
    recalled: tuple[RecalledMessage, ...] = field(default=(), metadata=_read_by(ItemsReader(RecalledMessage)))
    """Messages of earlier conversations, recalled for this turn, best first."""
    documents: tuple[Document, ...] = field(default=(), metadata=_read_by(ItemsReader(Document, from_text=True)))
    """Documents recalled for this turn, best first."""
    knowledge: tuple[Fact, ...] = field(default=(), metadata=_read_by(ItemsReader(Fact, from_text=True)))
    """Facts recalled for this turn."""
    summary: str | None = field(default=None, metadata=_read_by(_read_text))
    """Summary of earlier messages that are not in `conversation`."""
    tools: tuple[ToolSpec, ...] = field(default=(), metadata=_read_by(ItemsReader(ToolSpec)))
    """Tools that the model can call."""
    examples: tuple[Example, ...] = field(default=(), metadata=_read_by(ItemsReader(Example)))
    """Worked examples available to selectors."""
    intermediate: Conversation = field(default=NO_MESSAGES, metadata=_read_by(read_conversation))
    """Tool calls and results of this turn so far."""
    locale: str | None = field(default=None, metadata=_read_by(_read_text))
    """Language tag, such as `en` or `zh-CN`, that selects the text of a template."""
    now: datetime | None = field(default=None, metadata=_read_by(one_of(datetime), trust="trusted"))
    """Time of the turn. Templates have no other clock."""
    extra: Data = field(default_factory=lambda: NO_DATA, hash=False, metadata=_read_by(read_data, trust="trusted"))
    """Other values of the developer for templates; trusted."""
    session_key: str | None = field(
        default=None, repr=False, metadata=_read_by(_read_session_key, trust="trusted", hidden=True)
    )
    """Secret of the session from which the nonce of fences is derived; templates cannot read it."""
    selections: tuple[Selection, ...] = field(
        default=(), metadata=_read_by(ItemsReader(Selection), trust="trusted", hidden=True)
    )
    """Selected examples of each prompt, see `select_examples`; valid while input and pool stay the same."""
    kept_kwargs: tuple[str, ...] = field(default=(), metadata=_read_by(read_names, trust="trusted", hidden=True))
    """Names of the additional kwargs that come from the session, not from this input."""

    if TYPE_CHECKING:

        def __init__(self, user_input: _Input, *, allow_media: bool = False, **values: Unpack[_Values]) -> None: ...

    else:
        # The input is in `args`, not a separate parameter: problems are listed in the order of the arguments.
        def __init__(self, *args, allow_media=False, **values):
            if args:
                values = _with_input(args, values)
            _fill(self, None, values, allow_media)

    def __getstate__(self) -> dict[str, Any]:
        # Only the fields: the view and the nonce are derived again.
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @property
    def view(self) -> MappingProxyType[str, Any]:
        """Read-only mapping of template names to values, built once.

        A hash is appended to document labels that are not unique.
        """
        try:
            view: MappingProxyType[str, Any] = self._derived
        except AttributeError:
            values: dict[str, Any] = dict(zip(_VISIBLE, _visible_values(self), strict=True))
            # Prompts and citations refer to documents by their labels.
            if len({document.label for document in self.documents}) < len(self.documents):
                values["documents"] = labelled_apart(self.documents)
            # Templates can also read the kwargs of the input by this shorter name.
            values["additional_kwargs"] = self.user_input.additional_kwargs
            view = MappingProxyType(values)
            object.__setattr__(self, "_derived", view)
        return view

    @property
    def nonce(self) -> str | None:
        """The nonce of the fences of the session, which templates cannot read; None without a session key."""
        if self.session_key is None:
            return None
        try:
            return self._nonce
        # Copies and stored contexts have no nonce, because it is not part of the value.
        except AttributeError:
            object.__setattr__(self, "_nonce", nonce_of(self.session_key))
            return self._nonce

    def evolve(self, *, allow_media: bool = False, **changes: Unpack[_Changes]) -> Self:
        """Return a copy with some fields replaced and checked. Raises like the class."""
        copy = object.__new__(type(self))
        _fill(copy, self, cast("dict[str, Any]", changes), allow_media)
        return copy


_DECLARED: Mapping[str, _Declaration] = {item.name: item.metadata["declaration"] for item in fields(PromptContext)}
_READERS = {name: declared.read for name, declared in _DECLARED.items()}
_READERS_WITH_MEDIA = {
    **_READERS,
    "conversation": read_conversation_with_media,
    "intermediate": read_conversation_with_media,
}
_DEFAULTS = {item.name: item.default for item in fields(PromptContext) if item.default is not MISSING}
_DEFAULTS["extra"] = NO_DATA
_UNTRUSTED = frozenset({name for name, declared in _DECLARED.items() if declared.trust == "untrusted"})
_VISIBLE = tuple([name for name, declared in _DECLARED.items() if not declared.hidden])
_visible_values = attrgetter(*_VISIBLE)
CONTEXT_FIELDS = tuple(_DECLARED)
CONTEXT_NAMES: frozenset[str] = frozenset({*_VISIBLE, "additional_kwargs"})
"""Names that every template can read."""


def _with_input(args: Sequence[Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of fields with the positional argument, the input."""
    if len(args) > 1:
        raise TypeError(f"PromptContext() takes 1 positional argument, the user input, but {len(args)} were given")
    if "user_input" in values:
        raise TypeError("PromptContext() got multiple values for argument 'user_input'")
    return {"user_input": args[0], **values}


def _fill(context: PromptContext, source: PromptContext | None, values: Mapping[str, Any], allow_media: bool) -> None:
    """Set all fields of a new context.

    Args:
        context: The new context.
        source: Context with the values of the other fields; None for their defaults.
        values: Values of fields, in any form that a field accepts.
        allow_media: See `PromptContext`.

    Raises:
        ContextError: Values are invalid, or have an unknown name.
    """
    problems: Problems = []
    if "elements" in values:
        values = _by_field_name(values, problems)
    readers = _readers(allow_media, problems)
    fresh: dict[str, Any] = {}
    for name, value in values.items():
        if name in readers:
            fresh[name] = readers[name](value, name, problems)
        else:
            problems.append(unknown_field("", name, CONTEXT_FIELDS))
    # The only field without a default.
    if source is None and "user_input" not in values:
        problems.append(Problem("user_input", "missing"))
    if problems:
        raise ContextError("PromptContext", problems)
    # One update of the dict is four times as fast as setting the fields of a frozen object.
    attributes = vars(context)
    attributes.update(_DEFAULTS if source is None else vars(source))
    attributes.update(fresh)
    if attributes["session_key"] is not None:
        _remove_nonce(context, values)


def _readers(allow_media: object, problems: Problems) -> Mapping[str, Reader]:
    """Return the reader of each field."""
    if allow_media is True:
        return _READERS_WITH_MEDIA
    if allow_media is not False:
        problems.append(Problem("allow_media", f"expected True or False, got {type(allow_media).__name__}"))
    return _READERS


def _remove_nonce(context: PromptContext, values: Mapping[str, Any]) -> None:
    """Derive the nonce of a context, and remove copies of it from its untrusted fields."""
    nonce = nonce_of(cast("str", context.session_key))
    # Fields of the source do not contain its nonce, but can contain another nonce.
    names = _UNTRUSTED if "session_key" in values else _UNTRUSTED & values.keys()
    for name in names:
        vars(context)[name] = without_nonce(getattr(context, name), nonce)
    object.__setattr__(context, "_nonce", nonce)


def _by_field_name(values: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """Return values by the names of fields: `elements` is `documents`."""
    named = dict(values)
    elements = named.pop("elements")
    if "documents" in named:
        problems.append(Problem("elements", "another name of documents, which are passed, too: pass one of them"))
    named["documents"] = elements
    return named
