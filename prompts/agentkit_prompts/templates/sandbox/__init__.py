"""Jinja for prompts: a sandbox with limits, and a compiler that records the origin of each part of a text."""
