"""`SchemaPrompt`: request in the system prompt for an answer of an output type."""

from __future__ import annotations

from agentkit_prompts.context.prompt_context import PromptContext
from agentkit_prompts.templates.rendered import Joined, Rendered
from agentkit_prompts.tree.prompt import BasePrompt

_PROMPT = """\
When you give your final answer, write it as one JSON object that follows this JSON Schema, and nothing else: no words
around it, no code fence.

"""


class SchemaPrompt(BasePrompt):
    """Describes the output schema in text. The schema is untrusted, because a client can send it, and no template."""

    json_schema: str

    def render(self, ctx: PromptContext) -> Rendered:
        """Render the request and the schema."""
        schema = Rendered.from_text(self.json_schema, pointer="output", trust="untrusted")
        return Joined([schema], before=_PROMPT)

    @property
    def reads(self) -> frozenset[str]:
        """Empty: the prompt does not depend on the context."""
        return frozenset()
