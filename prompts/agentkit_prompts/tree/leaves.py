"""Prompts without inner prompts: text of the developer, the input of the user, or recalled items."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import LiteralTextWarning, TemplateError, kind_of
from agentkit_prompts.templates.line_heads import LineHeads
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.templates.template import Template
from agentkit_prompts.templates.unseen_characters import WORD_END
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.prompt import BasePrompt, has_own_code

_WORDS = "user|assistant|system|tool|turn|fact|document|message|skill"
_ITEM = rf"(\[)(?!\u200b) (?:\d(?: \d)* \]|(?i:{_WORDS}){WORD_END}|[^\[\]\n\r]*#)"
"""Head of a document or a message: a bracket before a number, a label, or a word such as `user` or `document`."""
_BULLET = (
    r"([-+*\u00b7\u2010-\u2015\u2022\u2023\u2043\u2212\u2219\u25aa\u25cf\u25e6\u30fb\ufe58\ufe63\uff0d])"
    r"(?!(?![\u115f\u1160\u3164\uffa0])[\w.*\u200b-])"
)
"""Head of a fact: a dash or another list marker, unless a word follows directly."""
_SLOT = re.compile(r"\{\{[-+]?\s*\w[^{}]*\}\}|\{%[-+]?\s*\w[^{}]*%\}")
FIELD = re.compile(r"(?<![\w{})$\\/`\"'%@#])(?<!% )\{([^\W\d]\w*)\}(?![\w{}/;`\"'])")
"""A field of `str.format`, the syntax of prompt variables in other frameworks. Braces of code and JSON do not match,
because they contain more than a name."""


@lru_cache(maxsize=64)
def default_template(text: str) -> Template:
    """Return the template of a text; equal texts share one template, which is compiled at its first use."""
    return Template(text)


def check_shows(prompt: BasePrompt, name: str, shown: str) -> None:
    """Reject a template that does not read the value that its class shows. An empty template leaves the prompt out.

    Args:
        prompt: The prompt.
        name: Name of the value.
        shown: Noun of the content of the value, for the error.

    Raises:
        TemplateError: The template has text, and does not read the name.
    """
    template = prompt.template
    # A class with a custom `render` can show the value without the template.
    if name in template.names or template.text == "" or has_own_code(prompt):
        return
    raise TemplateError(
        f"{prompt.label}: its template does not read `{name}`, so it shows no {shown}: use the default template, or "
        f"write {{{{ {name} }}}} at the place of the {shown}s",
        file=template.file,
    )


class TextPrompt(BasePrompt):
    """Text of the developer. Its template can read all names of the context."""

    template: Template = Field(kw_only=False)


def _prompts(value: Any) -> tuple[Any, ...]:
    """Return a prompt or a list of prompts as a tuple. A `str` becomes literal text, a `Template` a `TextPrompt`."""
    if isinstance(value, str | Template | BasePrompt):
        value = (value,)
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a prompt, text, or a list of them, got {kind_of(value)}")
    return tuple(_prompt(item) for item in value)


def _prompt(value: Any) -> Any:
    if isinstance(value, str):
        slot = _SLOT.search(value)
        if slot:
            warn(
                f"{slot[0][:60]!r} is sent unchanged: a str is literal text. For a template write TextPrompt(...) or a "
                "prompt file",
                LiteralTextWarning,
            )
        elif field := FIELD.search(value):
            name = field[1][:60]
            warn(
                f"{field[0][:60]!r} is sent unchanged: a str is literal text. For a variable write {{{{ {name} }}}} in "
                f"an AdditionalInfoPrompt(...), or {{{{ additional_kwargs.{name} }}}} in a TextPrompt(...) or a prompt "
                "file",
                LiteralTextWarning,
            )
        value = Template(value, engine="literal")
    if isinstance(value, Template):
        return TextPrompt(value)
    return value


def _checked_prompt(value: object) -> object:
    """Reject a value that is neither a prompt nor text, before pydantic reads it as the fields of a prompt."""
    if not isinstance(value, BasePrompt):
        raise ValueError(f"expected a prompt or text, got {kind_of(value)}")
    return value


AnyPrompt: TypeAlias = str | Template | BasePrompt
"""A prompt, or the text or template of a `TextPrompt`."""

if TYPE_CHECKING:

    class Prompts(tuple[BasePrompt, ...]):
        """Prompts of one place. For type checkers: the field accepts text and lists, which validation converts."""

        def __get__(self, instance: object, owner: object) -> tuple[BasePrompt, ...]: ...
        def __set__(self, instance: object, value: AnyPrompt | Sequence[AnyPrompt]) -> None: ...
else:
    Prompts = Annotated[tuple[Annotated[BasePrompt, BeforeValidator(_checked_prompt)], ...], BeforeValidator(_prompts)]


class UserInputPrompt(BasePrompt):
    """The text and media that the user sent, in order."""

    template: Template = Field(default_factory=lambda: default_template("{{ user_input }}"), kw_only=False)

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the input."""
        text = ctx.user_input.input
        around = self.template.around("user_input", ctx.locale)
        if around is None or not isinstance(text, str) or type(self).values is not UserInputPrompt.values:
            return super().render(ctx)
        # Most templates are text around the input. Joining texts is faster than the engine, which would run every turn.
        rendered = Rendered.from_text(text, pointer="user_input", trust="untrusted")
        before, after = around
        if not before and not after:
            return rendered
        return Joined([rendered], before=before, after=after)


