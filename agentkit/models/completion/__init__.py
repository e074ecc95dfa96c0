"""Models of raw completions: chat templates and tool calls in text."""
