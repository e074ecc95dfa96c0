"""Choosing worked examples before a prompt is rendered: once per composition, awaiting selectors that need it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from operator import is_

from agentkit_prompts.composition.plan import PlacedSelector, plan_of
from agentkit_prompts.context.items import Selection
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.system.daemon_threads import DaemonThreads
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.layers import Layers

__all__ = ["needs_selection", "prepare", "select"]

_GRACE = 2.0
"""Seconds that selectors have to end after they are cancelled."""


def needs_selection(layers: Layers) -> bool:
    """True if a selector of these layers looks at the query, so that `prepare` has work to do."""
    return bool(plan_of(layers).selecting)


def select(prompts: Iterable[PlacedSelector], ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the examples of `prompts` selected.

    Raises:
        PromptError: A selector failed, or has to be awaited and `prepare` was not called.
    """
    made: list[Selection] = []
    for path, prompt in prompts:
        try:
            made.append(prompt.selected(ctx, path) or prompt.select(ctx, path))
        except PromptError as error:
            raise error.at(path) from error.__cause__
    return _with(ctx, made)


async def prepare(layers: Layers, ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the examples of every prompt of `layers` selected, awaiting selectors that need it.

    Selectors that may block run in a thread, all of them at the same time. What was selected is in
    `PromptContext.selections`; it is used as long as the text of the input and the pool stay the same.

    Raises:
        PromptError: A selector failed.
    """

    async def selection(path: str, prompt: ExamplesPrompt) -> Selection:
        known = prompt.selected(ctx, path)
        if known is not None:
            return known
        if getattr(prompt.selector, "blocking", False):
            found = await asyncio.wrap_future(DaemonThreads(1, "agentkit-select").submit(partial(prompt.ask, ctx)))
        else:
            found = prompt.ask(ctx)
        if isinstance(found, Awaitable):
            with prompt.failing():
                found = await found
        return prompt.selection(ctx, path, found)

    selecting = plan_of(layers).selecting
    if not selecting:
        return ctx
    first, *others = [selection(*placed) for placed in selecting]
    tasks = [asyncio.ensure_future(one) for one in others]
    try:
        # The first needs no task: a cancellation of the caller reaches its selector directly.
        made = [await first]
        return _with(ctx, made + [await task for task in tasks])
    except BaseException:
        for task in tasks:
            task.cancel()
        if tasks:
            for task in (await asyncio.wait(tasks, timeout=_GRACE))[0]:
                # asyncio logs an exception of a task that was never read.
                _ = task.cancelled() or task.exception()
        raise


def _with(ctx: PromptContext, made: Iterable[Selection]) -> PromptContext:
    """Return `ctx` with these selections, and those it has of other prompts."""
    made = tuple(made)
    paths = {item.prompt for item in made}
    selections = (*[item for item in ctx.selections if item.prompt not in paths], *made)
    same = len(selections) == len(ctx.selections) and all(map(is_, selections, ctx.selections))
    if same:
        return ctx
    return ctx.evolve(selections=selections)
