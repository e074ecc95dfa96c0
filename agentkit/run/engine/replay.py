"""Replay of a run from its journal: nothing is sent, no tool runs, and no memory is searched."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, cast

from agentkit.errors import AgentError, JournalError
from agentkit.models.model import Reply
from agentkit.run.engine.conversation_start import run_start
from agentkit.run.engine.guarded import guarded
from agentkit.run.engine.journalled import Journalled
from agentkit.run.engine.loop import run_loop
from agentkit.run.engine.run_setup import RunSetup
from agentkit.run.engine.steps import OnResult, RunStart, ToolRound
from agentkit.run.journal.journal import Journal
from agentkit.run.parts.agent_definition import AgentDefinition
from agentkit.run.parts.chain import Chain
from agentkit.run.parts.compaction import CompactionResult
from agentkit.run.parts.limits import Limits
from agentkit.run.parts.recaller import RecallResult
from agentkit.run.parts.run_context import with_key
from agentkit.run.parts.run_guards import Guard, GuardCheck, Subject
from agentkit.run.parts.session import SessionProtocol
from agentkit.run.parts.verdicts import PASS
from agentkit_prompts.composition.compose import RenderCache
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.composition.sections import EMPTY
from agentkit_prompts.composition.tools_and_output import ToolsAndOutput
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import PromptContext, Selection, UserInput
from agentkit_prompts.tokens.counter import ESTIMATE
from agentkit_prompts.tree.layers import Layers
from agentkit_tools.tool import Tool


def replayed_contexts(
    definition: AgentDefinition[Any], journal: Journal, session: SessionProtocol | None = None
) -> list[PromptContext]:
    """Return the context of each model call of a run, including a call without a reply.

    `definition.chain.compose` composes the prompt of a context again.

    Args:
        definition: The agent of the run, with its present prompts.
        journal: The journal of the run.
        session: The session of the run; None if the run had none.

    Raises:
        JournalError: The session is missing, its conversation was rewound, or the present agent takes other steps.
    """
    if journal.session is not None and session is None:
        raise JournalError(
            f"run {journal.run_id!r}: its session {journal.session!r} no longer exists: "
            "its prompts cannot be composed again",
            name="session",
            value=journal.session,
        )
    # The limits of the run are unknown: no limit may end the replay before the journal.
    count = len(journal.entries) + 1
    setup = RunSetup(
        definition._replace(chain=_without_prompts(definition.chain), limits=Limits(steps=count, repairs=count)),
        journal,
        with_key(journal.context, definition.chain, session, journal.run_id),
        definition.memory,
        session,
        scope=None,
        deps=None,
        render_cache=RenderCache(),
    )
    replay = _Replay(setup)
    try:
        # No event loop: a replay never suspends, so the first `send` runs it to its end.
        run_loop(setup, guarded(setup, replay, is_replay=True)).send(None)
    except StopIteration as finished:
        replay.ctx = finished.value.composition.context
    except _End:
        pass
    except JournalError:
        raise
    except AgentError:
        pass  # the run ended with this error
    return replay.contexts or [replay.ctx]


class _ChainWithoutPrompts(Chain[Any]):
    """Chain of a replay, which needs only the contexts of compositions.

    The prompts are not rendered: prompts that changed since the run can fail with its input.
    """

    __slots__ = ()

    def preflight(self, user_input: UserInput | str | Mapping[str, Any]) -> None:
        pass

    def compose(self, ctx: PromptContext, *, cache: RenderCache | None = None) -> Composition:
        # Not `compose`, which warns about items of the context that no prompt shows.
        return Composition(ctx, _NO_LAYERS, [EMPTY, EMPTY, EMPTY], ESTIMATE, ToolsAndOutput(ctx.tools, None))


def _without_prompts(chain: Chain[Any]) -> Chain[Any]:
    # Without the constructor, which would check the layers and the output type of the chain again.
    copied = object.__new__(_ChainWithoutPrompts)
    for name in Chain.__slots__:
        setattr(copied, name, getattr(chain, name))
    return copied


class _End(Exception):
    """The journal has no further result: ends the replay."""


class _Replay(Journalled):
    """Answers the steps of a run from its journal, and ends at the first model call without a reply.

    Steps before the first model call that have no result yet are skipped, so that every run has a context.

    Attributes:
        contexts: Context of each model call so far.
        ctx: Context of the run if it has no model call.
    """

    __slots__ = ("_recorded", "_setup", "contexts", "ctx")

    def __init__(self, setup: RunSetup[Any]) -> None:
        super().__init__(cast(Any, None), setup.journal, setup.journal)
        self._setup = setup
        self.contexts: list[PromptContext] = []
        self.ctx = setup.ctx
        self._recorded: dict[str, Tool] = {}

    async def begin(self, at: tuple[int, int] | None = None) -> RunStart:
        if self._replays:
            at = self._next("Begin")
        start = run_start(self._setup, at)
        self.ctx = self.ctx.evolve(conversation=start.conversation)
        return start

    async def compact(self, ctx: PromptContext) -> CompactionResult:
        if not self._replays:
            return CompactionResult()
        return await super().compact(ctx)

    async def tools(self, ctx: PromptContext) -> dict[str, Tool]:
        # Toolsets can use a network: a replay has the recorded specifications, without functions and policies.
        if self._replays:
            self._recorded = {}
            for spec in self._next("Equip"):
                tool = self._recorded[spec.name] = copy(_NO_TOOL)
                tool.spec = spec
        return self._recorded

    async def select_examples(self, ctx: PromptContext) -> tuple[Selection, ...]:
        if not self._replays:
            return ()
        return await super().select_examples(ctx)

    async def recall(self, query: str, visible: int | None) -> RecallResult:
        if not self._replays:
            return RecallResult(())
        return await super().recall(query, visible)

    async def append(self, messages: tuple[Message, ...], key: str) -> Message | None:
        if self._replays:
            effect, stored = self._entries[self._at][:2]
            if effect == "Append" and messages != stored and messages == stored[: len(messages)]:
                raise _End  # the result of a final tool is the answer of the run
            return await super().append(messages, key)
        if self.contexts:
            raise _End
        return None

    async def check_guard(self, guard: Guard, subject: Subject, key: str, round_: ToolRound) -> GuardCheck:
        return self._verdicts.get((guard.stage, guard.name, key)) or GuardCheck(guard.stage, guard.name, key, PASS)

    async def call_model(self, composition: Composition, step: int) -> Reply:
        self.contexts.append(composition.context)
        return await super().call_model(composition, step)

    async def call_tools(self, round_: ToolRound, on_result: OnResult) -> None:
        # The loop requests no decisions about tools without policies.
        if self._replays and self._entries[self._at].effect == "AskApproval":
            self._next("AskApproval")
        await super().call_tools(round_, on_result)

    async def _ready(self, name: str) -> None:
        raise _End


def _no_function() -> None:
    """Function of a tool that a replay does not call."""


_NO_TOOL = Tool(_no_function)
_NO_LAYERS = Layers()
