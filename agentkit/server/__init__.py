"""Agents over HTTP: OpenAI-compatible endpoints, sessions, runs. Needs the extra `server`."""
