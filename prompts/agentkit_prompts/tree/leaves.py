"""The prompts that show one thing each: text of the developer, the user's input, and what was recalled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

from pydantic import BeforeValidator, Field

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.items import labelled_apart
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import LiteralTextWarning, TemplateError
from agentkit_prompts.templates.line_heads import LineHeads
from agentkit_prompts.templates.rendered import Around, Plain, Rendered
from agentkit_prompts.templates.template import Template
from agentkit_prompts.templates.unseen_characters import WORD_END
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = [
    "AnyPrompt",
    "ConversationPrompt",
    "KnowledgePrompt",
    "MemoPrompt",
    "Prompts",
    "RecalledPrompt",
    "SummaryPrompt",
    "TextPrompt",
    "ToolPrompt",
    "UserInputPrompt",
    "default_template",
]

_WORDS = "user|assistant|system|tool|turn|fact|document|message"
_ITEM = rf"(\[)(?!\u200b) (?:\d(?: \d)* \]|(?i:{_WORDS}){WORD_END}|[^\[\]\n\r]*#)"
"""What begins a document or a message: a bracket with a label, with a number, with who wrote it or with what it is."""
_BULLET = (
    r"([-+*\u00b7\u2010-\u2015\u2022\u2023\u2043\u2212\u2219\u25aa\u25cf\u25e6\u30fb\ufe58\ufe63\uff0d])"
    r"(?!(?![\u115f\u1160\u3164\uffa0])[\w.*\u200b-])"
)
"""What begins a fact: a dash or another sign for an item of a list, with no word right behind it."""
_SLOT = re.compile(r"\{\{[-+]?\s*\w[^{}]*\}\}|\{%[-+]?\s*\w[^{}]*%\}")
FIELD = re.compile(r"(?<![\w{})$\\/`\"'%@#])(?<!% )\{([^\W\d]\w*)\}(?![\w{}/;`\"'])")
"""A field of `str.format`, as other frameworks write the variables of a prompt; braces of code and JSON hold more."""


@lru_cache(maxsize=64)
def default_template(text: str) -> Template:
    """Compile a default template when it is first used, not at import."""
    return Template(text)


class TextPrompt(BasePrompt):
    """Text of the developer, with the whole context in reach."""

    template: Template = Field(kw_only=False)


def _prompts(value: Any) -> tuple[Any, ...]:
    """Accept one prompt or many. A str is literal text, a `Template` that of a `TextPrompt`."""
    if isinstance(value, str | Template | BasePrompt):
        value = (value,)
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a prompt, text, or a list of them, got {type(value).__name__}")
    return tuple(_prompt(item) for item in value)


def _prompt(value: Any) -> Any:
    if isinstance(value, str):
        slot = _SLOT.search(value)
        if slot:
            warn(
                f"{slot[0][:60]!r} is sent as it is: a str is literal text. For a template write TextPrompt(...) or a "
                "prompt file",
                LiteralTextWarning,
            )
        elif field := FIELD.search(value):
            name = field[1][:60]
            warn(
                f"{field[0][:60]!r} is sent as it is: a str is literal text. For a variable write {{{{ {name} }}}} in "
                f"an AdditionalInfoPrompt(...), or {{{{ additional_kwargs.{name} }}}} in a TextPrompt(...) or a prompt "
                "file",
                LiteralTextWarning,
            )
        value = Template(value, engine="literal")
    return TextPrompt(value) if isinstance(value, Template) else value


AnyPrompt: TypeAlias = str | Template | BasePrompt
"""One prompt: as such, or the text of one."""

if TYPE_CHECKING:

    class Prompts(tuple[BasePrompt, ...]):
        """Prompts of one place. For checkers such a field takes text and lists too, as it does at run time."""

        def __get__(self, instance: object, owner: object) -> tuple[BasePrompt, ...]: ...
        def __set__(self, instance: object, value: AnyPrompt | Sequence[AnyPrompt]) -> None: ...
else:
    Prompts = Annotated[tuple[BasePrompt, ...], BeforeValidator(_prompts)]


def _with_own_labels(ctx: PromptContext) -> PromptContext:
    documents = labelled_apart(ctx.documents)
    return ctx if documents is ctx.documents else ctx.evolve(documents=documents)


class UserInputPrompt(BasePrompt):
    """What the user sent: text and media, in order."""

    template: Template = Field(default_factory=lambda: default_template("{{ user_input }}"), kw_only=False)

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the input; plain text with nothing but text around it needs no engine."""
        text = ctx.user_input.input
        around = self.template.around("user_input", ctx.locale)
        if type(text) is not str or around is None or not self._shows_context:
            return super().render(ctx)
        shown = Plain(text, "user_input", "untrusted")
        return shown if around == ("", "") else Around(around[0], shown, around[1])

    def renderer(self) -> Callable[[PromptContext], Rendered]:
        """Return what renders it: text as it is, without looking at the template again."""
        if type(self) is not UserInputPrompt or self.template.around_always("user_input") != ("", ""):
            return self.rendered
        rendered, apart, is_fenced = self.rendered, self.apart, self.fence

        def shown(ctx: PromptContext) -> Rendered:
            text = ctx.user_input.input
            if type(text) is not str:
                return rendered(ctx)
            made = Plain(text, "user_input", "untrusted")
            return apart(made, ctx) if is_fenced or ctx.session_key is not None else made

        return shown

    @property
    def reads(self) -> frozenset[str] | None:
        """What the template names."""
        plain = type(self).render is UserInputPrompt.render and self._shows_context
        return self.template.reads if plain and self.template.params_schema is None else None


