"""Environment of chat templates: like the environment of `transformers`, in the sandbox of prompt templates."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.ext import loopcontrols as LoopControls  # noqa: N812
from jinja2.filters import do_indent
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentkit_prompts.templates.sandbox.bounded_environment import BoundedEnvironment
from agentkit_prompts.templates.sandbox.code_generator import BoundedCodeGenerator
from agentkit_prompts.templates.sandbox.guards import json_guard
from agentkit_prompts.templates.sandbox.meter import Meter
from agentkit_prompts.templates.sandbox.template_context import BoundedContext

_MARK = "mark_generation"
"""Name of the filter that marks the text in `{% generation %}`."""

_DICT_NAMES = frozenset(dir(dict))
"""Attributes of a dictionary, which take precedence over its keys in Jinja."""
_OPTIONS: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True}


class Refusal(jinja2.TemplateError):
    """Raised by `raise_exception`: the template refuses the conversation."""


class ChatContext(BoundedContext):
    """Variables of one rendering, its meter, and the marks that `{% generation %}` sets."""

    marks: tuple[str, str] | None = None

    @classmethod
    def of(cls, template: jinja2.Template, variables: dict[str, Any], meter: Meter | None) -> ChatContext:
        """Return the context of one rendering; a template without limits needs no meter."""
        environment = template.environment
        context = cls(environment, {**environment.globals, **variables}, None, template.blocks)
        if meter is not None:
            context.meter = meter
        return context

    def derived(self, locals: dict[str, Any] | None = None) -> ChatContext:
        context = super().derived(locals)
        assert isinstance(context, ChatContext)
        context.marks = self.marks
        return context


class _Generation(Extension):
    """`{% generation %}`: the text inside was written by the model."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        mark = nodes.Filter(None, _MARK, [], [], None, None)
        return nodes.FilterBlock(body, mark).set_lineno(line)


_EXTENSIONS = (_Generation, LoopControls)


@jinja2.pass_context
def _mark_generation(context: ChatContext, text: str) -> str:
    return text if context.marks is None else f"{context.marks[0]}{text}{context.marks[1]}"


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


@jinja2.pass_context
def _bounded_tojson(context: ChatContext, x: Any, *args: Any, **kwargs: Any) -> str:
    json_guard(context.meter, x, *args, **kwargs)
    return _tojson(x, *args, **kwargs)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent text. The filter of Jinja would append to a list before it fails, and the list can belong to the
    caller.
    """
    if not isinstance(s, str | jinja2.Undefined):
        raise TypeError(f"indent expects text, got {type(s).__name__}")
    return do_indent(s, width, first, blank)  # type: ignore[arg-type]  # says which name is undefined


_FILTERS: dict[str, Callable[..., Any]] = {_MARK: _mark_generation, "indent": _indent}


class _QuickKeys(CodeGenerator):
    """Code generator that reads keys of dictionaries, such as messages, without the sandbox."""

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802 (as Jinja calls it)
        if node.attr in _DICT_NAMES:
            super().visit_Getattr(node, frame)
        else:
            self._key(node.node, node.attr, "getattr", frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            self._key(node.node, node.arg.value, "getitem", frame)
        else:
            super().visit_Getitem(node, frame)

    def _key(self, owner: nodes.Node, key: str, otherwise: str, frame: Frame) -> None:
        value = self.temporary_identifier()
        self.write(f"({value}[{key!r}] if type({value} := ")
        self.visit(owner, frame)
        self.write(f") is dict and {key!r} in {value} else environment.{otherwise}({value}, {key!r}))")


class _ChatCodeGenerator(BoundedCodeGenerator, _QuickKeys):
    """Code generator of chat templates with limits."""


class ChatEnvironment(BoundedEnvironment):
    """Sandbox of chat templates."""

    code_generator_class = _ChatCodeGenerator
    context_class = ChatContext

    def __init__(self) -> None:
        super().__init__(*_EXTENSIONS, filters={**_FILTERS, "tojson": _bounded_tojson}, **_OPTIONS)
        self.globals["raise_exception"] = _raise_exception


class UnboundedEnvironment(ImmutableSandboxedEnvironment):
    """Sandbox of trusted chat templates: the sandbox of Jinja, without limits."""

    code_generator_class = _QuickKeys
    context_class = ChatContext

    def __init__(self) -> None:
        super().__init__(extensions=_EXTENSIONS, cache_size=0, **_OPTIONS)
        self.filters.update(_FILTERS, tojson=_tojson)
        self.globals["raise_exception"] = _raise_exception
        del self.globals["lipsum"]
        del self.filters["random"]


@lru_cache(maxsize=2)
def _environment(bounded: bool) -> ImmutableSandboxedEnvironment:
    return ChatEnvironment() if bounded else UnboundedEnvironment()


@lru_cache(maxsize=128)
def compiled(source: str, bounded: bool) -> jinja2.Template:
    """Return a chat template, compiled once.

    Raises:
        jinja2.TemplateError: The source is not a template, or is too large for an untrusted template.
    """
    return _environment(bounded).from_string(source)
