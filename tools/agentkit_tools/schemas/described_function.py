"""Name, description and parameters of a tool from the signature and the docstring of its function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit_prompts.caller_warnings import warn
from agentkit_tools.errors import ToolDescriptionWarning
from agentkit_tools.schemas.callables import (
    docstring_of,
    inner_function,
    is_model,
    is_unbound_method,
    name_of,
    raw,
)
from agentkit_tools.schemas.docstring import read_docstring
from agentkit_tools.schemas.function_schema import read_signature

if TYPE_CHECKING:
    from agentkit_tools.schemas.function_schema import Signature


class DescribedFunction(NamedTuple):
    """Parts of the tool of a function."""

    name: str
    description: str
    signature: Signature
    nothing: str
    """Text of the result of a call that returns None."""


def describe_function(function: Callable[..., Any], name: str | None, description: str | None) -> DescribedFunction:
    """Read the parts of a tool from a function; `name` and `description` replace the name and the docstring.

    Raises:
        ToolDefinitionError: The signature cannot be described to a model.
    """
    name = name or name_of(function)
    docstring = read_docstring(docstring_of(function))
    if description is not None:
        warn_without_description(name, description)
    else:
        description = docstring.text
        advice = "write a docstring, or pass description=..."
        if sys.flags.optimize > 1:
            advice = "`python -OO` removes docstrings, so pass description=..."
        warn_without_description(name, description, advice)
    if is_model(function):
        from agentkit_tools.schemas.model_schema import read_model

        signature = read_model(function, docstring.parameters, tool=name)
    else:
        is_method = is_unbound_method(function)
        signature = read_signature(raw(function), docstring.parameters, tool=name, skip_first=is_method)
    if signature.untyped:
        names = ", ".join(signature.untyped)
        warn(f"tool {name}: parameters without a type: {names}; add type hints", ToolDescriptionWarning)
    nothing = "null"
    # "null" as the result of a function without a return type would look like a missing value.
    if getattr(inner_function(function), "__annotations__", {}).get("return") in (None, "None"):
        nothing = "done"
    return DescribedFunction(name, description, signature, nothing)


def warn_without_description(name: str, description: str, advice: str = "pass a description") -> None:
    """Warn about a tool without a description, because a model needs it to choose the tool."""
    if not description.strip():
        warn(f"tool {name} has no description: {advice}", ToolDescriptionWarning)
