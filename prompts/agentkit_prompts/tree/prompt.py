"""`BasePrompt`: base class of all prompts, after the TFRobot document.

A prompt renders a `PromptContext` to text and media. Most subclasses only choose a default template. Other subclasses
override `values` (the values of the template), `render`, or one of the two `format_2_*` methods of the document.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, TypedDict

from pydantic import Field, field_validator, model_validator

from agentkit_prompts.context.prompt_context import CONTEXT_FIELDS, CONTEXT_NAMES, PromptContext, Trust
from agentkit_prompts.errors import KwargsError, PromptError, brief
from agentkit_prompts.hint_calls import CALLS
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.names import nearest, similar
from agentkit_prompts.templates.item_paths import ItemPaths, composed_context, composed_from
from agentkit_prompts.templates.line_heads import LineHeads
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.template import MediaTable, Template, media_table
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.custom_formats import from_multimodal, from_text
from agentkit_prompts.tree.fence import fenced, without_forged_nonce
from agentkit_prompts.tree.frozen_model import FrozenModel
from agentkit_prompts.tree.unknown_names import unknown_names

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema, Problem

Volatility: TypeAlias = Literal["static", "session", "turn"]
_OURS = "agentkit_prompts."
_LOCALE = re.compile(r"(?:[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{1,8})*)?")
"""Language tag of a text, such as `en` or `zh-CN`; empty for a text without a language."""
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


class BasePrompt(FrozenModel, ABC):
    """Base of prompts.

    If a class defines one of `render`, `format_2_str` and `format_2_multimodal`, the other two methods are derived from
    that method. A definition in a subclass has precedence.

    Raises:
        TypeError: The class is `BasePrompt` itself.
        PromptError: The prompt can never render: its template is invalid or reads a name that the context cannot
            supply, its params schema is invalid, a field is unknown, or its class defines nothing to render.
    """

    _positional: ClassVar[tuple[str, ...]] = ("template",)
    supplies: ClassVar[frozenset[str]] = frozenset()
    """Names that `values` adds to the names of the context."""
    items: ClassVar[str | None] = None
    """Name of the value, such as `documents`, whose items the prompt shows one by one, in order; None if it shows no
    items. `Size(cut="items")` keeps the first items that `values` returns under this name; if the class has a custom
    `render`, the name must be a field of the context."""
    trust: ClassVar[Trust] = "untrusted"
    """Trust of the text that a custom class returns from `format_2_str` and `format_2_multimodal`."""
    _heads: ClassVar[LineHeads | None] = None
    """Heads of the items that the prompt shows. Heads in untrusted text are broken, so that the text of an item cannot
    imitate the start of another item. None if the prompt shows no items."""

    template: Template = Field(default_factory=_nothing, kw_only=False)
    """Template of the text; its variables are the names of the context. A `str` is read as a template."""
    name: str | None = None
    """Name in tables and error messages; by default the class name."""
    volatility: Volatility | None = None
    """Frequency of changes of the text: `static` (never), `session` (between sessions) or `turn` (every turn). None
    infers the frequency from the names that the prompt reads."""
    fence: bool = False
    """True to put the prompt between two lines that untrusted text cannot forge, because they contain a nonce that is
    derived from `PromptContext.session_key`, a secret of the session."""
    size: Size = Size()
    """Size in tokens, and the kind of cut under a budget. By default the prompt is not cut."""

    # Hidden from type checkers, because with this method they would accept the operator.
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

    @field_validator("template", mode="before")
    @classmethod
    def _of_text(cls, template: object) -> object:
        """Reject a template that is neither a `Template`, text, nor a mapping from locales to texts."""
        received = type(template).__name__
        if isinstance(template, Mapping):
            # Without this check, each value of any mapping would become the text of a locale.
            unknown_keys = [str(name) for name in template if not _LOCALE.fullmatch(str(name))]
            if not unknown_keys:
                return template
            received += f" with the key {brief(unknown_keys[0])}, which is not a locale such as 'en' or 'zh-CN'"
        elif isinstance(template, Template | str):
            return template
        advice = ""
        if cls.__name__ in CALLS:
            advice = f"; use {CALLS[cls.__name__]}"
        raise PromptError(
            f"{cls.__name__}: template: expected a Template or its text, got {received}{advice}",
            name="template",
            value=type(template).__name__,
        )

    @model_validator(mode="after")
    def validate_prompt(self) -> Self:
        """Reject a prompt that can never render, so that the error is raised at construction, not at the first use."""
        if self.template.params_schema is not None:
            from agentkit_prompts.schemas.params import check_params_schema

            check_params_schema(self.template.params_schema)
        self._check()
        return self

    def _check(self) -> None:
        """Reject unknown names of the template; subclasses add more checks."""
        _check_renders_something(self)
        names = CONTEXT_NAMES.union(_supplied_names(self), self._additional_names())
        if self.items is not None and self.items not in names:
            raise PromptError(
                f"{type(self).__name__}: items: unknown value {self.items!r}; if `values` returns it, list it in "
                f"`supplies`{nearest(self.items, names)}",
                name="items",
                value=self.items,
                suggestion=similar(self.items, names),
            )
        if self.size.cut == "items" and not _can_cut_items(self):
            raise PromptError(
                f'{self.label}: cut="items" needs a prompt that shows items; use head, tail, middle or drop',
                name="cut",
                value="items",
            )
        unknown = {name: line for name, line in self.template.names.items() if name not in names}
        if unknown:
            raise unknown_names(type(self), self.label, self.template, unknown, names, is_own_code=has_own_code(self))

    def _additional_names(self) -> frozenset[str]:
        """Return the names that the template can read in addition to the context: here, names with a default in the
        params schema.
        """
        if self.template.params_schema is None:
            return frozenset()
        properties = (self.template.json_schema or {}).get("properties", {})
        return frozenset(name for name, item in properties.items() if isinstance(item, Mapping) and "default" in item)

    @property
    def label(self) -> str:
        """Name of the prompt in tables and errors: `name`, or the name of the class."""
        return self.name or type(self).__name__

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """JSON Schema of the `additional_kwargs` that this prompt requires; None if it requires nothing.

        The schema is inferred from the names that the template reads as `additional_kwargs.NAME`.
        """
        return self.template.kwargs_schema

    def kwargs_problems(self, kwargs: Mapping[str, Any]) -> list[Problem]:
        """Return the problems of `kwargs` for this prompt alone: one for each missing or invalid kwarg."""
        schema = self.additional_kwargs_schema
        if schema is None:
            return []
        from agentkit_prompts.schemas.params import params_checker

        return params_checker(schema)(kwargs)[1]

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        """The prompts directly inside this prompt, each after its step in the path."""
        return ()

    @property
    def reads(self) -> frozenset[str] | None:
        """Context names on which the rendering depends; None if the class overrides `render` or `values`.

        A session reuses the rendering while these values are the same objects, and never reuses it for None. A class
        that overrides `render` or `values` can override `reads`, too, so that its renderings are reused.
        """
        if has_own_code(self):
            return None
        # A params schema validates all values, so its rendering depends on all of them.
        if self.template.params_schema is not None:
            return CONTEXT_NAMES
        return self.template.reads - self.supplies

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return the values that the template can read: by default the values of the context."""
        return ctx.view

    @with_option_hints
    def render(self, ctx: PromptContext) -> Rendered:
        """Render the context: text, media, and the origin of every character.

        Raises:
            PromptError: A value is missing or cannot be shown; names prompt, file, line and variable.
        """
        values: Mapping[str, Any] = {}
        # Without variables, no values are necessary, and the view of the context need not be created.
        if self.template.names or self.template.params_schema is not None:
            values = self.values(ctx)
        return render_values(self, values, ctx)

    def format_2_str(self, ctx: PromptContext) -> str:
        """Render to plain text; media are replaced by their alt text, `[KIND: NAME]`."""
        return _render_to_format(self, BasePrompt, ctx).plain

    def format_2_multimodal(self, ctx: PromptContext) -> tuple[str, MediaTable]:
        """Render to text with a marker for each use of a media part, and a table of payloads by kind and then by id."""
        rendered = _render_to_format(self, BasePrompt, ctx)
        return rendered.text, media_table(rendered.media)


