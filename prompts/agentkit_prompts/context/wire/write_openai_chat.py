"""A message in the form of OpenAI's chat completions, which most servers speak."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from agentkit_prompts.context.frozen import FrozenDict, FrozenList, freeze
from agentkit_prompts.context.messages import Message, ToolCall
from agentkit_prompts.context.opaque import with_opaque
from agentkit_prompts.context.parts import Media, Part, Text
from agentkit_prompts.context.wire.clean import clean
from agentkit_prompts.context.wire.sendable_media import data_url, file_id_of, of_result
from agentkit_prompts.errors import MediaError

__all__ = ["Required", "media_of_result", "openai_message", "openai_part", "openai_writer"]

_FORM = ("openai",)


def openai_message(message: Message) -> FrozenDict:
    """Return the wire form of one message, with what came from a message in this form."""
    return _message(message, _FORM)


Required: TypeAlias = Literal["reasoning_content", "thought_signature"]
"""What an endpoint wants in every reply that it is sent, also in those it did not write itself: DeepSeek what the model
thought, Gemini a signature of the first tool call (and tools in the form that it takes)."""
_NO_SIGNATURE = "skip_thought_signature_validator"
"""Google's word for a call that another model made."""


@lru_cache(maxsize=64)
def openai_writer(provider: str | None, required: Required | None = None) -> Callable[[Message], FrozenDict]:
    """Return what writes messages for one provider: with what came in this form, and what that provider wrote itself.

    The same function for the same name, so that conversations write each message once.
    """
    providers = _FORM if provider is None or provider in _FORM else (*_FORM, provider)
    if required is not None:
        return lambda message: _completed(_message(message, providers), required)
    return openai_message if providers is _FORM else lambda message: _message(message, providers)


def _completed(made: FrozenDict, required: Required) -> FrozenDict:
    """Return the wire form of a message with what an endpoint wants in it, where that is missing."""
    if made["role"] != "assistant":
        return made
    if required == "reasoning_content":
        return made if "reasoning_content" in made else FrozenDict({**made, "reasoning_content": ""})
    calls = made.get("tool_calls")
    if not calls or "thought_signature" in str(calls[0].get("extra_content")):
        return made
    google = FrozenDict(google=FrozenDict(thought_signature=_NO_SIGNATURE))
    return FrozenDict(
        {**made, "tool_calls": FrozenList([FrozenDict({**calls[0], "extra_content": google}), *calls[1:]])}
    )


def _message(message: Message, providers: tuple[str, ...]) -> FrozenDict:
    content: Any = message.content
    made: dict[str, Any] = {"role": message.role}
    if isinstance(content, str):
        content = clean(content)
    elif message.role == "tool":
        shown = [(part, of_result(part)) for part in content]  # media follow in a message of their own
        content = clean("".join([sent.text if isinstance(sent, Text) else part.alt for part, sent in shown]))
    elif [part.kind for part in content] == ["refusal"]:
        made["refusal"], content = clean(message.text), None
    else:
        content = FrozenList(openai_part(part, providers) for part in content)
        if len(content) == 1 and content[0].keys() == {"type", "text"}:
            content = content[0]["text"]  # one form for a text: a list of it alone is the form of others too
    if message.role == "assistant" and message.tool_calls:
        made["content"] = content or None
        made["tool_calls"] = FrozenList([_call(call, providers) for call in message.tool_calls])
    elif message.role == "tool":
        made |= {"tool_call_id": message.tool_call_id, "content": content}
    elif message.name:
        made |= {"name": message.name, "content": content}
    else:
        made["content"] = content
    if message.thinking:
        for thought in message.thinking:
            if thought.provider in providers:
                kept = freeze(thought.opaque.get(thought.provider) or {"reasoning_content": thought.text})
                made |= {key: value for key, value in kept.items() if key not in made}
    return with_opaque(made, message.opaque, providers) if message.opaque else FrozenDict(made)


def _call(call: ToolCall, providers: tuple[str, ...]) -> FrozenDict:
    function = FrozenDict(name=call.name, arguments=clean(call.arguments))
    made = FrozenDict(id=call.id, type="function", function=function)
    return with_opaque(made, call.opaque, providers) if call.opaque else made


def openai_part(part: Part, providers: tuple[str, ...] = _FORM) -> FrozenDict:
    """Return the wire form of a content part.

    Raises:
        MediaError: The form has no place for it, or its file cannot be read.
    """
    made: dict[str, Any]
    if isinstance(part, Text):
        made = {"type": part.kind, part.kind: clean(part.text)}
    elif (known := file_id_of(part, providers)) is not None and part.kind == "file":
        made = {"type": "file", "file": FrozenDict(file_id=known)}
    elif part.kind == "image" and known is None:
        made = {"type": "image_url", "image_url": FrozenDict(url=data_url(part))}
    elif part.kind == "audio" and known is None:
        audio = FrozenDict(data=base64.b64encode(part.read()).decode("ascii"), format=part.mime.rsplit("/", 1)[-1])
        made = {"type": "input_audio", "input_audio": audio}
    elif part.kind == "file":
        made = {"type": "file", "file": FrozenDict(filename=part.label, file_data=data_url(part))}
    else:
        what = f"{part.alt}: an OpenAI chat request cannot carry {part.kind}; describe it in text instead"
        raise MediaError(what, name=part.alt, value=part.kind)
    return with_opaque(made, part.opaque, providers) if part.opaque else FrozenDict(made)


def media_of_result(message: Message) -> tuple[FrozenDict, ...]:
    """Return the media of a tool message that can be sent, each after a line that names it."""
    if message.role != "tool" or isinstance(message.content, str):
        return ()
    shown: list[FrozenDict] = []
    for part in message.content:
        sent = of_result(part)
        if isinstance(part, Media) and isinstance(sent, Media):
            origin = f"{part.alt}, returned by the tool {message.name or 'called'} ({message.tool_call_id}):"
            shown += (FrozenDict(type="text", text=clean(origin)), openai_part(sent))
    return tuple(shown)