class ConversationPrompt(BasePrompt):
    """The conversation as text. To send it as messages, use `Layers.conversation` instead."""

    _heads: ClassVar[LineHeads | None] = LineHeads("system", "user", "assistant", "tool")

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for message in conversation %}{% if not loop.first %}\n{% endif %}"
            "{{ message.role }}: {{ message }}{% endfor %}"
        ),
        kw_only=False,
    )


class RecalledPrompt(BasePrompt):
    """The recalled messages of earlier conversations, each with its author and time.

    A budget removes the last messages first.
    """

    _heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, sign="[")
    items: ClassVar[str | None] = "recalled"

    size: Size = Size(cut="items", priority=35)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for message in recalled %}{% if not loop.first %}\n\n{% endif %}[{{ message.role }}"
            "{% if message.when %}, {{ message.when.isoformat(' ', 'minutes') }}{% endif %}]"
            "{% if message.name %} {{ message.name }}{% endif %}\n{{ message.text }}{% endfor %}"
        ),
        kw_only=False,
    )


class MemoPrompt(BasePrompt):
    """The recalled documents, each with its label, and its title without the headings that its text repeats.

    A budget removes the last documents first.
    """

    _heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, sign="[")
    items: ClassVar[str | None] = "documents"

    size: Size = Size(cut="items", priority=30)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for document in documents %}{% if not loop.first %}\n\n{% endif %}"
            "[{{ document.label }}]{% if document.heading %} {{ document.heading }}{% endif %}\n{{ document.text }}"
            "{% if document.image %}\n{{ document.image }}{% endif %}{% endfor %}"
        ),
        kw_only=False,
    )


class KnowledgePrompt(BasePrompt):
    """The recalled facts, one per line. A budget removes the last facts first."""

    _heads: ClassVar[LineHeads | None] = LineHeads(pattern=rf"(?:{_BULLET}|{_ITEM})")
    items: ClassVar[str | None] = "knowledge"

    size: Size = Size(cut="items", priority=40)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for fact in knowledge %}{% if not loop.first %}\n{% endif %}- {{ fact.text }}{% endfor %}"
        ),
        kw_only=False,
    )


class SkillsPrompt(BasePrompt):
    """The skills that the model can load, one per line. A budget removes the last skills first."""

    _heads: ClassVar[LineHeads | None] = LineHeads(pattern=rf"(?:{_BULLET}|{_ITEM})")
    items: ClassVar[str | None] = "skills"

    size: Size = Size(cut="items", priority=42)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% if skills %}Skills, which are instructions for some tasks. Before such a task, load its skill with the "
            "tool load_skill:\n{% endif %}"
            "{% for skill in skills %}{% if not loop.first %}\n{% endif %}- {{ skill.name }}"
            "{% if skill.description %}: {{ skill.description }}{% endif %}{% endfor %}"
        ),
        kw_only=False,
    )


class LoadedSkillsPrompt(BasePrompt):
    """The instructions of the loaded skills. A budget removes the skill that was loaded last first."""

    _heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, sign="[")
    items: ClassVar[str | None] = "loaded_skills"

    size: Size = Size(cut="items", priority=46)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for skill in loaded_skills %}{% if not loop.first %}\n\n{% endif %}[skill {{ skill.name }}]\n"
            "{{ skill.text }}{% endfor %}"
        ),
        kw_only=False,
    )


class SummaryPrompt(BasePrompt):
    """The summary of earlier messages that are not sent; empty without a summary."""

    _heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, sign="[")

    size: Size = Size(cut="head", priority=45)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% if summary %}Summary of the conversation until here:\n{{ summary }}{% endif %}"
        ),
        kw_only=False,
    )


class ToolPrompt(BasePrompt):
    """The tools as text, one JSON object per line, for models that accept no tool specs.

    Raises:
        TemplateError: A custom template does not read `tools`.
    """

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for tool in tools %}{% if not loop.first %}\n{% endif %}{{ tool.json }}{% endfor %}"
        ),
        kw_only=False,
    )

    def _check(self) -> None:
        super()._check()
        check_shows(self, "tools", "tool")
