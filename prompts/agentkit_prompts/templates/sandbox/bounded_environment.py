"""Jinja sandbox with limits, the base of the environments of prompt templates and chat templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import TemplateSyntaxError, Undefined, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from agentkit_prompts.limits import MAX_FOREIGN_NAME_CHARS, MAX_SOURCE_CHARS
from agentkit_prompts.templates.sandbox.attributes import refuse_private
from agentkit_prompts.templates.sandbox.calls import checked_filters, checked_tests, fill_fields, guarded_call, unique
from agentkit_prompts.templates.sandbox.code_generator import BoundedCodeGenerator
from agentkit_prompts.templates.sandbox.formatting import BoundFormat
from agentkit_prompts.templates.sandbox.guards import OPERATOR_GUARDS
from agentkit_prompts.templates.sandbox.meter import Meter, refuse_large
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError
from agentkit_prompts.templates.sandbox.operations import FUNCTIONS, Dict
from agentkit_prompts.templates.sandbox.template_context import BoundedContext

_MAX_DEPTH = 80
"""Maximum levels of syntax: Python refuses code that nests deeper than about 100 levels."""
_MAX_LOOPS = 20
"""Maximum depth of nested loops, which is the limit of Python for nested blocks."""
_MAX_TOKENS = 15_000


class _CountTokens(Extension):
    """Jinja extension that limits the tokens of a template while Jinja reads it."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for count, token in enumerate(stream):
            if count > _MAX_TOKENS:
                raise TemplateSyntaxError(f"the template has more than {_MAX_TOKENS:,} tokens", token.lineno)
            yield token


def levels(tree: nodes.Node) -> Iterator[list[nodes.Node]]:
    """Yield the nodes of each level of a tree, the root first; without recursion."""
    level = [tree]
    while level:
        yield level
        level = [child for node in level for child in node.iter_child_nodes()]


def _check_loops(tree: nodes.Template) -> None:
    """Reject loops that nest too deeply, because Python takes long to reject such code."""
    stack: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while stack:
        node, loops = stack.pop()
        if isinstance(node, nodes.Macro | nodes.CallBlock):
            loops = 0
        loops += isinstance(node, nodes.For)
        if loops > _MAX_LOOPS:
            raise TemplateSyntaxError(f"loops nest deeper than {_MAX_LOOPS}", node.lineno)
        stack += [(child, loops) for child in node.iter_child_nodes()]


class SafeNamespace(Namespace):
    """Function `namespace` of templates; its object has no names that start with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, args = args[0], args[1:]
        names = dict(*args, **kwargs)
        for name in names:
            if isinstance(name, str):
                refuse_private(name)
        Namespace.__init__(self, names)

    def __setitem__(self, name: str, value: Any) -> None:
        refuse_private(name)
        super().__setitem__(name, value)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox with limits. Subclasses define the text of values and the type of undefined names.

    Args:
        extensions: Extensions of Jinja.
        filters: Filters in addition to the filters of Jinja, or instead of filters with the same name.
        shown: Function that returns the text of a value for a text filter; `str` by default.
        is_prompt: True to reject undefined values in tests, and operations that only chat templates have.
        options: Options of the environment of Jinja.
    """

    code_generator_class = BoundedCodeGenerator
    context_class: type[Context] = BoundedContext
    intercepted_binops = frozenset(OPERATOR_GUARDS)
    intercepted_unops = frozenset("+-")

    def __init__(
        self,
        *extensions: type[Extension],
        filters: Mapping[str, Callable[..., Any]],
        shown: Callable[..., Any] | None = None,
        is_prompt: bool = False,
        **options: Any,
    ) -> None:
        # The optimizer would run code of a template at compilation, without limits.
        super().__init__(extensions=[_CountTokens, *extensions], cache_size=0, optimized=False, **options)
        changed_filters = {"format": fill_fields, "unique": unique, **filters}
        self.filters = checked_filters({**self.filters, **changed_filters}, shown, is_prompt=is_prompt)
        self.tests = checked_tests(self.tests, is_prompt=is_prompt)
        functions: dict[str, Any] = {**self.globals, "dict": Dict(), "namespace": SafeNamespace}
        self.globals = {name: function for name, function in functions.items() if name in FUNCTIONS}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE_CHARS:
            raise TemplateSyntaxError(f"the template is longer than {MAX_SOURCE_CHARS:,} characters", 1)
        tree = super()._parse(source, name, filename)
        self.check_tree(tree)
        return tree

    @staticmethod
    def check_tree(tree: nodes.Template) -> None:
        """Refuse a syntax tree that nests deeper than Python can compile."""
        for level in islice(levels(tree), _MAX_DEPTH, None):
            raise TemplateSyntaxError(
                f"the template nests deeper than {_MAX_DEPTH} levels; join long sums with ~ or split them with set",
                level[0].lineno,
            )
        _check_loops(tree)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        meter: Meter = context.meter  # type: ignore[attr-defined]
        OPERATOR_GUARDS[operator](meter, left, right)
        result = self.binop_table[operator](left, right)
        if isinstance(result, int):
            refuse_large(result)
        return result

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(argument, str) or len(argument) <= MAX_FOREIGN_NAME_CHARS:
            return super().getitem(obj, argument)
        # A very long name is never an attribute; an AttributeError, which contains the name, would be slow.
        try:
            return obj[argument]
        except (TypeError, LookupError):
            return self.undefined(obj=obj, name=argument[:MAX_FOREIGN_NAME_CHARS])

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        refuse_private(attribute)
        return super().unsafe_undefined(obj, attribute)

    def wrap_str_format(self, value: Any) -> Any:
        if not isinstance(value, BuiltinMethodType | MethodType) or value.__name__ not in ("format", "format_map"):
            return None
        if isinstance(value.__self__, str):
            return BoundFormat(self, value.__self__, value.__name__)
        return None

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        refuse_large(arg)
        return self.unop_table[operator](arg)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 (as Jinja has it)
        # Jinja passes the variables around the call, which no function here reads.
        kwargs.pop("_loop_vars", None)
        kwargs.pop("_block_vars", None)
        if not __self.is_safe_callable(__obj):
            __self.refuse_call(__obj)
        return guarded_call(__context.meter, __obj, args, kwargs)

    def refuse_call(self, target: Any) -> NoReturn:
        """Raise the error for a call of a value that templates cannot call."""
        raise TemplateOperationError(f"{type(target).__name__} cannot be called from a template")