def render_values(
    prompt: BasePrompt, values: Mapping[str, Any], ctx: PromptContext, prefixes: Mapping[str, str] | None = None
) -> Rendered:
    """Render the template of a prompt with `values`, and break the heads of items in untrusted text.

    `prefixes` as in `Template.run`.
    """
    paths = _item_paths(prompt, values, ctx)
    rendered = prompt.template.run(values, locale=ctx.locale, prefixes=prefixes, paths=paths)
    heads = prompt._heads
    if heads is None:
        return rendered
    expected = None
    # Only our default templates write a known number of heads; other templates can write any number.
    is_default = "template" not in prompt.model_fields_set and type(prompt).__module__.startswith(_OURS)
    if prompt.items is not None and is_default:
        expected = len(values[prompt.items]) * heads.per_item
    return heads.without_forged(rendered, expected)


def _item_paths(prompt: BasePrompt, values: Mapping[str, Any], ctx: PromptContext) -> ItemPaths | None:
    """Return the paths of items; None if each item has the same position in `values` and in the composed context.

    None is the usual case, because origins take longer to compute with these paths.
    """
    composed = composed_context() or ctx
    # A selector or a cut chooses some of the items.
    name = prompt.items
    is_chosen = name is not None and name in values and values[name] is not ctx.view.get(name)
    if is_chosen or composed is not ctx or has_own_values(prompt):
        return ItemPaths(values, ctx, composed)
    return None


