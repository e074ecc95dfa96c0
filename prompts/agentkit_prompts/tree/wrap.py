"""`WrapPrompt`: prompts inside a prompt, after the TFRobot document, keeping their media and where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from pydantic import Field

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.schemas.merge import merge_schemas
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import MEDIA_OPENING
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tree.leaves import default_template
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["WrapPrompt"]


class WrapPrompt(BasePrompt):
    """Renders the wrapped prompts, joins them with a line break, and hands the result to its own template as
    `wrapped_str`. What was rendered is data: it is never compiled again.

    Raises:
        SchemaConflict: Two prompts of the tree require the same kwarg with different schemas.
    """

    supplies: ClassVar[frozenset[str]] = frozenset({"wrapped_str"})

    wrapped_prompts: tuple[BasePrompt, ...]
    """The prompts inside, in order."""
    template: Template = Field(default_factory=lambda: default_template("{{ wrapped_str }}"))

    def _check(self) -> None:
        super()._check()
        _ = self.additional_kwargs_schema  # merging the schemas of the tree finds a conflict now rather than later

    @property
    def children(self) -> tuple[tuple[str, BasePrompt], ...]:
        """The wrapped prompts."""
        return self._children

    @cached_property
    def _children(self) -> tuple[tuple[str, BasePrompt], ...]:
        return tuple((f"wrapped_prompts[{index}]", prompt) for index, prompt in enumerate(self.wrapped_prompts))

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.children)

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the tree requires: the merged schema of this prompt and those it wraps."""
        inner = [(path, prompt.additional_kwargs_schema) for path, prompt in self.children]
        own = super().additional_kwargs_schema
        if all(schema is None for _, schema in inner):
            return own
        return merge_schemas([("", own), *inner])

    @property
    def reads(self) -> frozenset[str] | None:
        """What the template and the wrapped prompts read."""
        if type(self).render is not WrapPrompt.render or type(self).values is not BasePrompt.values:
            return None
        reads = frozenset(self.template.names) - self.supplies | {"locale"}
        for prompt in self.wrapped_prompts:
            inner = prompt.reads
            if inner is None:
                return None
            reads |= inner
        return reads

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the wrapped prompts, then the template around them."""
        rendered: list[Rendered] = []
        for path, prompt in self.children:
            try:
                rendered.append(prompt.rendered(ctx))
            except PromptError as error:
                raise error.at(path) from error.__cause__
        return self.render_around(ctx, rendered)

    def at_once(self, ctx: PromptContext) -> str | None:
        """Return the text around that of the one wrapped prompt, when that is known at once."""
        around = self._around
        if around is None:
            return None
        before, child, after = around
        inner = child.at_once(ctx)
        if inner is None:
            return None
        text = f"{before}{inner}{after}"
        return text if MEDIA_OPENING not in text else None

    @cached_property
    def _around(self) -> tuple[str, BasePrompt, str] | None:
        """What stands around the one child, when that is the same for every context."""
        if type(self) is not WrapPrompt or self.fence or len(self.children) != 1:
            return None
        affixes = self.template.affixes() if isinstance(self.template.text, str) else None
        return (affixes[0], self.wrapped_prompts[0], affixes[1]) if affixes is not None else None

    def render_around(self, ctx: PromptContext, children: Sequence[Rendered]) -> Rendered:
        """Join the children and render the template around them."""
        plain = type(self).values is BasePrompt.values
        affixes = self.template.affixes(ctx.locale) if plain else None
        if affixes is not None and len(children) == 1:
            return Rendered.around(affixes[0], children[0], affixes[1], self._paths[0])
        inner = Rendered.join("\n", list(zip(self._paths, children, strict=True)))
        if affixes is not None:
            return Rendered.around(affixes[0], inner, affixes[1])
        return self.template.run({**self.values(ctx), "wrapped_str": inner.as_wrapped}, locale=ctx.locale)
