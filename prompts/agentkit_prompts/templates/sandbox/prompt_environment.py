"""The sandbox of prompt templates: strict, canonical text of values, fields instead of methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import modifies_known_mutable
from jinja2.utils import Cycler, Joiner, Namespace, missing

from agentkit_prompts.context.frozen import FrozenList
from agentkit_prompts.limits import MAX_SHOWN_CHARS
from agentkit_prompts.templates.sandbox.attributes import attribute, element, refuse_private
from agentkit_prompts.templates.sandbox.bounded_environment import BoundedContext, BoundedEnvironment
from agentkit_prompts.templates.sandbox.calls import Dict, refuse_method
from agentkit_prompts.templates.sandbox.code_generator import TracingCodeGenerator
from agentkit_prompts.templates.sandbox.faults import Fault, PromptUndefined, require
from agentkit_prompts.templates.sandbox.finalise import concat, json_text, text, text_kept
from agentkit_prompts.templates.sandbox.formatting import BoundFormat
from agentkit_prompts.templates.sandbox.guards import OPERATOR_GUARDS, check_strftime
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large

if TYPE_CHECKING:
    from agentkit_prompts.templates.sandbox.trace import Trace

__all__ = ["PromptContext", "PromptEnvironment", "prompt_environment", "traced_context"]

_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_DATA = (str, bytes, int, float, list, tuple, range, date, time, timedelta)
"""Types whose methods templates can call."""
_LISTS = frozenset({list, tuple, FrozenList})
"""Types of most values of loops."""
_MAPPING_METHODS = frozenset({"copy", "get", "items", "keys", "values"})
_JINJA_METHODS: dict[type, frozenset[str]] = {
    Cycler: frozenset({"next", "reset"}),
    Dict: frozenset({"fromkeys"}),
}
_JINJA_FILTERS: dict[str, Any] = dict(FILTERS)
_LOOP_METHODS = frozenset({"changed", "cycle"})


class _Method:
    """A method of a value that templates call in a form of our own."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)


class PromptContext(BoundedContext):
    """Variables of a prompt template. A value goes before a function of the same name."""

    trace: Trace

    def __init__(self, environment: PromptEnvironment, values: Mapping[str, Any], trace: Trace) -> None:
        # Without the preparations of Jinja for blocks and imports, which take as long as a short template.
        self.environment = environment
        self.parent = values  # type: ignore[assignment]
        self.vars = {}
        self.exported_vars = set()
        self.eval_ctx = environment.eval_context
        self.name = None
        self.blocks = {}
        self.trace = trace
        self.meter = trace.meter

    def resolve_or_missing(self, key: str) -> Any:
        value = self.vars.get(key, missing)
        if value is missing:
            value = self.parent.get(key, missing)
        return self.environment.globals.get(key, missing) if value is missing else value

    def shown(self, value: Any) -> str:
        return value if type(value) is str else text_kept(self.meter, value)

    def concat(self, texts: Iterable[str]) -> str:
        return concat(self.meter, list(texts))

    def join(self, values: Iterable[Any]) -> str:
        texts = [value if type(value) is str else text(self.meter, value) for value in values]
        self.meter.make(sum(map(len, texts)))
        return "".join(texts)

    def rounds(self, value: Any) -> Any:
        if type(value) in _LISTS:
            self.meter.visit(len(value))
            return value
        require(value)
        if isinstance(value, set | frozenset):
            raise Fault(f"a {type(value).__name__} has no fixed order: sort it first, with `|sort`")
        if isinstance(value, bytes | bytearray | memoryview):
            raise Fault(f"{type(value).__name__} is not text: decode it before it gets here")
        if not hasattr(type(value), "__iter__") and not hasattr(type(value), "__getitem__"):
            raise Fault(f"{type(value).__name__} cannot be looped over: expected a list, a mapping or text")
        return super().rounds(value)

    @staticmethod
    def require(value: Any) -> None:
        """Raise the error of an undefined value."""
        require(value)

    def method(self, value: Any, name: str) -> Any:
        """Return what `value.name(...)` calls: a method of data, or a macro in a namespace."""
        require(value)
        refuse_private(name)
        kind = type(value)
        if isinstance(value, str) and name in ("format", "format_map"):
            return BoundFormat(self.environment, value, name, text)  # type: ignore[arg-type]  # it is a sandbox
        if isinstance(value, date | time) and name == "strftime":
            return _Method(lambda *args, **kwargs: self._strftime(value, *args, **kwargs))
        if isinstance(value, Mapping) and name in _MAPPING_METHODS:
            return getattr(value, name)
        if isinstance(value, _DATA):
            refuse_method(value, name, is_prompt=not isinstance(value, str))
            if hasattr(kind, name) and not modifies_known_mutable(value, name):
                return getattr(value, name)
        is_of_jinja = name in _JINJA_METHODS.get(kind, ()) or (isinstance(value, LoopContext) and name in _LOOP_METHODS)
        if is_of_jinja:
            return getattr(value, name)
        if isinstance(value, Namespace | Mapping):
            return attribute(value, name)
        shown = name[:MAX_SHOWN_CHARS]
        raise Fault(f"{kind.__name__}.{shown}(...) is not one of the methods that templates can call", shown)

    def _strftime(self, value: date | time, pattern: Any) -> str:
        check_strftime(pattern)
        return value.strftime(pattern)