def render_prompt(prompt: BasePrompt, ctx: PromptContext) -> Rendered:
    """Render a prompt as a part of a larger prompt: inside its fence, if any.

    Raises:
        PromptError: Prompts render each other recursively, or `render` returned an object of another type.
    """
    try:
        if has_own_code(prompt):
            with composed_from(ctx):
                rendered = prompt.render(ctx)
        else:
            rendered = prompt.render(ctx)
    except RecursionError:
        # `Layers` checks the depth of prompts, but custom classes can render each other recursively.
        raise PromptError("prompts render each other recursively, or the data nests too deeply") from None
    if not isinstance(rendered, Rendered):
        returned, method = type(rendered).__name__, f"{type(prompt).__name__}.render"
        raise PromptError(f"{method} must return Rendered, got {returned}", name=method, value=returned)
    # Without a session key, no fence exists that untrusted text could forge.
    if prompt.fence or ctx.session_key is not None:
        return with_fence(prompt, rendered, ctx)
    return rendered


def with_fence(prompt: BasePrompt, rendered: Rendered, ctx: PromptContext) -> Rendered:
    """Put the rendering of a prompt inside its fence; without a fence, break the copies of the nonce in its text."""
    if prompt.fence and rendered.text:
        return fenced(rendered, ctx)
    # A copy of the nonce could open or close the fence of another prompt.
    if ctx.nonce is not None:
        return without_forged_nonce(rendered, ctx.nonce)
    return rendered


def has_own_code(prompt: BasePrompt) -> bool:
    """True if a class outside of this package defines `render` or `values`, so that the names it reads are unknown."""
    return has_own_values(prompt) or not type(prompt).render.__module__.startswith(_OURS)


def has_own_values(prompt: BasePrompt) -> bool:
    """True if a class outside of this package defines `values`, so that it can change the items of the context."""
    return not type(prompt).values.__module__.startswith(_OURS)


