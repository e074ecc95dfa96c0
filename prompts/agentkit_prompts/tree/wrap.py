"""`WrapPrompt`: prompts inside a template, after the TFRobot document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Unpack

from pydantic import Field

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.templates.template import Template
from agentkit_prompts.templates.traced_text import wrapped_value
from agentkit_prompts.tree.extent import check_extent
from agentkit_prompts.tree.leaves import AnyPrompt, Prompts, check_shows, default_template
from agentkit_prompts.tree.prompt import BasePrompt, render_prompt, render_values

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema
    from agentkit_prompts.tree.prompt import PromptOptions

_NOTHING = Rendered.from_text("")


class WrapPrompt(BasePrompt):
    """Prompts inside a template, which shows their renderings, joined by line breaks, as `wrapped_str`.

    The text of the renderings is never compiled; their media and origins are kept. If all renderings are empty,
    the wrapper renders nothing, unless `keep_empty` is True.

    Raises:
        SchemaConflict: Two prompts of the tree require the same kwarg with different schemas.
        TemplateError: A custom template does not read `wrapped_str`.
    """

    supplies: ClassVar[frozenset[str]] = frozenset({"wrapped_str"})
    _positional: ClassVar[tuple[str, ...]] = ("wrapped_prompts", "template")

    wrapped_prompts: Prompts
    """The prompts inside the template, in order. A `str` is literal text."""
    template: Template = Field(default_factory=lambda: default_template("{{ wrapped_str }}"), kw_only=False)

    keep_empty: bool = False
    """True to render the template also if the wrapped prompts are empty, such as a template with an `else` for this."""

    if TYPE_CHECKING:

        def __init__(
            self,
            wrapped_prompts: AnyPrompt | Sequence[AnyPrompt],
            template: str | Mapping[str, str] | Template = ...,
            *,
            keep_empty: bool = ...,
            **options: Unpack[PromptOptions],
        ) -> None: ...

    def _check(self) -> None:
        super()._check()
        check_shows(self, "wrapped_str", "prompt")
        check_extent("", self)
        # A conflict of schemas raises an error here, not in the first turn.
        _ = self.additional_kwargs_schema

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        """The wrapped prompts."""
        return tuple([(f"wrapped_prompts[{index}]", prompt) for index, prompt in enumerate(self.wrapped_prompts)])

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """The merged schema of the kwargs of the template and of the wrapped prompts; None if they require nothing."""
        inner = [(path, prompt.additional_kwargs_schema) for path, prompt in self.children]
        own = super().additional_kwargs_schema
        if all(schema is None for _, schema in inner):
            return own
        from agentkit_prompts.schemas.merge import merge_schemas

        return merge_schemas([("", own), *inner])

    @property
    def reads(self) -> frozenset[str] | None:
        """Context names that the template and the wrapped prompts read; None if some of them are unknown."""
        reads = super().reads
        if reads is None:
            return None
        for _, prompt in self.children:
            inner = prompt.reads
            if inner is None:
                return None
            reads |= inner
        return reads

    @with_option_hints
    def render(self, ctx: PromptContext) -> Rendered:
        """Render the wrapped prompts, then the template around them."""
        children: list[Rendered] = []
        for prompt in self.wrapped_prompts:
            try:
                children.append(render_prompt(prompt, ctx))
            except PromptError as error:
                raise error.at(f"wrapped_prompts[{len(children)}]") from error.__cause__
        return render_around(self, ctx, children)


def render_around(wrap: WrapPrompt, ctx: PromptContext, children: Sequence[Rendered]) -> Rendered:
    """Join the renderings of the wrapped prompts, and render the template around them; see `WrapPrompt.keep_empty`."""
    # Media have markers in the text.
    if not wrap.keep_empty and not any(child.text for child in children):
        return _NOTHING
    around = wrap.template.around("wrapped_str", ctx.locale)
    # Most templates are text around `wrapped_str`. Rendering them by the engine would double the time of a turn with a
    # warm cache.
    if around is not None and type(wrap).values is WrapPrompt.values:
        return Joined(children, "\n", *around, step="wrapped_prompts")
    wrapped = wrapped_value(Joined(children, "\n", step="wrapped_prompts"))
    return render_values(wrap, {**wrap.values(ctx), "wrapped_str": wrapped}, ctx)
