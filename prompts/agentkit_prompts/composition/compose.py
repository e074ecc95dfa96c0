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
from agentkit_prompts.composition.inputs import are_same, lasting
from agentkit_prompts.composition.memo import Memo, Remembered
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
    for block in plan.blocks:
        try:
            if memo is not None:
                sections[block.slot] = _remembered_section(block, ctx, memo)
            else:
                sections[block.slot] = Section([_fragment(step, ctx) for step in block.steps], block.name)
        except Exception:
            # A prompt fails at its first missing kwarg, and a custom class with any exception. The caller should read
            # about all missing kwargs of all prompts at once.
            layers.check_kwargs(ctx.user_input.additional_kwargs)
            raise
    return sections


def _fragment(step: Step, ctx: PromptContext) -> Fragment:
    try:
        return Fragment(step.path, step.prompt, render_prompt(step.prompt, ctx))
    except PromptError as error:
        raise error.at(step.path) from error.__cause__


def _remembered_section(block: Block, ctx: PromptContext, memo: Memo) -> Section:
    """Return the rendering of one message: that of the turn before if its inputs are the same, or a new one."""
    inputs = block.read(ctx)
    earlier = memo.messages.get(block.slot)
    if earlier is None:
        fragments = [_fragment(step, ctx) for step in block.steps]
        fragment_inputs = [lasting(step.read(ctx)) for step in block.steps]
    elif are_same(inputs, earlier.inputs):
        return earlier.section
    else:
        fragments = []
        fragment_inputs = []
        # The plan is the same as in the turn before, so the fragments are those of the same prompts.
        for step, fragment, earlier_inputs in zip(
            block.steps, earlier.section.fragments, earlier.fragment_inputs, strict=True
        ):
            own = step.read(ctx)
            if are_same(own, earlier_inputs):
                own = earlier_inputs
            else:
                fragment = _fragment(step, ctx)
                own = lasting(own)
            fragments.append(fragment)
            fragment_inputs.append(own)
    section = Section(fragments, block.name)
    memo.messages[block.slot] = Remembered(section, lasting(inputs), fragment_inputs)
    return section


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
