"""Errors of operations of templates, which do not know their line, and the value of a missing name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn

from jinja2 import StrictUndefined, TemplateRuntimeError, Undefined, UndefinedError
from jinja2.utils import missing

from agentkit_prompts.limits import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, MAX_SHOWN_CHARS
from agentkit_prompts.names import nearest


class TemplateOperationError(TemplateRuntimeError):
    """Invalid operation of a template. `Program.trace` converts it to a `TemplateError` with file and line."""

    def __init__(self, message: str, variable: str | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.variable = variable
        self.line = line
        """Line of the file, if it is known when the error is raised, else None."""


class LimitReached(TemplateOperationError):
    """The template exceeds its limit of rounds, characters or time."""


class UndefinedName(TemplateOperationError, UndefinedError):
    """A missing variable. `Program.trace` adds the nearest names to the message."""


class UndefinedValue(TemplateOperationError, UndefinedError):
    """A missing attribute or element. `Program.trace` writes the name of its owner if the template reads the owner."""

    def __init__(self, message: str, variable: str, owner: object = None, valid_names: str = "") -> None:
        super().__init__(f"{message}{valid_names}", variable)
        self.owner = owner
        self.valid_names = valid_names
        """End of the message."""


class PromptUndefined(StrictUndefined):
    """A missing name, attribute or element. A template can test it by `is defined`; most other uses raise an error."""

    __slots__ = ()

    @property
    def variable(self) -> str:
        """The missing name or key."""
        name = self._undefined_name
        if isinstance(name, str):
            return name
        return repr(name)

    def _fail_with_undefined_error(self, *args: object, **kwargs: object) -> NoReturn:
        variable = self.variable[:MAX_SHOWN_CHARS]
        if self._undefined_hint:
            raise UndefinedValue(self._undefined_hint, variable)
        if self._undefined_obj is missing:
            raise UndefinedName(f"{variable!r} is undefined", variable)
        kind = type(self._undefined_obj).__name__
        if isinstance(self._undefined_obj, dict):
            kind = "dict"  # not the name of a private class
        if not isinstance(self._undefined_name, str):
            if isinstance(self._undefined_obj, list | tuple):
                kind = f"{kind} of length {len(self._undefined_obj)}"
            raise UndefinedValue(f"{kind} has no element {variable}", variable)
        valid_names = nearest(variable, _field_names(self._undefined_obj))
        raise UndefinedValue(f"{kind} has no {variable!r}", variable, self._undefined_obj, valid_names)

    def __getattr__(self, name: str) -> Any:
        # Python and `copy` look up special names, and expect an AttributeError.
        if name[:2] == "__":
            raise AttributeError(name)
        self._fail_with_undefined_error()

    __iter__ = __str__ = __len__ = __bool__ = __hash__ = __contains__ = _fail_with_undefined_error
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _fail_with_undefined_error
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = (
        _fail_with_undefined_error
    )
    __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __pos__ = __neg__ = _fail_with_undefined_error
    __call__ = __getitem__ = __int__ = __float__ = __complex__ = __format__ = _fail_with_undefined_error


def false_if_undefined(value: Any) -> Any:
    """Return the left operand of `or`; False if it is undefined."""
    if isinstance(value, Undefined):
        return False
    return value


def require(*values: object) -> None:
    """Raise the error of the first undefined value, if any."""
    for value in values:
        if isinstance(value, PromptUndefined):
            value._fail_with_undefined_error()


def message_of(error: Exception) -> str:
    """Return the class and the message of an exception that code of a value raised."""
    try:
        message = str(error)[:MAX_MESSAGE_CHARS]
    except Exception:  # the `__str__` of a custom exception can fail, too
        message = "(its message cannot be read)"
    return f"{type(error).__name__}: {message}"


def _field_names(value: object) -> list[str]:
    """Return the names of public keys or fields of a value, for suggestions; empty for other types of values."""
    kind: type = type(value)
    names: Any = getattr(kind, "model_fields", ())
    if isinstance(value, Mapping):
        names = value.keys()
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
        for base in kind.__mro__:
            names += [name for name, member in vars(base).items() if isinstance(member, property)]
    return [name for name in names if isinstance(name, str) and name[:1] != "_" and len(name) <= MAX_NAME_CHARS]
