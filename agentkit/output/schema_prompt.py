"""`SchemaPrompt`: the words that ask for an answer of a type."""

from __future__ import annotations

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["SchemaPrompt"]

_PROMPT = """\
When you give your final answer, write it as one JSON object that follows this JSON Schema, and nothing else: no words
around it, no code fence.

"""


class SchemaPrompt(BasePrompt):
    """Asks for an answer in words. The schema may be a client's: it is no template, and untrusted."""

    asked: str

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the words, and the schema after them."""
        schema = Rendered.from_text(self.asked, pointer="output", trust="untrusted")
        return Joined([schema], before=_PROMPT)

    @property
    def reads(self) -> frozenset[str]:
        """Nothing: it is the same whatever the context is."""
        return frozenset()
