"""`BasePrompt`: base class of all prompts, after the TFRobot document.

A prompt renders one `PromptContext`. Most subclasses only choose a default template. Other subclasses override
`values` (the values of the template), `render`, or one of the two `format_2_*` methods of the document.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypedDict

from pydantic import Field, model_validator

from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext, Trust
from agentkit_prompts.errors import KwargsError, PromptError, TemplateError
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.names import similar
from agentkit_prompts.templates.line_heads import LineHeads
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.template import MediaTable, Template, media_table
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.custom_formats import from_multimodal, from_text
from agentkit_prompts.tree.fence import fenced, without_forged_nonce
from agentkit_prompts.tree.frozen_model import Declared

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema, Problem

__all__ = ["BasePrompt", "Volatility", "has_own_code", "render_prompt", "render_values", "with_fence"]

Volatility: TypeAlias = Literal["static", "session", "turn"]
_OURS = "agentkit_prompts."
_METHODS = frozenset({"render", "format_2_str", "format_2_multimodal"})


def _nothing() -> Template:
    return Template("", engine="literal")


if TYPE_CHECKING:

    class PromptOptions(TypedDict, total=False):
        """Keyword arguments of every prompt."""

        name: str | None
        volatility: Volatility | None
        fence: bool
        size: Size


class BasePrompt(Declared, ABC):
    """Base of prompts, which render a context to text and media.

    If a class defines one of `render`, `format_2_str` and `format_2_multimodal`, the other two methods are derived from
    it. The most specific override has precedence.

    Raises:
        TypeError: The class is `BasePrompt` itself.
        PromptError: The prompt can never render: a template error, a name that the context cannot supply, a params
            schema that rejects the context, an unknown field, or a class that defines nothing to render.
    """

    _positional: ClassVar[tuple[str, ...]] = ("template",)
    supplies: ClassVar[frozenset[str]] = frozenset()
    """Names that `values` adds to the names of the context."""
    items: ClassVar[str | None] = None
    """Name of the value whose items the prompt shows one by one: `Size(cut="items")` cuts them."""
    trust: ClassVar[Trust] = "untrusted"
    """Trust of the text that a custom class returns from `format_2_str` and `format_2_multimodal`."""
    _heads: ClassVar[LineHeads | None] = None
    """Heads of the items of a list: untrusted text of one item cannot start another item."""

    template: Template = Field(default_factory=_nothing, kw_only=False)
    """Template of the text; its variables are the names of the context. A str is accepted."""
    name: str | None = None
    """Name in tables and error messages; by default the class name."""
    volatility: Volatility | None = None
    """Frequency of changes of the text: `static` (never), `session` (between sessions) or `turn` (every turn). If None,
    inferred from the names it reads."""
    fence: bool = False
    """True to put the prompt between two lines that untrusted text cannot forge: their nonce is derived from a secret
    of the session. Needs `PromptContext.session_key`."""
    size: Size = Size()
    """Maximum tokens, and the kind of cut under a budget. By default the prompt is not cut."""

    # Type checkers report the operator themselves, unless they see this method.
    if not TYPE_CHECKING:

        def __add__(self, other):
            raise TypeError(
                "prompts do not support +; use Layers(system=[prompt, prompt]) for a whole prompt, "
                "WrapPrompt([prompt, prompt]) for a part"
            )

        __radd__ = __add__

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls is BasePrompt:
            raise TypeError("BasePrompt is abstract: use TextPrompt or another of its subclasses, or write your own")
        return super().__new__(cls)

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        _complete_formats(cls)

    @model_validator(mode="after")
    def validate_prompt(self) -> Self:
        """Reject a prompt that can never render at construction, not at its first use."""
        if self.template.params_schema is not None:
            from agentkit_prompts.schemas.params import check_params_schema

            check_params_schema(self.template.params_schema)
        self._check()
        return self

    def _check(self) -> None:
        """Reject unknown names of the template; subclasses add more checks."""
        _check_renders_something(self)
        if self.size.cut == "items" and self.items is None:
            raise PromptError(
                f'{self.label}: cut="items" needs a prompt that shows items; use head, tail, middle or drop',
                name="cut",
                value="items",
            )
        names = CONTEXT_NAMES | self.supplies | self._declared()
        unknown = {name: line for name, line in self.template.names.items() if name not in names}
        if unknown:
            raise _unknown_names(self, unknown, names)

    def _declared(self) -> frozenset[str]:
        """Names for which the params schema has a default."""
        if self.template.params_schema is None:
            return frozenset()
        properties = (self.template.json_schema or {}).get("properties", {})
        return frozenset(name for name, item in properties.items() if isinstance(item, Mapping) and "default" in item)

    @property
    def label(self) -> str:
        """The name shown in tables and errors."""
        return self.name or type(self).__name__

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """JSON Schema of the user's `additional_kwargs` that this prompt requires; None if it requires nothing.

        Inferred from the names that the template reads as `additional_kwargs.NAME`.
        """
        return self.template.kwargs_schema

    def kwargs_problems(self, kwargs: Mapping[str, Any]) -> list[Problem]:
        """Return every missing or invalid additional kwarg of this prompt alone, as (name, problem)."""
        schema = self.additional_kwargs_schema
        if schema is None:
            return []
        from agentkit_prompts.schemas.params import params_checker

        return params_checker(schema)(kwargs)[1]

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        """The prompts inside this prompt, each with its step in a path."""
        return ()

    @property
    def reads(self) -> frozenset[str] | None:
        """Context names on which the rendering depends; None if they are unknown, as for a custom `render`.

        The rendering is reused while these values are the same objects. To reuse renderings of a class that overrides
        `render` or `values`, override `reads` too.
        """
        if has_own_code(self):
            return None
        # A params schema validates all values, so its rendering depends on all of them.
        if self.template.params_schema is not None:
            return CONTEXT_NAMES
        return self.template.reads

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return the values of the template: by default the context."""
        return ctx.view

    @with_option_hints
    def render(self, ctx: PromptContext) -> Rendered:
        """Render the context: text, media, and the origin of every character.

        Raises:
            PromptError: A value is missing or cannot be shown; names prompt, file, line and variable.
        """
        values: Mapping[str, Any] = {}
        # Text without slots needs no values, and the view of a context is created on first use.
        if self.template.names or self.template.params_schema is not None:
            values = self.values(ctx)
        return render_values(self, values, ctx)

    def format_2_str(self, ctx: PromptContext) -> str:
        """Render to plain text; a media part is its alt text, `[KIND: NAME]`."""
        return _render_to_format(self, BasePrompt, ctx).plain

    def format_2_multimodal(self, ctx: PromptContext) -> tuple[str, MediaTable]:
        """Render to text with one marker per use of a media part, and the media: kind -> id -> payload."""
        rendered = _render_to_format(self, BasePrompt, ctx)
        return rendered.text, media_table(rendered.media)


