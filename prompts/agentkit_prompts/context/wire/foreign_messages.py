"""Messages of LangChain, LlamaIndex and pydantic-ai, recognised by their attributes; no library is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.foreign_fields import field_of
from agentkit_prompts.context.wire.foreign_message import ForeignMessage
from agentkit_prompts.errors import Problems

_LANGCHAIN_TYPES = frozenset(("human", "ai", "system", "tool", "chat", "function", "remove"))
_CHUNK = "MessageChunk"


class _LangChainMessage(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def content(self) -> Any: ...
    @property
    def response_metadata(self) -> dict[Any, Any]: ...


class _LlamaIndexMessage(Protocol):
    @property
    def role(self) -> Any: ...
    @property
    def blocks(self) -> Any: ...


class _PydanticAIMessage(Protocol):
    @property
    def kind(self) -> Any: ...
    @property
    def parts(self) -> Any: ...


AnyMessage: TypeAlias = Message | Mapping[str, Any] | _LangChainMessage | _LlamaIndexMessage | _PydanticAIMessage
"""A message of this library, a mapping in a wire form, or a message of LangChain, LlamaIndex or pydantic-ai."""


def read_foreign(item: object, where: str, problems: Problems) -> list[ForeignMessage] | None:
    """Return a message of another library in the chat form, or None for any other value.

    One request of pydantic-ai becomes several messages. Data that cannot be kept becomes a problem.
    """
    # Imported when they are used: most programs have no such messages.
    kind = field_of(item, "kind")
    if kind in ("request", "response") and field_of(item, "parts") is not None:
        from agentkit_prompts.context.wire.pydantic_ai_messages import read_pydantic_ai

        return read_pydantic_ai(item, where, problems)
    if field_of(item, "role") is not None and isinstance(field_of(item, "blocks"), list | tuple):
        from agentkit_prompts.context.wire.llama_index_messages import read_llama_index

        return read_llama_index(item, where, problems)
    if _is_langchain(item):
        from agentkit_prompts.context.wire.langchain_messages import read_langchain

        return read_langchain(item, where, problems)
    return None


def _is_langchain(item: object) -> bool:
    kind = field_of(item, "type")
    if not isinstance(kind, str):
        return False
    if kind not in _LANGCHAIN_TYPES and not kind.endswith(_CHUNK):
        return False
    if isinstance(item, Mapping):
        # `messages_to_dict` of LangChain writes the fields below `data`.
        data = item.get("data")
        return "content" in item or (isinstance(data, Mapping) and "content" in data)
    return hasattr(item, "content")
