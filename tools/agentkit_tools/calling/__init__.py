"""One call of a tool: its policy, its limits, its result."""
