"""`OutputSpec`: the type of an answer, or the function that is called with it, and how it is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, get_args, overload

from typing_extensions import TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.ground.unknown_options import refusing_unknown
from agentkit.models.abilities import OutputMode
from agentkit_prompts.errors import check_types

if TYPE_CHECKING:
    from typing_extensions import TypeForm

__all__ = ["OutputSpec", "OutputValidator"]

Answer = TypeVar("Answer")
OutputValidator: TypeAlias = Callable[..., Any]
"""Checks an answer: takes it, and a `ToolContext` as second argument if it has one. What it returns is the answer from
there on, where it is not None. `AskAgain` lets the model answer again; any other exception ends the run."""


@refusing_unknown()
class OutputSpec(Generic[Answer]):
    """What the answer of a run is, where the type alone does not say it.

    Args:
        output: The type of the answer: anything pydantic validates, such as `City`, `list[int]` or `Invoice | Line`. Or
            a function, or a tool: the model calls it with its answer, which ends the run, and what it returns is the
            output. Or a JSON Schema of an object, as a mapping: the answer is JSON data that follows it.
        mode: How the model is asked: `native` (the structured output of the endpoint), `tool` (the model calls a tool
            with its answer) or `prompted` (the schema stands in the prompt). None takes the first way that the model
            has. A function is always a tool.
        output_validator: A function that checks the answer, or several in their order.

    Raises:
        UnknownOption: Names all the options that there are not.
        AgentDefinitionError: The mode does not exist, or does not fit a function; a validator cannot be called; a
            JSON Schema is not that of an object, or refers to what is not in it.
    """

    __slots__ = ("mode", "output", "validators")

    @overload
    def __init__(
        self,
        output: TypeForm[Answer],
        *,
        mode: OutputMode | None = None,
        output_validator: OutputValidator | Iterable[OutputValidator] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: OutputSpec[dict[str, Any]],
        output: Mapping[str, Any],
        *,
        mode: OutputMode | None = None,
        output_validator: OutputValidator | Iterable[OutputValidator] = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        output: Callable[..., Awaitable[Answer]],
        *,
        mode: OutputMode | None = None,
        output_validator: OutputValidator | Iterable[OutputValidator] = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        output: Callable[..., Answer],
        *,
        mode: OutputMode | None = None,
        output_validator: OutputValidator | Iterable[OutputValidator] = (),
    ) -> None: ...
    def __init__(
        self,
        output: Any,
        *,
        mode: OutputMode | None = None,
        output_validator: OutputValidator | Iterable[OutputValidator] = (),
    ) -> None:
        if mode is not None and mode not in get_args(OutputMode):
            raise AgentDefinitionError(
                f"output mode: expected native, tool or prompted, got {mode!r:.40}",
                name="mode",
                value=mode if isinstance(mode, str) else type(mode).__name__,
            )
        given: Any = output_validator
        if callable(output_validator):
            given = [output_validator]
        check_types(
            AgentDefinitionError,
            "output",
            output_validator=(given, Iterable, "a function or some"),
        )
        if isinstance(output, Mapping):
            from agentkit.output.schema_output import SchemaOutput

            output = SchemaOutput(output)
        self.output = output
        self.mode: OutputMode | None = mode
        self.validators = tuple([_checked(validator) for validator in given])

    def __repr__(self) -> str:
        name = getattr(self.output, "__name__", None) or repr(self.output)
        return f"OutputSpec({name}{f', mode={self.mode!r}' if self.mode else ''})"


def _checked(validator: Any) -> tuple[OutputValidator, bool]:
    """Return a validator, and whether it takes a context.

    Raises:
        AgentDefinitionError: It cannot be called with an answer.
    """
    count = _arguments(validator)
    if count not in (1, 2):
        name = getattr(validator, "__name__", None) or repr(validator)
        raise AgentDefinitionError(
            f"output_validator {name:.60}: expected a function of the answer, or of the answer and a ToolContext",
            name="output_validator",
            value=name,
        )
    return validator, count == 2


def _arguments(function: Any) -> int | None:
    """Return with how many arguments a function is called; None where it cannot be."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        if callable(function):
            return 1
        return None
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters):
        return None
    needed = sum(one.default is one.empty for one in places)
    if needed or not places:
        return needed
    return 1
