"""Selection of worked examples before the prompts are rendered, also by async selectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from operator import is_
from typing import Any, cast

from agentkit_prompts.composition.plan import SelectingPrompt, plan_of
from agentkit_prompts.context.items import Selection
from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.errors import PromptError
from agentkit_prompts.hints import with_option_hints
from agentkit_prompts.system.threads import Threads
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.layers import Layers

_GRACE = 2.0
"""Seconds to wait for cancelled selectors."""


def needs_selection(layers: Layers) -> bool:
    """True if a selector of these layers reads the query; otherwise `select_examples` has no effect."""
    return bool(plan_of(layers).selecting_prompts)


def select(prompts: Iterable[SelectingPrompt], ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the selected examples of `prompts`.

    Raises:
        PromptError: A selector failed; or a selector is async and `select_examples` was not called before.
    """
    selections: list[Selection] = []
    for path, prompt in prompts:
        try:
            selections.append(prompt.selected(ctx, path) or prompt.select(ctx, path))
        except PromptError as error:
            raise error.at(path) from error.__cause__
    return _with(ctx, selections)


@with_option_hints
async def select_examples(layers: Layers, ctx: PromptContext) -> PromptContext:
    """Return `ctx` with the selected examples of all prompts of `layers`, also of async selectors.

    All selectors run concurrently, blocking selectors in threads. The examples are stored in
    `PromptContext.selections`, and are valid while the text of the input and the available examples stay the same.

    Raises:
        PromptError: A selector failed.
    """
    selecting_prompts = plan_of(layers).selecting_prompts
    if not selecting_prompts:
        return ctx
    first, *rest = [_selection(ctx, *placed) for placed in selecting_prompts]
    tasks = [asyncio.ensure_future(_outcome(selection)) for selection in rest]
    try:
        # The first selector runs in the task of the caller, which can abandon a selector that ignores its cancellation.
        selections = [await first]
        for task in tasks:
            selection, error = await task
            if error is not None:
                raise error
            selections.append(cast(Selection, selection))
        return _with(ctx, selections)
    except BaseException:
        await _cancel(tasks)
        raise


async def _outcome(code: Coroutine[Any, Any, Selection]) -> tuple[Selection | None, BaseException | None]:
    """Return a selection and None, or None and an exception that a task would also raise from the event loop."""
    try:
        return await code, None
    except (KeyboardInterrupt, SystemExit) as error:
        return None, error


async def _cancel(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait `_GRACE` seconds for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        for task in (await asyncio.wait(tasks, timeout=_GRACE))[0]:
            # Read the exception, because asyncio logs an exception that was never read.
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
        with prompt.naming_selector():
            answer = await answer
    return prompt.selection(ctx, path, answer)


def _with(ctx: PromptContext, new: Sequence[Selection]) -> PromptContext:
    """Return `ctx` with new selections, which replace earlier selections of the same prompts."""
    paths = {selection.prompt for selection in new}
    selections = (*[selection for selection in ctx.selections if selection.prompt not in paths], *new)
    if len(selections) == len(ctx.selections) and all(map(is_, selections, ctx.selections)):
        return ctx
    return ctx.evolve(selections=selections)
