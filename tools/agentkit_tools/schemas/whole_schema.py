"""All of a JSON Schema held against arguments, with the library `jsonschema`: also what the base does not check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import islice
from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from agentkit_prompts.context.frozen import thawed
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.argument_reader import ArgumentReader, Arguments, LateReader

__all__ = ["whole_reader"]

_MAX_PROBLEMS = 50


def whole_reader(parameters: Mapping[str, Any], *, tool: str) -> ArgumentReader:
    """Return a reader that holds every keyword of `parameters`, formats too, against what a `LateReader` accepts.

    It always reads in a thread. Patterns are left to that other reader, which matches them in linear time.

    Raises:
        ToolDefinitionError: The extra `jsonschema` is not installed.
    """
    if find_spec("jsonschema") is None:
        raise ToolDefinitionError(
            f"tool {tool}: checks_all needs the extra `jsonschema`: pip install 'agentkit-prompt-tree[jsonschema]'"
        )

    reader = LateReader(parameters)

    def thoroughly(text: str) -> Arguments:
        arguments = reader.thoroughly(text)
        if problems := list(islice(_validator(parameters)(arguments), _MAX_PROBLEMS)):
            raise ValidationError.from_exception_data(tool, problems)
        return arguments

    return ArgumentReader(reader.at_once, -1, thoroughly)


def _validator(parameters: Mapping[str, Any]) -> Callable[[Arguments], Any]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    kind: Any = extend(Draft202012Validator, {"pattern": None})
    validator = kind(thawed(parameters), format_checker=Draft202012Validator.FORMAT_CHECKER)

    def problems(arguments: Arguments) -> Any:
        for error in validator.iter_errors(arguments):
            kind = PydanticCustomError("schema", "{problem}", {"problem": error.message[:500]})
            yield InitErrorDetails(type=kind, loc=tuple(error.absolute_path), input=error.instance)

    return problems
