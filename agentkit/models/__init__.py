"""Models, their settings, replies, prices and errors."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.models.anthropic.anthropic_model": "AnthropicModel",
        "agentkit.models.completion.completion_model": "CompletionModel",
        "agentkit.models.fallback": "FallbackModel",
        "agentkit.models.model": "Delta Model OnDelta Reply Usage",
        "agentkit.models.model_errors": (
            "CallAsTextWarning ModelAuthError ModelBatchError ModelError ModelInterrupted ModelRateLimited "
            "ModelReplyCut ModelReplyError ModelRequestError ModelUnavailable MediaAsTextWarning ToolsTwiceWarning "
            "UnreadableCallsWarning"
        ),
        "agentkit.models.offline.offline_model": "OfflineModel",
        "agentkit.models.offline.scripted_model": "ScriptedModel",
        "agentkit.models.openai.openai_chat": "OpenAIModel",
        "agentkit.models.openai.openai_responses": "OpenAIResponsesModel",
        "agentkit.models.prices": "Price",
        "agentkit.models.settings": "ModelSettings",
    },
)
