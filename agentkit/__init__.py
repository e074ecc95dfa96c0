"""agentkit: tool-calling agents whose prompt is a typed, layered, inspectable tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_prompts.lazy import lazy_exports

if TYPE_CHECKING:
    from agentkit.agent import Agent
    from agentkit.chain import Chain
    from agentkit.drivers.aio import Approver
    from agentkit.errors import AgentDefinitionError, AgentError, LimitExceeded, OutputError, SessionBusy
    from agentkit.events import (
        Event,
        ModelReplied,
        Nested,
        PromptComposed,
        Recalled,
        RunFinished,
        TextDelta,
        ToolFinished,
        ToolStarted,
    )
    from agentkit.facts import FoundFact, FoundFacts, fact_extractor, fact_layers
    from agentkit.limits import Limits
    from agentkit.loop import RunResult
    from agentkit.models.base import Model, Reply, Usage
    from agentkit.models.completions import CompletionModel
    from agentkit.models.errors import (
        ModelAuthError,
        ModelError,
        ModelInterrupted,
        ModelRateLimited,
        ModelReplyError,
        ModelRequestError,
        ModelUnavailable,
    )
    from agentkit.models.offline import OfflineModel
    from agentkit.models.openai import OpenAIModel
    from agentkit.models.scripted import ScriptedModel
    from agentkit.recalling import Recaller
    from agentkit.session import InMemorySession, Session
    from agentkit_prompts.composition import Composition
    from agentkit_prompts.context import Document, Example, Fact, PromptContext, ToolSpec, UserInput
    from agentkit_prompts.conversation import Conversation
    from agentkit_prompts.layers import Layers
    from agentkit_prompts.messages import Message, ToolCall
    from agentkit_tools.context import ToolContext
    from agentkit_tools.result import ToolResult
    from agentkit_tools.tool import Tool, tool

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentDefinitionError",
    "AgentError",
    "Approver",
    "Chain",
    "CompletionModel",
    "Composition",
    "Conversation",
    "Document",
    "Event",
    "Example",
    "Fact",
    "FoundFact",
    "FoundFacts",
    "InMemorySession",
    "Layers",
    "LimitExceeded",
    "Limits",
    "Message",
    "Model",
    "ModelAuthError",
    "ModelError",
    "ModelInterrupted",
    "ModelRateLimited",
    "ModelReplied",
    "ModelReplyError",
    "ModelRequestError",
    "ModelUnavailable",
    "Nested",
    "OfflineModel",
    "OpenAIModel",
    "OutputError",
    "PromptComposed",
    "PromptContext",
    "Recalled",
    "Recaller",
    "Reply",
    "RunFinished",
    "RunResult",
    "ScriptedModel",
    "Session",
    "SessionBusy",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolFinished",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "Usage",
    "UserInput",
    "fact_extractor",
    "fact_layers",
    "tool",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "agentkit.agent": "Agent",
        "agentkit.chain": "Chain",
        "agentkit.drivers.aio": "Approver",
        "agentkit.errors": "AgentDefinitionError AgentError LimitExceeded OutputError SessionBusy",
        "agentkit.events": "Event ModelReplied Nested PromptComposed Recalled RunFinished TextDelta ToolFinished"
        " ToolStarted",
        "agentkit.facts": "FoundFact FoundFacts fact_extractor fact_layers",
        "agentkit.limits": "Limits",
        "agentkit.loop": "RunResult",
        "agentkit.models.base": "Model Reply Usage",
        "agentkit.models.completions": "CompletionModel",
        "agentkit.models.errors": (
            "ModelAuthError ModelError ModelInterrupted ModelRateLimited ModelReplyError ModelRequestError "
            "ModelUnavailable"
        ),
        "agentkit.models.offline": "OfflineModel",
        "agentkit.models.openai": "OpenAIModel",
        "agentkit.models.scripted": "ScriptedModel",
        "agentkit.recalling": "Recaller",
        "agentkit.session": "InMemorySession Session",
        "agentkit_prompts.composition": "Composition",
        "agentkit_prompts.context": "Document Example Fact PromptContext ToolSpec UserInput",
        "agentkit_prompts.conversation": "Conversation",
        "agentkit_prompts.layers": "Layers",
        "agentkit_prompts.messages": "Message ToolCall",
        "agentkit_tools.context": "ToolContext",
        "agentkit_tools.result": "ToolResult",
        "agentkit_tools.tool": "Tool tool",
    },
)
