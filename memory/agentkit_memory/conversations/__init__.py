"""Conversations: messages behind a head, forks, tool calls, redaction, expiry, and turns that can be recalled."""
