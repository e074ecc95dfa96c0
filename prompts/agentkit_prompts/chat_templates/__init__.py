"""Chat templates: the text of a conversation for one local model. Import it as `agentkit.prompts.chat_templates`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_prompts.chat_templates.base_template": "BaseTemplate",
        "agentkit_prompts.chat_templates.jinja.chat_template": "JinjaChatTemplate",
        "agentkit_prompts.chat_templates.jinja.diagnose": "Finding",
        "agentkit_prompts.chat_templates.protocol": "Capability ChatTemplate",
        "agentkit_prompts.chat_templates.registry": "CHAT_TEMPLATES ChatTemplateRegistry",
        "agentkit_prompts.chat_templates.role_markers": "RoleMarkerTemplate",
        "agentkit_prompts.chat_templates.template_config": "ChatTemplateConfig",
        "agentkit_prompts.chat_templates.tool_calls.formats": "TOOL_CALL_FORMATS",
        "agentkit_prompts.errors": "ChatTemplateError ControlTokenError",
    },
)
