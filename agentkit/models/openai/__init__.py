"""Models of OpenAI's chat completions, the Responses API and compatible endpoints."""
