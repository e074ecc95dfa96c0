"""Models: what a composition is sent to, and what comes back."""

from agentkit.models.base import FinishReason, Model, Reply, Usage
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
