"""Conversations: messages, forks, tool calls, redaction, expiry, and turns that can be recalled."""
