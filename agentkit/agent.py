"""`Agent`: a chain with tools, memory and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Generic, cast
from uuid import uuid4

from agentkit_prompts.compose import Memo
from agentkit_prompts.composition import Composition
from agentkit_prompts.context import PromptContext, ToolSpec, UserInput
from agentkit_prompts.conversation import Conversation
from agentkit_prompts.layers import Layers
from agentkit_prompts.leaves import TextPrompt
from agentkit_prompts.parts import Part
from agentkit_prompts.schema import JsonSchema
from agentkit_tools import by_name
from agentkit_tools.tool import Tool
from typing_extensions import TypeVar

from agentkit.chain import Chain, Output
from agentkit.drivers.aio import Approver, AsyncDriver, Recaller
from agentkit.drivers.sync import run_blocking
from agentkit.errors import LimitExceeded
from agentkit.events import Event, RunFinished
from agentkit.loop import Limits, RunResult, run_loop
from agentkit.models.base import Model
from agentkit.session import Session

__all__ = ["Agent"]

Deps = TypeVar("Deps", default=None)
_DEFAULT_LIMITS = Limits()


class Agent(Generic[Deps, Output]):
    """Answers user input, calling tools on the way.

    Args:
        model: A model, or a `Chain` that brings layers and output type with it.
        layers: The prompts, placed; a str is the one prompt of `system`.
        tools: Functions decorated with `@tool`, or plain functions.
        memory: Where passages are recalled from before each run.
        output: The type of the answer.
        deps: The type of what tools receive in their `ToolContext`; only for type checkers.
        limits: What one run may use.

    Raises:
        ToolDefinitionError: Two tools have the same name, or one cannot be offered to a model.
        PromptError: A prompt can never render.
    """

    __slots__ = ("chain", "limits", "memory", "specs", "tools")

    def __init__(
        self,
        model: Model | Chain[Output],
        layers: Layers | TextPrompt | str = "",
        *,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
        memory: Recaller | None = None,
        output: type[Output] = cast(Any, str),
        deps: type[Deps] = cast(Any, type(None)),
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        del deps
        self.chain: Chain[Output] = model if isinstance(model, Chain) else Chain(model, layers, output=output)
        self.tools: Mapping[str, Tool[..., Any]] = by_name(tools)
        self.specs: tuple[ToolSpec, ...] = tuple([tool.spec for tool in self.tools.values()])
        self.memory = memory
        self.limits = limits

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the prompts require of the user's `additional_kwargs`."""
        return self.chain.additional_kwargs_schema

    def context(
        self, user_input: UserInput | str | Iterable[str | Part], session: Session | None = None
    ) -> PromptContext:
        """Return the context of a run, without what memory would recall."""
        return PromptContext(
            user_input=cast(UserInput, user_input),
            conversation=session.conversation if session is not None else _NO_CONVERSATION,
            tools=self.specs,
        )

    def compose(
        self, user_input: UserInput | str | Iterable[str | Part], *, session: Session | None = None
    ) -> Composition:
        """Return what a run would send first, recalling but not sending or keeping anything."""
        ctx = self.context(user_input, session)
        self.chain.preflight(ctx.user_input)
        if self.memory is not None:
            ctx = ctx.evolve(documents=tuple(self.memory.recall(ctx.user_input.text)))
        return self.chain.compose(ctx)

    async def run(
        self,
        user_input: UserInput | str | Iterable[str | Part],
        *,
        deps: Deps = cast(Any, None),
        session: Session | None = None,
        on_event: Callable[[Event], None] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
    ) -> RunResult[Output]:
        """Answer one user input.

        Args:
            user_input: Text, parts, or a `UserInput` with additional kwargs.
            deps: Handed to tools in their `ToolContext`.
            session: Conversation to go on with; it receives the messages of the run. None starts from nothing.
            on_event: Called with every event, in order.
            approve: Decides about tool calls that need approval; without it they are denied.
            run_id: Id of the run; a new one when not given. Idempotency keys derive from it.

        Raises:
            PromptError: A prompt cannot be rendered, or kwargs are missing; nothing was sent or kept.
            ModelError: The model could not be reached or did not answer.
            OutputError: The answer is not the output type.
            LimitExceeded: The run used more than its limits allow.
        """
        ctx = self.context(user_input, session)
        chain, limits = self.chain, self.limits
        chain.preflight(ctx.user_input)
        run_id = run_id or uuid4().hex
        loop = run_loop(
            chain,
            ctx,
            self.tools,
            limits,
            run_id=run_id,
            recalls=self.memory is not None,
            memo=session.memo if session is not None else Memo(),
        )
        driver = AsyncDriver(
            model=chain.model,
            tools=self.tools,
            session=session,
            memory=self.memory,
            deps=deps,
            run_id=run_id,
            emit=on_event,
            approve=approve,
        )
        if limits.seconds is None:
            result = await driver.drive(loop)
        else:
            timer = asyncio.timeout(limits.seconds)
            try:
                async with timer:
                    result = await driver.drive(loop)
            except TimeoutError as error:
                if not timer.expired():
                    raise
                raise LimitExceeded("seconds", limits.seconds, "allow more time, or use faster tools") from error
        if on_event is not None:
            on_event(RunFinished(result))
        return result

    def run_sync(
        self,
        user_input: UserInput | str | Iterable[str | Part],
        *,
        deps: Deps = cast(Any, None),
        session: Session | None = None,
        on_event: Callable[[Event], None] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
    ) -> RunResult[Output]:
        """Answer one user input from code that is not async, also inside a running event loop. See `run`."""
        return run_blocking(
            self.run(user_input, deps=deps, session=session, on_event=on_event, approve=approve, run_id=run_id)
        )

    async def stream(
        self,
        user_input: UserInput | str | Iterable[str | Part],
        *,
        deps: Deps = cast(Any, None),
        session: Session | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
    ) -> AsyncIterator[Event]:
        """Answer one user input, yielding events; the last one is `RunFinished`. Leaving the loop cancels the run."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        run = asyncio.create_task(
            self.run(user_input, deps=deps, session=session, on_event=events.put_nowait, approve=approve, run_id=run_id)
        )
        run.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await run
        finally:
            if not run.done():
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)


_NO_CONVERSATION = Conversation()
