"""Messages and tool calls of a conversation, with their stored form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args, overload

from pydantic import Field, TypeAdapter

from agentkit_prompts.context.frozen import FrozenDict, plain_text, set_plain_text
from agentkit_prompts.context.json_problems import text_of_json
from agentkit_prompts.context.opaque import NO_OPAQUE, Opaque, no_opaque, opaque_data
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.context.trusted import NEVER_TRUSTED, Trusted
from agentkit_prompts.errors import MessageError, Problems, brief, check_types, error_of_problems
from agentkit_prompts.hints import Hinted

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]
_ROLES = frozenset(get_args(Role))
_TEXT_OR_NONE = (str, NoneType)

_NO_ID: Any = object()
"""Default of the id of a call. Empty text is another value: the id in a reply of a server that sends no id."""
MESSAGE_FORMAT = 1
"""Version of the stored form that `MESSAGES` writes. `MESSAGES` reads this version and all earlier versions."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ToolCall:
    """A model's request to call a tool.

    `arguments` is the JSON text exactly as the model wrote it; it is validated when the tool is called. Arguments that
    are passed as a mapping are stored as JSON text. A call without an id gets a hash of its name and arguments as its
    id, so that equal calls are equal in every process; `Message` makes such ids unique in a reply.

    Raises:
        MessageError: A field is not text, the name is missing, or the mapping is not JSON.
    """

    __repr__ = short_repr

    id: str
    name: str
    arguments: str = "{}"
    opaque: Opaque = field(default_factory=no_opaque, hash=False, kw_only=True)

    @overload
    def __init__(
        self, id: str, name: str, arguments: str | Mapping[str, Any] = "{}", *, opaque: Mapping[str, Any] = ...
    ) -> None: ...
    @overload
    def __init__(
        self, *, name: str, arguments: str | Mapping[str, Any] = "{}", opaque: Mapping[str, Any] = ...
    ) -> None: ...
    def __init__(
        self,
        id: str = _NO_ID,
        name: str | None = None,
        arguments: str | Mapping[str, Any] = "{}",
        *,
        opaque: Mapping[str, Any] = NO_OPAQUE,
    ) -> None:
        store = object.__setattr__
        has_id = id is not _NO_ID
        store(self, "id", id if has_id else "")
        store(self, "name", name)
        store(self, "arguments", arguments)
        store(self, "opaque", opaque)
        self.__post_init__()
        # The checked name and arguments: the id is a hash of them.
        if not has_id:
            store(self, "id", _generated_id(self))

    def __post_init__(self) -> None:
        # Pydantic calls this method after it has set the fields of a call that it reads.
        if isinstance(self.arguments, Mapping):
            object.__setattr__(self, "arguments", _arguments_text(self.arguments))
        set_plain_text(self, "id", "name", "arguments")
        for name in ("id", "name", "arguments"):
            value = getattr(self, name)
            if not isinstance(value, str):
                expected = "text"
                if name == "name" and isinstance(value, Mapping | NoneType):
                    # The first text of such a call is usually the name, not the id.
                    tool = brief(self.id) if self.id else "..."
                    expected = f"text, such as ToolCall(name={tool}, arguments={{...}})"
                if name == "arguments":
                    expected = 'a mapping or JSON text, such as \'{"city": "Bern"}\''
                raise MessageError(f"tool call: {name}: expected {expected}, got {type(value).__name__}", name=name)
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Message(metaclass=Hinted):
    """One message of a conversation.

    `content` is text or a tuple of parts; an empty tuple becomes empty text. `tool_calls` and `thinking` belong to an
    assistant message, `tool_call_id` to the tool message with the result of a call. `name` is the name of the tool or
    of the author.

    Raises:
        MessageError: The role is unknown, or a field has the wrong type or does not belong to the role.
    """

    __repr__ = short_repr

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    thinking: Annotated[tuple[Thinking, ...], Field(exclude_if=lambda thinking: not thinking)] = ()
    opaque: Opaque = field(default_factory=no_opaque, hash=False, kw_only=True)

    def __init__(
        self,
        role: Role,
        content: str | Iterable[Part | str] | None = "",
        tool_calls: Iterable[ToolCall] = (),
        tool_call_id: str | None = None,
        name: str | None = None,
        thinking: Iterable[Thinking] = (),
        *,
        opaque: Mapping[str, Any] = NO_OPAQUE,
    ) -> None:
        store = object.__setattr__
        store(self, "role", role)
        store(self, "content", content)
        store(self, "tool_calls", tool_calls)
        store(self, "tool_call_id", tool_call_id)
        store(self, "name", name)
        store(self, "thinking", thinking)
        store(self, "opaque", opaque)
        self.__post_init__()

    def __post_init__(self) -> None:
        # Pydantic calls this method after it has set the fields of a message that it reads.
        if type(self.role) is not str or self.role not in _ROLES:
            self._read_role()
        if type(self.content) is not str:
            object.__setattr__(self, "content", _read_content(self.content, self.role))
        if self.tool_calls != ():
            calls = _of_assistant(self.role, "tool_calls", self.tool_calls, ToolCall)
            if len(calls) > 1:
                calls = _with_unique_ids(calls)
            object.__setattr__(self, "tool_calls", calls)
        if self.thinking != ():
            object.__setattr__(self, "thinking", _of_assistant(self.role, "thinking", self.thinking, Thinking))
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))
        if self.role == "tool" or self.name is not None or self.tool_call_id is not None:
            self._read_names()

    def _read_role(self) -> None:
        if not isinstance(self.role, str) or self.role not in _ROLES:
            expected = ", ".join(sorted(_ROLES))
            advice = ""
            if isinstance(self.role, str) and self.content == "":
                advice = f"; the role is the first argument: Message('user', {brief(self.role)})"
            raise MessageError(f"unknown role {brief(self.role)}: expected one of {expected}{advice}", name="role")
        set_plain_text(self, "role")

    def _read_names(self) -> None:
        if type(self.name) not in _TEXT_OR_NONE or type(self.tool_call_id) not in _TEXT_OR_NONE:
            set_plain_text(self, "name", "tool_call_id")
            check_types(
                MessageError,
                f"{self.role} message",
                name=(self.name, _TEXT_OR_NONE, "text or None"),
                tool_call_id=(self.tool_call_id, _TEXT_OR_NONE, "text or None"),
            )
        # Providers reject such messages, and most of their errors do not name the message.
        if self.role == "tool" and not self.tool_call_id:
            raise MessageError("a tool message requires the tool_call_id of its call", name="tool_call_id")
        if self.role != "tool" and self.tool_call_id is not None:
            reason = f"a {self.role} message cannot have a tool_call_id: only a tool message can"
            raise MessageError(reason, name="tool_call_id")

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts; empty if the content is empty text."""
        if not isinstance(self.content, str):
            return self.content
        if not self.content:
            return ()
        return (Text(self.content),)

    @property
    def text(self) -> str:
        """The content as plain text; media are replaced by their alt text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text if isinstance(part, Text) else part.alt for part in self.content)

    @property
    def reasoning(self) -> str:
        """Text of the thinking of the model; empty if the provider does not send it."""
        return "\n".join([thought.text for thought in self.thinking if thought.text])

    def __prompt__(self) -> str | tuple[Part, ...]:
        return self.content


