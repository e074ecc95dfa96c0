"""Requests to a raw-completion model of the chat server: shared helpers of its tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentkit import CompletionModel
from agentkit.prompts.chat_templates import BaseTemplate
from tests.servers import ChatServer


class ChatML(BaseTemplate):
    """A small template that shows the place of each value."""

    top_p: float | None = 0.7
    top_k: int | None = 40
    temperature: float | None = None
    repetition_penalty: float | None = 1.02
    stop_words: Sequence[str] | None = ("<|im_end|>",)

    @property
    def control_tokens(self) -> tuple[str, ...]:
        return "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"

    def messages2prompt(
        self, messages: Any, sequence_start: bool = True, tools: Any = None, mood: str = "", **kwargs: Any
    ) -> str:
        def called(call: Any) -> str:
            return f"<tool_call>{call['function']['name']} {call['function']['arguments']}</tool_call>"

        text = "".join(f"<tool>{spec['name']}</tool>" for spec in tools or ())
        for message in messages:
            calls = "".join(map(called, message.get("tool_calls", ())))
            text += f"<|im_start|>{message['role']}\n{message['content']}{calls}<|im_end|>\n"
        return f"{text}<|im_start|>assistant\n{mood}"


def raw_model(server: ChatServer, name: str, **settings: Any) -> CompletionModel:
    template = settings.pop("chat_template", ChatML())
    return CompletionModel(name, template, base_url=server.url, max_retries=0, **settings)
