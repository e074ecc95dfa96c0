"""The prompts that show one kind of recalled thing each, with default templates of their own."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from agentkit_prompts.base import BasePrompt
from agentkit_prompts.budget import Size
from agentkit_prompts.template import Template
from agentkit_prompts.text import default_template

__all__ = ["ConversationPrompt", "KnowledgePrompt", "MemoPrompt", "ToolPrompt"]


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
