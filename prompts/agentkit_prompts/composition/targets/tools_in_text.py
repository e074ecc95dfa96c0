"""Tools for a chat template without a place for tools: a prompt shows the tools, and calls and results become text."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentkit_prompts.chat_templates.chat_turns import call_text
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import ChatTemplateError, Problem
from agentkit_prompts.templates.spans import BREAK
from agentkit_prompts.tree.layers import Layers
from agentkit_prompts.tree.leaves import ToolPrompt

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.composition.call_content import CallContent

_TAG = re.compile(r"<(?=[\s/]*tool_(?:response|call))", re.IGNORECASE)
_PROVIDER = "completion"
"""Key in the opaque data of a message for the text from which the calls of the message were parsed."""
_TOOL = ToolSpec("look_up_a_word", "Look something up.", {"type": "object", "properties": {"what": {"type": "string"}}})


def shows_tools(layers: Layers) -> bool:
    """True if a prompt shows the tools in its text."""
    return any(isinstance(prompt, ToolPrompt) or "tools" in (prompt.reads or ()) for _, prompt in layers.walk())


def has_place_for_tools(template: ChatTemplate, **kwargs: Any) -> bool:
    """True if a chat template writes tools; otherwise a prompt must show them."""
    try:
        return _TOOL.name in template.render([{"role": "user", "content": "?"}], [_TOOL], **kwargs)
    except ChatTemplateError:
        return False


def with_tools_as_text(composition: CallContent, *, has_results: bool = False) -> CallContent:
    """Return a composition without declared tools, in which calls and results are text of their messages.

    Calls that were parsed from text of the model become that text; other calls become JSON between `<tool_call>` tags.
    A result becomes a user message with text between `<tool_response>` tags; it is unchanged if `has_results`.

    Raises:
        ChatTemplateError: No prompt shows a tool, for example because a budget dropped the prompt; names all such
            tools.
    """
    _check_shown(composition)
    return composition.without_tools().evolve(
        text_tokens=None,
        conversation=_as_text(composition.conversation, has_results),
        intermediate=_as_text(composition.intermediate, has_results),
    )


def _check_shown(composition: CallContent) -> None:
    """Raise an error if the prompts do not contain the name of each tool."""
    names = [tool.name for tool in composition.context.tools]
    # A budget may have dropped the prompt with the tools.
    text = "\n".join([section.text for section in composition.sections])
    if missing := [name for name in names if name not in text]:
        raise ChatTemplateError(
            f"the chat template has no place for tools, and no prompt shows {', '.join(missing[:10])}: show them by a "
            "ToolPrompt (a prompt file `kind: tools`) with {{ tools }}, and exclude it from cuts of the budget",
            problems=[Problem("tools", f"no prompt shows {name}") for name in missing],
        )


def _as_text(messages: Conversation, has_results: bool) -> Conversation:
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return messages
    written: list[Message] = []
    for message in messages:
        if not (has_results and message.role == "tool"):
            message = calls_as_text(message)
        written.append(message)
    return Conversation(written)


def calls_as_text(message: Message) -> Message:
    """Return a message with its calls or its result as text; other messages are returned unchanged."""
    if message.role == "tool":
        result = message.text
        if message.name:
            result = f"{message.name}: {result}"
        # Without the inserted character, a result could close its tag and imitate text of the user.
        result = _TAG.sub(f"<{BREAK}", result)
        return Message("user", f"<tool_response>\n{result}\n</tool_response>")
    if not message.tool_calls:
        return message
    stored = message.opaque.get(_PROVIDER, {})
    if "text" in stored and stored.get("of") == _digest(message):
        return replace(message, content=stored["text"], tool_calls=())
    calls = [f"<tool_call>\n{call_text(call)}\n</tool_call>" for call in message.tool_calls]
    text = "\n".join(filter(None, [message.text, *calls]))
    return replace(message, content=text, tool_calls=())


def with_written(message: Message, text: str) -> Message:
    """Return a message that also stores `text`, from which its content and calls were parsed.

    The next prompt then repeats the text of the model exactly, so that the prefix cache of the server contains it. The
    text is ignored if the content or the calls were changed since.
    """
    return replace(message, opaque={**message.opaque, _PROVIDER: {"text": text, "of": _digest(message)}})


def with_unreadable_call(message: Message) -> Message:
    """Return a message whose text is marked as a tool call that cannot be read."""
    return replace(message, opaque={**message.opaque, _PROVIDER: {"unreadable_call": True}})


def has_unreadable_call(message: Message) -> bool:
    """True if the text of a message contains a tool call that cannot be read."""
    return message.opaque.get(_PROVIDER, {}).get("unreadable_call") is True


def _digest(message: Message) -> str:
    parts = [message.text, *(part for call in message.tool_calls for part in (call.name, call.arguments))]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()
