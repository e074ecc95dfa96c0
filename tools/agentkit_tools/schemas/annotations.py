"""Resolved annotations of the parameters of a callable: of its code, its class or its decorator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from inspect import Parameter
from types import SimpleNamespace
from typing import Any, get_type_hints

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.callables import described, inner_function


def annotations_of(function: Callable[..., Any], parameters: Iterable[Parameter], tool: str) -> dict[str, Any]:
    """Return the types of the parameters of `function`, without untyped parameters.

    The types come from the `__signature__` of the function, which decorators set, or else from the inner function.

    Raises:
        ToolDefinitionError: An annotation cannot be resolved.
    """
    inner = inner_function(function)
    outer = described(function)
    if hasattr(outer, "__signature__"):
        typed = [parameter for parameter in parameters if parameter.annotation is not parameter.empty]
        annotated = SimpleNamespace(__annotations__={parameter.name: parameter.annotation for parameter in typed})
        return _resolved(annotated, inner, tool, _names_of(inner, outer))
    if not isinstance(inner, type):
        return _resolved(inner, inner, tool)
    annotations: dict[str, Any] = {}
    for maker in (inner.__new__, inner.__init__):  # type: ignore[misc]
        # A class without its own method has the slot of `object`, which has no code and no annotations.
        if hasattr(maker, "__code__"):
            annotations |= _resolved(maker, maker, tool)
    return annotations


def _names_of(inner: Any, outer: Any) -> dict[str, Any]:
    """Return the names that annotations of a custom signature can use."""
    names = {**getattr(inner, "__globals__", {}), **getattr(outer, "__globals__", {})}
    if isinstance(outer, type):
        names = {**vars(sys.modules.get(outer.__module__, SimpleNamespace())), **names}
    return names


def context_annotations(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """Return the annotations that can be resolved. The annotation of a context must be among them.

    Raises:
        ToolDefinitionError: An annotation names `ToolContext` and cannot be resolved.
    """
    inner = inner_function(function)
    if isinstance(inner, type):
        inner = inner.__init__  # type: ignore[misc]
    try:
        return _resolved(inner, inner, tool)
    except ToolDefinitionError as error:
        # Only the annotation of a context is needed here.
        return _resolved_alone(inner, error)


def _resolved_alone(inner: Any, error: ToolDefinitionError) -> dict[str, Any]:
    """Return the annotations that can be resolved one by one; raise `error` if a context cannot be resolved."""
    annotations: dict[str, Any] = {}
    for name, hint in getattr(inner, "__annotations__", {}).items():
        alone = SimpleNamespace(__annotations__={name: hint})
        try:
            annotations |= get_type_hints(alone, getattr(inner, "__globals__", {}), include_extras=True)
        except Exception:
            if "ToolContext" in str(hint):
                raise error from None
    return annotations


def _resolved(annotated: Any, code: Any, tool: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the annotations of `annotated`, with names from `names`, or else from the module and callers of `code`."""
    try:
        return _type_hints(annotated, code, names)
    except NameError as error:
        raise ToolDefinitionError(
            f"tool {tool}: the annotation {getattr(error, 'name', None) or error} cannot be resolved; import it outside"
            " of `if TYPE_CHECKING:`, and define it before the tool",
            tool=tool,
            names=[error.name] if error.name else (),
        ) from error
    except (TypeError, SyntaxError) as error:
        raise ToolDefinitionError(f"tool {tool}: its annotations cannot be read ({error})", tool=tool) from error


def _type_hints(annotated: Any, code: Any, names: dict[str, Any] | None) -> dict[str, Any]:
    try:
        return get_type_hints(annotated, names, include_extras=True)
    except NameError:
        local = _names_of_callers(code)
        if not local:
            raise
    return get_type_hints(annotated, names, local, include_extras=True)


def _names_of_callers(function: Any) -> dict[str, Any]:
    """Return the local names of the calling frames in the module of a function that is defined in a function."""
    names: dict[str, Any] = {}
    home = getattr(function, "__globals__", None)
    frame = sys._getframe()
    while frame is not None:  # pyright: ignore[reportUnnecessaryComparison]
        if frame.f_globals is home and frame.f_locals is not home:
            names = {**frame.f_locals, **names}
        frame = frame.f_back  # type: ignore[assignment]
    return names
