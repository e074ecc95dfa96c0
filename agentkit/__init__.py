"""agentkit: tool-calling agents whose prompt is a typed, layered, inspectable tree."""

from agentkit_prompts.lazy import exports

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.agent.agent": "Agent",
        "agentkit.durable.runs_facade": "Runs",
        "agentkit.errors": "AgentError AskAgain LimitExceeded Paused",
        "agentkit.models.anthropic.anthropic_model": "AnthropicModel",
        "agentkit.models.completion.completion_model": "CompletionModel",
        "agentkit.models.fallback": "FallbackModel",
        "agentkit.models.model": "Reply Usage",
        "agentkit.models.model_errors": "ModelError",
        "agentkit.models.model_names": "model",
        "agentkit.models.offline.offline_model": "OfflineModel",
        "agentkit.models.offline.scripted_model": "ScriptedModel",
        "agentkit.models.openai.openai_chat": "OpenAIModel",
        "agentkit.models.openai.openai_responses": "OpenAIResponsesModel",
        "agentkit.models.settings": "ModelSettings",
        "agentkit.observing.observation": "observe",
        "agentkit.output.output_spec": "OutputSpec",
        "agentkit.run.engine.events": (
            "ApprovalAsked ApprovalGiven ArgumentsDelta ConversationCompacted Event ModelFellBack ModelReplied "
            "Nested PartialOutput PromptComposed Recalled RunFinished TextDelta ThinkingDelta ToolFinished "
            "ToolProgress ToolStarted"
        ),
        "agentkit.run.engine.run_result": "RunResult",
        "agentkit.run.engine.run_options": "RunOptions",
        "agentkit.run.journal.journal": "Journal",
        "agentkit.run.parts.chain": "Chain",
        "agentkit.run.parts.citations": "Citation",
        "agentkit.run.parts.compaction": "Summarise Trim",
        "agentkit.run.parts.decisions": "Approved Approver Denied",
        "agentkit.run.parts.deps_source": "RunCaller",
        "agentkit.run.parts.limits": "Limits",
        "agentkit.run.parts.recaller": "Recaller RecallOptions",
        "agentkit.run.parts.session": "Session SessionProtocol",
        "agentkit_memory.memory": "Memory",
        "agentkit_prompts.composition.composition": "Composition",
        "agentkit_prompts.context.messages": "Message ToolCall",
        "agentkit_prompts.context.prompt_context": "Document PromptContext UserInput",
        "agentkit_prompts.tree.layers": "Layers",
        "agentkit_tools.tool": "Tool tool",
        "agentkit_tools.tool_context": "ToolContext",
    },
)
