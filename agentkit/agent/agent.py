"""`Agent`: a chain with tools, memory and limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from typing_extensions import TypeVar

from agentkit.agent.definitions import changed_definition, make_definition, with_deps
from agentkit.agent.overrides import overridden, overriding
from agentkit.errors import AgentDefinitionError
from agentkit.ground.sync_driver import run_blocking
from agentkit.ground.unknown_options import AGENT_ELSEWHERE, refusing_unknown
from agentkit.models.settings import NO_SETTINGS, ModelSettings
from agentkit.run.engine.run_options import CHANGES, COMPOSE, RESUME, RUN, RunOptions, Tools, check_options
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.chain import Chain, Output
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.run_context import Input, run_context
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec
from agentkit_prompts.hints import Hinted, with_option_hints
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
    from agentkit.run.engine.events import Event
    from agentkit.run.engine.run_options import AgentOptions, MapOptions, StartOptions
    from agentkit.run.engine.run_result import RunResult
    from agentkit.run.engine.run_stream import RunStream, SyncRunStream
    from agentkit.run.journal.journal import Journal
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import RecallOptions, RecallSource
    from agentkit.run.parts.run_guards import Guard
    from agentkit.run.parts.session import SessionProtocol
    from agentkit_prompts.prompters.prompter import Prompter
    from agentkit_prompts.schemas.params import JsonSchema
    from agentkit_tools.calling.tool_policy import PolicyOptions

# Contravariant: an agent that accepts any deps can be used as an agent without deps.
Deps = TypeVar("Deps", default=None, contravariant=True)
_DEFAULT_LIMITS = Limits()


@refusing_unknown(**AGENT_ELSEWHERE)
class Agent(Generic[Deps, Output], metaclass=Hinted):
    """Answers user input with a model, and calls tools.

    Args:
        model: A model, its name such as "openai:gpt-5-mini", or a `Chain` with layers and output type.
        instructions: Text or a prompt: the system prompt, the first layer of `system`. With a memory, recalled items
            are shown before the input.
        layers: The full tree of prompts, instead of `instructions`: `Layers`, or a `Prompter`.
        settings: Default settings of the model, such as `ModelSettings(temperature=0)` or a dict. A field that is set
            replaces the field of the model; a field in the settings of a run replaces both.
        tools: Functions decorated with `@tool`, or plain functions; or a toolset that creates the tools of each run:
            `DynamicToolset`, `MCPToolset`.
        memory: Memory that is searched before each run; its scope must cover the scopes of the runs, see `RunOptions`.
        recall: Options of each recall.
        compaction: Compaction of long conversations: `Trim()` or `Summarise(model)`.
        output: The output type, a function that finishes the run, or an `OutputSpec`; see `Chain`.
        budget: Maximum tokens of a composition.
        counter: Token counter; a fast estimate by default.
        deps: Type of the `deps` of tools in their `ToolContext`; for type checkers only.
        limits: Limits of one run.
        guards: Checks of input, replies, tool calls and tool results, in their order; see `agentkit.guards.guard`.
        name: Name of the agent in journals: only an agent with this name can resume them.

    Raises:
        ToolDefinitionError: Two tools have the same name, or a tool cannot be sent to a model.
        PromptError: A prompt can never render.
        AgentDefinitionError: The model does not support the output type or a setting, both `instructions` and `layers`
            are set, or one of them for a `Chain`; no prompt shows recalled items; or the name of the model is unknown.
    """

    __slots__ = ("definition", "runs")

    definition: AgentDefinition[Output]
    """The parts of the agent that its runs read."""
    runs: Runs | None
    """The `Runs` to which the agent was added; `start` and `map` start runs there."""

    @overload
    def __init__(
        self, model: Chain[Output], *, deps: type[Deps] = ..., name: str = ..., **options: Unpack[AgentOptions[Deps]]
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
        **options: Unpack[AgentOptions[Deps]],
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
        **options: Unpack[AgentOptions[Deps]],
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
        **options: Unpack[AgentOptions[Deps]],
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
        guards: Iterable[Guard] = (),
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
            guards=guards,
            name=name,
        )

    @property
    def name(self) -> str:
        """Name of the agent in journals."""
        return self.definition.name

    @property
    def chain(self) -> Chain[Output]:
        """Prompts, model and output type."""
        return self.definition.chain

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name; empty if each run creates its tools."""
        return self.definition.tools.tools

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The specifications of the tools for the model."""
        return self.definition.tools.specs

    @property
    def memory(self) -> RecallSource | None:
        """The memory that is searched before each run."""
        return self.definition.memory

    def with_changes(self, **changes: Unpack[RunOptions[Any, Any]]) -> Agent[Deps, Any]:
        """Return a copy with other options, such as `model`; see `RunOptions`. Raises the errors of the class."""
        check_options("with_changes", changes, CHANGES)
        return self._copy(changed_definition(self.definition, changes))

    def with_deps(self, deps: Any) -> Agent[Any, Output]:
        """Return a copy whose runs get `deps` if they are started without the option `deps`; see `DepsSource`.

        Args:
            deps: An object for all runs; or a function that is called with the `RunCaller` of each run and returns its
                deps, also an async function or a generator, which cleans up after the run.
        """
        return self._copy(with_deps(self.definition, deps))

    @staticmethod
    def _copy(definition: AgentDefinition[Any]) -> Agent[Any, Any]:
        # Without the constructor: a definition does not contain its arguments.
        copy: Agent[Any, Any] = object.__new__(Agent)
        copy.runs, copy.definition = None, definition
        return copy

    def override(self, **changes: Unpack[RunOptions[Any, Any]]) -> AbstractContextManager[None]:
        """Change this agent for all code in a `with` block, such as a test.

        Threads and tasks that were started before the block keep the original agent. Nested blocks add their changes.
        """
        return overriding(self, overridden(self).with_changes(**changes))

    @property
    def additional_kwargs_schema(self) -> JsonSchema | None:
        """JSON Schema of the required `additional_kwargs`."""
        return self.chain.additional_kwargs_schema

    def context(self, user_input: Input, session: SessionProtocol | None = None) -> PromptContext:
        """Return the context of a run, without recalled items and without tools that each run creates."""
        return run_context(self.chain, self.specs, user_input, session, "")

    def compose(self, user_input: Input, **options: Unpack[RunOptions[Any, Any]]) -> Composition:
        """Return the first composition of a run. The memory is searched; nothing is sent or stored.

        Args:
            user_input: See `run`.
            **options: `session`, `scope` and the options of `with_changes`, such as `budget`; see `RunOptions`.
        """
        from agentkit.agent.first_prompt import first_prompt

        definition = self._defined("compose", options, COMPOSE)
        return first_prompt(definition, user_input, options)

    async def run(self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]) -> RunResult[Output]:
        """Answer one user input.

        Args:
            user_input: Text, parts, a `UserInput` with additional kwargs, the slots of the prompter, or a context,
                which the agent completes with the conversation of the session, its tools and recalled items. None
                answers the last message of a session, such as after a failed run.
            **options: See `RunOptions`.

        Raises:
            PromptError: A prompt cannot be rendered, or kwargs are missing; nothing was sent or stored.
            ModelError: The model could not be reached or did not reply.
            OutputError: The answer does not match the output type.
            LimitExceeded: The run exceeded a limit.
            GuardStopped: A guard stopped the run.
            Paused: A tool call needs approval, or a guard asks, and the run has no `approve`.
            ApprovalError: The result of `approve` is not a decision.
            DepsMismatch: `deps` is missing or has another type than tools require; nothing was sent or stored.
            ScopeMismatch: The scopes of memory, session and `scope` do not match.
            SessionBusy: Another run uses the session.
            RunBusy: A run with this `run_id` is in progress.
            NothingToContinue: No input, and no message without an answer.
        """
        from agentkit.run.engine.start import start_run

        return await start_run(self._defined("run", options, RUN), user_input, options)

    def _defined(self, method: str, options: Mapping[str, Any], valid: frozenset[str]) -> AgentDefinition[Output]:
        """Check the options of a method, and return the definition of the agent with the changes in these options."""
        check_options(method, options, valid)
        definition = overridden(self).definition
        if CHANGES.isdisjoint(options):
            return definition
        return changed_definition(definition, {name: options[name] for name in CHANGES.intersection(options)})

    async def resume(
        self, journal: Journal | Path | str, /, **options: Unpack[RunOptions[Deps, Output]]
    ) -> RunResult[Output]:
        """Resume a run from its journal, in this process or another. Recorded steps are not repeated.

        Args:
            journal: The journal of `Paused`, of any error of a run or of `Journal.loads`; or its file, which is
                continued.
            **options: See `RunOptions`. `session` is the session of the run; required if the run had a session.

        Raises:
            JournalError: The journal is corrupt, belongs to another agent, conversation or memory, or is outdated.
            RunBusy: The run is in progress.
            AgentError: See `run`.
        """
        from agentkit.run.engine.start import resume_run

        return await resume_run(self._defined("resume", options, RESUME), journal, options)

    def run_sync(self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]) -> RunResult[Output]:
        """Answer one user input from synchronous code, also inside a running event loop. See `run`."""
        return run_blocking(self.run(user_input, **options))

    def resume_sync(
        self, journal: Journal | Path | str, /, **options: Unpack[RunOptions[Deps, Output]]
    ) -> RunResult[Output]:
        """Resume a run from synchronous code. See `resume`."""
        return run_blocking(self.resume(journal, **options))  # pyright: ignore[reportArgumentType]  # `journal` is positional

    async def start(self, user_input: Input | None, **options: Unpack[StartOptions]) -> RunHandle[Output]:
        """Start a durable run, which workers of the `Runs` of this agent execute.

        Args:
            user_input: See `run`.
            **options: `session`, `scope`, `tenant`, `user`, `locale`, `tags`, `priority`, `run_id`, `delay`. The same
                `run_id` with the same input returns the existing run.

        Raises:
            AgentDefinitionError: The agent was added to no `Runs`.
            RunIdTaken: A run with this id has another agent or input.
            PromptError: Kwargs that the prompts require are missing; nothing was started.
        """
        return await self._runs_of().start(self, user_input, **options)

    @with_option_hints
    async def map(
        self, inputs: Iterable[Input], *, name: str, out: Path | str, **options: Unpack[MapOptions]
    ) -> MapReport:
        """Start a durable run for each input, and write the outcomes in the order of the inputs.

        After an interruption it can be called again, with the same name, inputs and file: existing runs continue, and
        written answers stay.

        Args:
            inputs: Inputs of runs, see `run`; 10,000 are possible. The id of the run of input 7 is `name/7`.
            name: Unique in the database.
            out: File with a line of JSON for each input.
            **options: `tenant`, `priority`, `concurrency`, `rate`, `tenant_concurrency`, `on_progress`.

        Raises:
            DurableError: Inputs are invalid, or the file has other content, cannot be written, or is written by another
                map; nothing was started. Or the disk is full.
            RunIdTaken: A map with this name has other inputs; nothing was started.
        """
        return await self._runs_of().map(self, inputs, name=name, out=out, **options)

    def _runs_of(self) -> Runs:
        if self.runs is None:
            raise AgentDefinitionError(
                f"agent {self.name!r} was not added to runs, so that no worker can execute it: "
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
        """Return this agent as a tool of another agent.

        Each call is a separate run without a session. The parameters of the tool are the input, as one text, and the
        required additional kwargs of the prompts. Errors of the run are error results of the call.

        The run shares `deps` (unless this agent has separate deps, see `with_deps`), approver, pauses and cancellation
        with the outer run. Its tokens count in the limits of the outer run, the outer journal contains its journal, and
        the listener of the outer run receives its events as `Nested`. With `final=True` its answer is the answer of the
        outer run (a hand-off).

        Args:
            name: Name of the tool for the model.
            description: Purpose of the agent, and its restrictions, for the model.
            argument: Name of the parameter with the user input.
            history: Messages of the outer conversation for this agent: `none`; `text` (the texts of users and
                assistants); `all`, with tool calls and results; or a function that selects messages.
            **policy: Fields of `ToolPolicy`; the default of `timeout` is 600 seconds.

        Raises:
            ToolDefinitionError: An additional kwarg has the name `argument`, or the policy is invalid.
        """
        from agentkit.agent.agent_tool import AgentAsTool

        # A function, called at each call, so that `override` in a test also changes agents that are tools already.
        as_tool = AgentAsTool(lambda: overridden(self).definition, name, argument, history)
        return as_tool.tool(description, policy)

    def stream(self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]) -> RunStream[Event[Output]]:
        """Answer one user input and yield events; the last event is `RunFinished`. Raises the errors of `run`.

        The run waits for the reader when the queue of events is full. Closing the generator early cancels the run;
        `contextlib.aclosing` also waits for its end.
        """
        from agentkit.run.engine.event_sink import passing_on
        from agentkit.run.engine.run_stream import run_stream

        return run_stream(lambda inbox: passing_on(self.run, user_input, {**options, "inbox": inbox}), options)

    def stream_sync(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> SyncRunStream[Event[Output]]:
        """Answer one user input from synchronous code and yield events. See `stream`.

        The run waits for the reader when the queue of events is full. Closing the generator early cancels the run.
        """
        from agentkit.run.engine.event_sink import passing_on
        from agentkit.run.engine.run_stream import sync_run_stream

        return sync_run_stream(lambda inbox: passing_on(self.run, user_input, {**options, "inbox": inbox}), options)

    def stream_text(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> AsyncGenerator[str, None]:
        """Answer one user input, yielding the text of the model in pieces. Raises the errors of `run`. See `stream`.

        The text of a step before a tool call is included; thinking and arguments of tools are left out.
        """
        from agentkit.run.engine.async_stream import AsyncStream, texts

        return AsyncStream(texts(self.stream(user_input, **options)), "agent.stream_text_sync(text)")

    def stream_text_sync(
        self, user_input: Input | None, **options: Unpack[RunOptions[Deps, Output]]
    ) -> Generator[str, None, None]:
        """Answer one user input from synchronous code and yield text. See `stream_text`."""
        from agentkit.run.engine.events import TextDelta

        with closing(self.stream_sync(user_input, **options)) as events:
            for event in events:
                if isinstance(event, TextDelta):
                    yield event.text
