"""The template engine: Jinja's language, bounded, sandboxed, and traced: where each value came from is known."""

from __future__ import annotations

from agentkit_prompts.templates.engine.program import Program, Syntax, compile_program
from agentkit_prompts.templates.operations.meter import Limits
from agentkit_prompts.templates.operations.values import RenderedText, Site, Trusted

__all__ = ["Limits", "Program", "RenderedText", "Site", "Syntax", "Trusted", "compile_program"]