def _arguments_text(arguments: Mapping[str, Any]) -> str:
    problems: Problems = []
    text = text_of_json(arguments, "arguments", problems)
    if text is None:
        raise error_of_problems(MessageError, "tool call", problems, name="arguments")
    return text


def _generated_id(call: ToolCall, number: int = 1) -> str:
    """Return the id of the `number`-th of equal calls in a reply.

    Nine letters and digits are the only form that the templates of Mistral accept.
    """
    text = "\0".join((call.name, call.arguments, str(number)))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]


def _with_unique_ids(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls of a reply; equal calls with generated ids get different ids, because results name the id."""
    ids = {call.id for call in calls}
    if len(ids) == len(calls):
        return calls
    seen = set[str]()
    unique = []
    for call in calls:
        call_id, number = call.id, 1
        if call_id in seen and call_id == _generated_id(call):
            while call_id in ids:
                number += 1
                call_id = _generated_id(call, number)
            call = replace(call, id=call_id)
            ids.add(call_id)
        seen.add(call_id)
        unique.append(call)
    return tuple(unique)


def _of_assistant(role: str, name: str, values: object, kind: type[T]) -> tuple[T, ...]:
    """Return the checked values of the field `name`, which only an assistant message can have, as a tuple."""
    if not isinstance(values, list | tuple):
        raise MessageError(f"{name}: expected a list of {kind.__name__}, got {type(values).__name__}", name=name)
    if values and role != "assistant":
        raise MessageError(
            f"a {role} message cannot have {name.replace('_', ' ')}: only an assistant message can", name=name
        )
    items = tuple(values)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            place = f"{name}[{index}]"
            raise MessageError(f"{place}: expected a {kind.__name__}, got {type(item).__name__}", name=name, path=place)
    return cast("tuple[T, ...]", items)


def _read_content(content: object, role: str) -> tuple[Part, ...] | str:
    """Return content as text or parts; None and an empty list become empty text, so that equal messages have one
    form.
    """
    if content is None:
        return ""
    if type(content) is Trusted:
        raise MessageError(f"{role} message: content: {NEVER_TRUSTED}", name="content")
    if isinstance(content, str):
        return plain_text(content)
    if not isinstance(content, list | tuple):
        kind = type(content).__name__
        raise MessageError(f"{role} message: content must be text or a list of parts, got {kind}", name="content")
    return tuple([_read_part(part, index, role) for index, part in enumerate(content)]) or ""


def _read_part(part: object, index: int, role: str) -> Part:
    if isinstance(part, str):
        return Text(part)
    if isinstance(part, Text | Media):
        return cast("Part", part)
    place = f"content[{index}]"
    reason = f"{role} message: {place} is a {type(part).__name__}, expected text or a part"
    raise MessageError(reason, name="content", path=place)


if TYPE_CHECKING:
    MESSAGES: TypeAdapter[Message]
    """Reader and writer of the stored form of one message."""


def __getattr__(name: str) -> TypeAdapter[Message]:
    """Build `MESSAGES` at its first use, because it takes longer than the import of the rest of this module."""
    if name != "MESSAGES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Stored in the module, so that the next access does not call this function.
    adapter = globals()["MESSAGES"] = TypeAdapter(Message)
    return adapter
