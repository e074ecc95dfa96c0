"""What goes in and out of a template beside plain data: marked strings, pieces, undefined values, faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import NamedTuple, NoReturn, TypeAlias

from agentkit_prompts.context.parts import Media
from agentkit_prompts.names import nearest

__all__ = [
    "MISSING",
    "Composed",
    "Fault",
    "Nothing",
    "Piece",
    "RenderedText",
    "Site",
    "TooMuchWork",
    "Trusted",
    "Undefined",
    "require",
]

_MAX_NAME = 64


class RenderedText(str):
    """Text of already rendered prompts, passed to a template as a value; `rendered` is what it was rendered from."""

    __slots__ = ("rendered",)
    rendered: object

    def __new__(cls, text: str, rendered: object = None) -> RenderedText:
        self = super().__new__(cls, text)
        self.rendered = rendered
        return self


class Trusted(str):
    """Text that is trusted wherever in the context it is found. Only the developer makes it."""

    __slots__ = ()


class Composed(str):
    """What came out of a buffer (a macro, a set block) into which rendered text was printed: its markers are real."""

    __slots__ = ()


Piece: TypeAlias = str | tuple[int, tuple[int, ...] | int | None, str | Media]
"""Text of the template itself, or (number of the site, index or indices of the loops around it, value)."""


class Site(NamedTuple):
    """One `{{ }}` of a template."""

    line: int
    """Line in the file, counted from 1."""
    pointer: str
    """Where in the context the value lives, such as `documents[{0}].text`; `{k}` is the k-th loop index of a piece.
    Empty when the expression is more than a path."""
    roots: tuple[str, ...]
    """Outside names the value may depend on, sorted."""

    @property
    def nested(self) -> bool:
        """Whether the value can only come from rendered prompts passed in."""
        return self.roots == ("wrapped_str",)


class Fault(Exception):
    """Something a template must not do, before it is known where in the template it happened."""

    def __init__(self, message: str, variable: str | None = None) -> None:
        super().__init__(message)
        self.variable = variable


class TooMuchWork(Fault):
    """The template has taken the steps that it may."""


MISSING = object()
"""Owner of an undefined value that is a name of its own, not an attribute or element."""


class Undefined:
    """A name, attribute or element that is not there. It can be tested with `is defined`; any other use is a fault."""

    __slots__ = ("hint", "name", "owner")

    def __init__(self, name: object, owner: object = MISSING, hint: str = "") -> None:
        self.name = name
        self.owner = owner
        self.hint = hint

    def fail(self, *_: object, **__: object) -> NoReturn:
        """Raise the fault that names what is missing and what there is instead."""
        variable = self.name if isinstance(self.name, str) else repr(self.name)
        if self.hint:
            raise Fault(self.hint, variable)
        if self.owner is MISSING:
            raise UndefinedName(f"{variable!r} is undefined", variable)
        kind = type(self.owner).__name__
        if isinstance(self.name, str):
            raise Fault(f"{kind} has no {variable[:80]!r}{nearest(variable, field_names(self.owner))}", variable)
        raise Fault(f"{kind} has no element {variable[:80]}", variable)

    def __repr__(self) -> str:
        return f"Undefined({self.name!r})"

    def __bool__(self) -> bool:
        self.fail()

    def __str__(self) -> str:
        self.fail()

    __len__ = __iter__ = __hash__ = __contains__ = __call__ = __getitem__ = fail
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = fail
    __int__ = __float__ = __index__ = __neg__ = __pos__ = __format__ = fail


class Nothing(Undefined):
    """The value of an inline `if` that was false and has no `else`: prints as nothing, is false and empty."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return ""


class UndefinedName(Fault):
    """A name that nobody supplied; the message still lacks what was supplied."""


def require(*values: object) -> None:
    """Raise the fault of the first value that is not there."""
    for value in values:
        if isinstance(value, Undefined):
            value.fail()


def field_names(value: object) -> list[str]:
    """Return the public names a template can read off a value, as far as they are known."""
    if isinstance(value, Mapping):
        names: Iterable[object] = value.keys()
    elif is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        names = getattr(type(value), "model_fields", ())
    return [name for name in names if isinstance(name, str) and name[:1] != "_" and len(name) <= _MAX_NAME]
