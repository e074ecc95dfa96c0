"""`ExamplesPrompt`, and the selectors that choose which worked examples a turn shows."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Unpack, runtime_checkable

from pydantic import Field, field_validator

from agentkit_prompts.context.items import Selection, hash_of
from agentkit_prompts.context.prompt_context import Example, PromptContext
from agentkit_prompts.errors import Problem, Problems, PromptError, SelectorError, kind_of, raise_problems
from agentkit_prompts.ranking.embedder import give_up
from agentkit_prompts.templates.line_heads import LineHeads
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.leaves import default_template
from agentkit_prompts.tree.prompt import BasePrompt, has_own_code

if TYPE_CHECKING:
    from agentkit_prompts.tree.prompt import PromptOptions


@runtime_checkable
class ExampleSelector(Protocol):
    """Selector of examples for a query. Equal arguments must give equal results.

    A selector that blocks its thread sets `blocking = True`, so that `select_examples` calls it in a separate thread.
    """

    def select(self, query: str, examples: Sequence[Example]) -> Sequence[Example] | Awaitable[Sequence[Example]]:
        """Return the examples to show, in the order of the prompt, or an awaitable of these examples."""
        ...


class StaticSelector:
    """Selector of the first `k` examples: of all examples, or of the examples with `ids` in the order of the ids.

    If `k` is None, all are selected.
    """

    def __init__(self, k: int | None = None, *, ids: Sequence[str] | None = None) -> None:
        problems = _problems_of_count(k) + _problems_of_ids(ids)
        names = dict.fromkeys([problem.place.partition("[")[0] for problem in problems])
        value = None
        if isinstance(k, int) and k < 0:
            value = k
        raise_problems(PromptError, "StaticSelector", problems, name=", ".join(names), value=value)
        self.k = k
        self.ids: tuple[str, ...] | None = None
        if ids is not None:
            self.ids = tuple(ids)

    def select(self, query: str, examples: Sequence[Example]) -> tuple[Example, ...]:
        """Return the chosen examples.

        Raises:
            PromptError: No example has one of the `ids`; names all such ids.
        """
        if self.ids is not None:
            examples_by_id = {example.id: example for example in examples}
            missing = [name for name in self.ids if name not in examples_by_id]
            if missing:
                raise PromptError(
                    f"StaticSelector: no example has the id {', '.join(map(repr, missing))}",
                    name="ids",
                    value=", ".join(map(str, missing)),
                )
            chosen = tuple(examples_by_id[name] for name in self.ids)
        else:
            chosen = tuple(examples)
        return chosen[: self.k]


def _problems_of_count(k: object) -> Problems:
    if k is None or (type(k) is int and k >= 0):
        return []
    return [Problem("k", f"expected a whole number of 0 or more, got {kind_of(k)}")]


def _problems_of_ids(ids: object) -> Problems:
    if ids is None:
        return []
    if not isinstance(ids, list | tuple):
        return [Problem("ids", f"expected a list of ids, got {kind_of(ids)}")]
    wrong = [(index, name) for index, name in enumerate(ids) if not isinstance(name, str)]
    return [Problem(f"ids[{index}]", f"expected text, got {kind_of(name)}") for index, name in wrong]


class ExamplesPrompt(BasePrompt):
    """Worked examples of the prompt or of the context, which the selector chooses for the input of the user.

    A budget removes whole examples, the last selected example first.
    """

    _positional: ClassVar[tuple[str, ...]] = ("examples", "template")
    _heads: ClassVar[LineHeads | None] = LineHeads("input", "output", per_item=2)
    items: ClassVar[str | None] = "examples"

    size: Size = Size(cut="items", priority=20)
    examples: tuple[Example, ...] = ()
    """Examples from which the selector chooses; if empty, the examples of the context."""
    selector: ExampleSelector = Field(default_factory=StaticSelector)
    """Selector of the examples to show."""
    template: Template = Field(
        default_factory=lambda: default_template(
            "{% for example in examples %}{% if not loop.first %}\n\n{% endif %}"
            "Input: {{ example.input }}\nOutput: {{ example.output }}{% endfor %}"
        ),
        kw_only=False,
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            examples: Iterable[Example | tuple[str, str]] = ...,
            template: str | Mapping[str, str] | Template = ...,
            *,
            selector: ExampleSelector = ...,
            **options: Unpack[PromptOptions],
        ) -> None: ...

    @field_validator("examples", mode="before")
    @classmethod
    def _from_pairs(cls, examples: object) -> object:
        """Replace pairs of an input and an output by examples."""
        if isinstance(examples, str | Mapping) or not isinstance(examples, Iterable):
            return examples
        return [Example(*item) if isinstance(item, tuple) and len(item) == 2 else item for item in examples]

    def _check(self) -> None:
        super()._check()
        if self.examples and type(self.selector) is StaticSelector:
            # An unknown id raises an error here, not in the first turn.
            self.selector.select("", self.examples)

    @property
    def reads(self) -> frozenset[str] | None:
        """Names of the context that the prompt reads; None if a subclass with custom code can read any name.

        A static selector reads only the examples; other selectors also read the input and earlier selections.
        """
        if has_own_code(self):
            return None
        reads = (self.template.reads - self.supplies) | {"examples"}
        if type(self.selector) is StaticSelector:
            return reads
        return reads | {"user_input", "selections"}

    def values(self, ctx: PromptContext) -> Mapping[str, Any]:
        """Return the template values: the context, with the selected examples as `examples`."""
        chosen = self.chosen(ctx)
        if chosen is ctx.examples:
            return ctx.view
        return {**ctx.view, "examples": chosen}

    def chosen(self, ctx: PromptContext) -> tuple[Example, ...]:
        """Return the selected examples: of a selection for this prompt in the context, else of a call of the selector.

        Raises:
            PromptError: The selector failed; or the selector is async and `select_examples` was not called before.
        """
        if type(self.selector) is StaticSelector:
            return self.selector.select("", self.pool(ctx))
        return (self.selected(ctx) or self.select(ctx)).chosen

    def selected(self, ctx: PromptContext, path: str | None = None) -> Selection | None:
        """Return the selection in the context for this prompt and input, or None. With a `path`, it is bound to this
        prompt.
        """
        query, pool = ctx.user_input.text, self.pool(ctx)
        for item in ctx.selections:
            if item.is_valid_for(path, self, query, pool):
                # Without a path, the selection can belong to an equal prompt, so it must not be bound to this prompt.
                if path is None:
                    return item
                return item.bound_to(self, pool)
        return None

    def select(self, ctx: PromptContext, path: str = "") -> Selection:
        """Return the selection of a call of the selector.

        Raises:
            PromptError: The selector failed, or must be awaited.
        """
        result = self.ask(ctx)
        if isinstance(result, Awaitable):
            give_up(result)
            selector = type(self.selector).__name__
            raise PromptError(
                f"{selector} must be awaited: render with the context that `await select_examples(layers, ctx)` "
                "returns, as Chain.run and Agent.run do",
                name=selector,
            )
        return self.selection(ctx, path, result)

    def ask(self, ctx: PromptContext) -> Sequence[Example] | Awaitable[Sequence[Example]]:
        """Call the selector without checking its result."""
        with self.naming_selector():
            return self.selector.select(ctx.user_input.text, self.pool(ctx))

    def selection(self, ctx: PromptContext, path: str, result: object) -> Selection:
        """Return a selection of the result of the selector, bound to this prompt.

        Raises:
            PromptError: The result is not a sequence of examples.
        """
        if not isinstance(result, Sequence) or not all(isinstance(item, Example) for item in result):
            selector, got = type(self.selector).__name__, type(result).__name__
            raise PromptError(
                f"{selector}: expected select to return a sequence of Example, got {got}", name=selector, value=got
            )
        pool = self.pool(ctx)
        return Selection(path, ctx.user_input.text, hash_of(pool), tuple(result)).bound_to(self, pool)

    @contextmanager
    def naming_selector(self) -> Iterator[None]:
        """Convert an exception in this context to a SelectorError; a PromptError is unchanged."""
        try:
            yield
        except PromptError:
            raise
        except Exception as error:
            selector = type(self.selector).__name__
            raise SelectorError(
                f"{selector}: could not select examples: {type(error).__name__}: {error}", name=selector
            ) from error

    def pool(self, ctx: PromptContext) -> tuple[Example, ...]:
        """Return the examples that the selector chooses from."""
        return self.examples or ctx.examples
