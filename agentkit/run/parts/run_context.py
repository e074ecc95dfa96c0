"""Context of a run: input, earlier conversation, tools and the key of the fences around untrusted text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from agentkit.errors import AgentDefinitionError
from agentkit.run.parts.chain import Chain
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.parts import Part
from agentkit_prompts.context.prompt_context import PromptContext, ToolSpec, UserInput
from agentkit_prompts.errors import ContextError
from agentkit_prompts.tree.layers import PLACES, Layers, Place
from agentkit_prompts.tree.leaves import (
    AnyPrompt,
    KnowledgePrompt,
    MemoPrompt,
    RecalledPrompt,
    SummaryPrompt,
)
from agentkit_prompts.tree.prompt import BasePrompt

if TYPE_CHECKING:
    from agentkit.run.parts.compaction import Compaction
    from agentkit.run.parts.recaller import RecallSource
    from agentkit.run.parts.session import SessionProtocol
    from agentkit_tools.toolsets.context_toolset import ContextToolset

Input: TypeAlias = PromptContext | UserInput | str | Sequence[str | Part] | Mapping[str, Any]
_NO_CONVERSATION = Conversation()


def run_context(
    chain: Chain[Any],
    tools: tuple[ToolSpec, ...],
    user_input: Input,
    session: SessionProtocol | None,
    run_id: str,
    locale: str | None = None,
) -> PromptContext:
    """Return the context of a run, without recalled items.

    Raises:
        ContextError: The input is a list of messages, or the run would ignore a part of the context.
    """
    if chain.prompter is not None and not isinstance(user_input, PromptContext):
        user_input = chain.prompter.context(_prompter_input(user_input))
    conversation = _NO_CONVERSATION
    if session is not None:
        conversation = session.conversation
    if isinstance(user_input, PromptContext):
        if session is None:
            conversation = user_input.conversation
        _check_unused(user_input, conversation, tools)
        ctx = user_input.evolve(conversation=conversation, tools=tools)
    else:
        if _is_conversation(user_input):
            problem = "expected the text of the user, with the messages before it as history= or session="
            raise ContextError("PromptContext", [("user_input.messages", problem)])
        ctx = PromptContext(user_input=cast(UserInput, user_input), conversation=conversation, tools=tools)
    if locale is not None:
        if ctx.locale not in (None, locale):
            problem = f"{ctx.locale!r:.40}, but locale= is {locale!r:.40}: pass one of them"
            raise ContextError("PromptContext", [("locale", problem)])
        ctx = ctx.evolve(locale=locale)
    stored_kwargs = getattr(session, "additional_kwargs", None)
    if stored_kwargs:
        ctx = _with_stored_kwargs(ctx, stored_kwargs)
    if chain.fenced:
        ctx = with_key(ctx, chain, session, run_id)
    if ctx.now is None and chain.requires_clock:
        # The journal stores the time, so that a resumed run sends the same prompt.
        ctx = ctx.evolve(now=datetime.now().astimezone())
    return ctx


def _is_conversation(user_input: object) -> bool:
    """True if the input is a list of messages, or a mapping with messages, as other libraries expect it."""
    if isinstance(user_input, dict):
        return "messages" in user_input
    if not isinstance(user_input, list) or not user_input:
        return False
    return all(isinstance(each, Message) or (isinstance(each, dict) and "role" in each) for each in user_input)


def with_history(chain: Chain[Any], user_input: Input | None, options: Mapping[str, Any]) -> Input | None:
    """Return the input of a run together with its option `history`, if set.

    Raises:
        AgentDefinitionError: The run has no input, or has a session or a PromptContext, which contain a conversation.
        PrompterError: An entry of the history is not a turn. The error lists all such entries.
    """
    history = options.get("history")
    if history is None:
        return user_input
    conflict = ""
    if options.get("session") is not None:
        conflict = "session= has a conversation already; remove history= or session="
    elif user_input is None:
        conflict = "the run has no input; remove history=, or pass text as input"
    elif isinstance(user_input, PromptContext):
        conflict = "the PromptContext has a conversation already; remove history=, or pass text as input"
    if conflict:
        raise AgentDefinitionError(f"history=: {conflict}", name="history")
    if chain.prompter is not None:
        return chain.prompter.context(_prompter_input(user_input), history)
    from agentkit_prompts.prompters.history import read_history

    return PromptContext(user_input=cast(UserInput, user_input), conversation=Conversation(read_history(history)))


def _prompter_input(user_input: Any) -> Any:
    """Return the input of a run for a prompter, which reads a list as user input with parts."""
    if isinstance(user_input, list | tuple):
        return UserInput(user_input)
    return user_input


def _check_unused(ctx: PromptContext, conversation: Conversation, tools: tuple[ToolSpec, ...]) -> None:
    """Refuse parts of a context that the run would ignore, because the session and the agent override them.

    Raises:
        ContextError: The error lists all ignored parts.
    """
    problems: list[tuple[str, str]] = []
    if len(ctx.conversation) and ctx.conversation != conversation:
        problems.append(("conversation", "the conversation of session= would replace it: pass one of them"))
    if ctx.tools and ctx.tools != tools:
        problems.append(("tools", "the tools of the agent would replace them: pass tools= to the agent, or to the run"))
    if problems:
        raise ContextError("PromptContext", problems)


def _with_stored_kwargs(ctx: PromptContext, stored: Mapping[str, Any]) -> PromptContext:
    """Return the context with the additional kwargs of the session. Kwargs of the input take precedence."""
    kwargs = ctx.user_input.additional_kwargs
    names = [name for name in stored if name not in kwargs]
    if not names:
        return ctx
    return ctx.evolve(user_input=UserInput(ctx.user_input.input, {**stored, **kwargs}), kept_kwargs=names)


def with_key(ctx: PromptContext, chain: Chain[Any], session: SessionProtocol | None, run_id: str) -> PromptContext:
    """Return the context with the session key of its fences.

    The key is the same in every process. A reader who knows the run id can compute it.
    """
    if not chain.fenced or ctx.session_key is not None:
        return ctx
    session_id = ""
    if session is not None:
        session_id = session.id
    return ctx.evolve(session_key=f"{session_id}\n{run_id or 'composed, not sent'}")


def with_default_prompts(
    layers: Any, memory: RecallSource | None, compaction: Compaction | None, toolsets: Sequence[ContextToolset]
) -> Any:
    """Return the layers of an agent; a single prompt becomes layers with the prompts of toolsets, such as skills,
    recalled items and the summary.
    """
    if not isinstance(layers, AnyPrompt) or (memory is None and compaction is None and not toolsets):
        return layers
    added: dict[Place, list[BasePrompt]] = {place: [] for place in PLACES}
    for toolset in toolsets:
        for place, prompt in toolset.prompts().items():
            added[place].append(prompt)
    before_input = added["before_input"]
    if compaction is not None:
        from agentkit.run.parts.compaction import Summarise

        if isinstance(compaction, Summarise):
            before_input.append(SummaryPrompt())
    if memory is not None:
        before_input += [MemoPrompt(), RecalledPrompt(), KnowledgePrompt()]
    if not any(added.values()):
        return layers
    system: list[AnyPrompt] = [*added["system"]]
    if layers:
        system.insert(0, layers)
    return Layers(system, before_input=before_input, after_intermediate=added["after_intermediate"])
