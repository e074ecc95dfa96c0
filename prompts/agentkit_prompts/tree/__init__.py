"""Prompts: `BasePrompt`, the leaves, `WrapPrompt`, `ExamplesPrompt`, and `Layers`."""
