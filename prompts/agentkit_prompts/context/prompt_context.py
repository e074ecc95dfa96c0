"""`PromptContext`: everything a prompt may be rendered from, in one frozen object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PlainValidator

from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.items import Document, Example, Fact, ToolSpec, Trust, per_toolset
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.wire.read_messages import read_messages

__all__ = [
    "CONTEXT_NAMES",
    "Document",
    "Example",
    "Fact",
    "PromptContext",
    "ToolSpec",
    "Trust",
    "UserInput",
    "per_toolset",
]

_LATEST: dict[str, tuple[Any, ...]] = {}
"""Per field the tuple that was found valid last: as its items are immutable, it still is."""


def _tuple_of(field: str, kind: type, from_text: Callable[[str], Any] | None = None) -> PlainValidator:
    """Validate a sequence into a tuple of `kind`; a tuple that is right already keeps its identity."""

    def validate(value: Any) -> tuple[Any, ...]:
        if type(value) is tuple:
            for item in value:
                if type(item) is not kind:
                    break
            else:
                valid: tuple[Any, ...] = value
                _LATEST[field] = valid
                return valid  # never read back: another thread may have put its own there
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise ValueError(f"expected a sequence of {kind.__name__}, got {type(value).__name__}")
        return tuple(_one(item, index) for index, item in enumerate(value))

    def _one(item: Any, index: int) -> Any:
        if isinstance(item, kind):
            return item
        if isinstance(item, str) and from_text is not None:
            return from_text(item)
        if isinstance(item, Mapping):
            try:
                return kind(**item)
            except TypeError as error:
                raise ValueError(f"item {index}: {error}") from error
        raise ValueError(f"item {index}: expected {kind.__name__}, got {type(item).__name__}")

    return PlainValidator(validate)


def _conversation(value: Any) -> Conversation:
    if isinstance(value, Conversation):
        return value
    return Conversation(read_messages(value))


def _parts(value: Any) -> str | tuple[Part, ...]:
    if isinstance(value, str):
        return value
    if isinstance(value, Text | Media):
        return (value,)  # type: ignore[return-value]
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected text or a list of parts, got {type(value).__name__}")
    parts: list[Any] = [Text(part) if isinstance(part, str) else part for part in value]
    for index, part in enumerate(parts):
        if not isinstance(part, Text | Media):
            raise ValueError(f"part {index}: expected text or a content part, got {type(part).__name__}")
    return tuple(parts)


_ATOMS = frozenset({str, int, float, bool, type(None)})


def _kwargs(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a mapping of names to values, got {type(value).__name__}")
    global _latest_kwargs
    names, ids, latest = _latest_kwargs
    # The same values as a moment ago give the same object, which a memo recognises.
    if [*map(id, value.values())] == ids and [*value] == names:
        return latest
    copied = dict(value)
    for name in copied:
        if not isinstance(name, str):
            raise ValueError(f"names must be str, got {name!r}")
    kwargs = MappingProxyType(copied)
    if _ATOMS.issuperset(map(type, copied.values())):
        _latest_kwargs = ([*kwargs], [*map(id, kwargs.values())], kwargs)
    return kwargs


Kwargs: TypeAlias = Annotated[Mapping[str, Any], PlainValidator(_kwargs)]
_NO_KWARGS: Mapping[str, Any] = MappingProxyType({})
_latest_kwargs: tuple[list[str], list[int], Mapping[str, Any]] = ([], [], _NO_KWARGS)
"""Names, identities of the values, and the mapping that was made of them; it keeps the values alive."""


_put = object.__setattr__
_put_given, _put_extra, _put_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _set_fields(model: BaseModel, fields: dict[str, Any], given: set[str]) -> None:
    """Fill in a frozen model whose fields are known to be valid."""
    _put(model, "__dict__", fields)
    _put_given(model, given)
    _put_extra(model, None)
    _put_private(model, None)


class UserInput(BaseModel):
    """What the user sent: text or content parts, and structured extras that prompts may require."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True, defer_build=True
    )

    input: Annotated[str | tuple[Part, ...], PlainValidator(_parts)]
    """Text, or parts in the order the user gave them."""
    additional_kwargs: Kwargs = Field(
        default_factory=lambda: _NO_KWARGS, validation_alias=AliasChoices("additional_kwargs", "additional_info")
    )
    """Structured data that came with the input, such as a project root; read-only. See `additional_kwargs_schema`."""

    def __init__(
        self,
        input: str | Iterable[str | Part] = "",
        /,
        additional_kwargs: Mapping[str, Any] = _NO_KWARGS,
        **data: Any,
    ) -> None:
        if "input" in data:
            input = data.pop("input")
        elif type(input) is not str and isinstance(input, Iterable) and not isinstance(input, str | Mapping):
            input = list(input)
        given = additional_kwargs is not _NO_KWARGS
        usual = not data and type(input) is str and (not given or type(additional_kwargs) is dict)
        if usual and type(self) is UserInput:  # no validator needed
            fields = {"input": input, "additional_kwargs": _kwargs(additional_kwargs) if given else _NO_KWARGS}
            _set_fields(self, fields, {*fields})
            return
        if given:
            data["additional_kwargs"] = additional_kwargs
        super().__init__(input=input, **data)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The input as parts."""
        return (Text(self.input),) if isinstance(self.input, str) else self.input

    @property
    def text(self) -> str:
        """The input as plain text, media as their alt text."""
        return self.message.text

    @property
    def message(self) -> Message:
        """The input as a user message, the form in which a conversation keeps it."""
        return Message("user", self.input)

    def __prompt__(self) -> str | tuple[Part, ...]:
        return self.input


def _user_input(value: Any) -> UserInput:
    if isinstance(value, UserInput):
        return value
    if isinstance(value, Mapping):
        return UserInput(**value)
    return UserInput(value)


class PromptContext(BaseModel):
    """The one input of every prompt. Frozen; what it holds reaches templates as it is, never dumped or copied.

    Raises:
        pydantic.ValidationError: A field has the wrong type, or there is a field that no prompt could read.
    """

    __slots__ = ("_selections", "_view")

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True, defer_build=True
    )

    user_input: Annotated[UserInput, PlainValidator(_user_input)]
    """What the user sent now. A str or a mapping is accepted."""
    conversation: Annotated[Conversation, PlainValidator(_conversation)] = Conversation()
    """Messages before this turn."""
    documents: Annotated[tuple[Document, ...], _tuple_of("documents", Document, Document)] = Field(
        default=(), validation_alias=AliasChoices("documents", "elements")
    )
    """Passages recalled for this turn, best first."""
    knowledge: Annotated[tuple[Fact, ...], _tuple_of("knowledge", Fact, Fact)] = ()
    """Facts recalled for this turn."""
    tools: Annotated[tuple[ToolSpec, ...], _tuple_of("tools", ToolSpec)] = ()
    """Tools the model may call."""
    examples: Annotated[tuple[Example, ...], _tuple_of("examples", Example)] = ()
    """Worked examples a selector may choose from."""
    intermediate: Annotated[Conversation, PlainValidator(_conversation)] = Conversation()
    """Tool calls and results of this turn so far."""
    locale: str | None = None
    """Language tag, such as `en` or `zh-CN`, that picks the text of a template."""
    now: datetime | None = None
    """The time of the turn. Injected: templates have no clock."""
    session_key: str | None = Field(default=None, repr=False)
    """Secret of the session that fences derive their nonce from; templates cannot read it."""
    extra: Kwargs = Field(default_factory=lambda: _NO_KWARGS)
    """Anything else the developer wants in reach of templates; trusted."""

    def __init__(self, **data: Any) -> None:
        for name, value in data.items():
            kind = type(value)
            if kind is not _SINGLE.get(name) and (kind is not tuple or value is not _LATEST.get(name)):
                super().__init__(**data)
                break
        else:  # everything is valid already: no validator needed
            user_input = data.get("user_input")
            if user_input is not None and type(self) is PromptContext:
                fields = {**_DEFAULTS, **data}
                _set_fields(self, fields, {*data})
                _put(self, "_view", _view(fields, user_input))
                return
            super().__init__(**data)
        _put(self, "_view", None)

    @property
    def view(self) -> Mapping[str, Any]:
        """Read-only mapping of the names a template can use to their values, built once."""
        try:
            view: Mapping[str, Any] | None = self._view  # type: ignore[attr-defined]
        except AttributeError:  # made by unpickling or model_construct
            view = None
        if view is None:
            view = _view(self.__dict__, self.user_input)
            _put(self, "_view", view)
        return view

    def evolve(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced by values that are valid already; nothing is checked or copied."""
        other = type(self).__new__(type(self))
        _set_fields(other, {**self.__dict__, **changes}, self.__pydantic_fields_set__ | changes.keys())
        _put(other, "_view", None)
        return other


def _view(fields: Mapping[str, Any], user_input: UserInput) -> Mapping[str, Any]:
    names = {**fields, "additional_kwargs": user_input.additional_kwargs}
    del names["session_key"]
    return MappingProxyType(names)


CONTEXT_NAMES: frozenset[str] = frozenset({*PromptContext.model_fields, "additional_kwargs"} - {"session_key"})
"""The names every template can read."""

_SINGLE: dict[str, type] = {
    "user_input": UserInput,
    "conversation": Conversation,
    "intermediate": Conversation,
    "locale": str,
    "session_key": str,
}
"""Fields that are valid when they are of the type."""
_DEFAULTS: dict[str, Any] = {
    "conversation": Conversation(),
    "documents": (),
    "knowledge": (),
    "tools": (),
    "examples": (),
    "intermediate": Conversation(),
    "locale": None,
    "now": None,
    "session_key": None,
    "extra": _NO_KWARGS,
}
