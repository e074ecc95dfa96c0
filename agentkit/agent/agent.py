"""`Agent`: a chain with tools, memory and limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, aclosing, closing
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Unpack, cast, overload

from typing_extensions import TypeVar

from agentkit.agent.definitions import changed_definition, make_definition
from agentkit.agent.overrides import overridden, overriding
from agentkit.errors import AgentDefinitionError
from agentkit.ground.sync_driver import run_blocking, streamed
from agentkit.ground.unknown_options import AGENT_ELSEWHERE, refusing_unknown
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit.run.engine.run_options import CHANGES, RESUME, RUN, RunOptions, Tools, check_options
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.run_context import Input, run_context
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.tokens.budget import Budget
from agentkit_prompts.tokens.counter import TokenCounter
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt
from agentkit_tools.tool import Tool

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import TypeForm

    from agentkit.agent.agent_tool import History
    from agentkit.durable.mapping import MapReport
    from agentkit.durable.run_handle import RunHandle
    from agentkit.durable.runs_facade import Runs
    from agentkit.models.model import Model
    from agentkit.output.output_spec import OutputSpec
    from agentkit.run.engine.event_sink import PassOn
    from agentkit.run.engine.events import Event
    from agentkit.run.engine.run_options import AgentOptions
    from agentkit.run.engine.run_result import RunResult
    from agentkit.run.journal.journal import Journal
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import RecallOptions, RecallSource
    from agentkit.run.parts.session import SessionProtocol
    from agentkit_memory import Scope
    from agentkit_prompts.prompters.prompter import Prompter
    from agentkit_prompts.schemas.params import JsonSchema
    from agentkit_tools.calling.tool_policy import PolicyOptions

__all__ = ["Agent"]

Deps = TypeVar("Deps", default=None)
_DEFAULT_LIMITS = Limits()


@refusing_unknown(**AGENT_ELSEWHERE)
class Agent(Generic[Deps, Output]):
    """Answers user input, calling tools on the way.

    Args:
        model: A model, its name such as "openai:gpt-5-mini", or a `Chain` that brings layers and output type with it.
        instructions: Text or a prompt: the system prompt, the first layer of `system`. With a memory, recalled items
            are shown before the input.
        layers: The full tree of prompts, instead of `instructions`: `Layers`, or a `Prompter`.
        settings: Default settings of the model, such as `ModelSettings(temperature=0)` or a dict. The settings of a run
            replace them field by field, and they replace the settings of the model.
        tools: Functions decorated with `@tool`, or plain functions; or a toolset, whose `at` makes those of each run:
            `DynamicToolset`, `MCPToolset`.
        memory: Where chunks are recalled from before each run; its scope is the widest that is read, see `RunOptions`.
        recall: How memory is asked.
        compaction: What is done with a conversation that has grown long: `Trim()` or `Summarise(model)`.
        output: The type of the answer, a function that ends the run, or an `OutputSpec`; see `Chain`.
        budget: Tokens a composition may have at most.
        counter: Counts tokens; a fast estimate when not given.
        deps: The type of what tools receive in their `ToolContext`; only for type checkers.
        limits: What one run may use.
        name: What journals call it: a journal is resumed by the agent of that name only.

    Raises:
        ToolDefinitionError: Two tools have the same name, or one cannot be offered to a model.
        PromptError: A prompt can never render.
        AgentDefinitionError: The model does not support the output type or a setting, both `instructions` and `layers`
            are set, or a `Chain` has its own; no prompt shows recalled items; or the name of the model is unknown.
    """

    __slots__ = ("definition", "runs")

    definition: AgentDefinition[Output]
    """The parts of the agent that its runs read."""
    runs: Runs | None
    """The runs that the agent was added to; `start` and `map` begin runs there."""

    @overload
    def __init__(
        self, model: Chain[Output], *, deps: type[Deps] = ..., name: str = ..., **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        instructions: AnyPrompt = ...,
        *,
        layers: Layers | Prompter = ...,
        output: TypeForm[Output] = ...,
        deps: type[Deps] = ...,
        name: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        instructions: AnyPrompt = ...,
        *,
        layers: Layers | Prompter = ...,
        output: OutputSpec[Output] | Callable[..., Awaitable[Output]],
        deps: type[Deps] = ...,
        name: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        model: Model | str,
        instructions: AnyPrompt = ...,
        *,
        layers: Layers | Prompter = ...,
        output: Callable[..., Output],
        deps: type[Deps] = ...,
        name: str = ...,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        model: Model | Chain[Output] | str,
        instructions: AnyPrompt = "",
        *,
        layers: Layers | Prompter | None = None,
        settings: ModelSettings | Mapping[str, Any] = NO_SETTINGS,
        tools: Tools = (),
        memory: RecallSource | None = None,
        recall: RecallOptions | None = None,
        compaction: Compaction | None = None,
        output: Any = str,
        budget: int | Budget | None = None,
        counter: TokenCounter | None = None,
        deps: type[Any] = NoneType,
        limits: Limits = _DEFAULT_LIMITS,
        name: str = "agent",
    ) -> None:
        del deps
        self.runs = None
        self.definition = make_definition(
            model,
            instructions,
            layers=layers,
            settings=settings,
            tools=tools,
            memory=memory,
            recall=recall,
            compaction=compaction,
            output=output,
            budget=budget,
            counter=counter,
            limits=limits,
            name=name,
        )

    @property
    def name(self) -> str:
        """Name of the agent in journals."""
        return self.definition.name

    @property
    def chain(self) -> Chain[Output]:
        """The prompts, the model and the type of the answer."""
        return self.definition.chain

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name; empty if each run makes its tools."""
        return self.definition.tools.tools

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as they are offered to the model."""
        return self.definition.tools.specs

    @property
    def memory(self) -> RecallSource | None:
        """The memory that is asked before each run."""
        return self.definition.memory

    @property
    def recall(self) -> RecallOptions | None:
        """Options of each recall; None without memory."""
        return self.definition.recall

    @property
    def compaction(self) -> Compaction | None:
        """The rule for conversations that have grown long."""
        return self.definition.compaction

    @property
    def limits(self) -> Limits:
        """The limits of one run."""
        return self.definition.limits

    def with_changes(self, **changes: Unpack[RunOptions[Any, Any]]) -> Agent[Deps, Any]:
        """Return a copy of the agent with other parts: see the first options of `RunOptions`. Raises like the class."""
        check_options("but", changes, CHANGES)
        changed = cast("Agent[Deps, Any]", object.__new__(Agent))  # its parts are checked already
        changed.runs = None
        changed.definition = changed_definition(self.definition, changes)
        return changed

    def override(self, **changes: Unpack[RunOptions[Any, Any]]) -> AbstractContextManager[None]:
        """Compose, run and resume with changes until the end of the block, wherever that is called: for tests.

        It holds for what is called in the block, not for threads and tasks that ran before; a block in it adds to it.
        """
        return overriding(self, overridden(self).with_changes(**changes))

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """What the prompts require of the user's `additional_kwargs`."""
        return self.chain.additional_kwargs_schema

    def context(self, user_input: Input, session: SessionProtocol | None = None) -> PromptContext:
        """Return the context of a run, without recalled items and without tools that each run makes."""
        return run_context(self.chain, self.specs, user_input, session, "")

    def compose(
        self, user_input: Input, *, session: SessionProtocol | None = None, scope: Scope | str | None = None
    ) -> Composition:
        """Return the first composition of a run. Memory is asked; nothing is sent or stored."""
        from agentkit.agent.first_prompt import first_prompt

        return first_prompt(overridden(self).definition, user_input, session, scope)

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
        from agentkit.run.engine.start import start_run

        return await start_run(self._defined("run", options, RUN), user_input, options)

    def _defined(self, method: str, options: Mapping[str, Any], valid: frozenset[str]) -> AgentDefinition[Output]:
        """Check the options of a method, and return the definition of its run, with the changes of the options."""
        check_options(method, options, valid)
        definition = overridden(self).definition
        if CHANGES.isdisjoint(options):
            return definition
        return changed_definition(definition, {name: options[name] for name in CHANGES.intersection(options)})

    async def resume(
        self, journal: Journal | Path | str, /, **options: Unpack[RunOptions[Deps, Output]]
    ) -> RunResult[Output]:
        """Go on with a run from its journal, in this process or another one: what was done is not done again.

        Args:
            journal: The journal from `Paused`, from any error of a run or from `Journal.loads`; or its file. The file
                of a journal is continued.
            **options: See `RunOptions`. `session` is the session of the run, opened again; required if the run had
                one.

        Raises:
            JournalError: It cannot be read, is of another agent, conversation or memory, or the run continued since.
            RunBusy: The run is going on already.
            AgentError: As `run` does.
        """
        from agentkit.run.engine.start import resume_run

        return await resume_run(self._defined("resume", options, RESUME), journal, options)

    def run_sync(self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]) -> RunResult[Output]:
        """Answer one user input from code that is not async, also inside a running event loop. See `run`."""
        return run_blocking(self.run(user_input, **options))

    def resume_sync(
        self, journal: Journal | Path | str, /, **options: Unpack[RunOptions[Deps, Output]]
    ) -> RunResult[Output]:
        """Go on with a run from code that is not async. See `resume`."""
        return run_blocking(self.resume(journal, **options))  # pyright: ignore[reportArgumentType]  # `journal` is positional

    async def start(self, user_input: Input | None, **options: Unpack[RunOptions[Any, Any]]) -> RunHandle[Output]:
        """Begin a run that outlives this process, on the workers of the `Runs` that this agent was added to.

        Args:
            user_input: As `run` takes it.
            **options: See `RunOptions`. The same `run_id` with the same input returns the existing run.

        Raises:
            AgentDefinitionError: The agent was added to no `Runs`.
            RunIdTaken: There is a run of this id, of another agent or input.
            PromptError: Kwargs that the prompts require are missing; nothing was started.
        """
        return await self._runs_of().start(self, user_input, **options)

    async def map(
        self, inputs: Iterable[Input], *, name: str, out: Path | str, **options: Unpack[RunOptions[Any, Any]]
    ) -> MapReport:
        """Begin a durable run for each of many inputs, and write how they end, in the order of the inputs.

        After a stop it may be called again, with the same name, inputs and file: existing runs continue, and
        written answers stay.

        Args:
            inputs: Each as `run` takes it; 10,000 are no problem. The run of input 7 is `name/7`.
            name: Unique in the database.
            out: The file: a line of JSON for each input.
            **options: See `RunOptions`.

        Raises:
            DurableError: Inputs that cannot be run, by their numbers; or the file belongs to something else, cannot be
                written, or is being written by a map; nothing was started. Or the disk is full meanwhile.
            RunIdTaken: There is a map of this name with other inputs; nothing was started.
        """
        return await self._runs_of().map(self, inputs, name=name, out=out, **options)

    def _runs_of(self) -> Runs:
        if self.runs is None:
            raise AgentDefinitionError(
                f"agent {self.name!r} was added to no runs, so that no worker would find it: "
                "runs = Runs('sqlite:///runs.db'); runs.add(agent)",
                name=self.name,
            )
        return self.runs

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
        from agentkit.agent.agent_tool import AgentAsTool

        as_tool = AgentAsTool(lambda: overridden(self).definition, name, argument, history)
        return as_tool.tool(description, policy)

    def stream(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> AsyncGenerator[Event[Output], None]:
        """Answer one user input, yielding events; the last one is `RunFinished`. Raises what `run` does.

        The run waits for who reads the events once a few are waiting. Leaving early cancels it. To have it ended before
        going on, use `contextlib.aclosing`.
        """
        from agentkit.run.engine.event_sink import streaming

        return streaming(self._passing_on(user_input, options))

    def stream_sync(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> Generator[Event[Output], None, None]:
        """Answer one user input from code that is not async, yielding events. See `stream`.

        The run waits for who reads the events once a few are waiting. Leaving early cancels it: close the generator.
        """
        return streamed(self._passing_on(user_input, options))

    async def stream_text(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> AsyncGenerator[str, None]:
        """Answer one user input, yielding the text of the model in pieces. Raises the errors of `run`. See `stream`.

        It yields the text of all steps, also text before a tool call; thinking and arguments of tools are left out.
        """
        from agentkit.run.engine.events import TextDelta

        async with aclosing(self.stream(user_input, **options)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    def stream_text_sync(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> Generator[str, None, None]:
        """Answer one user input from code that is not async, yielding text. See `stream_text`."""
        from agentkit.run.engine.events import TextDelta

        with closing(self.stream_sync(user_input, **options)) as events:
            for event in events:
                if isinstance(event, TextDelta):
                    yield event.text

    def _passing_on(
        self, user_input: Input | None, options: Any
    ) -> Callable[[PassOn[Event[Output]]], Coroutine[Any, Any, object]]:
        """Return what runs, passing each event on to who reads the stream."""
        from agentkit.run.engine.event_sink import both

        def run(pass_on: PassOn[Event[Output]]) -> Coroutine[Any, Any, object]:
            heard: Any = {**options, "on_event": both(options.get("on_event"), pass_on)}
            return self.run(user_input, **heard)

        return run
