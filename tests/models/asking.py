"""Requests to a model of the chat server: shared helpers of the tests of the OpenAI adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentkit import Composition, Layers, ModelError, ModelSettings, OpenAIModel, PromptContext, Reply
from agentkit.errors import AgentDefinitionError
from agentkit.models import Delta, Model
from agentkit.prompts import ToolSpec, compose
from tests.servers import ChatServer

NOTHING_LEFT_OPEN = [
    pytest.mark.filterwarnings("error::ResourceWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
]
"""Marks of a module: a socket that was not closed is a failure."""

KEY = "sk-a-very-secret-key-0123456789"

ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
)


def composed(text: str = "Say hello.", **context: Any) -> Composition:
    return compose(Layers("Be brief."), PromptContext(user_input=text, **context))


def model_for(
    server: ChatServer, name: str, max_retries: int = 0, api_key: str | None = None, **settings: Any
) -> OpenAIModel:
    return OpenAIModel(
        name, base_url=server.url, max_retries=max_retries, api_key=api_key, settings=ModelSettings(**settings)
    )


def ask(model: Model, composition: Composition | None = None, on_text: Callable[[str], None] | None = None) -> Reply:
    def on_delta(delta: Delta) -> object:
        return on_text(delta.text) if on_text is not None and delta.kind in ("text", "refusal") else None

    return asyncio.run(model.request(composition or composed(), on_delta=on_delta if on_text is not None else None))


def failure(model: Model, *, stream: bool = False) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(model, on_text=(lambda text: None) if stream else None)
    return caught.value


def efforts_of(kind: Any, name: str) -> list[str]:
    """Return the efforts with which a model of this name can be constructed."""
    taken: list[str] = []
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        try:
            kind(name, settings=ModelSettings(effort=effort))
        except AgentDefinitionError as error:
            assert error.name == "effort"
        else:
            taken.append(effort)
    return taken


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
