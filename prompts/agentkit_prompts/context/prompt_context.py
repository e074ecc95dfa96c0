"""`PromptContext`: one frozen object with all input of prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, TypedDict, Unpack, cast, final

from pydantic import ConfigDict

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.frozen import DerivedSlot
from agentkit_prompts.context.items import (
    Document,
    Example,
    Fact,
    RecalledMessage,
    Selection,
    ToolSpec,
    Trust,
    short_form,
    with_unique_labels,
)
from agentkit_prompts.context.json_form import Data
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
from agentkit_prompts.context.result_clearing import ResultClearing
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.context.skill import Skill
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
    "Skill",
    "ToolSpec",
    "Trust",
    "UserInput",
]

_Input: TypeAlias = "UserInput | str | Part | Iterable[str | Part] | Mapping[str, Any]"

if TYPE_CHECKING:
    from agentkit_prompts.context.foreign_documents import ForeignDocument
    from agentkit_prompts.context.wire.foreign_messages import AnyMessage

    _Messages: TypeAlias = Iterable[AnyMessage]
    _Documents: TypeAlias = Iterable[Document | ForeignDocument | str | Mapping[str, Any]]

    class _Values(TypedDict, total=False):
        """Types of the arguments of a context, except the input, for type checkers."""

        elements: _Documents
        conversation: _Messages
        recalled: Iterable[RecalledMessage | Mapping[str, Any]]
        documents: _Documents
        knowledge: Iterable[Fact | str | Mapping[str, Any]]
        summary: str | None
        todos: str | None
        tools: Iterable[ToolSpec | Mapping[str, Any]]
        skills: Iterable[Skill | str | Mapping[str, Any]]
        loaded_skills: Iterable[Skill | str | Mapping[str, Any]]
        examples: Iterable[Example | Mapping[str, Any]]
        intermediate: _Messages
        locale: str | None
        now: datetime | None
        session_key: str | None
        extra: Mapping[str, Any]
        selections: Iterable[Selection]
        kept_kwargs: Iterable[str]
        clearing: ResultClearing | None

    class _Changes(_Values, total=False):
        user_input: _Input


def _read_user_input(value: Any, place: str, problems: Problems) -> Any:
    if type(value) is str:
        return UserInput(value)
    if isinstance(value, UserInput):
        return value
    data = value if isinstance(value, Mapping) else {"input": value}
    return make_item(UserInput, data, place, problems, ["additional_info"])


def _foreign_document(item: object) -> Document | None:
    # Imported at the first item of another class.
    from agentkit_prompts.context.foreign_documents import foreign_document

    return foreign_document(item)


def _read_session_key(value: Any, place: str, problems: Problems) -> Any:
    key = _read_text(value, place, problems)
    if isinstance(key, str) and not key.strip():
        problems.append(
            Problem(place, "must not be empty: a fence derived from it could be guessed; pass a key or None")
        )
    return key


_read_text = one_of(str)


class _FieldRules(NamedTuple):
    """Rules of a field: its reader, its trust, and True as `hidden` if templates cannot read it."""

    read: Reader
    trust: Trust
    hidden: bool


def _read_by(read: Reader, *, trust: Trust = "untrusted", hidden: bool = False) -> dict[str, _FieldRules]:
    """Return the metadata of a field.

    Args:
        read: Reader of a value for the field; it also checks the value.
        trust: Trust of the text of the field. In untrusted fields, copies of the nonce of fences are broken.
        hidden: True if templates cannot read the field.
    """
    return {"rules": _FieldRules(read, trust, hidden)}


class _WithNonce(DerivedSlot):
    """Base of `PromptContext` with a slot for the nonce, which is not a field."""

    __slots__ = ("_nonce",)

    _nonce: str


@final
@dataclass(frozen=True, init=False, repr=False)
class PromptContext(_WithNonce):
    """Input of every prompt; frozen. Templates receive the objects in its fields, not copies of them.

    Documents, facts, messages, examples and tools can be passed as mappings of their fields. Documents and facts can
    also be passed as text, messages and documents as objects of LangChain, LlamaIndex or pydantic-ai. `elements` is
    another name of `documents`. `TypeAdapter(PromptContext)` writes a context as JSON and reads it back. The argument
    `allow_media=True`, which is not a field, accepts messages in the format of a provider with media in local files or
    at private addresses.

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
    recalled: tuple[RecalledMessage, ...] = field(default=(), metadata=_read_by(ItemsReader(RecalledMessage).read))
    """Messages of earlier conversations, recalled for this turn, best first."""
    documents: tuple[Document, ...] = field(
        default=(), metadata=_read_by(ItemsReader(Document, from_text=True, from_other=_foreign_document).read)
    )
    """Documents recalled for this turn, best first."""
    knowledge: tuple[Fact, ...] = field(default=(), metadata=_read_by(ItemsReader(Fact, from_text=True).read))
    """Facts recalled for this turn."""
    summary: str | None = field(default=None, metadata=_read_by(_read_text))
    """Summary of earlier messages that are not in `conversation`."""
    todos: str | None = field(default=None, metadata=_read_by(_read_text))
    """List of the tasks of the model, see `todo_tools`."""
    tools: tuple[ToolSpec, ...] = field(default=(), metadata=_read_by(ItemsReader(ToolSpec).read))
    """Tools that the model can call."""
    skills: tuple[Skill, ...] = field(default=(), metadata=_read_by(ItemsReader(Skill, from_text=True).read))
    """Skills that the model can load, without their instructions."""
    loaded_skills: tuple[Skill, ...] = field(default=(), metadata=_read_by(ItemsReader(Skill, from_text=True).read))
    """Skills that the model has loaded, in the order in which it loaded them."""
    examples: tuple[Example, ...] = field(default=(), metadata=_read_by(ItemsReader(Example).read))
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
        default=(), metadata=_read_by(ItemsReader(Selection).read, trust="trusted", hidden=True)
    )
    """Selected examples of each prompt, see `select_examples`. A selection is valid while the input and the available
    examples stay the same."""
    kept_kwargs: tuple[str, ...] = field(default=(), metadata=_read_by(read_names, trust="trusted", hidden=True))
    """Names of the additional kwargs that come from the session, not from this input."""
    clearing: ResultClearing | None = field(
        default=None, metadata=_read_by(one_of(ResultClearing), trust="trusted", hidden=True)
    )
    """Policy that replaces old tool results in the prompt by placeholders; None: all results are shown."""

    if TYPE_CHECKING:

        def __init__(self, user_input: _Input, *, allow_media: bool = False, **values: Unpack[_Values]) -> None: ...

    else:
        # `user_input` is not a separate parameter: an error lists problems in the order of `values`, in which the
        # caller can pass the input at any position.
        def __init__(self, *args, allow_media=False, **values):
            if args:
                if len(args) > 1:
                    raise TypeError(
                        f"PromptContext() takes 1 positional argument, the user input, but {len(args)} were given"
                    )
                if "user_input" in values:
                    raise TypeError("PromptContext() got multiple values for argument 'user_input'")
                values = {"user_input": args[0], **values}
            _fill(self, None, values, allow_media)

    def __getstate__(self) -> dict[str, Any]:
        # `vars` contains only the fields. The view and the nonce, which are in slots, are derived again.
        return dict(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    @property
    def view(self) -> MappingProxyType[str, Any]:
        """Read-only mapping from the names that templates can read to their values; it is built once.

        A hash is appended to labels of documents that are not unique.
        """
        try:
            view: MappingProxyType[str, Any] = self._derived
        except AttributeError:
            values: dict[str, Any] = dict(zip(_VISIBLE, _visible_values(self), strict=True))
            # Prompts and citations refer to documents by their labels, so labels must be unique.
            if len({document.label for document in self.documents}) < len(self.documents):
                values["documents"] = with_unique_labels(self.documents)
            # `additional_kwargs` is a shorter name of `user_input.additional_kwargs`.
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
        # The nonce is not a field, so a copied or stored context lacks it.
        except AttributeError:
            object.__setattr__(self, "_nonce", nonce_of(self.session_key))
            return self._nonce

    def evolve(self, *, allow_media: bool = False, **changes: Unpack[_Changes]) -> Self:
        """Return a copy in which `changes` replace fields; the new values are checked. Raises like the class."""
        copy = object.__new__(type(self))
        _fill(copy, self, cast("dict[str, Any]", changes), allow_media)
        return copy


_FIELD_RULES: Mapping[str, _FieldRules] = {item.name: item.metadata["rules"] for item in fields(PromptContext)}
_READERS = {name: rules.read for name, rules in _FIELD_RULES.items()}
_READERS_WITH_MEDIA = {
    **_READERS,
    "conversation": read_conversation_with_media,
    "intermediate": read_conversation_with_media,
}
_DEFAULTS = {item.name: item.default for item in fields(PromptContext) if item.default is not MISSING}
_DEFAULTS["extra"] = NO_DATA
_UNTRUSTED = frozenset({name for name, rules in _FIELD_RULES.items() if rules.trust == "untrusted"})
_VISIBLE = tuple([name for name, rules in _FIELD_RULES.items() if not rules.hidden])
_visible_values = attrgetter(*_VISIBLE)
CONTEXT_FIELDS = tuple(_FIELD_RULES)
CONTEXT_NAMES: frozenset[str] = frozenset({*_VISIBLE, "additional_kwargs"})
"""Names that every template can read."""


def _fill(context: PromptContext, source: PromptContext | None, values: Mapping[str, Any], allow_media: bool) -> None:
    """Set all fields of a new context.

    Args:
        context: The new context.
        source: Context that contains the values of the other fields; None if they have their defaults.
        values: Values by the names of fields, in any type that a field accepts.
        allow_media: See `PromptContext`.

    Raises:
        ContextError: Values are invalid, or have an unknown name.
    """
    problems: Problems = []
    if "elements" in values:
        named = dict(values)
        elements = named.pop("elements")
        if "documents" in named:
            problems.append(Problem("elements", "another name of documents, which are passed, too: pass one of them"))
        named["documents"] = elements
        values = named
    readers = _readers(allow_media, problems)
    # The dict of the object is filled directly, because setting the fields of a frozen object takes four times as long.
    attributes = vars(context)
    attributes.update(_DEFAULTS if source is None else vars(source))
    for name, value in values.items():
        if name in readers:
            attributes[name] = readers[name](value, name, problems)
        else:
            problems.append(unknown_field("", name, CONTEXT_FIELDS))
    # `user_input` is the only field without a default.
    if source is None and "user_input" not in values:
        problems.append(Problem("user_input", "missing"))
    if problems:
        raise ContextError("PromptContext", problems)
    if attributes["session_key"] is not None:
        _remove_nonce(context, values)


def _readers(allow_media: object, problems: Problems) -> Mapping[str, Reader]:
    """Return the readers by the names of fields."""
    if allow_media is True:
        return _READERS_WITH_MEDIA
    if allow_media is not False:
        problems.append(Problem("allow_media", f"expected True or False, got {type(allow_media).__name__}"))
    return _READERS


def _remove_nonce(context: PromptContext, values: Mapping[str, Any]) -> None:
    """Store the nonce of a context, and break the copies of the nonce in its untrusted fields."""
    nonce = nonce_of(cast("str", context.session_key))
    # With the key of `source`, only new values can contain copies of the nonce. With a new key, all values can.
    names = _UNTRUSTED if "session_key" in values else _UNTRUSTED & values.keys()
    for name in names:
        vars(context)[name] = without_nonce(getattr(context, name), nonce)
    object.__setattr__(context, "_nonce", nonce)
