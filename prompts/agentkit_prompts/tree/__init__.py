"""The prompts: `BasePrompt`, the leaves, `WrapPrompt`, examples, and `Layers`, which place them."""
