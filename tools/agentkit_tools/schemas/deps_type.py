"""Type of `deps` that a tool declares with `ToolContext[...]`, and a test of values of that type."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Literal, NewType, TypeVar, Union, get_args, get_origin

from typing_extensions import TypeAliasType, get_protocol_members, is_protocol, is_typeddict

from agentkit_tools.tool_context import ToolContext

_UNIONS = (Union, UnionType)
_NUMBERS: dict[Any, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}


def context_of(hint: Any) -> Any:
    """Return the `ToolContext` in an annotation, also in a union; None if the annotation contains none."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    # `ToolContext | None` is the annotation of a function that is also called without a context.
    if get_origin(hint) in _UNIONS:
        contexts = map(context_of, get_args(hint))
        return next((context for context in contexts if context is not None), None)
    if hint is ToolContext or get_origin(hint) is ToolContext:
        return hint
    return None


def deps_type(hint: Any) -> Any:
    """Return the type of `deps` that a context declares; None if any `deps` are valid.

    Any `deps` are valid for `ToolContext` without argument, and for the arguments `Any`, `object`, `None` and type
    variables.
    """
    declared = get_args(context_of(hint))
    if not declared or declared[0] is NoneType or _takes_any(declared[0]):
        return None
    return declared[0]


def _takes_any(declared: Any) -> bool:
    declared = _plain(declared)
    if get_origin(declared) in _UNIONS:
        return any(map(_takes_any, get_args(declared)))
    return declared in (Any, object) or isinstance(declared, TypeVar | ForwardRef | str)


def _plain(declared: Any) -> Any:
    """Return the type of an alias, a `NewType`, an `Annotated` or a bounded type variable."""
    while (inner := _meaning(declared)) is not None:
        declared = inner
    return declared


def _meaning(declared: Any) -> Any:
    """Return the direct target of an alias; None for any other type."""
    if isinstance(declared, TypeAliasType):
        return declared.__value__
    if isinstance(declared, NewType):
        return declared.__supertype__
    if get_origin(declared) is Annotated:
        return get_args(declared)[0]
    if not isinstance(declared, TypeVar):
        return None
    if declared.__constraints__:
        return Union[declared.__constraints__]  # noqa: UP007 (a tuple of options)
    return declared.__bound__


def fits(deps: object, declared: Any) -> bool:
    """True if `deps` are of the declared type, or if Python cannot check the type.

    Arguments of generic types are not checked. An object with the members of a protocol is of its type.
    """
    declared = _plain(declared)
    origin = get_origin(declared)
    if origin in _UNIONS:
        return any(fits(deps, option) for option in get_args(declared))
    if origin is Literal:
        return (type(deps), deps) in [(type(value), value) for value in get_args(declared)]
    if _takes_any(declared):
        return True
    try:
        return _is_instance(deps, _class_of(declared))
    except Exception:
        # `declared` is no class, or its code for instance checks or attributes raised an exception.
        return True


def _class_of(declared: Any) -> Any:
    if declared is None:
        return NoneType
    return get_origin(declared) or declared


def _is_instance(deps: object, kind: Any) -> bool:
    if is_typeddict(kind):
        return isinstance(deps, Mapping)
    if isinstance(kind, type) and is_protocol(kind):
        return all(hasattr(deps, name) for name in get_protocol_members(kind))
    return isinstance(deps, _NUMBERS.get(kind, kind))


def name_of_type(declared: Any) -> str:
    """Return the text of a declared type."""
    if isinstance(declared, type) and not get_args(declared):
        return declared.__qualname__
    return str(declared)


def class_of_other_module(declared: Any, got: type) -> str:
    """Return the description of a class with the name of a declared class from another module, and the remedy."""
    name = name_of_type(got)
    modules = sorted([getattr(declared, "__module__", "?"), got.__module__], key=len)
    files = {os.path.realpath(getattr(sys.modules.get(module), "__file__", None) or module) for module in modules}
    if len(files) == 2:
        return f"a class {name} of another module, {got.__module__} instead of {declared.__module__}"
    # The file was imported by its path and by its name, so that each of its classes exists twice.
    return (
        f"a class {name} of the same file, which is imported as {modules[0]} and by its path: name its module in the "
        f"agent file too, `{modules[0]}:NAME` instead of `./{modules[0]}.py:NAME`"
    )
