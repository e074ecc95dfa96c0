"""The environment that `transformers` gives a chat template, and the same with limits for untrusted ones."""

from __future__ import annotations

import json
from functools import lru_cache
from itertools import islice
from types import BuiltinMethodType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from agentkit_prompts.chat_templates.jinja.bounds import OPERATORS, Bounds
from agentkit_prompts.chat_templates.jinja.compiler import DICT_NAMES, BoundedCodeGenerator, QuickCodeGenerator
from agentkit_prompts.chat_templates.jinja.counted_calls import MARK, TESTS, Dict, bounded_filters, guard, nests
from agentkit_prompts.templates.engine.parse import count_tokens, levels
from agentkit_prompts.templates.operations.operators import refuse_large_numbers

__all__ = ["Refusal", "RunContext", "compiled"]

_MAX_DEPTH = 90
_MAX_LOOPS = 20  # Python has no more in one function
_MAX_TOKENS = 15_000
_MAX_SOURCE = 500_000
_SAFE: dict[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if name[:1] != "_" and not name.startswith("format")),
    dict: frozenset(("copy", "get", "items", "keys", "values")),
}
"""Methods that the sandbox hands out as they are, so that asking it each time changes nothing."""


class Refusal(jinja2.TemplateError):
    """What `raise_exception` raises: the template itself has no place for this conversation."""


class RunContext(Context):
    """The variables of one rendering, what it may still do, and the marks that `{% generation %}` sets."""

    bounds: Bounds | None = None
    marks: tuple[str, str] | None = None

    @classmethod
    def of(cls, template: jinja2.Template, variables: dict[str, Any]) -> RunContext:
        """Return the context of one rendering."""
        environment = template.environment
        return cls(environment, {**environment.globals, **variables}, None, template.blocks)

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        made = super().derived(locals)
        assert isinstance(made, RunContext)
        made.bounds, made.marks = self.bounds, self.marks
        return made


@jinja2.pass_context
def _mark_generation(context: RunContext, text: str) -> str:
    return text if context.marks is None else f"{context.marks[0]}{text}{context.marks[1]}"


class _Generation(Extension):
    """`{% generation %}`: what stands inside was written by the model."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        mark = nodes.Filter(None, MARK, [], [], None, None)
        return nodes.FilterBlock(body, mark).set_lineno(line)


class _Namespace(Namespace):
    """A namespace without names that Python gives a meaning."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]
        names = dict(*args, **kwargs)
        for name in names:
            _check_name(name)
        Namespace.__init__(self, names)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"{name[:80]!r}: names of a namespace do not start with an underscore")


def _raise_exception(message: object) -> NoReturn:
    raise Refusal(str(message))


_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    if not ensure_ascii and indent is None and separators is None and not sort_keys:
        return _ENCODE(x)
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent text. Given a list, Jinja's own appends to it before it fails, and the list may be the caller's."""
    if not isinstance(s, str | jinja2.Undefined):
        raise TypeError(f"indent expects text, got {type(s).__name__}")
    return do_indent(s, width, first, blank)  # type: ignore[arg-type]  # says which name is undefined


def _check_loops(tree: nodes.Template) -> None:
    """Refuse loops that nest so deeply that Python would refuse them, which takes long to find out."""
    stack: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while stack:
        node, loops = stack.pop()
        if isinstance(node, nodes.Macro | nodes.CallBlock):
            loops = 0
        loops += isinstance(node, nodes.For)
        if loops > _MAX_LOOPS:
            raise jinja2.TemplateSyntaxError(f"loops nest deeper than {_MAX_LOOPS}", node.lineno)
        stack += [(child, loops) for child in node.iter_child_nodes()]


class _Trusted(ImmutableSandboxedEnvironment):
    """The sandbox itself; keys of dictionaries are found without an exception on the way."""

    context_class = RunContext
    code_generator_class: type[CodeGenerator] = QuickCodeGenerator

    def __init__(self, *more: type[Extension]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControls, *more], cache_size=0
        )
        self.filters["tojson"] = _tojson
        self.filters["indent"] = _indent
        self.filters[MARK] = _mark_generation
        del self.globals["lipsum"]
        del self.filters["random"]
        self.globals.update(raise_exception=_raise_exception, dict=Dict(), namespace=_Namespace)

    def getattr(self, obj: Any, attribute: str) -> Any:
        kind = type(obj)
        if kind is dict and attribute not in DICT_NAMES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if attribute in _SAFE.get(kind, ()):
            return getattr(obj, attribute)
        if kind is _Namespace and attribute[:1] != "_":
            names = obj._Namespace__attrs
            return names[attribute] if attribute in names else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as Jinja has it)
        if kwargs:  # variables around the call, for functions that read them: no function does
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
        if type(__obj) is BuiltinMethodType:
            return __obj(*args, **kwargs)
        return super().call(__context, __obj, *args, **kwargs)


class _Bounded(_Trusted):
    """The sandbox for templates from anywhere: every call, filter and growing value is charged."""

    code_generator_class = BoundedCodeGenerator
    intercepted_binops = frozenset({*OPERATORS, "+"})
    intercepted_unops = frozenset("+-")

    def __init__(self) -> None:
        super().__init__(count_tokens(_MAX_TOKENS))
        self.filters = bounded_filters(self.filters)
        self.tests = dict(TESTS)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > _MAX_SOURCE:
            raise jinja2.TemplateSyntaxError(f"the template is longer than {_MAX_SOURCE:,} characters", 1)
        tree = super()._parse(source, name, filename)
        for level in islice(levels(tree), _MAX_DEPTH, None):
            raise jinja2.TemplateSyntaxError("the template nests too deeply", level[0].lineno)
        _check_loops(tree)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        return OPERATORS[operator](context.bounds, left, right)  # type: ignore[attr-defined]

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        refuse_large_numbers(arg)
        return super().call_unop(context, operator, arg)

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        if attribute[:1] == "_":
            raise SecurityError(f"{attribute[:80]!r} of {type(obj).__name__} is not for templates to read")
        return super().unsafe_undefined(obj, attribute)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        bounds: Bounds = __context.bounds
        if kwargs:
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
        if not nests(__obj):
            made = super().call(__context, __obj, *guard(bounds, __obj, args, kwargs), **kwargs)
            return bounds.nest(made) if type(made) is dict else made
        bounds.enter()
        try:
            return super().call(__context, __obj, *guard(bounds, __obj, args, kwargs), **kwargs)
        finally:
            bounds.depth -= 1


@lru_cache(maxsize=2)
def _environment(bounded: bool) -> _Trusted:
    return _Bounded() if bounded else _Trusted()


@lru_cache(maxsize=128)
def compiled(source: str, bounded: bool) -> jinja2.Template:
    """Return a chat template, compiled once.

    Raises:
        jinja2.TemplateError: It is not a template, or too large for one that is not trusted.
    """
    return _environment(bounded).from_string(source)
