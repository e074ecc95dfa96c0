"""`Agent`: a chain with tools, memory and limits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, Unpack, cast, overload

from typing_extensions import TypeVar

from agentkit.chain import Chain, Output
from agentkit.errors import AgentDefinitionError, LimitExceeded, SessionBusy
from agentkit.models.model import Model
from agentkit.recaller import Recaller, recall
from agentkit.run.asyncio_driver import AsyncDriver
from agentkit.run.events import Event, Nested, RunFinished
from agentkit.run.limits import Limits
from agentkit.run.loop import RunResult, remembering, run_loop, visible
from agentkit.run.nested_runs import Approver, Nesting, current_run
from agentkit.run.sync_driver import run_blocking
from agentkit.session import Session
from agentkit_prompts.composition.compose import Memo
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec, UserInput
from agentkit_prompts.schemas.params import JsonSchema
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import TextPrompt
from agentkit_tools import Toolset, by_name
from agentkit_tools.calling.tool_policy import PolicyOptions
from agentkit_tools.errors import ToolDefinitionError
from agentkit_tools.tool import Tool
from agentkit_tools.tool_context import ToolContext

if TYPE_CHECKING:
    from agentkit_tools import TurnTools

__all__ = ["Agent"]

Deps = TypeVar("Deps", default=None)
Input: TypeAlias = PromptContext | UserInput | str | Sequence[str | Part] | Mapping[str, Any]
Tools: TypeAlias = "Iterable[Tool | Callable[..., Any]] | TurnTools"
_DEFAULT_LIMITS = Limits()


class Agent(Generic[Deps, Output]):
    """Answers user input, calling tools on the way.

    Args:
        model: A model, or a `Chain` that brings layers and output type with it.
        layers: The prompts, placed; a str is the one prompt of `system`.
        tools: Functions decorated with `@tool`, or plain functions; or a toolset, whose `at` makes those of each run:
            `TurnTools`, `MCPToolset`.
        memory: Where chunks are recalled from before each run.
        output: The type of the answer.
        deps: The type of what tools receive in their `ToolContext`; only for type checkers.
        limits: What one run may use.

    Raises:
        ToolDefinitionError: Two tools have the same name, or one cannot be offered to a model.
        PromptError: A prompt can never render.
        AgentDefinitionError: The output type cannot be asked for, or layers are given beside a `Chain`.
    """

    __slots__ = ("_at", "chain", "limits", "memory", "specs", "tools")

    tools: Mapping[str, Tool]
    """The tools by name; empty when each run has its own."""
    specs: tuple[ToolSpec, ...]
    """The tools as the model is offered them."""

    @overload
    def __init__(
        self,
        model: Chain[Output],
        *,
        tools: Tools = ...,
        memory: Recaller | None = ...,
        deps: type[Deps] = ...,
        limits: Limits = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model,
        layers: Layers | TextPrompt | str = ...,
        *,
        tools: Tools = ...,
        memory: Recaller | None = ...,
        output: type[Output] = ...,
        deps: type[Deps] = ...,
        limits: Limits = ...,
    ) -> None: ...
    def __init__(
        self,
        model: Model | Chain[Output],
        layers: Layers | TextPrompt | str = "",
        *,
        tools: Tools = (),
        memory: Recaller | None = None,
        output: type[Any] = str,
        deps: type[Any] = NoneType,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        del deps
        if not isinstance(model, Chain):
            model = Chain(model, layers, output=output)
        elif layers or output is not str:
            raise AgentDefinitionError("a Chain brings its layers and its output type: give them to the Chain instead")
        prompter = model.prompter
        if prompter is not None and (prompter.tools or prompter.history):
            raise AgentDefinitionError(
                "an agent has tools and a history of its own: give it the tools, and earlier turns to a session, "
                "instead of the prompter"
            )
        self.chain: Chain[Output] = model
        self._at = None if type(tools) is Toolset else getattr(tools, "at", None)
        self.tools = by_name(cast(Iterable[Tool], tools)) if self._at is None else {}
        self.specs = tuple([tool.spec for tool in self.tools.values()])
        self.memory = memory
        self.limits = limits

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the prompts require of the user's `additional_kwargs`."""
        return self.chain.additional_kwargs_schema

    def context(self, user_input: Input, session: Session | None = None) -> PromptContext:
        """Return the context of a run, without what memory would recall and tools that each run makes for itself."""
        prompter = self.chain.prompter
        if prompter is not None and not isinstance(user_input, PromptContext):
            given: Any = user_input
            user_input = prompter.context(UserInput(given) if isinstance(given, list | tuple) else given)
        if isinstance(user_input, PromptContext):
            conversation = session.conversation if session is not None else user_input.conversation
            ctx = user_input.evolve(conversation=conversation, tools=self.specs)
        else:
            ctx = PromptContext(
                user_input=cast(UserInput, user_input),
                conversation=session.conversation if session is not None else _NO_CONVERSATION,
                tools=self.specs,
            )
        if self.chain.fenced and ctx.session_key is None:
            ctx = ctx.evolve(session_key=_PROCESS_KEY + (session.id if session is not None else ""))
        return ctx

    def compose(self, user_input: Input, *, session: Session | None = None) -> Composition:
        """Return what a run would send first, recalling but not sending or keeping anything."""
        ctx = self.context(user_input, session)
        self.chain.preflight(ctx.user_input)
        if self._at is not None:
            ctx = run_blocking(self._equip(ctx))[0]
        if self.memory is not None:
            found = recall(self.memory, ctx.user_input.text, session, visible(self.chain, ctx))
            ctx = remembering(ctx, found)
        return self.chain.compose(ctx)

    async def run(
        self,
        user_input: Input,
        *,
        deps: Deps = cast(Any, None),
        session: Session | None = None,
        on_event: Callable[[Event[Output]], None] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
    ) -> RunResult[Output]:
        """Answer one user input.

        Args:
            user_input: Text, parts, a `UserInput` with additional kwargs, the slots of the chain's prompter, or a whole
                context, which the agent completes
                with the conversation of the session, its tools, and what memory recalls.
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
            SessionBusy: Another run is using the session.
        """
        run_id = run_id or os.urandom(16).hex()
        nesting = Nesting(self.limits, on_event, approve)
        driver = AsyncDriver(
            model=self.chain.model,
            tools=self.tools,
            session=session,
            memory=self.memory,
            deps=deps,
            run_id=run_id,
            nesting=nesting,
        )
        if session is not None and _RUNNING.setdefault(id(session), driver) is not driver:
            raise SessionBusy(session.id)
        seconds = self.limits.seconds
        try:
            if seconds is None:
                with nesting:
                    result = await self._run(user_input, session, driver, run_id, nesting.limits)
            else:
                timer = asyncio.timeout(seconds)
                try:
                    async with timer:
                        with nesting:
                            result = await self._run(user_input, session, driver, run_id, nesting.limits)
                except TimeoutError as error:
                    if not timer.expired():
                        raise
                    advice = "allow more time, or use faster tools"
                    raise LimitExceeded("seconds", seconds, advice, driver.kept) from error
        finally:
            if session is not None:
                del _RUNNING[id(session)]
        if on_event is not None:
            on_event(RunFinished(result))
        return result

    async def _run(
        self, user_input: Input, session: Session | None, driver: AsyncDriver, run_id: str, limits: Limits
    ) -> RunResult[Output]:
        chain = self.chain
        ctx = self.context(user_input, session)
        chain.preflight(ctx.user_input)
        if self._at is not None:
            ctx, driver.tools = await self._equip(ctx)
        ctx = await chain.select_examples(ctx)
        memo = session.memo if session is not None else Memo()
        recalls = self.memory is not None
        return await driver.drive(run_loop(chain, ctx, driver.tools, limits, run_id=run_id, recalls=recalls, memo=memo))

    async def _equip(self, ctx: PromptContext) -> tuple[PromptContext, Mapping[str, Tool]]:
        """Return the context with the tools that its run has, and these."""
        assert self._at is not None
        tools = by_name(await self._at(ctx))
        return ctx.evolve(tools=tuple([tool.spec for tool in tools.values()])), tools

    def run_sync(
        self,
        user_input: Input,
        *,
        deps: Deps = cast(Any, None),
        session: Session | None = None,
        on_event: Callable[[Event[Output]], None] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
    ) -> RunResult[Output]:
        """Answer one user input from code that is not async, also inside a running event loop. See `run`."""
        return run_blocking(
            self.run(user_input, deps=deps, session=session, on_event=on_event, approve=approve, run_id=run_id)
        )

    def as_tool(
        self, *, name: str, description: str, argument: str = "input", **policy: Unpack[PolicyOptions]
    ) -> Tool[..., Any]:
        """Return this agent as a tool for another one.

        Each call is a run of its own, without a session: the model that calls asks in one text, and the
        additional kwargs that the prompts of this agent require are parameters of the tool. What goes wrong in the
        run is an error result of the call. The run gets the `deps` of the outer one and its approver; it is cancelled
        with it; its tokens count there and it may use no more than are left there; its events arrive as `Nested`.

        Args:
            name: Name for the model.
            description: Text for the model: what this agent is good for, and what it cannot do.
            argument: Name of the parameter that is the user input of this agent.
            **policy: Fields of `ToolPolicy`, such as `timeout`.

        Raises:
            ToolDefinitionError: An additional kwarg is called like `argument`, or the policy makes no sense.
        """
        needs = self.additional_kwargs_schema or {}
        properties = needs.get("properties", {})
        if argument in properties:
            by = ", ".join(properties[argument].get("x-required-by", ())) or "a prompt"
            raise ToolDefinitionError(
                f"tool {name}: {argument!r} is what the agent is asked, and an additional kwarg that {by} requires:"
                " choose another name with `argument=...`"
            )
        asked = {"type": "string", "description": "What to ask, with everything that has to be known for it."}
        parameters = {
            **needs,
            "type": "object",
            "properties": {argument: asked, **{key: _without_origin(item) for key, item in properties.items()}},
            "required": [argument, *needs.get("required", ())],
            "additionalProperties": False,
        }

        async def answer(_context: ToolContext[Any], **arguments: Any) -> Output:
            outer = current_run()
            emit = outer.emit if outer is not None else None
            result = await self.run(
                UserInput(arguments.pop(argument), additional_kwargs=arguments),
                deps=_context.deps,
                on_event=None if emit is None else lambda event: emit(Nested(_context.call_id, name, event)),
                approve=outer.approve if outer is not None else None,
                run_id=_context.idempotency_key,
            )
            return result.output

        return Tool.from_json_schema(name, description, parameters, answer, **policy)

    async def stream(
        self,
        user_input: Input,
        *,
        deps: Deps = cast(Any, None),
        session: Session | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
    ) -> AsyncGenerator[Event[Output], None]:
        """Answer one user input, yielding events; the last one is `RunFinished`. Raises what `run` does.

        Leaving early cancels the run. To have it ended before going on, use `contextlib.aclosing`.
        """
        events: asyncio.Queue[Event[Output] | None] = asyncio.Queue()
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


def _without_origin(schema: Any) -> Any:
    """Who requires a kwarg is the agent's own business."""
    return {key: value for key, value in schema.items() if key != "x-required-by"}


_NO_CONVERSATION = Conversation()
_PROCESS_KEY = os.urandom(16).hex()
"""Keys the fences of contexts that bring no key of their own; nothing outside the process can know it."""

_RUNNING: dict[int, AsyncDriver] = {}
"""Which run uses the session of that id. `setdefault` is atomic, also between threads."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RUNNING.clear)  # those runs go on in the parent only
