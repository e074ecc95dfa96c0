"""Kinds of prompts: values of `kind` in the front matter of a prompt file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from agentkit_prompts.tree.additional_info import AdditionalInfoPrompt
from agentkit_prompts.tree.examples import ExamplesPrompt
from agentkit_prompts.tree.leaves import (
    ConversationPrompt,
    KnowledgePrompt,
    LoadedSkillsPrompt,
    MemoPrompt,
    RecalledPrompt,
    SkillsPrompt,
    SummaryPrompt,
    TextPrompt,
    ToolPrompt,
    UserInputPrompt,
)
from agentkit_prompts.tree.prompt import BasePrompt

PromptKind: TypeAlias = Literal[
    "text",
    "info",
    "input",
    "conversation",
    "memo",
    "recalled",
    "knowledge",
    "summary",
    "tools",
    "skills",
    "loaded_skills",
    "examples",
]
"""Name of a kind."""

PROMPT_KINDS: Mapping[PromptKind, type[BasePrompt]] = {
    "text": TextPrompt,
    "info": AdditionalInfoPrompt,
    "input": UserInputPrompt,
    "conversation": ConversationPrompt,
    "memo": MemoPrompt,
    "recalled": RecalledPrompt,
    "knowledge": KnowledgePrompt,
    "summary": SummaryPrompt,
    "tools": ToolPrompt,
    "skills": SkillsPrompt,
    "loaded_skills": LoadedSkillsPrompt,
    "examples": ExamplesPrompt,
}
