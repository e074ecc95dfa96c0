"""The context that a run is asked with: the input, the conversation before it, the tools, and the key of its fences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.chain import Chain
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec, UserInput
from agentkit_prompts.errors import ContextError
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import AnyPrompt, KnowledgePrompt, MemoPrompt, RecalledPrompt, SummaryPrompt
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import RecallSource
    from agentkit.run.parts.session import SessionProtocol

__all__ = ["Input", "placed", "run_context", "with_history", "with_key"]

Input: TypeAlias = PromptContext | UserInput | str | Sequence[str | Part] | Mapping[str, Any]
_NO_CONVERSATION = Conversation()


def run_context(
    chain: Chain[Any], tools: tuple[ToolSpec, ...], user_input: Input, session: SessionProtocol | None, run_id: str
) -> PromptContext:
    """Return the context that a run is asked with, without what memory would recall."""
    prompter = chain.prompter
    if prompter is not None and not isinstance(user_input, PromptContext):
        given: Any = user_input
        user_input = prompter.context(UserInput(given) if isinstance(given, list | tuple) else given)
    if isinstance(user_input, PromptContext):
        conversation = user_input.conversation if session is None else session.conversation
        _check_unused(user_input, conversation, tools)
        ctx = user_input.evolve(conversation=conversation, tools=tools)
    else:
        if type(user_input) is dict and "messages" in user_input:
            what = "give the text of the user, and the messages before it as history= or session="
            raise ContextError("PromptContext", [("user_input.messages", what)])
        conversation = _NO_CONVERSATION if session is None else session.conversation
        ctx = PromptContext(user_input=cast(UserInput, user_input), conversation=conversation, tools=tools)
    kept = getattr(session, "additional_kwargs", None)
    if kept:
        ctx = _with_kept(ctx, kept)
    if chain.fenced:
        ctx = with_key(ctx, chain, session, run_id)
    return ctx


def with_history(chain: Chain[Any], user_input: Input | None, options: Mapping[str, Any]) -> Input | None:
    """Return the input of a run with the `history` that it is given, if any.

    Raises:
        AgentDefinitionError: There is a session, a context or no input beside it, which has a history of its own.
        PrompterError: Names what of it is no turn.
    """
    history = options.get("history")
    if history is None:
        return user_input
    if options.get("session") is not None or user_input is None or isinstance(user_input, PromptContext):
        what = "session=" if options.get("session") is not None else "a PromptContext" if user_input else "no input"
        raise AgentDefinitionError(
            f"history=: the run has {what}, whose conversation it would be; give one of them", name="history"
        )
    prompter = chain.prompter
    if prompter is not None:
        given: Any = user_input
        return prompter.context(UserInput(given) if isinstance(given, list | tuple) else given, history)
    from agentkit_prompts.prompters.history import read_history

    return PromptContext(user_input=cast(UserInput, user_input), conversation=Conversation(read_history(history)))


def _check_unused(ctx: PromptContext, conversation: Conversation, tools: tuple[ToolSpec, ...]) -> None:
    """Refuse what a run would leave out of a context: the session has the conversation, the agent has the tools.

    Raises:
        ContextError: Names all of it.
    """
    problems: list[tuple[str, str]] = []
    if len(ctx.conversation) and ctx.conversation != conversation:
        problems.append(("conversation", "the conversation of session= would take its place: give one of them"))
    if ctx.tools and ctx.tools != tools:
        problems.append(("tools", "those of the agent would take their place: give tools= to the agent, or to the run"))
    if problems:
        raise ContextError("PromptContext", problems)


def _with_kept(ctx: PromptContext, kept: Mapping[str, Any]) -> PromptContext:
    """Return the context with the additional kwargs of the session, where the input has none of that name."""
    given = ctx.user_input.additional_kwargs
    if not (names := [name for name in kept if name not in given]):
        return ctx
    return ctx.evolve(user_input=UserInput(ctx.user_input.input, {**kept, **given}), kept_kwargs=names)


def with_key(ctx: PromptContext, chain: Chain[Any], session: SessionProtocol | None, run_id: str) -> PromptContext:
    """Return the context with a key for its fences: the same in every process, and nobody can guess a run id."""
    if not chain.fenced or ctx.session_key is not None:
        return ctx
    whose = "" if session is None else session.id
    return ctx.evolve(session_key=f"{whose}\n{run_id or 'composed, not sent'}")


def placed(layers: Any, memory: RecallSource | None, compaction: Compaction | None) -> Any:
    """Return the layers of an agent: before the input of one prompt stands what it recalls and summarises."""
    recalls, compacts = memory is not None, False
    if compaction is not None:
        from agentkit.run.parts.compaction import Summarise

        compacts = isinstance(compaction, Summarise)
    if not (recalls or compacts) or not isinstance(layers, AnyPrompt):
        return layers
    shown: list[BasePrompt] = [SummaryPrompt()] if compacts else []
    shown += [MemoPrompt(), RecalledPrompt(), KnowledgePrompt()] if recalls else []
    return Layers(layers or (), before_input=shown)
