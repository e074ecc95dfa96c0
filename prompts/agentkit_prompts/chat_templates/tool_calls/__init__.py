"""Formats of tool calls in the text of a reply, and their readers."""
