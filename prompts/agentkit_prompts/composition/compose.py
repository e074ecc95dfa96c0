"""`compose`: layers and a context become a composition.

Fragments are memoised by the identity of the inputs they read, in a `Memo` that belongs to one session, so a turn
costs what is new in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.contents import TextTokens
from agentkit_prompts.composition.declarations import Declarations, OutputRequest
from agentkit_prompts.composition.memo import Memo
from agentkit_prompts.composition.plan import Block, Plan, Step, plan_of
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

__all__ = ["Memo", "compose"]


def compose(
    layers: Layers,
    ctx: PromptContext,
    *,
    budget: int | Budget | None = None,
    tokenizer: TokenCounter | None = None,
    memo: Memo | None = None,
    output_schema: OutputRequest | JsonSchema | None = None,
    declares_tools: bool = True,
    text_tokens: TextTokens | None = None,
) -> Composition:
    """Render `layers` over `ctx` into everything that would be sent.

    Args:
        layers: Which prompts go where.
        ctx: The values that the prompts are rendered from.
        budget: Maximum tokens of the composition; prompts are cut as their `size` allows.
        tokenizer: Counts tokens; a fast estimate if not given.
        memo: Fragments of earlier turns of the same session, reused if their inputs are the same objects.
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
    _check_arguments(layers, ctx, budget, tokenizer)
    plan = plan_of(layers)
    if plan.selecting:
        ctx = select(plan.selecting, ctx)
    sections = _sections(plan, layers, ctx, memo)
    tools: tuple[ToolSpec, ...] = ()
    if declares_tools:
        tools = ctx.tools
    declarations = memo.declarations(tools, output_schema) if memo is not None else Declarations(tools, output_schema)
    composition = Composition(ctx, layers, sections, tokenizer or ESTIMATE, declarations, text_tokens)
    if isinstance(budget, int):
        budget = _budget(budget)
    return _fit(composition, plan, budget)


@lru_cache(maxsize=64)
def _budget(limit: int) -> Budget:
    """Return the budget of a limit. A session has the same limit every turn."""
    return Budget(limit)


def _check_arguments(
    layers: Layers, ctx: PromptContext, budget: int | Budget | None, tokenizer: TokenCounter | None
) -> None:
    # The comparison of types is true for every correct call; the check with a message takes ten times as long.
    if type(layers) is not Layers or type(ctx) is not PromptContext:
        check_types(
            PromptError, "compose", layers=(layers, Layers, "Layers"), ctx=(ctx, PromptContext, "a PromptContext")
        )
    if tokenizer is not None and not is_counter(tokenizer):
        raise PromptError(f"compose: tokenizer: {COUNTER_EXPECTED}, got {tokenizer!r:.60}", name="tokenizer")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | Budget)):
        got = type(budget).__name__
        raise PromptError(f"budget: expected a number of tokens or a Budget, got {got}", name="budget", value=got)


def _sections(plan: Plan, layers: Layers, ctx: PromptContext, memo: Memo | None) -> list[Section]:
    """Return the rendering of each message, by its slot."""
    sections = [EMPTY, EMPTY, EMPTY]
    if memo is not None:
        memo.start(plan)
    try:
        for block in plan.blocks:
            sections[block.slot] = _section(block, ctx, memo)
    except Exception:
        # A prompt fails at its first missing kwarg, and a custom class with any exception. The caller should read about
        # all missing kwargs of all prompts at once.
        layers.check_kwargs(ctx.user_input.additional_kwargs)
        raise
    return sections


def _section(block: Block, ctx: PromptContext, memo: Memo | None) -> Section:
    """Return the rendering of one message: a remembered one if its inputs are the same, or a new one."""
    if memo is None or block.read is None:
        return Section([_fragment(step, ctx, memo) for step in block.steps], block.name)
    inputs = block.read(ctx)
    section: Section | None = memo.find(block.name, inputs)
    if section is None:
        section = Section([_fragment(step, ctx, memo) for step in block.steps], block.name)
        memo.keep(block.name, inputs, section)
    return section


def _fragment(step: Step, ctx: PromptContext, memo: Memo | None) -> Fragment:
    """Return the rendering of one prompt: a remembered one if its inputs are the same, or a new one."""
    path, prompt, read = step
    inputs = None
    if memo is not None and read is not None:
        inputs = read(ctx)
        fragment: Fragment | None = memo.find(path, inputs)
        if fragment is not None:
            return fragment
    try:
        fragment = Fragment(path, prompt, render_prompt(prompt, ctx))
    except PromptError as error:
        raise error.at(path) from error.__cause__
    if memo is not None and inputs is not None:
        memo.keep(path, inputs, fragment)
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
