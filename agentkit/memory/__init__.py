"""Public names of the memory layer."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit.agent.fact_extraction": "FoundFacts fact_extractor fact_layers",
    },
    all_of=("agentkit_memory",),
)