def render_values(prompt: BasePrompt, values: Mapping[str, Any], ctx: PromptContext) -> Rendered:
    """Render the template of a prompt over `values`, and break the heads of items that untrusted text forges."""
    rendered = prompt.template.run(values, locale=ctx.locale)
    heads = prompt._heads
    if heads is None:
        return rendered
    expected = None
    # The default template of a custom class can write other heads.
    is_default = "template" not in prompt.model_fields_set and type(prompt).__module__.startswith(_OURS)
    if prompt.items is not None and is_default:
        expected = len(values[prompt.items]) * heads.per_item
    return heads.without_forged(rendered, expected)


def render_prompt(prompt: BasePrompt, ctx: PromptContext) -> Rendered:
    """Render a prompt inside its fence, if the prompt has a fence, as a part of a larger prompt.

    Raises:
        PromptError: Prompts render each other recursively, or the result of `render` has another type.
    """
    try:
        rendered = prompt.render(ctx)
    except RecursionError:
        # `Layers` checks the depth of prompts, but custom classes can render each other recursively.
        raise PromptError("prompts render each other recursively, or the data nests too deeply") from None
    if not isinstance(rendered, Rendered):
        returned, method = type(rendered).__name__, f"{type(prompt).__name__}.render"
        raise PromptError(f"{method} must return Rendered, got {returned}", name=method, value=returned)
    # Most contexts have no key, and no text can be a fence without a key.
    if prompt.fence or ctx.session_key is not None:
        return with_fence(prompt, rendered, ctx)
    return rendered


def with_fence(prompt: BasePrompt, rendered: Rendered, ctx: PromptContext) -> Rendered:
    """Put the rendering of a prompt inside its fence; without a fence, break every nonce in untrusted text."""
    if prompt.fence and rendered.text:
        return fenced(rendered, ctx)
    # The nonce in a rendering without a fence could open or close the fence of another prompt.
    if ctx.nonce is not None:
        return without_forged_nonce(rendered, ctx.nonce)
    return rendered


def has_own_code(prompt: BasePrompt) -> bool:
    """True if a custom class renders the prompt: the names that it reads are unknown."""
    kind = type(prompt)
    return not (kind.render.__module__.startswith(_OURS) and kind.values.__module__.startswith(_OURS))


