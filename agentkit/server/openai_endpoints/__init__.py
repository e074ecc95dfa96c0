"""The OpenAI-compatible endpoints."""
