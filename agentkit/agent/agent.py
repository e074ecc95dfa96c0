"""`Agent`: a chain with tools, memory and limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from typing_extensions import TypeVar

from agentkit.agent.overrides import overridden, overriding
from agentkit.agent.startable import Startable
from agentkit.errors import AgentDefinitionError
from agentkit.ground.sync_driver import run_blocking, streamed
from agentkit.ground.unknown_options import ELSEWHERE, refusing_unknown
from agentkit.run.engine.run_options import CHANGES, RESUME, RUN, RunOptions, Tools, check_options
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.equipment import Equipment
from agentkit.run.parts.limits import Limits, checked_limits
from agentkit.run.parts.run_context import Input, placed, run_context
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.errors import brief
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import TypeForm

    from agentkit.agent.agent_tool import History
    from agentkit.durable.runs_facade import Runs
    from agentkit.models.model import Model
    from agentkit.output.output_spec import OutputSpec
    from agentkit.run.engine.events import Event
    from agentkit.run.engine.listening import PassOn
    from agentkit.run.engine.loop import RunResult
    from agentkit.run.engine.run_options import AgentOptions
    from agentkit.run.journal.journal import Journal
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import Found, RecallOptions, RecallSource
    from agentkit.run.parts.session import Session
    from agentkit_memory import Scope
    from agentkit_prompts.prompters.prompter import Prompter
    from agentkit_prompts.schemas.params import JsonSchema
    from agentkit_tools.calling.tool_policy import PolicyOptions

__all__ = ["Agent"]

Deps = TypeVar("Deps", default=None)
_DEFAULT_LIMITS = Limits()
_NOT_OF_THE_CHAIN = frozenset(("tools", "limits", "recall"))


@refusing_unknown(**ELSEWHERE)
class Agent(Startable[Output], Generic[Deps, Output]):
    """Answers user input, calling tools on the way.

    Args:
        model: A model, its name such as "openai:gpt-5-mini", or a `Chain` that brings layers and output type with it.
        layers: The prompts, placed; a prompt or text is all of `system`. A `Prompter` brings its own.
        tools: Functions decorated with `@tool`, or plain functions; or a toolset, whose `at` makes those of each run:
            `TurnTools`, `MCPToolset`.
        memory: Where chunks are recalled from before each run; its scope is the widest that is read, see `RunOptions`.
            With plain text as layers, what is recalled stands before the input.
        recall: How memory is asked.
        compaction: What is done with a conversation that has grown long: `Trim()` or `Summarise(model)`.
        output: The type of the answer, a function that ends the run, or an `OutputSpec`; see `Chain`.
        budget: Tokens a composition may have at most.
        tokenizer: Counts tokens; a fast estimate when not given.
        deps: The type of what tools receive in their `ToolContext`; only for type checkers.
        limits: What one run may use.
        name: What journals call it: a journal is resumed by the agent of that name only.

    Raises:
        ToolDefinitionError: Two tools have the same name, or one cannot be offered to a model.
        PromptError: A prompt can never render.
        AgentDefinitionError: The output type cannot be asked for, layers are given beside a `Chain`, no prompt shows
            what memory finds, or there is no model of that name.
    """

    __slots__ = (
        "_ask",
        "_equipment",
        "_text",
        "chain",
        "compaction",
        "limits",
        "memory",
        "name",
        "recall",
        "runs",
        "specs",
        "tools",
    )

    tools: Mapping[str, Tool]
    """The tools by name; empty when each run has its own."""
    specs: tuple[ToolSpec, ...]
    """The tools as the model is offered them."""
    recall: RecallOptions | None
    """How memory is asked; None without memory."""

    @overload
    def __init__(
        self, model: Chain[Output], *, deps: type[Deps] = ..., name: str = ..., **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: TypeForm[Output] = ...,
        deps: type[Deps] = ...,
        name: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: OutputSpec[Output] | Callable[..., Awaitable[Output]],
        deps: type[Deps] = ...,
        name: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        layers: Layers | Prompter | AnyPrompt = ...,
        *,
        output: Callable[..., Output],
        deps: type[Deps] = ...,
        name: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        model: Model | Chain[Output] | str,
        layers: Layers | Prompter | AnyPrompt = "",
        *,
        tools: Tools = (),
        memory: RecallSource | None = None,
        recall: RecallOptions | None = None,
        compaction: Compaction | None = None,
        output: Any = str,
        budget: int | Budget | None = None,
        tokenizer: TokenCounter | None = None,
        deps: type[Any] = NoneType,
        limits: Limits = _DEFAULT_LIMITS,
        name: str = "agent",
    ) -> None:
        del deps
        self.name = _checked_name(name)
        self.runs: Runs | None = None
        self.memory = memory
        self._ask: Callable[..., Found] | None = None
        self.compaction = compaction
        self._text = layers if isinstance(layers, AnyPrompt) and not isinstance(model, Chain) else None
        if not isinstance(model, Chain):
            if isinstance(model, str):
                from agentkit.models.model_names import model as named

                model = named(model)
            layers = placed(layers, memory, compaction)
            model = Chain(model, layers, output=output, budget=budget, tokenizer=tokenizer)
        elif layers or output is not str or budget is not None or tokenizer is not None:
            raise AgentDefinitionError(
                "a Chain brings its layers, output type, budget and tokenizer: give them to the Chain instead",
                name="model",
                value="Chain",
            )
        if memory is not None:
            from agentkit.run.parts import recaller

            recaller.check_memory(memory, model.layers)
            recall = recaller.RecallOptions() if recall is None else recall
            self._ask = partial(recaller.recall, options=recaller.shown_options(recall, model.layers))
        elif recall is not None:
            raise AgentDefinitionError("recall= says how memory is asked: give the agent memory= too", name="recall")
        if compaction is not None:
            from agentkit.run.parts.compaction import check_compaction

            check_compaction(compaction, model)
        prompter = model.prompter
        if prompter is not None and (prompter.tools or prompter.history):
            raise AgentDefinitionError(
                "an agent has tools and a history of its own: give it the tools, and earlier turns to a session, "
                "instead of the prompter",
                name="layers",
            )
        self.chain: Chain[Output] = model
        self._equipment = Equipment(tools, model.answer)
        self.tools, self.specs = self._equipment.tools, self._equipment.specs
        self.recall = recall
        self.limits = checked_limits(limits)

    def but(self, **changes: Unpack[RunOptions[Any, Any]]) -> Agent[Deps, Any]:
        """Return a copy of the agent with other parts: see the first options of `RunOptions`. Raises like the class."""
        check_options("but", changes, CHANGES)
        from agentkit.models.model_names import changed_model

        chain, text = self.chain, self._text
        memory, compaction = changes.get("memory", self.memory), changes.get("compaction", self.compaction)
        if not changes.keys() <= _NOT_OF_THE_CHAIN:
            layers: Any = chain.prompter or chain.layers
            if "layers" in changes:
                layers = changes["layers"]
                text = layers if isinstance(layers, AnyPrompt) else None
            chain = Chain(
                changed_model(chain.model, changes),
                layers if text is None else placed(text, memory, compaction),
                output=changes.get("output", chain.output),
                tokenizer=chain.tokenizer,
                budget=changes.get("budget", chain.budget),
                redact=chain.redact,
            )
        changed: Agent[Deps, Any] = Agent(
            chain,
            tools=changes.get("tools", self._equipment.given),
            memory=memory,
            recall=changes.get("recall", None if memory is None else self.recall),
            compaction=compaction,
            limits=changes.get("limits", self.limits),
            name=self.name,
        )
        changed._text = text
        return changed

    def override(self, **changes: Unpack[RunOptions[Any, Any]]) -> AbstractContextManager[None]:
        """Compose, run and resume with changes until the end of the block, wherever that is called: for tests.

        It holds for what is called in the block, not for threads and tasks that ran before; a block in it adds to it.
        """
        return overriding(self, overridden(self).but(**changes))

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the prompts require of the user's `additional_kwargs`."""
        return self.chain.additional_kwargs_schema

    def context(self, user_input: Input, session: Session | None = None) -> PromptContext:
        """Return the context of a run, without what memory would recall and tools that each run makes for itself."""
        return run_context(self.chain, self.specs, user_input, session, "")

    def compose(
        self, user_input: Input, *, session: Session | None = None, scope: Scope | str | None = None
    ) -> Composition:
        """Return what a run would send first, recalling but not sending or keeping anything."""
        return self._now()._composed(user_input, session, scope)

    def _composed(self, user_input: Input, session: Session | None, scope: Scope | str | None) -> Composition:
        memory = self.memory
        if memory is not None or session is not None or scope is not None:
            from agentkit.run.parts.recaller import in_scope
            from agentkit.run.parts.session import checked_session

            memory = in_scope(memory, checked_session(session), scope)
        ctx = self.context(user_input, session)
        self.chain.preflight(ctx.user_input)
        if self.compaction is not None:
            from agentkit.run.parts.compaction import as_compacted

            ctx = as_compacted(self.compaction, self.chain, ctx, session)
        if self._equipment.is_own:
            tools = run_blocking(self._equipment.at(ctx))
            ctx = ctx.evolve(tools=tuple([tool.spec for tool in tools.values()]))
        if memory is not None and self._ask is not None:
            from agentkit.run.engine.loop import remembering, visible

            is_cut = session is not None and len(ctx.conversation) < len(session.conversation)
            found = self._ask(memory, ctx.user_input.text, session, visible(self.chain, ctx, is_cut=is_cut))
            ctx = remembering(ctx, found)
        return self.chain.compose(ctx)

    async def run(self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]) -> RunResult[Output]:
        """Answer one user input.

        Args:
            user_input: Text, parts, a `UserInput` with additional kwargs, the slots of the chain's prompter, or a whole
                context, which the agent completes with the conversation of the session, its tools, and what memory
                recalls. None goes on with a session whose last message has no answer yet, as after a failed run.
            **options: See `RunOptions`.

        Raises:
            PromptError: A prompt cannot be rendered, or kwargs are missing; nothing was sent or kept.
            ModelError: The model could not be reached or did not answer.
            OutputError: The answer is not the output type.
            LimitExceeded: The run used more than its limits allow.
            Paused: A tool call needs approval, and nobody is there to ask.
            ApprovalError: What `approve` answered is no decision.
            DepsMismatch: Tools need `deps` that are not given, or of another type; nothing was sent or kept.
            ScopeMismatch: Memory, session and `scope` do not belong together.
            SessionBusy: Another run is using the session.
            RunBusy: A run of that `run_id` is going on already.
            NothingToContinue: There is no input, and nothing without an answer.
        """
        check_options("run", options, RUN)
        return await self._now(options)._begin(user_input, options)

    def _now(self, options: Mapping[str, Any] = MappingProxyType({})) -> Agent[Deps, Output]:
        """Return this agent as it is in the block of an `override`, and with the changes that one run is given."""
        if CHANGES.isdisjoint(options):
            return overridden(self)
        return overridden(self).but(**{name: options[name] for name in CHANGES.intersection(options)})

    def _begin(self, user_input: Input | None, options: Mapping[str, Any]) -> Coroutine[Any, Any, RunResult[Output]]:
        import agentkit.run.engine.begin_or_resume  # only runs need it; `from` takes three times as long

        return agentkit.run.engine.begin_or_resume.begin_run(self, self._equipment, self._ask, user_input, options)

    async def resume(
        self, journal: Journal | Path | str, /, **options: Unpack[RunOptions[Deps, Output]]
    ) -> RunResult[Output]:
        """Go on with a run from its journal, in this process or another one: what was done is not done again.

        Args:
            journal: The journal, as `Paused`, any error of a run, or `Journal.loads` gives it; or its file. One that
                was read from a file, or kept in one, goes on in that file.
            **options: See `RunOptions`. `session` is that of the run, opened anew; it must be given if there was
                one.

        Raises:
            JournalError: It cannot be read, is that of another agent, conversation or memory, or the run went on since.
            RunBusy: The run is going on already.
            AgentError: As `run` does.
        """
        check_options("resume", options, RESUME)
        return await self._now(options)._go_on(journal, options)

    def _go_on(
        self, journal: Journal | Path | str, options: Mapping[str, Any]
    ) -> Coroutine[Any, Any, RunResult[Output]]:
        from agentkit.run.engine.begin_or_resume import resume_run

        return resume_run(self, self._equipment, self._ask, journal, options)

    def run_sync(self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]) -> RunResult[Output]:
        """Answer one user input from code that is not async, also inside a running event loop. See `run`."""
        return run_blocking(self.run(user_input, **options))

    def resume_sync(
        self, journal: Journal | Path | str, /, **options: Unpack[RunOptions[Deps, Output]]
    ) -> RunResult[Output]:
        """Go on with a run from code that is not async. See `resume`."""
        return run_blocking(self.resume(journal, **options))  # pyright: ignore[reportArgumentType]  # `journal` is positional

    def as_tool(
        self,
        *,
        name: str,
        description: str,
        argument: str = "input",
        history: History = "none",
        **policy: Unpack[PolicyOptions],
    ) -> Tool[..., Any]:
        """Return this agent as a tool for another one.

        Each call is a run of its own, without a session: the model that calls asks in one text, and the
        additional kwargs that the prompts of this agent require are parameters of the tool. What goes wrong in the
        run is an error result of the call. The run gets the `deps` of the outer one and its approver, pauses with it
        and is cancelled with it; its tokens count there and it may use no more than are left there; its journal is part
        of that one's; its events arrive as `Nested`. With `final=True` its answer is that of the outer run: a hand-off.

        Args:
            name: Name for the model.
            description: Text for the model: what this agent is good for, and what it cannot do.
            argument: Name of the parameter that is the user input of this agent.
            history: What this agent sees of the conversation before: `none` of it; the `text` of users and assistants;
                `all`, tool calls and results included; or a function that is given all messages and returns some.
            **policy: Fields of `ToolPolicy`; `timeout` is 600 seconds if it is not given.

        Raises:
            ToolDefinitionError: An additional kwarg is called like `argument`, or the policy makes no sense.
        """
        from agentkit.agent.agent_tool import agent_tool

        return agent_tool(self, name, description, argument, history, policy)

    def stream(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> AsyncGenerator[Event[Output], None]:
        """Answer one user input, yielding events; the last one is `RunFinished`. Raises what `run` does.

        The run waits for who reads the events once a few are waiting. Leaving early cancels it. To have it ended before
        going on, use `contextlib.aclosing`.
        """
        from agentkit.run.engine.listening import streaming

        return streaming(self._passing_on(user_input, options))

    def stream_sync(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> Generator[Event[Output], None, None]:
        """Answer one user input from code that is not async, yielding events. See `stream`.

        The run waits for who reads the events once a few are waiting. Leaving early cancels it: close the generator.
        """
        return streamed(self._passing_on(user_input, options))

    def _passing_on(
        self, user_input: Input | None, options: Any
    ) -> Callable[[PassOn[Event[Output]]], Coroutine[Any, Any, object]]:
        """Return what runs, passing each event on to who reads the stream."""
        from agentkit.run.engine.listening import both

        def run(pass_on: PassOn[Event[Output]]) -> Coroutine[Any, Any, object]:
            heard: Any = {**options, "on_event": both(options.get("on_event"), pass_on)}
            return self.run(user_input, **heard)

        return run


def _checked_name(name: object) -> str:
    """Return the name of an agent.

    Raises:
        AgentDefinitionError: It is no text.
    """
    if isinstance(name, str):
        return name
    raise AgentDefinitionError(
        f"name: expected text, which journals call the agent by, got {brief(name, 40)}", name="name"
    )
