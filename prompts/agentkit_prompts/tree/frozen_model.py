"""Base model of prompts and layers: its fields are frozen and validated, also in a copy with updated fields."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentkit_prompts.errors import PromptError, error_of_problems
from agentkit_prompts.hint_calls import CALLS
from agentkit_prompts.hints import attribute_hint
from agentkit_prompts.names import similar, unknown_fields

if TYPE_CHECKING:

    @dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(Field,))
    # For type checkers every field is keyword-only, except fields with `Field(kw_only=False)`.
    class _Model:
        model_config: ClassVar[ConfigDict]
        model_fields: ClassVar[dict[str, Any]]
        model_fields_set: set[str]

        def __init__(self, **data: Any) -> None: ...
        def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self: ...
else:
    _Model = BaseModel


class FrozenModel(_Model):
    """Frozen model whose first fields can be positional arguments.

    Raises:
        PromptError: Names all unknown fields, with the nearest valid names, or all fields with invalid values.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, populate_by_name=True, defer_build=True
    )

    _positional: ClassVar[tuple[str, ...]]
    """Names of the fields that can be positional arguments, in order. A class that changes them also writes `__init__`
    for type checkers, below `if TYPE_CHECKING`."""

    def __init__(self, /, *args: Any, **data: Any) -> None:
        if args:
            _name_arguments(type(self), args, data)
        if not data.keys() <= self.__pydantic_fields__.keys():  # type: ignore[attr-defined]
            _refuse_unknown(type(self), data)
        try:
            super().__init__(**data)
        except ValidationError as failure:
            raised = _error_of(type(self), failure, data)
        else:
            return
        # Outside of `except`, because the error of pydantic would be the context of this error.
        raise raised

    # Hidden from type checkers, because with this method they would accept unknown attributes.
    if not TYPE_CHECKING:

        def __getattr__(self, name):
            advice = attribute_hint(type(self), name)
            if advice is None:
                return super().__getattr__(name)
            class_name = type(self).__name__
            raise AttributeError(f"{class_name!r} object has no attribute {name!r}; use {advice}", name=name, obj=self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with the fields in `update` replaced; such a copy is validated like a new object."""
        if not update:
            return super().model_copy(deep=deep)
        # `BaseModel.model_copy` does not validate the updated fields.
        duplicate = type(self).__new__(type(self))
        FrozenModel.__init__(duplicate, **{**{name: getattr(self, name) for name in self.model_fields_set}, **update})
        if deep:
            return copy.deepcopy(duplicate)
        return duplicate


def _name_arguments(model_class: type[FrozenModel], args: tuple[Any, ...], data: dict[str, Any]) -> None:
    """Add the positional arguments to `data` under the names of their fields."""
    fields = model_class._positional
    if len(args) > len(fields):
        plural = "s" * (len(fields) > 1)
        limit = f"at most {len(fields)} positional argument{plural} ({', '.join(fields)})"
        kind = model_class.__name__
        advice = f"; use {CALLS[kind]}" if kind in CALLS else ""
        raise PromptError(f"{kind}: expected {limit}, got {len(args)}{advice}")
    for name, value in zip(fields, args, strict=False):
        if name in data:
            raise PromptError(f"{model_class.__name__}: {name} is passed twice", name=name)
        data[name] = value


def _error_of(model_class: type[FrozenModel], failure: ValidationError, data: Mapping[str, Any]) -> PromptError:
    """Return the error that lists all invalid fields."""
    # Import late: valid prompts need no texts of errors.
    from agentkit_prompts.invalid_values import invalid_values
    from agentkit_prompts.options import WORDS, field_problem

    annotations = {name: field.annotation for name, field in model_class.model_fields.items()}
    problems = [field_problem(value, annotations) for value in invalid_values(failure, data, words=WORDS)]
    names = ", ".join(dict.fromkeys([problem.place for problem in problems]))
    return error_of_problems(PromptError, model_class.__name__, problems, name=names)


def _refuse_unknown(model_class: type[FrozenModel], data: Mapping[str, Any]) -> None:
    """Raise an error that names all unknown fields."""
    fields = model_class.model_fields
    # With aliases or extra fields, other names are valid, too, so pydantic has to check the names.
    if model_class.model_config.get("extra") != "forbid" or any(field.validation_alias for field in fields.values()):
        return
    unknown = [name for name in data if name not in fields]
    suggestion = similar(unknown[0], fields)
    problems = unknown_fields(model_class.__name__, data, fields)
    raise PromptError(f"{model_class.__name__}: {'; '.join(problems)}", name=", ".join(unknown), suggestion=suggestion)
