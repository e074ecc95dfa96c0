"""Properties of the callable of a tool: its inner function, its docstring, its name for providers."""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from inspect import signature, unwrap
from typing import Any, Protocol

from pydantic import BaseModel

from agentkit_prompts.errors import check_types
from agentkit_prompts.hints import is_callable
from agentkit_prompts.limits import MAX_WIRE_NAME_CHARS
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.schemas.foreign_shapes import library_of, tools_advice

_ACCEPTED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_REFUSED = re.compile(r"[^A-Za-z0-9_-]+")


class NamedFunction(Protocol):
    """Protocol of a function, a method or a class.

    A `Tool` does not implement it, so that type checkers check the deps of tools in a list of tools and functions.
    """

    @property
    def __name__(self) -> str: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def raw(function: Any) -> Any:
    """Return the function inside a `classmethod` or `staticmethod` object."""
    if isinstance(function, classmethod | staticmethod):
        return function.__func__
    return function


def inner_function(function: Any) -> Any:
    """Return the function inside of partials, wrappers and objects with `__call__`."""
    inner = unwrap(raw(function))
    while isinstance(inner, partial):
        inner = unwrap(inner.func)
    if not hasattr(inner, "__name__") and library_of(inner):
        advice = "pass it in a list: tools=[...], or Toolset([...])[0] for a Tool"
        raise ToolDefinitionError(
            f"an object of {type(inner).__name__} is a tool of {library_of(inner)} and not a function; {advice}",
            names=["function"],
        )
    if not is_callable(inner):
        if hasattr(inner, "as_tool"):
            raise ToolDefinitionError(
                f"an object of {type(inner).__name__} is not a function; use agent.as_tool(name=..., description=...)",
                names=["function"],
            )
        text = f"the function of a tool must be callable, got {inner!r:.200}{tools_advice(inner)}"
        raise ToolDefinitionError(text, names=["function"])
    # An object can have a name too, such as a task of a queue; functions of other languages have names and code.
    is_object = not hasattr(inner, "__code__") and hasattr(type(inner).__call__, "__code__")
    if (is_object or not hasattr(inner, "__name__")) and not isinstance(inner, type):
        inner = type(inner).__call__
    return inner


def described(function: Any) -> Any:
    """Return the outermost callable with a `__signature__` inside of `function`, or else the innermost callable."""
    while True:
        function = unwrap(raw(function), stop=lambda wrapper: hasattr(wrapper, "__signature__"))
        if not isinstance(function, partial) or hasattr(function, "__signature__"):
            return function
        function = function.func


def docstring_of(function: Any) -> str | None:
    """Return the outermost docstring: the docstring of a decorator has precedence over the decorated function."""
    here = raw(function)
    while here is not None:
        if docstring := _own_docstring(here):
            return docstring
        here = here.func if isinstance(here, partial) else getattr(here, "__wrapped__", None)
    if hasattr(inner := inner_function(function), "__code__"):
        return _own_docstring(inner)
    return None


def _own_docstring(thing: Any) -> str | None:
    """Return the docstring of a callable itself. An object inherits the docstring of its class, which is ignored."""
    if isinstance(thing, type):
        # The default docstring of dataclasses and named tuples is their signature.
        text = thing.__doc__
        if text and re.fullmatch(rf"{re.escape(thing.__name__)}\(.*\)(?: -> None)?", text, re.S):
            return None
        return text
    if hasattr(thing, "__name__"):
        return getattr(thing, "__doc__", None)
    docstring = getattr(thing, "__dict__", {}).get("__doc__")
    if isinstance(docstring, str):
        return docstring
    return None


def is_model(function: Any) -> bool:
    """True for a pydantic model or dataclass."""
    if not isinstance(function, type):
        return False
    from pydantic.dataclasses import is_pydantic_dataclass

    return issubclass(function, BaseModel) or is_pydantic_dataclass(function)


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of an object.

    Raises:
        ToolDefinitionError: The function is a lambda.
    """
    function = raw(function)
    while isinstance(function, partial):
        function = function.func
    name: str = getattr(function, "__name__", "") or type(function).__name__
    if name == "<lambda>":
        raise ToolDefinitionError(
            "a lambda has no name for the model; pass a name: Tool(function, name='...')", names=["name"]
        )
    return name


def is_unbound_method(function: Any) -> bool:
    """True for a function in a class body, whose first parameter is `self` or `cls`."""
    if isinstance(function, classmethod):
        return True
    if isinstance(function, staticmethod) or hasattr(function, "__self__") or not _is_in_class(function):
        return False
    first = next(iter(signature(function).parameters.values()), None)
    return first is not None and first.name in ("self", "cls") and first.annotation is first.empty


def _is_in_class(function: Any) -> bool:
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>")


def wire_name(name: str) -> str:
    """Return `name` in the characters that all providers accept: at most 64 letters, digits, `_` and `-`.

    A valid name is not changed. A changed name ends with 8 hex digits of the hash of `name`, so that `geometry.area`
    and `geometry area` have different names, which do not depend on other tools. If another tool has the changed name,
    `by_name` raises an error.
    """
    check_types(ToolDefinitionError, "wire_name", name=(name, str, "a name"))
    if _ACCEPTED.fullmatch(name):
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    readable = _REFUSED.sub("_", name).strip("_")[: MAX_WIRE_NAME_CHARS - len(digest) - 1]
    if not readable[:1].isalpha():
        readable = f"tool_{readable}"[: MAX_WIRE_NAME_CHARS - len(digest) - 1].rstrip("_")
    return f"{readable}_{digest}"
