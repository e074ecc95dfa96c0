"""Layer 1 of agentkit: the prompt as a typed, layered, inspectable tree. Import it as `agentkit.prompts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentkit_prompts.lazy import lazy_exports

if TYPE_CHECKING:
    from agentkit_prompts.additional_info import AdditionalInfoPrompt
    from agentkit_prompts.base import BasePrompt, Volatility
    from agentkit_prompts.bm25 import BM25
    from agentkit_prompts.budget import Budget, Cut, Size
    from agentkit_prompts.chat_templates.base import Capability, ChatTemplate
    from agentkit_prompts.chat_templates.base_template import BaseTemplate
    from agentkit_prompts.chat_templates.diagnose import Finding
    from agentkit_prompts.chat_templates.jinja import JinjaChatTemplate
    from agentkit_prompts.chat_templates.registry import CHAT_TEMPLATES, ChatTemplateRegistry
    from agentkit_prompts.chat_templates.role_markers import RoleMarkerTemplate
    from agentkit_prompts.chat_templates.template_config import ChatTemplateConfig
    from agentkit_prompts.composer import Memo, compose
    from agentkit_prompts.composition import Composition
    from agentkit_prompts.context import Document, Example, Fact, PromptContext, ToolSpec, Trust, UserInput
    from agentkit_prompts.conversation import Conversation
    from agentkit_prompts.counters import TiktokenCounter, TokenizersCounter
    from agentkit_prompts.diversity import mmr
    from agentkit_prompts.embedder import Embedder
    from agentkit_prompts.engine import Trusted
    from agentkit_prompts.errors import (
        BudgetError,
        ChatTemplateError,
        ControlTokenError,
        InContextError,
        InContextWarning,
        KwargsError,
        MediaError,
        MessageError,
        PrompterError,
        PromptError,
        PromptFilesError,
        SchemaConflict,
        TemplateError,
    )
    from agentkit_prompts.examples import ExampleSelector, ExamplesPrompt, StaticSelector, prepare
    from agentkit_prompts.explain import Breakpoint, Diff, LayerRow, LayerTable, Why
    from agentkit_prompts.files import PromptFolder, Reload
    from agentkit_prompts.icl.columns import safe_format
    from agentkit_prompts.icl.in_context import InContext, RowPrompt
    from agentkit_prompts.icl.meta_api import ApiMetaTemplate
    from agentkit_prompts.icl.meta_template import MetaTemplate
    from agentkit_prompts.icl.meta_wire import chat_messages, to_messages
    from agentkit_prompts.icl.multi_turn import MultiTurnPromptTemplate
    from agentkit_prompts.icl.multimodal import MMPromptTemplate
    from agentkit_prompts.icl.prompt_list import PromptList
    from agentkit_prompts.icl.raw_template import RawPromptTemplate
    from agentkit_prompts.icl.reader import DatasetReader
    from agentkit_prompts.icl.retrievers import RandomSelector, WindowSelector
    from agentkit_prompts.icl.template import PromptTemplate
    from agentkit_prompts.layers import Layers, VolatilityWarning
    from agentkit_prompts.leaves import ConversationPrompt, KnowledgePrompt, MemoPrompt, ToolPrompt
    from agentkit_prompts.merge import merge_schemas
    from agentkit_prompts.messages import Message, Role, ToolCall
    from agentkit_prompts.parts import Audio, File, Image, Media, Part, Text, Url, Video, replace_markers
    from agentkit_prompts.prompt_file import PromptFile
    from agentkit_prompts.prompters.alpaca import AlpacaPrompter
    from agentkit_prompts.prompters.base import Prompter
    from agentkit_prompts.prompters.chat import ChatPrompter
    from agentkit_prompts.prompters.empty import EmptyPrompter
    from agentkit_prompts.rendered import Rendered
    from agentkit_prompts.schema import JsonSchema, ParamsSchema
    from agentkit_prompts.selectors import KeywordSelector, LengthSelector, MMRSelector, VectorSelector
    from agentkit_prompts.spans import Span
    from agentkit_prompts.template import Template
    from agentkit_prompts.text import TextPrompt, UserInputPrompt
    from agentkit_prompts.tokens import EstimateCounter, TokenCounter
    from agentkit_prompts.wrap import WrapPrompt

__all__ = [
    "BM25",
    "CHAT_TEMPLATES",
    "AdditionalInfoPrompt",
    "AlpacaPrompter",
    "ApiMetaTemplate",
    "Audio",
    "BasePrompt",
    "BaseTemplate",
    "Breakpoint",
    "Budget",
    "BudgetError",
    "Capability",
    "ChatPrompter",
    "ChatTemplate",
    "ChatTemplateConfig",
    "ChatTemplateError",
    "ChatTemplateRegistry",
    "Composition",
    "ControlTokenError",
    "Conversation",
    "ConversationPrompt",
    "Cut",
    "DatasetReader",
    "Diff",
    "Document",
    "Embedder",
    "EmptyPrompter",
    "EstimateCounter",
    "Example",
    "ExampleSelector",
    "ExamplesPrompt",
    "Fact",
    "File",
    "Finding",
    "Image",
    "InContext",
    "InContextError",
    "InContextWarning",
    "JinjaChatTemplate",
    "JsonSchema",
    "KeywordSelector",
    "KnowledgePrompt",
    "KwargsError",
    "LayerRow",
    "LayerTable",
    "Layers",
    "LengthSelector",
    "MMPromptTemplate",
    "MMRSelector",
    "Media",
    "MediaError",
    "Memo",
    "MemoPrompt",
    "Message",
    "MessageError",
    "MetaTemplate",
    "MultiTurnPromptTemplate",
    "ParamsSchema",
    "Part",
    "PromptContext",
    "PromptError",
    "PromptFile",
    "PromptFilesError",
    "PromptFolder",
    "PromptList",
    "PromptTemplate",
    "Prompter",
    "PrompterError",
    "RandomSelector",
    "RawPromptTemplate",
    "Reload",
    "Rendered",
    "Role",
    "RoleMarkerTemplate",
    "RowPrompt",
    "SchemaConflict",
    "Size",
    "Span",
    "StaticSelector",
    "Template",
    "TemplateError",
    "Text",
    "TextPrompt",
    "TiktokenCounter",
    "TokenCounter",
    "TokenizersCounter",
    "ToolCall",
    "ToolPrompt",
    "ToolSpec",
    "Trust",
    "Trusted",
    "Url",
    "UserInput",
    "UserInputPrompt",
    "VectorSelector",
    "Video",
    "Volatility",
    "VolatilityWarning",
    "Why",
    "WindowSelector",
    "WrapPrompt",
    "chat_messages",
    "compose",
    "merge_schemas",
    "mmr",
    "prepare",
    "replace_markers",
    "safe_format",
    "to_messages",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "agentkit_prompts.additional_info": "AdditionalInfoPrompt",
        "agentkit_prompts.base": "BasePrompt Volatility",
        "agentkit_prompts.bm25": "BM25",
        "agentkit_prompts.budget": "Budget Cut Size",
        "agentkit_prompts.chat_templates.base": "Capability ChatTemplate",
        "agentkit_prompts.chat_templates.base_template": "BaseTemplate",
        "agentkit_prompts.chat_templates.diagnose": "Finding",
        "agentkit_prompts.chat_templates.jinja": "JinjaChatTemplate",
        "agentkit_prompts.chat_templates.registry": "CHAT_TEMPLATES ChatTemplateRegistry",
        "agentkit_prompts.chat_templates.role_markers": "RoleMarkerTemplate",
        "agentkit_prompts.chat_templates.template_config": "ChatTemplateConfig",
        "agentkit_prompts.composer": "Memo compose",
        "agentkit_prompts.composition": "Composition",
        "agentkit_prompts.context": "Document Example Fact PromptContext ToolSpec Trust UserInput",
        "agentkit_prompts.conversation": "Conversation",
        "agentkit_prompts.counters": "TiktokenCounter TokenizersCounter",
        "agentkit_prompts.diversity": "mmr",
        "agentkit_prompts.embedder": "Embedder",
        "agentkit_prompts.engine": "Trusted",
        "agentkit_prompts.errors": (
            "BudgetError ChatTemplateError ControlTokenError InContextError InContextWarning KwargsError MediaError "
            "MessageError PromptError PromptFilesError PrompterError SchemaConflict TemplateError"
        ),
        "agentkit_prompts.examples": "ExampleSelector ExamplesPrompt StaticSelector prepare",
        "agentkit_prompts.explain": "Breakpoint Diff LayerRow LayerTable Why",
        "agentkit_prompts.files": "PromptFolder Reload",
        "agentkit_prompts.icl.columns": "safe_format",
        "agentkit_prompts.icl.in_context": "InContext RowPrompt",
        "agentkit_prompts.icl.meta_api": "ApiMetaTemplate",
        "agentkit_prompts.icl.meta_template": "MetaTemplate",
        "agentkit_prompts.icl.meta_wire": "chat_messages to_messages",
        "agentkit_prompts.icl.multi_turn": "MultiTurnPromptTemplate",
        "agentkit_prompts.icl.multimodal": "MMPromptTemplate",
        "agentkit_prompts.icl.prompt_list": "PromptList",
        "agentkit_prompts.icl.raw_template": "RawPromptTemplate",
        "agentkit_prompts.icl.reader": "DatasetReader",
        "agentkit_prompts.icl.retrievers": "RandomSelector WindowSelector",
        "agentkit_prompts.icl.template": "PromptTemplate",
        "agentkit_prompts.layers": "Layers VolatilityWarning",
        "agentkit_prompts.leaves": "ConversationPrompt KnowledgePrompt MemoPrompt ToolPrompt",
        "agentkit_prompts.text": "TextPrompt UserInputPrompt",
        "agentkit_prompts.messages": "Message Role ToolCall",
        "agentkit_prompts.parts": "Audio File Image Media Part Text Url Video replace_markers",
        "agentkit_prompts.prompt_file": "PromptFile",
        "agentkit_prompts.prompters.alpaca": "AlpacaPrompter",
        "agentkit_prompts.prompters.base": "Prompter",
        "agentkit_prompts.prompters.chat": "ChatPrompter",
        "agentkit_prompts.prompters.empty": "EmptyPrompter",
        "agentkit_prompts.rendered": "Rendered",
        "agentkit_prompts.spans": "Span",
        "agentkit_prompts.merge": "merge_schemas",
        "agentkit_prompts.schema": "JsonSchema ParamsSchema",
        "agentkit_prompts.selectors": "KeywordSelector LengthSelector MMRSelector VectorSelector",
        "agentkit_prompts.template": "Template",
        "agentkit_prompts.tokens": "EstimateCounter TokenCounter",
        "agentkit_prompts.wrap": "WrapPrompt",
    },
)
