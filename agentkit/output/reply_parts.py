"""Text and image of a reply as the answer of a run."""

from __future__ import annotations

from agentkit.errors import UNREADABLE_CALL, OutputError
from agentkit.models.model import Reply
from agentkit_prompts.composition.targets.tools_in_text import has_unreadable_call
from agentkit_prompts.context.parts import Image, Text


def text_of_reply(reply: Reply) -> str:
    """Return the text of a reply without its images; their alt text if it contains only images.

    Raises:
        OutputError: The text is a tool call that cannot be read; the `name` of the error is `tool_call`.
    """
    message = reply.message
    if has_unreadable_call(message):
        problem = "its text cannot be read in the format of the model"
        raise OutputError("tool call", message.text, problem, UNREADABLE_CALL)
    if isinstance(message.content, str):
        return message.content
    texts = [part.text for part in message.content if isinstance(part, Text)]
    return "".join(texts) or message.text


def image_of_reply(reply: Reply, name: str) -> Image:
    """Return the last image that a model generated; `name` is the name of the output type.

    Raises:
        OutputError: The reply contains no image.
    """
    images = [part for part in reply.message.parts if isinstance(part, Image)]
    if not images:
        raise OutputError(name, text_of_reply(reply), "it contains no image")
    return images[-1]
