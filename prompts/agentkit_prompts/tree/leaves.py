"""The prompts that show one thing each: text of the developer, the user's input, and what was recalled."""

from __future__ import annotations

from functools import cache, cached_property
from typing import ClassVar

from pydantic import Field

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.spans import MEDIA_OPENING
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.size import Size
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = [
    "ConversationPrompt",
    "KnowledgePrompt",
    "MemoPrompt",
    "TextPrompt",
    "ToolPrompt",
    "UserInputPrompt",
    "default_template",
]


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


class ConversationPrompt(BasePrompt):
    """The recalled conversation as text. To send it as messages, leave it to `Layers.conversation`."""

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for message in conversation %}{% if not loop.first %}\n{% endif %}"
            "{{ message.role }}: {{ message }}{% endfor %}"
        )
    )


class MemoPrompt(BasePrompt):
    """The recalled documents, numbered from 1, each with its title or source. Under a budget the last go first."""

    items: ClassVar[str | None] = "documents"

    size: Size = Size(cut="items", priority=30)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for document in documents %}{% if not loop.first %}\n\n{% endif %}"
            "[{{ loop.index }}] {{ document.title or document.source or document.id }}\n{{ document.text }}{% endfor %}"
        )
    )


class KnowledgePrompt(BasePrompt):
    """The recalled facts, one a line. Under a budget the last go first."""

    items: ClassVar[str | None] = "knowledge"

    size: Size = Size(cut="items", priority=40)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for fact in knowledge %}{% if not loop.first %}\n{% endif %}- {{ fact.text }}{% endfor %}"
        )
    )


class ToolPrompt(BasePrompt):
    """The tools as text, one JSON object a line, for models that are not told of tools in any other way."""

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for tool in tools %}{% if not loop.first %}\n{% endif %}{{ tool.json }}{% endfor %}"
        )
    )
