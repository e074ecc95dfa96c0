"""`compose`: layers and a context become a composition.

The `RenderCache` of a session stores each rendered prompt together with the context values that the prompt reads. In
the next turn, a prompt is rendered only if at least one of these values is not the same object as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from agentkit_prompts.composition.call_content import TextTokens
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.plan import Plan, PlannedMessage, PlannedPrompt, plan_of
from agentkit_prompts.composition.render_cache import RenderCache
from agentkit_prompts.composition.sections import EMPTY, Fragment, Section
from agentkit_prompts.composition.select_examples import select
from agentkit_prompts.composition.tools_and_output import OutputRequest, ToolsAndOutput
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec, UserInput
from agentkit_prompts.errors import PromptError, brief, check_types, kind_of
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import COUNTER_EXPECTED, ESTIMATE, TokenCounter, is_counter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt
from agentkit_prompts.tree.prompt import BasePrompt, render_prompt

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema

__all__ = ["RenderCache", "compose"]


@with_option_hints
def compose(
    layers: Layers | AnyPrompt | Sequence[AnyPrompt],
    ctx: PromptContext | UserInput | str,
    *,
    budget: int | Budget | None = None,
    counter: TokenCounter | None = None,
    cache: RenderCache | None = None,
    output_schema: OutputRequest | JsonSchema | None = None,
    declares_tools: bool = True,
    text_tokens: TextTokens | None = None,
) -> Composition:
    """Render `layers` with the values of `ctx` to the content of one model call.

    Args:
        layers: Layers; or a prompt or a list of prompts, which become the layer `system`. Create `Layers` for prompts
            that are composed more than once, because their plan is stored in the layers.
        ctx: Values for the prompts; or the input of the user, if the prompts read no other values.
        budget: Maximum tokens of the composition; prompts are cut according to their `size`.
        counter: Counter of tokens; a fast estimate if None.
        cache: Fragments of earlier turns of the same session, reused if their inputs are the same objects.
        output_schema: JSON Schema of the answer, for targets that can request it from the model; or an
            `OutputRequest`, which also contains the mode of the request.
        declares_tools: False if a prompt contains the tools as text, so that the request does not contain them, and
            their tokens are not counted twice.
        text_tokens: Function that counts the tokens of the text that a chat template writes; this text must fit the
            budget. None if no chat template is used.

    Raises:
        PromptError: An argument is of another type, or a prompt cannot be rendered; names the path of the prompt, the
            file, the line and the variable.
        KwargsError: Additional kwargs are missing or invalid; names all of them.
        BudgetError: The required parts exceed the budget; names each minimum.
    """
    # Most calls pass exactly these types. The comparison is ten times faster than the checks that build errors.
    if type(layers) is not Layers:
        layers = _layers(layers)
    if type(ctx) is not PromptContext:
        ctx = _context(ctx)
    _check_options(budget, counter, cache)
    plan = plan_of(layers)
    # Volatile text breaks the cache of a provider for the prefix of an earlier request; a first request has none.
    if not plan.is_checked and len(ctx.conversation):
        plan.warn_of_volatility(layers)
    plan.warn_of_unshown(layers, ctx)
    if plan.selecting_prompts:
        ctx = select(plan.selecting_prompts, ctx)
    sections = _sections(plan, layers, ctx, cache)
    tools: tuple[ToolSpec, ...] = ()
    if declares_tools:
        tools = ctx.tools
    if cache is None:
        tools_and_output = ToolsAndOutput(tools, output_schema)
    else:
        tools_and_output = cache.tools_and_output(tools, output_schema)
    counter = counter or ESTIMATE
    if ctx.clearing is None:
        composition = Composition(ctx, layers, sections, counter, tools_and_output, text_tokens)
    else:
        # Most programs clear no results.
        from agentkit_prompts.composition.cleared_results import cleared_histories

        conversation, intermediate = cleared_histories(ctx, layers, counter, cache)
        composition = Composition(
            ctx,
            layers,
            sections,
            counter,
            tools_and_output,
            text_tokens,
            conversation=conversation,
            intermediate=intermediate,
        )
    if isinstance(budget, int):
        budget = _budget(budget)
    return _fit(composition, plan, budget)


@lru_cache(maxsize=64)
def _budget(limit: int) -> Budget:
    """Return the budget of a limit, cached because all turns of a session have the same limit."""
    return Budget(limit)


def _layers(prompts: object) -> Layers:
    """Return the layers of the argument `layers`."""
    expected = "Layers, or a list of prompts"
    check_types(PromptError, "compose", layers=(prompts, (Layers, BasePrompt, Template, str, list, tuple), expected))
    if isinstance(prompts, Layers):
        return prompts
    return Layers(cast("Sequence[AnyPrompt]", prompts))


def _context(user_input: object) -> PromptContext:
    """Return the context of the argument `ctx`."""
    expected = "a PromptContext, or the text of the user"
    check_types(PromptError, "compose", ctx=(user_input, (PromptContext, UserInput, str), expected))
    if isinstance(user_input, PromptContext):
        return user_input
    return PromptContext(user_input=cast("UserInput | str", user_input))


def _check_options(budget: int | Budget | None, counter: TokenCounter | None, cache: RenderCache | None) -> None:
    if cache is not None and type(cache) is not RenderCache:
        check_types(PromptError, "compose", cache=(cache, RenderCache, "a RenderCache"))
    if counter is not None and not is_counter(counter):
        raise PromptError(f"compose: counter: {COUNTER_EXPECTED}, got {brief(counter)}", name="counter")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int | Budget)):
        received = kind_of(budget)
        raise PromptError(
            f"budget: expected a number of tokens or a Budget, got {received}", name="budget", value=received
        )


def _sections(plan: Plan, layers: Layers, ctx: PromptContext, cache: RenderCache | None) -> list[Section]:
    """Return the rendered messages, indexed by `PlannedMessage.slot`."""
    sections = [EMPTY, EMPTY, EMPTY]
    if cache is not None:
        cache.start(plan)
    try:
        for message in plan.messages:
            sections[message.slot] = _section(message, ctx, cache)
    except Exception:
        # A prompt fails at its first missing kwarg, and a custom class with any exception, but the caller should
        # receive the missing kwargs of all prompts at once.
        layers.check_kwargs(ctx.user_input.additional_kwargs)
        raise
    return sections


def _section(message: PlannedMessage, ctx: PromptContext, cache: RenderCache | None) -> Section:
    """Return the rendering of one message, from the cache if its inputs are the same objects."""
    if cache is None or message.read is None:
        return Section([_fragment(planned, ctx, cache) for planned in message.prompts], message.name)
    inputs = message.read(ctx)
    section: Section | None = cache.find(message.name, inputs)
    if section is None:
        section = Section([_fragment(planned, ctx, cache) for planned in message.prompts], message.name)
        cache.keep(message.name, inputs, section)
    return section


def _fragment(planned: PlannedPrompt, ctx: PromptContext, cache: RenderCache | None) -> Fragment:
    """Return the rendering of one prompt, from the cache if its inputs are the same objects."""
    path, prompt, read = planned
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
    # Most compositions fit, so the module that searches for cuts is imported only if a cut is necessary.
    if not plan.has_maximum:
        if budget is None:
            return composition
        if composition.tokens <= budget.tokens:
            composition.budget = budget
            return composition
    from agentkit_prompts.composition.fit_budget import Fitting

    return Fitting(composition, budget).result()
