"""Models behind OpenAI's chat completions, the Responses API and compatible endpoints."""
