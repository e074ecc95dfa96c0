"""Sandbox of prompt templates: undefined names are errors, a value has the same text everywhere, and attributes are
never methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import pass_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.utils import Joiner

from agentkit_prompts.templates.sandbox.attributes import attribute, element
from agentkit_prompts.templates.sandbox.bounded_environment import BoundedEnvironment
from agentkit_prompts.templates.sandbox.calls import is_offered
from agentkit_prompts.templates.sandbox.code_generator import TracingCodeGenerator
from agentkit_prompts.templates.sandbox.finalise import json_text, text
from agentkit_prompts.templates.sandbox.formatting import BoundFormat
from agentkit_prompts.templates.sandbox.guards import OPERATOR_GUARDS, check_strftime
from agentkit_prompts.templates.sandbox.meter import VIEWS, Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import PromptUndefined, TemplateOperationError, require
from agentkit_prompts.templates.sandbox.template_context import PromptContext

_JINJA_FILTERS: dict[str, Any] = dict(FILTERS)


def _percent(meter: Meter, template: str, values: Any) -> str:
    """Return the result of the operator `%` with a text: numbers are formatted as in Python, other values are replaced
    by their text.
    """

    def operand(value: Any) -> Any:
        if isinstance(value, int | float | Decimal):
            return value
        return text(meter, value)

    if isinstance(values, tuple):
        operands: Any = tuple(map(operand, values))
    elif isinstance(values, Mapping):
        operands = {name: operand(value) for name, value in values.items()}
    else:
        operands = operand(values)
    OPERATOR_GUARDS["%"](meter, template, operands)
    return str(str.__str__(template) % operands)


def _int(value: Any, default: Any = 0, base: int = 10) -> Any:
    try:
        refuse_large(value)
    except TemplateOperationError:
        return default
    return _JINJA_FILTERS["int"](value, default, base)


# `d` and `attribute` are the names of the parameters in Jinja; templates can pass them by name.
@pass_context
def _join(context: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    meter: Meter = context.meter
    items = context.rounds(value)
    if attribute is not None:
        items = _JINJA_FILTERS["map"](context, items, attribute=attribute)
    texts = [text(meter, item) for item in items]
    separator = text(meter, d)
    meter.make(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


@pass_context
def _sort(context: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=lambda item: (type(item).__name__, text(context.meter, item)))
    return _JINJA_FILTERS["sort"](context.environment, context.rounds(value), *args, **kwargs)


@pass_context
def _list(context: Any, value: Any) -> list[Any]:
    return list(context.rounds(value))


@pass_context
def _tojson(context: Any, value: Any, indent: Any = None, sort_keys: bool = False) -> str:
    return json_text(context.meter, value, indent, sort_keys=bool(sort_keys))


@pass_context
def _urlencode(context: Any, value: Any) -> str:
    if not isinstance(value, str | Mapping | list | tuple):
        value = text(context.meter, value)
    return str(_JINJA_FILTERS["urlencode"](value))


@pass_context
def _attr(context: Any, value: Any, name: Any) -> Any:
    return attribute(value, name)


def _escape(value: str) -> str:
    return str(_JINJA_FILTERS["escape"](value))


class PromptEnvironment(BoundedEnvironment):
    """Jinja environment of prompt templates."""

    code_generator_class = TracingCodeGenerator
    context_class = PromptContext
    getattr = staticmethod(attribute)  # type: ignore[assignment]
    getitem = staticmethod(element)  # type: ignore[assignment]

    def __init__(self) -> None:
        filters: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("e", "escape", "forceescape"), _escape),
            "attr": _attr,
            "int": _int,
            "join": _join,
            "list": _list,
            "safe": str,
            "sort": _sort,
            "tojson": _tojson,
            "urlencode": _urlencode,
        }
        super().__init__(filters=filters, shown=text, is_prompt=True, undefined=PromptUndefined)
        self._functions = {id(function) for function in self.globals.values()}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        require(left, right)
        if operator == "%" and isinstance(left, str):
            return _percent(context.meter, left, right)  # type: ignore[attr-defined]
        return super().call_binop(context, operator, left, right)

    def is_safe_callable(self, obj: Any) -> bool:
        if isinstance(obj, Macro | LoopContext | Joiner | BoundFormat) or id(obj) in self._functions:
            return True
        if not isinstance(obj, BuiltinMethodType | MethodType):
            return False
        return is_offered(obj.__self__, obj.__name__, is_prompt=True)

    def refuse_call(self, target: Any) -> NoReturn:
        require(target)
        kind = type(target).__name__
        raise TemplateOperationError(
            f"{kind} cannot be called: templates call macros and methods of data, and a few built-in functions"
        )

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as Jinja has it)
        if isinstance(__obj, BuiltinMethodType | MethodType) and __obj.__name__ == "strftime":
            check_strftime(*args)
        result: Any = super().call(__context, __obj, *args, **kwargs)
        # Views of dictionaries are returned as lists, because a view has no text form.
        if type(result) in VIEWS:
            return list(result)
        return result


@lru_cache(maxsize=1)
def prompt_environment() -> PromptEnvironment:
    """Return the environment of all prompt templates."""
    return PromptEnvironment()
