"""`BasePrompt`: the contract of every prompt, after the TFRobot document.

A prompt renders one `PromptContext`. Subclasses usually only choose a default template; those that need more override
`values` (what the template sees), `render` itself or, as the document does, the two `format_2_*` methods.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from agentkit_prompts.context.parts import Audio, File, Image, Media, Video
from agentkit_prompts.context.prompt_context import CONTEXT_NAMES, PromptContext, Trust
from agentkit_prompts.errors import KwargsError, PromptError, TemplateError
from agentkit_prompts.names import similar
from agentkit_prompts.templates.line_heads import LineHeads
from agentkit_prompts.templates.rendered import FromSegments, Plain, Rendered
from agentkit_prompts.templates.spans import Segment
from agentkit_prompts.templates.template import MediaTable, Template, media_table
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.fence import fenced, without_forged_nonce
from agentkit_prompts.tree.frozen_model import Declared

if TYPE_CHECKING:
    from agentkit_prompts.schemas.check import Problem
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["RANKS", "BasePrompt", "Volatility"]

Volatility: TypeAlias = Literal["static", "session", "turn"]
RANKS: dict[Volatility, int] = {"static": 0, "session": 1, "turn": 2}
"""How volatile each class is, to compare them."""
_WAYS = frozenset({"render", "format_2_str", "format_2_multimodal"})
_MARKER = re.compile(r"<\|media:(\w+):([^|]+)\|>")
_KINDS: dict[str, type[Media]] = {"image": Image, "audio": Audio, "video": Video, "file": File}
_MAX_DEPTH = 64
_MAX_PROMPTS = 100_000
_SESSION = frozenset({"tools", "examples", "extra"})
"""Context names that usually stay the same for a whole session."""


class BasePrompt(Declared, ABC):
    """Renders a context to text and media.

    A class that defines `render`, `format_2_str` or `format_2_multimodal` gets the others from what it defines, so
    whichever is most derived is used everywhere.

    Raises:
        TypeError: It is `BasePrompt` itself.
        PromptError: Something about the prompt can never render: a template error, a name the context cannot supply,
            a params schema that would refuse the context, a field that does not exist.
    """

    _first: ClassVar[str] = "template"
    supplies: ClassVar[frozenset[str]] = frozenset()
    """Names that `values` adds to those of the context."""
    heads: ClassVar[LineHeads | None] = None
    """What begins an item, for a prompt that lists some: untrusted text of one item cannot begin another."""
    trust: ClassVar[Trust] = "untrusted"
    """How far the text is trusted that a class of your own returns from `format_2_str` and `format_2_multimodal`."""

    _shows_context: ClassVar[bool] = True
    """Whether the template sees the context as it is: `values` is not overridden."""

    template: Template = Field(default_factory=lambda: Template("", engine="literal"), kw_only=False)
    """The text, with the names of the context as variables. A str is accepted."""
    name: str | None = None
    """A name for tables and error messages; the class name when not given."""
    volatility: Volatility | None = None
    """How often its text changes: never (`static`), between sessions, or every `turn`. Inferred from what it reads
    when None."""
    fence: bool = False
    """Whether it is put between two lines that untrusted text cannot forge, as their nonce comes from a secret of the
    session. Needs `PromptContext.session_key`."""
    size: Size = Size()
    """How many tokens it may take, and how it gives way under a budget. By default it is sent whole."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        if cls is BasePrompt:
            raise TypeError("BasePrompt is abstract: use TextPrompt or another of its subclasses, or write your own")
        return super().__new__(cls)

    def __init_subclass__(cls, **config: Any) -> None:
        super().__init_subclass__(**config)
        _complete(cls)
        cls._shows_context = cls.values is BasePrompt.values

    @model_validator(mode="after")
    def validate_prompt(self) -> Self:
        """Refuse what could never render, when the prompt is made instead of when it is used."""
        if self.template.params_schema is not None:
            from agentkit_prompts.schemas.params import check_params_schema

            check_params_schema(self.template.params_schema)
        self._check()
        return self

    def _check(self) -> None:
        """Refuse names that nothing supplies; subclasses add their own checks."""
        if self.size.cut == "items" and self.items is None:
            raise PromptError(
                f'{self.label}: cut="items" needs a prompt that shows items; use head, tail, middle or drop',
                name="cut",
                value="items",
            )
        known = CONTEXT_NAMES | self.supplies | self._declared()
        unknown = {name: line for name, line in self.template.names.items() if name not in known}
        if not unknown:
            return
        first = next(iter(unknown))
        listed = ", ".join(
            f"{name!r} (line {line}{_hint(name, known)})" for name, line in sorted(unknown.items(), key=lambda i: i[1])
        )
        raise TemplateError(
            f"{self.label}: the context cannot supply {listed}; there are {', '.join(sorted(known))}. For data that "
            f"comes with the user's input write {{{{ additional_kwargs.{first} }}}}, or use AdditionalInfoPrompt",
            file=self.template.file,
            line=unknown[first],
            variable=first,
        )

    def _declared(self) -> frozenset[str]:
        """Names the params schema can fill in with a default."""
        schema = self.template.json_schema if self.template.params_schema is not None else None
        properties = (schema or {}).get("properties", {})
        return frozenset(name for name, item in properties.items() if isinstance(item, Mapping) and "default" in item)

    @property
    def label(self) -> str:
        """The name shown in tables and errors."""
        return self.name or type(self).__name__

    @property
    def changes(self) -> Volatility:
        """How often the text changes: as declared, or inferred from what it reads and what it holds."""
        if self.volatility is not None:
            return self.volatility
        children = self.children
        reads = frozenset(self.template.names) - self.supplies if children else self.reads
        own: Volatility = "session" if self.fence else "static"  # the nonce of a fence belongs to the session
        if reads is None or not reads - {"locale"} <= _SESSION:
            own = "turn"
        elif reads - {"locale"}:
            own = "session"
        return max((own, *(child.changes for _, child in children)), key=RANKS.__getitem__)

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """JSON Schema of what this prompt requires of the user's `additional_kwargs`; None when it requires nothing.

        Inferred from what the template reads as `additional_kwargs.NAME`.
        """
        return self.template.kwargs_schema

    def kwargs_problems(self, kwargs: Mapping[str, Any]) -> list[Problem]:
        """Return every missing or invalid additional kwarg of this prompt alone, as (name, what is wrong)."""
        schema = self.additional_kwargs_schema
        if schema is None:
            return []
        from agentkit_prompts.schemas.params import params_checker

        return params_checker(schema)(kwargs)[1]

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        """The prompts inside this one, each with the path segment that leads to it."""
        return ()

    @property
    def reads(self) -> frozenset[str] | None:
        """The context names the rendering depends on; None when that cannot be known, as for an own `render`.

        As long as these values are the same objects the rendering is reused. An override of `render` or `values` is
        not looked into: override `reads` too to have it memoised.
        """
        if type(self).render is not BasePrompt.render or not self._shows_context:
            return None
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
        values = self.values(ctx)
        rendered = self.template.run(values, locale=ctx.locale)
        return rendered if self.heads is None else self.heads.without_forged(rendered, self._listed(values))

    def _listed(self, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the items that are listed; None where a template that is not the default may write other heads."""
        heads = self.heads
        return values[heads.lists] if heads is not None and "template" not in self.model_fields_set else None

    def render_around(self, ctx: PromptContext, children: Sequence[Rendered]) -> Rendered:
        """Render around children that are rendered already, one per entry of `children`; for composite prompts."""
        raise PromptError(f"{self.label}: a prompt with children must implement render_around", name="render_around")

    items: ClassVar[str | None] = None
    """Name of the context field whose items the prompt shows one by one; what `Size(cut="items")` cuts."""

    def item_count(self, ctx: PromptContext) -> int:
        """Return how many items it shows."""
        return len(self._items(ctx)[1])

    def render_items(self, ctx: PromptContext, kept: int) -> Rendered:
        """Render the first `kept` items only."""
        name, items = self._items(ctx)
        return self.render(ctx.evolve(**{name: items[:kept]}))

    def _items(self, ctx: PromptContext) -> tuple[Any, Any]:
        if self.items is None:
            raise PromptError(
                f'{self.label}: cut="items" needs a prompt that shows items; use head, tail or drop',
                name="cut",
                value="items",
            )
        return self.items, self.values(ctx)[self.items]

    def format_2_str(self, ctx: PromptContext) -> str:
        """Render to plain text; a media part is its alt text, `[KIND: NAME]`."""
        return self.rendered_as(BasePrompt, ctx).plain

    def format_2_multimodal(self, ctx: PromptContext) -> tuple[str, MediaTable]:
        """Render to text with one marker per use of a media part, and the media: kind -> id -> payload."""
        rendered = self.rendered_as(BasePrompt, ctx)
        return rendered.text, media_table(rendered.media)

    def rendered(self, ctx: PromptContext) -> Rendered:
        """Render, inside a fence where the prompt has one. This is what a parent or a composition calls."""
        try:
            rendered = self.render(ctx)
        except RecursionError:
            raise PromptError("prompts wrap each other without end, or the data nests too deeply") from None
        if not isinstance(rendered, Rendered):
            returned, method = type(rendered).__name__, f"{type(self).__name__}.render"
            raise PromptError(f"{method} must return Rendered, got {returned}", name=method, value=returned)
        return self.apart(rendered, ctx) if self.fence or ctx.session_key is not None else rendered

    def renderer(self) -> Callable[[PromptContext], Rendered]:
        """Return what renders it as `rendered` does. What is the same in all contexts may be looked up beforehand."""
        return self.rendered

    def apart(self, rendered: Rendered, ctx: PromptContext) -> Rendered:
        """Return what it rendered inside its fence; without one, so that nothing untrusted in it writes a nonce."""
        if self.fence and rendered.text:
            return fenced(rendered, ctx)
        return rendered if ctx.nonce is None else without_forged_nonce(rendered, ctx.nonce)

    def rendered_as(self, kind: type[BasePrompt], ctx: PromptContext) -> Rendered:
        """Render as `kind`, a class of this prompt, does: what a `format_2_*` method of that class shows.

        Raises:
            KwargsError: The reason is that additional kwargs are missing or invalid; names all of them.
        """
        if type(self).render is not kind.render:  # a class below calls super()
            return kind.render(self, ctx)
        try:
            return self.rendered(ctx)
        except Exception as error:
            problems = () if isinstance(error, KwargsError) else self.kwargs_problems(ctx.user_input.additional_kwargs)
            if problems:  # all the missing kwargs at once, whatever a class of its own raised for one of them
                raise KwargsError({name: (what, (self.label,)) for name, what in problems}) from error
            if isinstance(error, PromptError):
                raise error.at(self.label) from error.__cause__
            raise


def check_extent(path: str, prompt: BasePrompt) -> None:
    """Refuse a prompt that contains itself, nests too deeply, or holds more prompts than anyone could send.

    A prompt that stands at several places is counted at each of them, and looked at once.

    Raises:
        PromptError: It does; the limit is named.
    """
    extents: dict[int, tuple[int, int]] = {}

    def measure(path: str, prompt: BasePrompt, above: tuple[int, ...]) -> tuple[int, int]:
        if id(prompt) in above:
            raise PromptError(f"{path}: {prompt.label} contains itself", name=path)
        height, count = extents.get(id(prompt), (1, 1))
        if id(prompt) not in extents and len(above) < _MAX_DEPTH:
            for name, child in prompt.children:
                below, held = measure(f"{path}.{name}", child, (*above, id(prompt)))
                height, count = max(height, below + 1), count + held
            extents[id(prompt)] = height, count
        if len(above) + height > _MAX_DEPTH:
            raise PromptError(
                f"{prompt.label}: prompts nest deeper than {_MAX_DEPTH} levels; put some beside each other",
                name="depth",
                value=_MAX_DEPTH,
            )
        if count > _MAX_PROMPTS:
            raise PromptError(
                f"{prompt.label} holds more than {_MAX_PROMPTS:,} prompts, counted where they stand",
                name="prompts",
                value=_MAX_PROMPTS,
            )
        return height, count

    measure(path, prompt, ())


def _hint(name: str, known: frozenset[str]) -> str:
    close = similar(name, known)
    return f", did you mean {close!r}?" if close else ""


def _complete(kind: type[BasePrompt]) -> None:
    """Give a class those of `render` and `format_2_*` that it does not define, made from what it defines.

    So the most derived of the three is used everywhere. `super()` calls reach what the class above does.
    """
    definer = next(one for one in kind.__mro__ if not _WAYS.isdisjoint(vars(one)))
    if definer is not kind and issubclass(definer, BasePrompt):
        return  # it has all three
    defined = _WAYS & vars(definer).keys()

    def render(self: BasePrompt, ctx: PromptContext) -> Rendered:
        def own(way: str) -> Any:
            return vars(definer)[way].__get__(self, kind)(ctx)  # it may be a static or class method, too

        if "format_2_multimodal" in defined:
            return _from_multimodal(kind.__name__, own("format_2_multimodal"), self.trust)
        text = own("format_2_str")
        if not isinstance(text, str):
            returned, method = type(text).__name__, f"{kind.__name__}.format_2_str"
            raise PromptError(f"{method} must return str, got {returned}", name=method, value=returned)
        return Plain(text, trust=self.trust)

    def format_2_str(self: BasePrompt, ctx: PromptContext) -> str:
        return self.rendered_as(kind, ctx).plain

    def format_2_multimodal(self: BasePrompt, ctx: PromptContext) -> tuple[str, MediaTable]:
        rendered = self.rendered_as(kind, ctx)
        return rendered.text, media_table(rendered.media)

    for way in (render, format_2_str, format_2_multimodal):
        if way.__name__ not in defined:
            way.__doc__ = getattr(BasePrompt, way.__name__).__doc__
            way.__module__, way.__qualname__ = kind.__module__, f"{kind.__qualname__}.{way.__name__}"
            setattr(kind, way.__name__, way)


def _from_multimodal(kind: str, given: Any, trust: Trust) -> Rendered:
    """Make a rendering of what `format_2_multimodal` returned; media that no marker in the text uses come last."""
    where = f"{kind}.format_2_multimodal"
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)):
        returned = type(given).__name__
        raise PromptError(f"{where} must return text and media, got {returned}", name=where, value=returned)
    text, table = given
    media = dict(_media_of(table, where))
    used = set[tuple[str, str]]()
    segments: list[Segment] = []
    start = 0
    for found in _MARKER.finditer(text):
        key = (found[1], found[2])
        if key in media:
            segments.append(Segment(text[start : found.start()], "", None, "", trust))
            segments.append(Segment(media[key].marker, "", None, "", trust, media[key]))
            used.add(key)
            start = found.end()
    segments.append(Segment(text[start:], "", None, "", trust))
    left = [part for key, part in media.items() if key not in used]
    return FromSegments([*segments, *(Segment(part.marker, "", None, "", trust, part) for part in left)])


def _media_of(table: Any, where: str) -> Iterator[tuple[tuple[str, str], Media]]:
    if not (isinstance(table, Mapping) and all(isinstance(found, Mapping) for found in table.values())):
        returned = type(table).__name__
        raise PromptError(
            f"{where} must return media as kind -> id -> payload, got {returned}", name=where, value=returned
        )
    for kind, found in table.items():
        if kind not in _KINDS:
            raise PromptError(
                f"{where}: unknown kind of media {kind!r}; valid kinds: {', '.join(_KINDS)}",
                name=where,
                value=str(kind),
            )
        for name, payload in found.items():
            yield (kind, str(name)), _KINDS[kind](payload)
