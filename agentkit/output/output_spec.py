"""`OutputSpec`: output type or output function of an answer, with its mode and validators."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, Unpack, get_args, overload

from typing_extensions import TypeVar

from agentkit.errors import AgentDefinitionError
from agentkit.ground.unknown_options import refusing_unknown
from agentkit.models.abilities import OutputMode
from agentkit_prompts.errors import check_types

if TYPE_CHECKING:
    from typing_extensions import TypeForm

Answer = TypeVar("Answer")
OutputValidator: TypeAlias = Callable[..., Any]
"""Validator of an answer; a second parameter receives a `ToolContext`. A result that is not None replaces the answer.
`AskAgain` requests another answer; any other exception ends the run."""


class _Options(TypedDict, total=False):
    """Keyword arguments of `OutputSpec`; see there."""

    mode: OutputMode | None
    output_validator: OutputValidator | Iterable[OutputValidator]


@refusing_unknown()
class OutputSpec(Generic[Answer]):
    """Output type of a run, with its mode and validators.

    Args:
        output: Any type that pydantic validates, such as `City`, `list[int]` or `Invoice | Line`. Or a function or
            tool, which the model calls with its answer: the call finishes the run, and the return value is the output.
            Or a JSON Schema of an object, as a mapping: the answer is JSON data for the schema. Or `Image`: the
            last image that the model generated.
        mode: `native` (structured output of the endpoint), `tool` (the model calls a tool with its answer) or
            `prompted` (the prompt contains the schema). None selects the first mode of the model. A function is always
            a tool.
        output_validator: A function that validates the answer, or several functions in their order.

    Raises:
        UnknownOption: Options are unknown. The error lists all of them.
        AgentDefinitionError: The mode is unknown, or does not fit a function; a validator cannot be called; a JSON
            Schema is not the schema of an object, or contains a reference to another document.
    """

    __slots__ = ("mode", "output", "validators")

    @overload
    def __init__(self, output: TypeForm[Answer], **options: Unpack[_Options]) -> None: ...
    @overload
    def __init__(self: OutputSpec[dict[str, Any]], output: Mapping[str, Any], **options: Unpack[_Options]) -> None: ...
    @overload
    def __init__(self, output: Callable[..., Awaitable[Answer]], **options: Unpack[_Options]) -> None: ...
    @overload
    def __init__(self, output: Callable[..., Answer], **options: Unpack[_Options]) -> None: ...
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
        validators: Any = output_validator
        if callable(output_validator):
            validators = [output_validator]
        check_types(
            AgentDefinitionError,
            "output",
            output_validator=(validators, Iterable, "a function or some"),
        )
        if isinstance(output, Mapping):
            from agentkit.output.schema_output import SchemaOutput

            output = SchemaOutput(output)
        self.output = output
        self.mode: OutputMode | None = mode
        self.validators = tuple([_checked_validator(validator) for validator in validators])

    def __repr__(self) -> str:
        name = getattr(self.output, "__name__", None) or repr(self.output)
        if self.mode is None:
            return f"OutputSpec({name})"
        return f"OutputSpec({name}, mode={self.mode!r})"


def _checked_validator(validator: Any) -> tuple[OutputValidator, bool]:
    """Return a validator, and True if it has a parameter for the context.

    Raises:
        AgentDefinitionError: The validator cannot be called with an answer.
    """
    count = argument_count(validator)
    if count not in (1, 2):
        name = getattr(validator, "__name__", None) or repr(validator)
        raise AgentDefinitionError(
            f"output_validator {name:.60}: expected a function of the answer, or of the answer and a ToolContext",
            name="output_validator",
            value=name,
        )
    return validator, count == 2


def argument_count(function: Any) -> int | None:
    """Return the number of positional arguments with which a validator is called: its required parameters.

    1 if all positional parameters are optional, or a callable has no signature. None if a value is not callable, or
    requires a keyword argument.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        if callable(function):
            return 1
        return None
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if any(
        parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty for parameter in parameters
    ):
        return None
    required = sum(parameter.default is parameter.empty for parameter in positional)
    if required or not positional:
        return required
    return 1
