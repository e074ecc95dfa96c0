"""Public names of selectors of examples."""

from agentkit_prompts.lazy import exports

__getattr__, __dir__, __all__ = exports(
    __name__,
    {
        "agentkit_prompts.tree.example_selectors": "KeywordSelector LengthSelector MMRSelector VectorSelector",
        "agentkit_prompts.tree.examples": "ExampleSelector StaticSelector",
    },
)
