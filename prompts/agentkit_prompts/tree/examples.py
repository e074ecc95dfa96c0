"""`ExamplesPrompt`, and the selectors that choose which worked examples a turn shows."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast, runtime_checkable

from pydantic import Field

from agentkit_prompts.context.prompt_context import Example, PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.size import Size
from agentkit_prompts.tree.leaves import default_template
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit_prompts.tree.layers import Layers

__all__ = ["ExampleSelector", "ExamplesPrompt", "StaticSelector", "prepare", "selecting"]


@runtime_checkable
class ExampleSelector(Protocol):
    """Chooses whole examples for a query, best or first first, always the same ones for the same input.

    One that may wait without awaiting says so with an attribute `blocking = True`: `prepare` calls it in a thread.
    """

    def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example] | Awaitable[Sequence[Example]]:
        """Return some of `examples`, or an awaitable of them."""
        ...


class StaticSelector:
    """Always the first `k` examples, or those with the given ids, in that order."""

    def __init__(self, k: int | None = None, *, ids: Sequence[str] | None = None) -> None:
        if k is not None and k < 0:
            raise PromptError(f"StaticSelector: k must not be negative, got {k}")
        self.k = k
        self.ids = tuple(ids) if ids is not None else None

    def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
        """Return the chosen examples; ids that are not there are an error."""
        if self.ids is not None:
            known = {example.id: example for example in examples}
            missing = [name for name in self.ids if name not in known]
            if missing:
                raise PromptError(f"StaticSelector: no example has the id {', '.join(map(repr, missing))}")
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
        ),
        kw_only=False,
    )

    def _check(self) -> None:
        super()._check()
        if self.examples and type(self.selector) is StaticSelector:
            self.selector.select("", self.examples)  # ids that are not there are found now rather than later

    @property
    def reads(self) -> frozenset[str] | None:
        """A static selector looks at nothing but the pool; any other also at the user input."""
        if type(self).render is not BasePrompt.render or type(self).values is not ExamplesPrompt.values:
            return None
        reads = frozenset(self.template.names) | {"locale", "examples"}
        return reads if type(self.selector) is StaticSelector else reads | {"user_input"}

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """The context, with the selected examples as `examples`."""
        chosen = self.chosen(ctx)
        return ctx.view if chosen is ctx.examples else {**ctx.view, "examples": chosen}

    def chosen(self, ctx: PromptContext) -> tuple[Example, ...]:
        """Return the selected examples, selecting once per context.

        Raises:
            PromptError: The selector failed, or has to be awaited and `prepare` was not called.
        """
        pool = self.pool(ctx)
        selector = self.selector
        if type(selector) is StaticSelector and selector.k is None and selector.ids is None:
            return pool
        query = ctx.user_input.text
        selections = _selections(ctx)
        known = selections.get(id(self))
        if known is not None and known.answers(self, query, pool):
            return known.chosen
        selected = _select(selector, query, pool)
        if isinstance(selected, Awaitable):
            give_up = getattr(selected, "close", None) or getattr(selected, "cancel", None)
            if give_up is not None:
                give_up()
            raise PromptError(
                f"{type(selector).__name__} has to be awaited: render with the context that "
                "`await prepare(layers, ctx)` returns, as Chain.run and Agent.run do"
            )
        chosen = _checked(selector, selected)
        selections[id(self)] = _Selection(self, query, pool, chosen)
        return chosen

    def pool(self, ctx: PromptContext) -> tuple[Example, ...]:
        """Return the examples there are to choose from."""
        return self.examples or ctx.examples

    def render_items(self, ctx: PromptContext, kept: int) -> Rendered:
        """Render the first `kept` selected examples; they are not selected again."""
        chosen = self.chosen(ctx)[:kept]
        update = {"examples": chosen, "selector": StaticSelector()}
        return self.model_copy(update=update).render(ctx.evolve(examples=chosen))


class _Selection(NamedTuple):
    """What a prompt chose, and for what."""

    prompt: ExamplesPrompt
    query: str
    pool: tuple[Example, ...]
    chosen: tuple[Example, ...]

    def answers(self, prompt: ExamplesPrompt, query: str, pool: tuple[Example, ...]) -> bool:
        return self.prompt is prompt and self.query == query and self.pool is pool


_KEPT = "_selections"
"""Where a context keeps what was selected, by id of the prompt: beside its fields, so that `evolve` hands it on."""


def _selections(ctx: PromptContext) -> dict[int, _Selection]:
    selections: dict[int, _Selection] = vars(ctx).setdefault(_KEPT, {})
    return selections


def selecting(layers: Layers) -> tuple[ExamplesPrompt, ...]:
    """Return the prompts of `layers` whose selector looks at the query; found once per layers."""
    known: tuple[ExamplesPrompt, ...] | None = vars(layers).get("_selecting")
    if known is None:
        prompts = [prompt for _, prompt in layers.walk() if isinstance(prompt, ExamplesPrompt)]
        found = {id(prompt): prompt for prompt in prompts if type(prompt.selector) is not StaticSelector}
        known = vars(layers)["_selecting"] = tuple(found.values())
    return known


async def prepare(layers: Layers, ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the examples of every prompt of `layers` selected, awaiting selectors that need it.

    Selectors that may block run in a thread, all of them at the same time. Contexts that evolve from the returned one
    keep what was selected, as long as the text of the input and the pool stay the same.

    Raises:
        PromptError: A selector failed.
    """
    if not selecting(layers):
        return ctx
    import asyncio

    query, known = ctx.user_input.text, _selections(ctx)

    async def selection(prompt: ExamplesPrompt) -> _Selection:
        selector, pool = prompt.selector, prompt.pool(ctx)
        before = known.get(id(prompt))
        if before is not None and before.answers(prompt, query, pool):
            return before
        if getattr(selector, "blocking", False):
            selected = await asyncio.to_thread(_select, selector, query, pool)
        else:
            selected = _select(selector, query, pool)
        if isinstance(selected, Awaitable):
            try:
                selected = await selected
            except PromptError:
                raise
            except Exception as error:
                raise _failed(selector, error) from error
        return _Selection(prompt, query, pool, _checked(selector, selected))

    found = await asyncio.gather(*[selection(prompt) for prompt in selecting(layers)], return_exceptions=True)
    for item in found:
        if isinstance(item, BaseException):
            raise item
    prepared = ctx.evolve()  # with selections of its own: what `ctx` was prepared for stays as it is
    vars(prepared)[_KEPT] = known | {id(item.prompt): item for item in cast(list[_Selection], found)}
    return prepared


def _select(
    selector: ExampleSelector, query: str, pool: tuple[Example, ...]
) -> Sequence[Example] | Awaitable[Sequence[Example]]:
    try:
        return selector.select(query, pool)
    except PromptError:
        raise
    except Exception as error:
        raise _failed(selector, error) from error


def _checked(selector: ExampleSelector, selected: object) -> tuple[Example, ...]:
    if not isinstance(selected, Sequence) or not all(isinstance(item, Example) for item in selected):
        got = type(selected).__name__
        raise PromptError(f"{type(selector).__name__}: expected select to return a sequence of Example, got {got}")
    return tuple(selected)


def _failed(selector: ExampleSelector, error: Exception) -> PromptError:
    return PromptError(f"{type(selector).__name__}: could not select examples: {type(error).__name__}: {error}")
