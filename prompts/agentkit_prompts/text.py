"""The two prompts nearly every turn has: text of the developer, and what the user sent."""

from __future__ import annotations

from functools import cache, cached_property

from pydantic import Field

from agentkit_prompts.base import BasePrompt
from agentkit_prompts.context import PromptContext
from agentkit_prompts.rendered import Rendered
from agentkit_prompts.spans import MEDIA_OPENING
from agentkit_prompts.template import Template

__all__ = ["TextPrompt", "UserInputPrompt", "default_template"]


@cache
def default_template(text: str) -> Template:
    """Compile a default template when it is first used, not at import."""
    return Template(text)


class TextPrompt(BasePrompt):
    """Text of the developer, with the whole context in reach."""


class UserInputPrompt(BasePrompt):
    """What the user sent: text and media, in order."""

    template: Template = Field(default_factory=lambda: default_template("{{ user_input }}"))

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the input; plain text in the default template needs no engine."""
        text = ctx.user_input.input
        if type(text) is str and self._is_plain:
            return Rendered.from_text(text, pointer="user_input", trust="untrusted")
        return super().render(ctx)

    def at_once(self, ctx: PromptContext) -> str | None:
        """Return the input when it is plain text."""
        text = ctx.user_input.input
        return text if type(text) is str and self._shows_input and MEDIA_OPENING not in text else None

    @cached_property
    def _is_plain(self) -> bool:
        return self.template is default_template("{{ user_input }}")

    @cached_property
    def _shows_input(self) -> bool:
        return self._is_plain and not self.fence and type(self) is UserInputPrompt

    @property
    def reads(self) -> frozenset[str] | None:
        """What the template names."""
        plain = type(self).render is UserInputPrompt.render and type(self).values is BasePrompt.values
        return frozenset(self.template.names) | {"locale"} if plain and self.template.params_schema is None else None
