"""Redaction of personal data before a prompt is sent, and its restoration in replies."""
