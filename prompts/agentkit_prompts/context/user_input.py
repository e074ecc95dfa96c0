"""`UserInput`: input of the user, with structured data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack, final

from pydantic import ConfigDict

from agentkit_prompts.context.frozen import ReadOnlyDict
from agentkit_prompts.context.items import short_form
from agentkit_prompts.context.json_form import Data
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part, Text
from agentkit_prompts.context.read_fields import NO_DATA, read_data, read_parts, unknown_field
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.errors import ContextError, Problem, Problems

if TYPE_CHECKING:

    class _AdditionalInfo(TypedDict, total=False):
        additional_info: Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, init=False, repr=False)
class UserInput:
    """Input of the user: text or content parts, and structured data that prompts can require.

    `additional_info` is another name of `additional_kwargs`.

    Raises:
        ContextError: A value has the wrong type, or a field is unknown; names all problems.
    """

    __repr__ = short_repr

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    _full = short_form("input", str, list, tuple, additional_info="additional_kwargs")

    input: str | tuple[Part, ...] = ""
    """Text, or parts in the order of the input."""
    additional_kwargs: Data = field(default_factory=lambda: NO_DATA, hash=False)
    """Structured data that came with the input, such as a project root; read-only. See `additional_kwargs_schema`."""

    def __init__(
        self,
        input: str | Part | Iterable[str | Part] = "",
        additional_kwargs: Mapping[str, Any] = NO_DATA,
        **others: Unpack[_AdditionalInfo],
    ) -> None:
        problems: Problems = []
        content = read_parts(input, "input", problems)
        kwargs = read_data(additional_kwargs, "additional_kwargs", problems)
        if others:
            kwargs = _kwargs_by_alias(kwargs, others, problems)
        if problems:
            raise ContextError("UserInput", problems)
        object.__setattr__(self, "input", content)
        object.__setattr__(self, "additional_kwargs", kwargs)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The input as parts."""
        return (Text(self.input),) if isinstance(self.input, str) else self.input

    @property
    def text(self) -> str:
        """The input as plain text; media are replaced by their alt text."""
        return self.message.text

    @property
    def message(self) -> Message:
        """The input as a user message, as stored in a conversation."""
        return Message("user", self.input)

    def __prompt__(self) -> str | tuple[Part, ...]:
        return self.input


def _kwargs_by_alias(kwargs: ReadOnlyDict, others: Mapping[str, Any], problems: Problems) -> ReadOnlyDict:
    """Return the additional kwargs; they can be in `others` under their other name, `additional_info`."""
    for name, value in others.items():
        if name != "additional_info":
            problems.append(unknown_field("", name, ("input", "additional_kwargs")))
        # Two values for one field are an error: one of them would be ignored silently.
        elif kwargs is not NO_DATA:
            problems.append(Problem(name, "another name of additional_kwargs, which are passed, too: pass one of them"))
        else:
            return read_data(value, name, problems)
    return kwargs