class ConversationPrompt(BasePrompt):
    """The recalled conversation as text. To send it as messages, leave it to `Layers.conversation`."""

    heads: ClassVar[LineHeads | None] = LineHeads("system", "user", "assistant", "tool", lists="conversation")

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for message in conversation %}{% if not loop.first %}\n{% endif %}"
            "{{ message.role }}: {{ message }}{% endfor %}"
        ),
        kw_only=False,
    )


class RecalledPrompt(BasePrompt):
    """The recalled messages of earlier conversations, each with who wrote it and when.

    Under a budget the last go first.
    """

    heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, sign="[", lists="recalled")
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
    """The recalled documents, each with its label and its title. Under a budget the last go first."""

    heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, sign="[", lists="documents")
    items: ClassVar[str | None] = "documents"

    size: Size = Size(cut="items", priority=30)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for document in documents %}{% if not loop.first %}\n\n{% endif %}"
            "[{{ document.label }}]{% if document.title %} {{ document.title }}{% endif %}\n{{ document.text }}"
            "{% if document.image %}\n{{ document.image }}{% endif %}{% endfor %}"
        ),
        kw_only=False,
    )

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the documents, those with the same label with a hash each."""
        return super().render(_with_own_labels(ctx))

    def render_items(self, ctx: PromptContext, kept: int) -> Rendered:
        """Render the first `kept` documents only."""
        return super().render_items(_with_own_labels(ctx), kept)

    @property
    def reads(self) -> frozenset[str] | None:
        """What the template names."""
        plain = type(self).render is MemoPrompt.render and self._shows_context
        return frozenset(self.template.names) | {"locale"} if plain and self.template.params_schema is None else None


class KnowledgePrompt(BasePrompt):
    """The recalled facts, one a line. Under a budget the last go first."""

    heads: ClassVar[LineHeads | None] = LineHeads(pattern=rf"(?:{_BULLET}|{_ITEM})", lists="knowledge")
    items: ClassVar[str | None] = "knowledge"

    size: Size = Size(cut="items", priority=40)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for fact in knowledge %}{% if not loop.first %}\n{% endif %}- {{ fact.text }}{% endfor %}"
        ),
        kw_only=False,
    )


class SummaryPrompt(BasePrompt):
    """The summary of the messages that are not shown; nothing without a summary."""

    heads: ClassVar[LineHeads | None] = LineHeads(pattern=_ITEM, lists="summary")

    size: Size = Size(cut="head", priority=45)

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% if summary %}Summary of the conversation until here:\n{{ summary }}{% endif %}"
        ),
        kw_only=False,
    )

    def _listed(self, values: Mapping[str, Any]) -> None:
        """It is text, and lists nothing."""


class ToolPrompt(BasePrompt):
    """The tools as text, one JSON object a line, for models that take no tool specs.

    Raises:
        TemplateError: A template of your own does not read `tools`.
    """

    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for tool in tools %}{% if not loop.first %}\n{% endif %}{{ tool.json }}{% endfor %}"
        ),
        kw_only=False,
    )

    def _check(self) -> None:
        super()._check()
        if "tools" not in self.template.names and self.reads is not None:
            raise TemplateError(
                f"{self.label}: its template does not read `tools`, so no tool would be shown: leave it empty, which "
                "lists them, or write {{ tools }} where they are to stand",
                file=self.template.file,
            )
