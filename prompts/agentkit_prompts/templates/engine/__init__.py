"""The template engine: Jinja's language, bounded, sandboxed, and traced: where each value came from is known."""

from __future__ import annotations

from agentkit_prompts.templates.engine.meter import DEFAULT, Limits
from agentkit_prompts.templates.engine.program import Program, Syntax, compile_program
from agentkit_prompts.templates.engine.trace import Trace
from agentkit_prompts.templates.engine.values import Piece, RenderedText, Site, Trusted

__all__ = [
    "DEFAULT",
    "Limits",
    "Piece",
    "Program",
    "RenderedText",
    "Site",
    "Syntax",
    "Trace",
    "Trusted",
    "compile_program",
]
