"""The kinds of prompts: what `kind` in the front matter of a prompt file may name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from agentkit_prompts.tree.additional_info import AdditionalInfoPrompt
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.leaves import (
    ConversationPrompt,
    KnowledgePrompt,
    MemoPrompt,
    RecalledPrompt,
    SummaryPrompt,
    TextPrompt,
    ToolPrompt,
    UserInputPrompt,
)
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["PROMPT_KINDS", "PromptKind"]

PROMPT_KINDS: Mapping[str, type[BasePrompt]] = {
    "text": TextPrompt,
    "info": AdditionalInfoPrompt,
    "input": UserInputPrompt,
    "conversation": ConversationPrompt,
    "memo": MemoPrompt,
    "recalled": RecalledPrompt,
    "knowledge": KnowledgePrompt,
    "summary": SummaryPrompt,
    "tools": ToolPrompt,
    "examples": ExamplesPrompt,
}


def _known(value: object) -> object:
    if isinstance(value, str) and value in PROMPT_KINDS:
        return value
    *most, last = map(repr, PROMPT_KINDS)
    raise PydanticCustomError("kind", "{expected}", {"expected": f"{', '.join(most)} or {last}"})


PromptKind: TypeAlias = Annotated[str, PlainValidator(_known)]
"""The name of a kind."""
