"""Messages and tool calls: what a conversation is made of, in memory, in a store and on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from agentkit_prompts.context.frozen import FrozenDict, as_plain_text
from agentkit_prompts.context.opaque import NO_OPAQUE, Opaque, no_opaque, opaque_data
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.context.thinking import Thinking
from agentkit_prompts.errors import MessageError, brief, check_types

__all__ = ["MESSAGES", "MESSAGE_FORMAT", "Message", "Role", "ToolCall"]

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = frozenset(get_args(Role))
_NOTHING: tuple[Any, ...] = ()
_SPEAKERS = _ROLES - {"tool"}
_NAME = (str, type(None))

MESSAGE_FORMAT = 2
"""Version of the stored form of a message, as `MESSAGES` writes it; it reads all versions up to this one."""


@dataclass(frozen=True, slots=True, repr=False)
class ToolCall:
    """A model's request to call a tool.

    `arguments` is the JSON text exactly as the model wrote it; it is validated when the tool is called.

    Raises:
        MessageError: One of them is not text.
    """

    __repr__ = short_repr

    id: str
    name: str
    arguments: str = "{}"
    opaque: Opaque = field(default_factory=no_opaque, hash=False, kw_only=True)

    def __post_init__(self) -> None:
        if not type(self.arguments) is type(self.name) is type(self.id) is str:
            as_plain_text(self, "id", "name", "arguments")
        if not (isinstance(self.arguments, str) and isinstance(self.name, str) and isinstance(self.id, str)):
            wrong = next(name for name in ("id", "name", "arguments") if not isinstance(getattr(self, name), str))
            hint = ', such as \'{"city": "Bern"}\'' if wrong == "arguments" else ""
            got = type(getattr(self, wrong)).__name__
            raise MessageError(
                f"tool call: {wrong}: expected {'JSON ' if hint else ''}text{hint}, got {got}", name=wrong
            )
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Message:
    """One message of a conversation.

    `content` is text or a tuple of parts; no parts at all become the empty text. `tool_calls` and `thinking` belong to
    an assistant message, `tool_call_id` and `name` to the tool message that answers one of the calls.

    Raises:
        MessageError: The role is unknown, a field has the wrong type, or does not belong to the role.
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
        tool_calls: Iterable[ToolCall] = _NOTHING,
        tool_call_id: str | None = None,
        name: str | None = None,
        thinking: Iterable[Thinking] = _NOTHING,
        *,
        opaque: Mapping[str, Any] = NO_OPAQUE,
    ) -> None:
        _set_role(self, role)
        _set_content(self, content)
        _set_tool_calls(self, tool_calls)
        _set_tool_call_id(self, tool_call_id)
        _set_name(self, name)
        _set_thinking(self, thinking)
        _set_opaque(self, opaque)
        if (  # not as most are
            tool_calls is not _NOTHING
            or thinking is not _NOTHING
            or opaque is not NO_OPAQUE
            or tool_call_id is not None
            or name is not None
            or type(content) is not str
            or type(role) is not str
            or role not in _SPEAKERS
        ):
            self.__post_init__()

    def __post_init__(self) -> None:
        as_plain_text(self, "role", "content", "tool_call_id", "name")
        role, content = self.role, self.content
        if not isinstance(role, str) or role not in _ROLES:
            raise MessageError(f"unknown role {brief(role)}: expected one of {', '.join(sorted(_ROLES))}", name="role")
        if type(content) is not str:
            object.__setattr__(self, "content", "" if content is None else _as_parts(content, role))
        calls, thinking = self.tool_calls, self.thinking
        if type(calls) is not tuple or calls:
            object.__setattr__(self, "tool_calls", _of_assistant(role, "tool_calls", calls, ToolCall))
        if type(thinking) is not tuple or thinking:
            object.__setattr__(self, "thinking", _of_assistant(role, "thinking", thinking, Thinking))
        name, answers = self.name, self.tool_call_id
        if (name is not None and type(name) is not str) or (answers is not None and type(answers) is not str):
            names = {"name": (name, _NAME, "text or None"), "tool_call_id": (answers, _NAME, "text or None")}
            check_types(MessageError, f"{role} message", **names)
        if type(self.opaque) is not FrozenDict:
            object.__setattr__(self, "opaque", opaque_data(self.opaque))
        if role == "tool":
            if not self.tool_call_id:
                raise MessageError(
                    "a tool message needs the tool_call_id of the call that it answers", name="tool_call_id"
                )
        elif self.tool_call_id is not None:
            raise MessageError(
                f"a {role} message cannot answer a tool call: only a tool message has a tool_call_id",
                name="tool_call_id",
            )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The content as parts."""
        if isinstance(self.content, str):
            return (Text(self.content),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """The content as plain text, media as their alt text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text if isinstance(part, Text) else part.alt for part in self.content)

    @property
    def reasoning(self) -> str:
        """What the model thought, as far as its provider shows it."""
        return "\n".join([thought.text for thought in self.thinking if thought.text])

    def __prompt__(self) -> str | tuple[Part, ...]:
        return self.content


_set_role, _set_content, _set_tool_calls, _set_tool_call_id, _set_name, _set_thinking, _set_opaque = [
    vars(Message)[item.name].__set__ for item in fields(Message)
]
"""What sets each field of a new message: `object.__setattr__` looks the name up first, which takes twice as long."""


def _of_assistant(role: str, name: str, given: Iterable[object], kind: type) -> tuple[object, ...]:
    if not isinstance(given, list | tuple):
        raise MessageError(f"{name}: expected a list of {kind.__name__}, got {type(given).__name__}", name=name)
    if given and role != "assistant":
        raise MessageError(
            f"a {role} message cannot carry {name.replace('_', ' ')}: only an assistant message can", name=name
        )
    items = tuple(given)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            place = f"{name}[{index}]"
            raise MessageError(f"{place}: expected a {kind.__name__}, got {type(item).__name__}", name=name, path=place)
    return items


def _as_parts(content: object, role: str) -> tuple[Part, ...] | str:
    """Return content as parts; no parts are the empty text, so that an empty message has one form everywhere."""
    if not isinstance(content, list | tuple):
        raise MessageError(
            f"{role} message: content must be text or a list of parts, got {type(content).__name__}", name="content"
        )
    parts = tuple(Text(part) if isinstance(part, str) else part for part in content)
    for index, part in enumerate(parts):
        if not isinstance(part, Text | Media):
            place = f"content[{index}]"
            what = f"{role} message: {place} is a {type(part).__name__}, expected text or a part"
            raise MessageError(what, name="content", path=place)
    return parts or ""


if TYPE_CHECKING:
    MESSAGES: TypeAdapter[Message]
    """Reads and writes the stored form of one message."""


def __getattr__(name: str) -> TypeAdapter[Message]:
    """Build `MESSAGES` when it is first asked for: it takes longer than the rest of this module."""
    if name != "MESSAGES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    adapter = globals()["MESSAGES"] = TypeAdapter(Message)
    return adapter
