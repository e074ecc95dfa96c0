"""`ExamplesPrompt`, and the selectors that choose which worked examples a turn shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import Field

from agentkit_prompts.base import BasePrompt
from agentkit_prompts.budget import Size
from agentkit_prompts.context import Example, PromptContext
from agentkit_prompts.leaves import default_template
from agentkit_prompts.rendered import Rendered
from agentkit_prompts.template import Template

__all__ = ["ExampleSelector", "ExamplesPrompt", "StaticSelector"]


@runtime_checkable
class ExampleSelector(Protocol):
    """Chooses whole examples for a query, best or first first, always the same ones for the same input."""

    def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example]:
        """Return some of `examples`."""
        ...


class StaticSelector:
    """Always the first `k` examples, or those with the given ids, in that order."""

    def __init__(self, k: int | None = None, *, ids: Sequence[str] | None = None) -> None:
        if k is not None and k < 0:
            raise ValueError(f"StaticSelector: k must not be negative, got {k}")
        self.k = k
        self.ids = tuple(ids) if ids is not None else None

    def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
        """Return the chosen examples; ids that are not there are an error."""
        if self.ids is not None:
            known = {example.id: example for example in examples}
            missing = [name for name in self.ids if name not in known]
            if missing:
                raise ValueError(f"StaticSelector: no example has the id {', '.join(map(repr, missing))}")
            chosen = tuple(known[name] for name in self.ids)
        else:
            chosen = tuple(examples)
        return chosen if self.k is None else chosen[: self.k]


class ExamplesPrompt(BasePrompt):
    """Worked examples: its own, or those of the context, narrowed by the selector for this user input.

    Under a budget the last selected go first, input and output together.
    """

    items: ClassVar[str | None] = "examples"

    size: Size = Size(cut="items", priority=20)
    examples: tuple[Example, ...] = ()
    """The pool to choose from; the examples of the context when empty."""
    selector: ExampleSelector = Field(default_factory=StaticSelector)
    """Which of them to show."""
    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for example in examples %}{% if not loop.first %}\n\n{% endif %}"
            "Input: {{ example.input }}\nOutput: {{ example.output }}{% endfor %}"
        )
    )

    @property
    def reads(self) -> frozenset[str] | None:
        """A static selector looks at nothing but the pool; any other also at the user input."""
        if type(self).render is not BasePrompt.render or type(self).values is not ExamplesPrompt.values:
            return None
        reads = frozenset(self.template.names) | {"locale", "examples"}
        return reads if type(self.selector) is StaticSelector else reads | {"user_input"}

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """The context, with the selected examples as `examples`."""
        pool = self.examples or ctx.examples
        if type(self.selector) is StaticSelector and self.selector.k is None and self.selector.ids is None:
            chosen = pool
        else:
            chosen = tuple(self.selector.select(ctx.user_input.text, pool))
        return ctx.view if chosen is ctx.examples else {**ctx.view, "examples": chosen}

    def render_items(self, ctx: PromptContext, kept: int) -> Rendered:
        """Render the first `kept` selected examples; they are not selected again."""
        values = self.values(ctx)
        return self.template.run({**values, "examples": values["examples"][:kept]}, locale=ctx.locale)
