"""`BasePrompt`: the contract of every prompt, after the TFRobot document.

A prompt renders one `PromptContext`. Subclasses usually only choose a default template; those that need more override
`values` (what the template sees), `render`, or one of the two `format_2_*` methods of the document.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypedDict

from pydantic import Field, model_validator

from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext, Trust
from agentkit_prompts.errors import KwargsError, PromptError, TemplateError
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
    """Renders a context to text and media.

    A class that defines `render`, `format_2_str` or `format_2_multimodal` gets the others from the method that it
    defines; the most specific override is used everywhere.

    Raises:
        TypeError: It is `BasePrompt` itself.
        PromptError: Something about the prompt can never render: a template error, a name the context cannot supply,
            a params schema that would refuse the context, a field that does not exist, or a class that defines nothing
            to render.
    """

    _positional: ClassVar[tuple[str, ...]] = ("template",)
    supplies: ClassVar[frozenset[str]] = frozenset()
    """Names that `values` adds to the names of the context."""
    items: ClassVar[str | None] = None
    """Name of the value whose items the prompt shows one by one: `Size(cut="items")` cuts them."""
    trust: ClassVar[Trust] = "untrusted"
    """Trust of the text that a custom class returns from `format_2_str` and `format_2_multimodal`."""
    _heads: ClassVar[LineHeads | None] = None
    """Heads of the items of a list: untrusted text of one item cannot begin another item."""

    template: Template = Field(default_factory=_nothing, kw_only=False)
    """The text, with the names of the context as variables. A str is accepted."""
    name: str | None = None
    """A name for tables and error messages; the class name if not given."""
    volatility: Volatility | None = None
    """How often its text changes: never (`static`), between sessions, or every `turn`. Inferred from what it reads
    if None."""
    fence: bool = False
    """True to put it between two lines that untrusted text cannot forge, because their nonce comes from a secret of
    the session. Needs `PromptContext.session_key`."""
    size: Size = Size()
    """Tokens it may take, and how it is cut under a budget. By default it is sent whole."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls is BasePrompt:
            raise TypeError("BasePrompt is abstract: use TextPrompt or another of its subclasses, or write your own")
        return super().__new__(cls)

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        _complete_formats(cls)

    @model_validator(mode="after")
    def validate_prompt(self) -> Self:
        """Refuse a prompt that can never render when it is made, instead of when it is used."""
        if self.template.params_schema is not None:
            from agentkit_prompts.schemas.params import check_params_schema

            check_params_schema(self.template.params_schema)
        self._check()
        return self

    def _check(self) -> None:
        """Refuse names that nothing supplies; subclasses add their own checks."""
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
        """Names that the params schema can fill in with a default."""
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
        """The prompts inside this one, each with the step of its path."""
        return ()

    @property
    def reads(self) -> frozenset[str] | None:
        """The context names the rendering depends on; None if that cannot be known, as for a custom `render`.

        The rendering is reused as long as these values are the same objects. Override `reads` too if you override
        `render` or `values`, to have the rendering memoised.
        """
        if has_own_code(self):
            return None
        # A params schema validates all values, so its rendering depends on all of them.
        if self.template.params_schema is not None:
            return CONTEXT_NAMES
        return self.template.reads

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return what the template sees: the context by default."""
        return ctx.view

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the context: text, media, and the origin of every character.

        Raises:
            PromptError: A value is missing or cannot be shown; names prompt, file, line and variable.
        """
        values: Mapping[str, Any] = {}
        # Text without slots needs no values, and the view of a context is made when it is first used.
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
    # A class of the developer can have a default template that writes other heads.
    is_default = "template" not in prompt.model_fields_set and type(prompt).__module__.startswith(_OURS)
    if prompt.items is not None and is_default:
        expected = len(values[prompt.items]) * heads.per_item
    return heads.without_forged(rendered, expected)


def render_prompt(prompt: BasePrompt, ctx: PromptContext) -> Rendered:
    """Render a prompt inside its fence, if it has one, as a part of a larger prompt."""
    try:
        rendered = prompt.render(ctx)
    except RecursionError:
        # The depth of prompts is checked when layers are made, but not that of custom classes that render each other.
        raise PromptError("prompts wrap each other without end, or the data nests too deeply") from None
    if not isinstance(rendered, Rendered):
        returned, method = type(rendered).__name__, f"{type(prompt).__name__}.render"
        raise PromptError(f"{method} must return Rendered, got {returned}", name=method, value=returned)
    # Most contexts have no key, and then nothing can be a fence.
    if prompt.fence or ctx.session_key is not None:
        return with_fence(prompt, rendered, ctx)
    return rendered


def with_fence(prompt: BasePrompt, rendered: Rendered, ctx: PromptContext) -> Rendered:
    """Put the rendering of a prompt inside its fence; without a fence, break every nonce that is not its text."""
    if prompt.fence and rendered.text:
        return fenced(rendered, ctx)
    # The nonce in a rendering without a fence could open or close the fence of another prompt.
    if ctx.nonce is not None:
        return without_forged_nonce(rendered, ctx.nonce)
    return rendered


def has_own_code(prompt: BasePrompt) -> bool:
    """True if a custom class renders the prompt, so that what it reads is unknown."""
    kind = type(prompt)
    return not (kind.render.__module__.startswith(_OURS) and kind.values.__module__.startswith(_OURS))


def _complete_formats(kind: type[BasePrompt]) -> None:
    """Add to a class the methods among `render` and `format_2_*` that it does not define, made from those it defines.

    The most specific of the three is then used everywhere. A call of `super()` reaches the method of the base class.
    """
    definer = next(base for base in kind.__mro__ if not _METHODS.isdisjoint(vars(base)))
    if definer is not kind and issubclass(definer, BasePrompt):
        return  # it was completed, or is `BasePrompt`
    defined = _METHODS & vars(definer).keys()

    def call(prompt: BasePrompt, method: str, ctx: PromptContext) -> Any:
        # By the class that defines it, because the attribute of a subclass can be made from `render` again. `__get__`
        # makes a static or class method callable, too.
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
        KwargsError: The reason is that additional kwargs are missing or invalid; names all of them.
    """
    # A subclass with its own `render` calls `super()`: it expects the text of the base class, not its own.
    if type(prompt).render is not kind.render:
        return kind.render(prompt, ctx)
    try:
        return render_prompt(prompt, ctx)
    except KwargsError as error:
        raise error.at(prompt.label) from error.__cause__
    except Exception as error:
        # A custom class can raise anything for a missing kwarg. All missing kwargs at once are the better message.
        problems = prompt.kwargs_problems(ctx.user_input.additional_kwargs)
        if problems:
            raise KwargsError({name: (problem, (prompt.label,)) for name, problem in problems}) from error
        if isinstance(error, PromptError):
            raise error.at(prompt.label) from error.__cause__
        raise


def _check_renders_something(prompt: BasePrompt) -> None:
    """Refuse a prompt whose class has neither a template nor a method that renders: a name may be mistyped.

    Raises:
        PromptError: Names the method that may have been meant.
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
    """Return the error about names of a template that nothing supplies, each with its line."""
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
