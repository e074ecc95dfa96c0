"""Hints: errors about names of other libraries name ours. The rows are in `hint_rows` and `hint_calls`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from agentkit_prompts.hint_calls import CALLS, OPTIONS
from agentkit_prompts.hint_rows import ATTRIBUTES, NAMES, OPERATORS

DOORS = (
    "agentkit",
    "agentkit.prompts",
    "agentkit.tools",
    "agentkit.tools.types",
    "agentkit.memory",
    "agentkit.models",
    "agentkit.errors",
    "agentkit.guards",
    "agentkit.durable",
    "agentkit.sandbox",
    "agentkit.server",
    "agentkit.testing",
    "agentkit.training",
    "agentkit.observing",
    "agentkit.agent_files",
    "agentkit.evals",
    "agentkit.improve",
    "agentkit.inbox",
    "agentkit.inspector",
    "agentkit.memory.recall",
    "agentkit.prompts.chat_templates",
    "agentkit.prompts.evaluation",
    "agentkit.prompts.example_selectors",
    "agentkit.prompts.prompters",
)
"""Modules that users import from; the first module that exports a name is suggested."""

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
Explanation: TypeAlias = Callable[[TypeError, Sequence[Any], Mapping[str, Any]], Exception | None]
"""Returns the error for arguments that do not fit a signature, or None to keep the error of Python."""


def module_hint(package: str, name: str) -> str | None:
    """Return the replacement of `name`, which `package` does not export; None if no hint fits."""
    if name.startswith("_"):
        return None
    if is_submodule(package, name):
        return None
    if name in NAMES:
        return f"use {NAMES[name]}"
    for door in DOORS:
        module = sys.modules.get(door)
        # Names in lower case can be hooks that a tool looks up with `hasattr`, which must not cost an import.
        if module is None and name[0].isupper():
            module = import_module(door)
        if door != package and name in getattr(module, "__all__", ()):
            return f"import it from {door}"
    return None


def is_submodule(package: str, name: str) -> bool:
    """True if `name` is a module of `package`. An import statement looks such a name up as an attribute first."""
    return hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.{name}") is not None


def option_hint(where: str, name: str) -> str | None:
    """Return the replacement of the keyword argument `name` of the class or function `where`, or None."""
    return OPTIONS.get(where, {}).get(name)


def with_option_hints(function: F) -> F:
    """Decorate a function: its error about arguments that do not fit its signature contains a hint.

    The rows are in `OPTIONS` and `CALLS`, by the qualified name of the function, such as `Memory.recall`; the name of
    a class for its constructor.
    """
    where = function.__qualname__.removesuffix(".__init__")

    def explain(error: TypeError, args: Sequence[Any], options: Mapping[str, Any]) -> TypeError | None:
        advice = _call_hint(where, options)
        if advice is None:
            return None
        return TypeError(f"{error}; use {advice}")

    return explain_arguments(function, explain)


def explain_arguments(function: F, explain: Explanation) -> F:
    """Return a function that raises the error of `explain` if its arguments do not fit the signature.

    Arguments are examined only after a failure, because programs create thousands of documents.
    """

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError as error:
            # An error about the signature is raised before the function has a frame.
            is_inside = error.__traceback__ is None or error.__traceback__.tb_next is not None
            explained = None if is_inside else explain(error, args, options)
            if explained is None:
                raise
        # Outside of `except`, so that the error of Python is not shown as the cause.
        raise explained

    checked: Any = call
    result: F = checked
    return result


def _call_hint(where: str, options: Iterable[str]) -> str | None:
    """Return the replacement of a call with these keyword arguments, or None."""
    hints = [option_hint(where, name) for name in options]
    texts = [text for text in dict.fromkeys(hints) if text is not None]
    if texts:
        return "; ".join(texts)
    return CALLS.get(where)


class Hinted(type):
    """Metaclass of classes with rows in `ATTRIBUTES` or `OPERATORS`: the error of a missing attribute has a hint.

    It covers attributes of the class and of its instances, and the operators of instances.
    """

    # Type checkers report unknown attributes themselves, unless they see these methods.
    if not TYPE_CHECKING:

        def __init__(cls, name, bases, namespace, **options):
            super().__init__(name, bases, namespace, **options)
            if "__getattr__" not in dir(cls):
                cls.__getattr__ = _missing_attribute
            for method, (problem, advice) in OPERATORS.get(cls.__name__, {}).items():
                setattr(cls, method, _refusal(f"{cls.__name__!r} object {problem}; use {advice}"))

        def __getattr__(cls, name):
            raise _attribute_error(cls, name, f"type object {cls.__name__!r}", cls)


def hinted(cls: C) -> C:
    """Decorate a class with rows in `ATTRIBUTES`: the error of a missing attribute of an instance has a hint.

    For classes that have another metaclass than `Hinted`, or whose objects are created often.
    """
    decorated: Any = cls
    decorated.__getattr__ = _missing_attribute
    return cls


def is_callable(value: object) -> bool:
    """True if `value` can be called. `callable` is true as well for an object whose call only raises a hint."""
    kind = type(value)
    if not callable(value) or not isinstance(kind, Hinted):
        return callable(value)
    definer = next(base for base in kind.__mro__ if "__call__" in vars(base))
    return "__call__" not in OPERATORS.get(definer.__name__, {})


def _refusal(message: str) -> Callable[..., Any]:
    """Return a method that raises a `TypeError` with the message."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise TypeError(message)

    return refuse


def _missing_attribute(instance: Any, name: str) -> Any:
    """Raise the error about an attribute that an instance does not have."""
    cls = type(instance)
    if attribute_hint(cls, name) is None:
        # Raises the error of Python, also if a property raised it.
        return object.__getattribute__(instance, name)
    raise _attribute_error(cls, name, f"{cls.__name__!r} object", instance)


def _attribute_error(cls: type, name: str, subject: str, owner: object) -> AttributeError:
    message = f"{subject} has no attribute {name!r}"
    advice = attribute_hint(cls, name)
    if advice is not None:
        message += f"; use {advice}"
    return AttributeError(message, name=name, obj=owner)


def attribute_hint(cls: type, name: str) -> str | None:
    """Return the replacement of an attribute of a class or of its bases; None if no hint fits."""
    if name.startswith("_"):
        return None
    for base in cls.__mro__:
        rows: Mapping[str, str] = ATTRIBUTES.get(base.__name__, {})
        if name in rows:
            return rows[name]
    return None
