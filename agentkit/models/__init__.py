"""Models: what a composition is sent to, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_prompts.lazy import lazy_exports

if TYPE_CHECKING:
    from agentkit.models.base import FinishReason, Model, Reply, Usage
    from agentkit.models.completions import CompletionModel
    from agentkit.models.errors import (
        ModelAuthError,
        ModelError,
        ModelInterrupted,
        ModelRateLimited,
        ModelReplyError,
        ModelRequestError,
        ModelUnavailable,
        ScriptExhausted,
    )
    from agentkit.models.offline import OfflineModel
    from agentkit.models.openai import OpenAIModel
    from agentkit.models.scripted import Scripted, ScriptedModel

__all__ = [
    "CompletionModel",
    "FinishReason",
    "Model",
    "ModelAuthError",
    "ModelError",
    "ModelInterrupted",
    "ModelRateLimited",
    "ModelReplyError",
    "ModelRequestError",
    "ModelUnavailable",
    "OfflineModel",
    "OpenAIModel",
    "Reply",
    "ScriptExhausted",
    "Scripted",
    "ScriptedModel",
    "Usage",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "agentkit.models.base": "FinishReason Model Reply Usage",
        "agentkit.models.completions": "CompletionModel",
        "agentkit.models.errors": (
            "ModelAuthError ModelError ModelInterrupted ModelRateLimited ModelReplyError ModelRequestError "
            "ModelUnavailable ScriptExhausted"
        ),
        "agentkit.models.offline": "OfflineModel",
        "agentkit.models.openai": "OpenAIModel",
        "agentkit.models.scripted": "Scripted ScriptedModel",
    },
)
