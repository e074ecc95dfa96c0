"""Layer 1 of agentkit: the prompt as a typed, layered, inspectable tree. Import it as `agentkit.prompts`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_prompts.composition.compose": "RenderCache compose",
        "agentkit_prompts.composition.composition": "Composition",
        "agentkit_prompts.composition.explain": "LayerTable",
        "agentkit_prompts.composition.select_examples": "select_examples",
        "agentkit_prompts.context.conversation": "Conversation",
        "agentkit_prompts.context.messages": "Message ToolCall",
        "agentkit_prompts.context.parts": "Audio File Image Media Part Text Url Video replace_markers",
        "agentkit_prompts.context.prompt_context": (
            "Document Example Fact PromptContext RecalledMessage Skill ToolSpec UserInput"
        ),
        "agentkit_prompts.context.thinking": "Thinking",
        "agentkit_prompts.context.trusted": "Trusted",
        "agentkit_prompts.context.wire.read_messages": "read_messages",
        "agentkit_prompts.errors": (
            "BudgetError ContextError KwargsError LiteralTextWarning MediaError MessageError PromptError "
            "PromptFilesError SchemaConflict TemplateError TokenizerError ToolFormWarning UnshownWarning"
        ),
        "agentkit_prompts.prompt_files.prompt_file": "PromptFile",
        "agentkit_prompts.prompt_files.prompt_folder": "PromptFolder",
        "agentkit_prompts.schemas.params": "JsonSchema ParamsSchema",
        "agentkit_prompts.templates.rendered": "Rendered",
        "agentkit_prompts.templates.spans": "Span",
        "agentkit_prompts.templates.template": "Template",
        "agentkit_prompts.tokens.budget": "Budget Size",
        "agentkit_prompts.tokens.counter": "EstimateCounter TokenCounter",
        "agentkit_prompts.tokens.tokenizer_counters": "TiktokenCounter TokenizersCounter",
        "agentkit_prompts.tree.additional_info": "AdditionalInfoPrompt",
        "agentkit_prompts.tree.examples": "ExamplesPrompt",
        "agentkit_prompts.tree.layers": "Layers",
        "agentkit_prompts.tree.leaves": (
            "ConversationPrompt KnowledgePrompt LoadedSkillsPrompt MemoPrompt RecalledPrompt SkillsPrompt "
            "SummaryPrompt TextPrompt ToolPrompt UserInputPrompt"
        ),
        "agentkit_prompts.tree.prompt": "BasePrompt",
        "agentkit_prompts.tree.volatility": "VolatilityWarning",
        "agentkit_prompts.tree.wrap": "WrapPrompt",
    },
)
