"""Raw completions in a chat template of ours, and the tool calls their texts hold."""