def _percent(meter: Meter, template: str, values: Any) -> str:
    """Fill the `%` fields of a text: numbers as Python does, other values with their text."""

    def operand(value: Any) -> Any:
        return value if isinstance(value, int | float | Decimal) else text(meter, value)

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
        return _JINJA_FILTERS["int"](value, default, base)
    except (Fault, OverflowError) as error:
        if isinstance(error, Fault) and isinstance(value, Undefined):
            raise
        return default


def _float(value: Any, default: Any = 0.0) -> Any:
    try:
        return _JINJA_FILTERS["float"](value, default)
    except OverflowError:
        return default


def _round(value: Any, precision: int = 0, method: Any = "common") -> Any:
    if not isinstance(value, int | float | Decimal):
        require(value)
        raise Fault(f"round takes a number, got {type(value).__name__}")
    return _JINJA_FILTERS["round"](value, precision, method)


@pass_context
def _join(context: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    meter: Meter = context.meter
    items = context.rounds(value)
    if attribute is not None:
        items = _JINJA_FILTERS["map"](context, items, attribute=attribute)
    texts = [text(meter, item) for item in items]
    glue = text(meter, d)
    meter.make(sum(map(len, texts)) + len(glue) * len(texts))
    return glue.join(texts)


@pass_context
def _sort(context: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=lambda item: (type(item).__name__, text(context.meter, item)))
    return _JINJA_FILTERS["sort"](context.environment, context.rounds(value), *args, **kwargs)


@pass_context
def _list(context: Any, value: Any) -> list[Any]:
    return list(context.rounds(value))


@pass_context
def _format(context: Any, value: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise Fault("format takes values by position or by name, not both")
    return _percent(context.meter, value, kwargs or args)


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
    """The sandbox of prompt templates."""

    code_generator_class = TracingCodeGenerator
    context_class = PromptContext
    getattr = staticmethod(attribute)  # type: ignore[assignment]
    getitem = staticmethod(element)  # type: ignore[assignment]

    def __init__(self) -> None:
        filters: dict[str, Callable[..., Any]] = {
            **dict.fromkeys(("e", "escape", "forceescape"), _escape),
            "attr": _attr,
            "float": _float,
            "format": _format,
            "int": _int,
            "join": _join,
            "list": _list,
            "round": _round,
            "safe": str,
            "sort": _sort,
            "tojson": _tojson,
            "urlencode": _urlencode,
        }
        super().__init__(filters=filters, shown=text, strict=True, undefined=PromptUndefined)
        self.eval_context = EvalContext(self)
        self._functions = {id(function) for function in self.globals.values()}

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        require(left, right)
        if operator == "%" and isinstance(left, str):
            return _percent(context.meter, left, right)  # type: ignore[attr-defined]
        return super().call_binop(context, operator, left, right)

    def is_safe_callable(self, obj: Any) -> bool:
        if isinstance(obj, Macro | LoopContext | Joiner | BoundFormat | _Method) or id(obj) in self._functions:
            return True
        if not isinstance(obj, BuiltinMethodType | MethodType):
            return False
        owner = obj.__self__
        if modifies_known_mutable(owner, obj.__name__):
            return False
        return isinstance(owner, (*_DATA, Mapping, LoopContext)) or type(owner) in _JINJA_METHODS

    def refuse_call(self, target: Any) -> NoReturn:
        require(target)
        kind = type(target).__name__
        raise Fault(f"{kind} cannot be called: templates call macros and methods of data, and a few built-in functions")

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as Jinja has it)
        made: Any = super().call(__context, __obj, *args, **kwargs)
        # A view has no text.
        return list(made) if type(made) in _VIEWS else made


def traced_context(environment: PromptEnvironment, trace: Trace, values: Mapping[str, Any]) -> PromptContext:
    """Return the context of one rendering."""
    return PromptContext(environment, values, trace)


@lru_cache(maxsize=1)
def prompt_environment() -> PromptEnvironment:
    """Return the environment of all prompt templates."""
    return PromptEnvironment()