def _complete_formats(prompt_class: type[BasePrompt]) -> None:
    """Generate the methods among `render`, `format_2_str` and `format_2_multimodal` that a class does not define.

    A generated method calls a method that the class defines, not a method of its base class; `super()` calls the base
    class.
    """
    definer = next(base for base in prompt_class.__mro__ if not _METHODS.isdisjoint(vars(base)))
    if definer is not prompt_class and issubclass(definer, BasePrompt):
        # The class inherits all three methods, or is `BasePrompt`.
        return
    defined = _METHODS & vars(definer).keys()

    def call(prompt: BasePrompt, method: str, ctx: PromptContext) -> Any:
        # The method of the class that defines it, because a subclass can have a generated method of the same name.
        # `__get__` also binds static and class methods.
        return vars(definer)[method].__get__(prompt, prompt_class)(ctx)

    def render(self: BasePrompt, ctx: PromptContext) -> Rendered:
        if "format_2_multimodal" in defined:
            result = call(self, "format_2_multimodal", ctx)
            return from_multimodal(f"{prompt_class.__name__}.format_2_multimodal", result, self.trust)
        return from_text(f"{prompt_class.__name__}.format_2_str", call(self, "format_2_str", ctx), self.trust)

    def format_2_str(self: BasePrompt, ctx: PromptContext) -> str:
        return _render_to_format(self, prompt_class, ctx).plain

    def format_2_multimodal(self: BasePrompt, ctx: PromptContext) -> tuple[str, MediaTable]:
        rendered = _render_to_format(self, prompt_class, ctx)
        return rendered.text, media_table(rendered.media)

    for method in (render, format_2_str, format_2_multimodal):
        if method.__name__ not in defined:
            method.__doc__ = getattr(BasePrompt, method.__name__).__doc__
            method.__module__, method.__qualname__ = (
                prompt_class.__module__,
                f"{prompt_class.__qualname__}.{method.__name__}",
            )
            setattr(prompt_class, method.__name__, method)


def _render_to_format(prompt: BasePrompt, prompt_class: type[BasePrompt], ctx: PromptContext) -> Rendered:
    """Render a prompt for a `format_2_*` method of the class `prompt_class`, which is the class of the prompt or a base
    of it.

    Raises:
        KwargsError: Additional kwargs are missing or invalid; names all of them.
    """
    # If the class of the prompt overrides `render`, this call comes from `super()`, which expects the text of
    # `prompt_class`.
    if type(prompt).render is not prompt_class.render:
        return prompt_class.render(prompt, ctx)
    try:
        return render_prompt(prompt, ctx)
    except KwargsError as error:
        raise error.at(prompt.label) from error.__cause__
    except Exception as error:
        # A custom class can raise any exception for a missing kwarg; an error with all missing kwargs is more useful.
        problems = prompt.kwargs_problems(ctx.user_input.additional_kwargs)
        if problems:
            raise KwargsError({name: (problem, (prompt.label,)) for name, problem in problems}) from error
        if isinstance(error, PromptError):
            raise error.at(prompt.label) from error.__cause__
        raise


def _check_renders_something(prompt: BasePrompt) -> None:
    """Reject a prompt whose class has neither a template nor a method that renders.

    Raises:
        PromptError: The class renders nothing; names the valid method that is most similar to a name of the class.
    """
    prompt_class = type(prompt)
    if "template" in prompt.model_fields_set or prompt_class.model_fields["template"].default_factory is not _nothing:
        return
    if prompt_class.render is not BasePrompt.render or prompt_class.values is not BasePrompt.values:
        return
    valid = ("template", "values", "render", "format_2_str", "format_2_multimodal")
    message = f"{prompt_class.__name__} renders nothing: it defines none of {', '.join(valid)}"
    for name in _own_names(prompt_class):
        suggestion = similar(name, valid)
        if suggestion is not None:
            raise PromptError(f"{message}; did you mean {suggestion!r} by {name!r}?", name=name, suggestion=suggestion)
    raise PromptError(message, name=prompt_class.__name__)


def _can_cut_items(prompt: BasePrompt) -> bool:
    """True if the items of a prompt can be cut: of the values of its template or, with a custom `render`, of a field of
    the context.
    """
    if type(prompt).render is BasePrompt.render:
        return prompt.items is not None
    return prompt.items in CONTEXT_FIELDS


def _own_names(prompt_class: type[BasePrompt]) -> list[str]:
    """Return the public names that a class and its bases, up to `BasePrompt`, define."""
    bases = prompt_class.__mro__[: prompt_class.__mro__.index(BasePrompt)]
    return [name for base in bases for name in vars(base) if not name.startswith("_")]


def _supplied_names(prompt: BasePrompt) -> frozenset[str]:
    """Return `supplies` of the class of a prompt.

    Raises:
        PromptError: It is no set, such as a single name.
    """
    supplies: Any = prompt.supplies
    if not isinstance(supplies, Set):
        raise PromptError(
            f"{type(prompt).__name__}: supplies: expected a set of names, such as {{'weather'}}, got "
            f"{brief(supplies, 60)}",
            name="supplies",
            value=type(supplies).__name__,
        )
    return frozenset(supplies)