def _complete_formats(kind: type[BasePrompt]) -> None:
    """Complete the three render methods of a class: `render`, `format_2_str` and `format_2_multimodal`.

    A method that the class does not define calls a method that it defines. A call of `super()` reaches the base class.
    """
    definer = next(base for base in kind.__mro__ if not _METHODS.isdisjoint(vars(base)))
    if definer is not kind and issubclass(definer, BasePrompt):
        # The class inherits complete methods, or is `BasePrompt`.
        return
    defined = _METHODS & vars(definer).keys()

    def call(prompt: BasePrompt, method: str, ctx: PromptContext) -> Any:
        # Look the method up in the defining class, because the attribute of a subclass can be generated from `render`.
        # `__get__` also binds static and class methods.
        return vars(definer)[method].__get__(prompt, kind)(ctx)

    def render(self: BasePrompt, ctx: PromptContext) -> Rendered:
        if "format_2_multimodal" in defined:
            result = call(self, "format_2_multimodal", ctx)
            return from_multimodal(f"{kind.__name__}.format_2_multimodal", result, self.trust)
        return from_text(f"{kind.__name__}.format_2_str", call(self, "format_2_str", ctx), self.trust)

    def format_2_str(self: BasePrompt, ctx: PromptContext) -> str:
        return _render_to_format(self, kind, ctx).plain

    def format_2_multimodal(self: BasePrompt, ctx: PromptContext) -> tuple[str, MediaTable]:
        rendered = _render_to_format(self, kind, ctx)
        return rendered.text, media_table(rendered.media)

    for method in (render, format_2_str, format_2_multimodal):
        if method.__name__ not in defined:
            method.__doc__ = getattr(BasePrompt, method.__name__).__doc__
            method.__module__, method.__qualname__ = kind.__module__, f"{kind.__qualname__}.{method.__name__}"
            setattr(kind, method.__name__, method)


def _render_to_format(prompt: BasePrompt, kind: type[BasePrompt], ctx: PromptContext) -> Rendered:
    """Render for a `format_2_*` method of the class `kind`, a base of the class of the prompt.

    Raises:
        KwargsError: Additional kwargs are missing or invalid; names all of them.
    """
    # A subclass with its own `render` calls `super()`: it expects the text of the base class.
    if type(prompt).render is not kind.render:
        return kind.render(prompt, ctx)
    try:
        return render_prompt(prompt, ctx)
    except KwargsError as error:
        raise error.at(prompt.label) from error.__cause__
    except Exception as error:
        # A custom class can raise any exception for a missing kwarg. An error with all missing kwargs is more useful.
        problems = prompt.kwargs_problems(ctx.user_input.additional_kwargs)
        if problems:
            raise KwargsError({name: (problem, (prompt.label,)) for name, problem in problems}) from error
        if isinstance(error, PromptError):
            raise error.at(prompt.label) from error.__cause__
        raise


def _check_renders_something(prompt: BasePrompt) -> None:
    """Reject a prompt whose class has neither a template nor a render method; a name can be mistyped.

    Raises:
        PromptError: Names the nearest valid method.
    """
    kind = type(prompt)
    if "template" in prompt.model_fields_set or kind.model_fields["template"].default_factory is not _nothing:
        return
    if kind.render is not BasePrompt.render or kind.values is not BasePrompt.values:
        return
    valid = ("template", "values", "render", "format_2_str", "format_2_multimodal")
    message = f"{kind.__name__} renders nothing: it defines none of {', '.join(valid)}"
    for name in _own_names(kind):
        suggestion = similar(name, valid)
        if suggestion is not None:
            raise PromptError(f"{message}; did you mean {suggestion!r} by {name!r}?", name=name, suggestion=suggestion)
    raise PromptError(message, name=kind.__name__)


def _own_names(kind: type[BasePrompt]) -> list[str]:
    """Return the public names that a class and its bases below `BasePrompt` define."""
    bases = kind.__mro__[: kind.__mro__.index(BasePrompt)]
    return [name for base in bases for name in vars(base) if not name.startswith("_")]


def _unknown_names(prompt: BasePrompt, unknown: Mapping[str, int], names: frozenset[str]) -> TemplateError:
    """Return the error about unknown names of a template, each with its line."""
    first = next(iter(unknown))
    listed: list[str] = []
    for name, line in sorted(unknown.items(), key=lambda item: item[1]):
        details = [f"line {line}"]
        suggestion = similar(name, names)
        if suggestion is not None:
            details.append(f"did you mean {suggestion!r}?")
        listed.append(f"{name!r} ({', '.join(details)})")
    return TemplateError(
        f"{prompt.label}: the context cannot supply {', '.join(listed)}; valid names: {', '.join(sorted(names))}. For "
        f"data that comes with the user's input write {{{{ additional_kwargs.{first} }}}}, or use AdditionalInfoPrompt",
        file=prompt.template.file,
        line=unknown[first],
        variable=first,
    )
