"""Prompters: prompts from an instruction with slots; public as `agentkit.prompts.prompters`."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_prompts.errors": "PrompterError",
        "agentkit_prompts.prompters.presets": "AlpacaPrompter ChatPrompter EmptyPrompter",
        "agentkit_prompts.prompters.prompter": "LAZYLLM_SYSTEM Prompter",
    },
)
