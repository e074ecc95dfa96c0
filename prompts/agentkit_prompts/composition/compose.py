"""`compose`: layers and a context become a composition.

A `RenderCache` of one session stores fragments by the identity of the inputs they read, so that a turn renders new
fragments only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.contents import TextTokens
from agentkit_prompts.composition.declarations import Declarations, OutputRequest
from agentkit_prompts.composition.plan import Block, Plan, Step, plan_of
from agentkit_prompts.composition.render_cache import RenderCache
from agentkit_prompts.composition.sections import EMPTY, Fragment, Section
from agentkit_prompts.composition.select_examples import select
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.errors import PromptError, check_types
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import COUNTER_EXPECTED, ESTIMATE, TokenCounter, is_counter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.prompt import render_prompt

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["RenderCache", "compose"]


def compose(
    layers: Layers,
    ctx: PromptContext,
    *,
    budget: int | Budget | None = None,
    counter: TokenCounter | None = None,
    cache: RenderCache | None = None,
    output_schema: OutputRequest | JsonSchema | None = None,
    declares_tools: bool = True,
    text_tokens: TextTokens | None = None,
) -> Composition:
    """Render `layers` over `ctx` into everything that would be sent.

    Args:
        layers: Which prompts go where.
        ctx: The values that the prompts are rendered from.
        budget: Maximum tokens of the composition; prompts are cut as their `size` allows.
        counter: Counts tokens; a fast estimate if not given.
        cache: Fragments of earlier turns of the same session, reused if their inputs are the same objects.
        output_schema: JSON Schema of the answer, for targets that can request it from the model; or the form of the
            request.
        declares_tools: False if a prompt shows the tools and the model has no other place for them: then they are
            neither sent nor counted a second time.
        text_tokens: Counts the text that is sent, if a chat template writes it: that has to fit the budget.

    Raises:
        PromptError: An argument is of another type, or a prompt cannot be rendered: names prompt path, file, line and
            variable.
        KwargsError: Additional kwargs are missing or invalid; names all of them.
        BudgetError: What must be sent does not fit; names every minimum.
    """
    _check_arguments(layers, ctx, budget, counter)
    plan = plan_of(layers)
    if plan.selecting:
        ctx = select(plan.selecting, ctx)
    sections = _sections(plan, layers, ctx, cache)
    tools: tuple[ToolSpec, ...] = ()
    if declares_tools:
        tools = ctx.tools
    declarations = cache.declarations(tools, output_schema) if cache is not None else Declarations(tools, output_schema)
    composition = Composition(ctx, layers, sections, counter or ESTIMATE, declarations, text_tokens)
    if isinstance(budget, int):
        budget = _budget(budget)
    return _fit(composition, plan, budget)


@lru_cache(maxsize=64)
def _budget(limit: int) -> Budget:
    """Return the budget of a limit. A session has the same limit every turn."""
    return Budget(limit)


def _check_arguments(
    layers: Layers, ctx: PromptContext, budget: int | Budget | None, counter: TokenCounter | None
) -> None:
    # The comparison of types is true for every correct call; the check with a message takes ten times as long.
    if type(layers) is not Layers or type(ctx) is not PromptContext:
        check_types(
            PromptError, "compose", layers=(layers, Layers, "Layers"), ctx=(ctx, PromptContext, "a PromptContext")
        )
    if counter is not None and not is_counter(counter):
        raise PromptError(f"compose: counter: {COUNTER_EXPECTED}, got {counter!r:.60}", name="counter")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | Budget)):
        got = type(budget).__name__
        raise PromptError(f"budget: expected a number of tokens or a Budget, got {got}", name="budget", value=got)


def _sections(plan: Plan, layers: Layers, ctx: PromptContext, cache: RenderCache | None) -> list[Section]:
    """Return the rendering of each message, by its slot."""
    sections = [EMPTY, EMPTY, EMPTY]
    if cache is not None:
        cache.start(plan)
    try:
        for block in plan.blocks:
            sections[block.slot] = _section(block, ctx, cache)
    except Exception:
        # A prompt fails at its first missing kwarg, and a custom class with any exception. The caller should read about
        # all missing kwargs of all prompts at once.
        layers.check_kwargs(ctx.user_input.additional_kwargs)
        raise
    return sections


def _section(block: Block, ctx: PromptContext, cache: RenderCache | None) -> Section:
    """Return the rendering of one message: a remembered one if its inputs are the same, or a new one."""
    if cache is None or block.read is None:
        return Section([_fragment(step, ctx, cache) for step in block.steps], block.name)
    inputs = block.read(ctx)
    section: Section | None = cache.find(block.name, inputs)
    if section is None:
        section = Section([_fragment(step, ctx, cache) for step in block.steps], block.name)
        cache.keep(block.name, inputs, section)
    return section


def _fragment(step: Step, ctx: PromptContext, cache: RenderCache | None) -> Fragment:
    """Return the rendering of one prompt: a remembered one if its inputs are the same, or a new one."""
    path, prompt, read = step
    inputs = None
    if cache is not None and read is not None:
        inputs = read(ctx)
        fragment: Fragment | None = cache.find(path, inputs)
        if fragment is not None:
            return fragment
    try:
        fragment = Fragment(path, prompt, render_prompt(prompt, ctx))
    except PromptError as error:
        raise error.at(path) from error.__cause__
    if cache is not None and inputs is not None:
        cache.keep(path, inputs, fragment)
    return fragment


def _fit(composition: Composition, plan: Plan, budget: Budget | None) -> Composition:
    """Return the composition, cut if a budget or the `max` of a prompt requires it."""
    # Most compositions fit, which one comparison shows. The search for cuts is imported when it is needed.
    if not plan.has_maximum:
        if budget is None:
            return composition
        if composition.tokens <= budget.tokens:
            composition.budget = budget
            return composition
    from agentkit_prompts.composition.fit_budget import Fitting

    return Fitting(composition, budget).result()
