"""The annotations of what a callable takes, resolved, wherever they are written: in code, a class, a decorator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from inspect import Parameter
from types import SimpleNamespace
from typing import Any, get_type_hints

from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.callables import described, inner_function

__all__ = ["annotations_of", "context_annotations"]


def annotations_of(function: Callable[..., Any], parameters: Iterable[Parameter], tool: str) -> dict[str, Any]:
    """Return the types of `parameters`, which are those of the signature of `function`; untyped ones are left out.

    A signature of its own, such as a decorator sets, has its own types; otherwise they are those of the code inside.

    Raises:
        ToolDefinitionError: An annotation cannot be resolved.
    """
    inner = inner_function(function)
    shown = described(function)
    if hasattr(shown, "__signature__"):
        written = {one.name: one.annotation for one in parameters if one.annotation is not one.empty}
        return _resolved(SimpleNamespace(__annotations__=written), inner, tool, _names_of(inner, shown))
    if not isinstance(inner, type):
        return _resolved(inner, inner, tool)
    annotations: dict[str, Any] = {}
    for maker in (inner.__new__, inner.__init__):  # type: ignore[misc]
        # Written in Python: `object` has neither.
        if hasattr(maker, "__code__"):
            annotations |= _resolved(maker, maker, tool)
    return annotations


def _names_of(inner: Any, shown: Any) -> dict[str, Any]:
    """Return the names that annotations of a custom signature can use."""
    names = {**getattr(inner, "__globals__", {}), **getattr(shown, "__globals__", {})}
    if isinstance(shown, type):
        names = {**vars(sys.modules.get(shown.__module__, SimpleNamespace())), **names}
    return names


def context_annotations(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """Return the annotations that can be resolved by themselves; that of a context must be among them.

    Raises:
        ToolDefinitionError: An annotation names `ToolContext` and cannot be resolved.
    """
    inner = inner_function(function)
    if isinstance(inner, type):
        inner = inner.__init__  # type: ignore[misc]
    try:
        return _resolved(inner, inner, tool)
    except ToolDefinitionError as error:
        # Its other annotations do not matter here.
        return _resolved_alone(inner, error)


def _resolved_alone(inner: Any, error: ToolDefinitionError) -> dict[str, Any]:
    """Return the annotations that can be resolved one by one; raise `error` if that of a context cannot."""
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
    """Return the annotations of `annotated`; names in them are those of `names`, or of where `code` is written."""
    try:
        return _type_hints(annotated, code, names)
    except NameError as error:
        raise ToolDefinitionError(
            f"tool {tool}: the annotation {getattr(error, 'name', None) or error} cannot be resolved; import it outside"
            " of `if TYPE_CHECKING:` and define it before the tool",
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
    """Local names in sight of a function that is defined inside another one: it is the caller that is at work now."""
    names: dict[str, Any] = {}
    home = getattr(function, "__globals__", None)
    frame = sys._getframe()
    while frame is not None:  # pyright: ignore[reportUnnecessaryComparison]
        if frame.f_globals is home and frame.f_locals is not home:
            names = {**frame.f_locals, **names}
        frame = frame.f_back  # type: ignore[assignment]
    return names
