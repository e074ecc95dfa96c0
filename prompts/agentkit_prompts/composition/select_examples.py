"""Selection of worked examples before a prompt is rendered: once per composition, also with async selectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from operator import is_
from typing import Any

from agentkit_prompts.composition.plan import PlacedSelector, plan_of
from agentkit_prompts.context.items import Selection
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.system.threads import Threads
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.layers import Layers

__all__ = ["needs_selection", "select", "select_examples"]

_GRACE = 2.0
"""Seconds for selectors to finish after their cancellation."""


def needs_selection(layers: Layers) -> bool:
    """True if a selector of these layers reads the query; otherwise `select_examples` has no effect."""
    return bool(plan_of(layers).selecting)


def select(prompts: Iterable[PlacedSelector], ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the examples of `prompts` selected.

    Raises:
        PromptError: A selector failed, or must be awaited and `select_examples` was not called.
    """
    selections: list[Selection] = []
    for path, prompt in prompts:
        try:
            selections.append(prompt.selected(ctx, path) or prompt.select(ctx, path))
        except PromptError as error:
            raise error.at(path) from error.__cause__
    return _with(ctx, selections)


async def select_examples(layers: Layers, ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the examples of every prompt of `layers` selected, also by async selectors.

    Blocking selectors run in threads, all selectors concurrently. The examples are in
    `PromptContext.selections`; they are used while the text of the input and the pool stay the same.

    Raises:
        PromptError: A selector failed.
    """
    selecting = plan_of(layers).selecting
    if not selecting:
        return ctx
    first, *rest = [_selection(ctx, *placed) for placed in selecting]
    tasks = [asyncio.ensure_future(selection) for selection in rest]
    try:
        # The first selector runs without a task: the caller can abandon it if it ignores its cancellation.
        selections = [await first, *[await task for task in tasks]]
        return _with(ctx, selections)
    except BaseException:
        await _cancel(tasks)
        raise


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait `_GRACE` seconds for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        for task in (await asyncio.wait(tasks, timeout=_GRACE))[0]:
            # asyncio logs an exception of a task that was never read.
            _ = task.cancelled() or task.exception()


async def _selection(ctx: PromptContext, path: str, prompt: ExamplesPrompt) -> Selection:
    selection = prompt.selected(ctx, path)
    if selection is not None:
        return selection
    if getattr(prompt.selector, "blocking", False):
        answer = await Threads(1, "agentkit-select").run(prompt.ask, ctx)
    else:
        answer = prompt.ask(ctx)
    if isinstance(answer, Awaitable):
        with prompt.failing():
            answer = await answer
    return prompt.selection(ctx, path, answer)


def _with(ctx: PromptContext, new: Sequence[Selection]) -> PromptContext:
    """Return `ctx` with these selections instead of the earlier selections of the same prompts."""
    paths = {selection.prompt for selection in new}
    selections = (*[selection for selection in ctx.selections if selection.prompt not in paths], *new)
    if len(selections) == len(ctx.selections) and all(map(is_, selections, ctx.selections)):
        return ctx
    return ctx.evolve(selections=selections)
