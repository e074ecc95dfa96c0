"""`WrapPrompt`: prompts inside a prompt, after the TFRobot document, keeping their media and where they came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Around, Join, Rendered
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.leaves import Prompts, default_template
from agentkit_prompts.tree.prompt import BasePrompt, check_extent

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["WrapPrompt"]


class WrapPrompt(BasePrompt):
    """Renders the wrapped prompts, joins them with a line break, and hands the result to its own template as
    `wrapped_str`. What was rendered is data: it is never compiled again.

    Raises:
        SchemaConflict: Two prompts of the tree require the same kwarg with different schemas.
    """

    supplies: ClassVar[frozenset[str]] = frozenset({"wrapped_str"})

    wrapped_prompts: Prompts
    """The prompts inside, in order. A str is literal text."""
    template: Template = Field(default_factory=lambda: default_template("{{ wrapped_str }}"), kw_only=False)

    def _check(self) -> None:
        super()._check()
        check_extent("", self)
        _ = self.additional_kwargs_schema  # merging the schemas of the tree finds a conflict now rather than later

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        """The wrapped prompts."""
        return tuple([(f"wrapped_prompts[{index}]", prompt) for index, prompt in enumerate(self.wrapped_prompts)])

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the tree requires: the merged schema of this prompt and those it wraps."""
        inner = [(path, prompt.additional_kwargs_schema) for path, prompt in self.children]
        own = super().additional_kwargs_schema
        if all(schema is None for _, schema in inner):
            return own
        from agentkit_prompts.schemas.merge import merge_schemas

        return merge_schemas([("", own), *inner])

    @property
    def reads(self) -> frozenset[str] | None:
        """What the template and the wrapped prompts read."""
        if type(self).render is not WrapPrompt.render or not self._shows_context:
            return None
        reads = self.template.reads - self.supplies
        for _, prompt in self.children:
            inner = prompt.reads
            if inner is None:
                return None
            reads |= inner
        return reads

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the wrapped prompts, then the template around them."""
        children: list[Rendered] = []
        for index, prompt in enumerate(self.wrapped_prompts):
            try:
                children.append(prompt.rendered(ctx))
            except PromptError as error:
                raise error.at(f"wrapped_prompts[{index}]") from error.__cause__
        return self.render_around(ctx, children)

    def renderer(self) -> Callable[[PromptContext], Rendered]:
        """Return what renders it: where the template is text around one prompt, without looking at it again."""
        around = self.template.around_always("wrapped_str")
        if type(self) is not WrapPrompt or around is None or len(self.wrapped_prompts) != 1:
            return self.rendered
        (before, after), inner, apart, is_fenced = around, self.wrapped_prompts[0].renderer(), self.apart, self.fence

        def rendered(ctx: PromptContext) -> Rendered:
            try:
                made = Around(before, inner(ctx), after, "wrapped_prompts[0]")
            except PromptError as error:
                raise error.at("wrapped_prompts[0]") from error.__cause__
            return apart(made, ctx) if is_fenced or ctx.session_key is not None else made

        return rendered

    def render_around(self, ctx: PromptContext, children: Sequence[Rendered]) -> Rendered:
        """Join the children and render the template around them."""
        around = self.template.around("wrapped_str", ctx.locale) if self._shows_context else None
        if around is not None and len(children) == 1:
            return Around(around[0], children[0], around[1], "wrapped_prompts[0]")
        inner = Join("\n", [(f"wrapped_prompts[{index}]", child) for index, child in enumerate(children)])
        if around is not None:
            return Around(around[0], inner, around[1])
        return self.template.run({**self.values(ctx), "wrapped_str": inner.as_wrapped}, locale=ctx.locale)
