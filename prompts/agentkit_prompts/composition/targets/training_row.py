"""A composition and its reply as one row of a fine-tuning set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentkit_prompts.composition.sections import SEPARATOR
from agentkit_prompts.composition.targets.openai_request import openai_payload
from agentkit_prompts.composition.targets.plain_text import HeadedLine, headed_lines, plain_line
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.wire.read_messages import read_messages
from agentkit_prompts.context.wire.write_openai_chat import openai_message
from agentkit_prompts.errors import ChatTemplateError, PromptError

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.generation import Spans
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate
    from agentkit_prompts.composition.call_content import CallContent

__all__ = ["sample"]

_HEAD = "assistant: "


def sample(
    composition: CallContent,
    reply: Message | Mapping[str, Any] | str,
    chat_template: GivenTemplate | None = None,
    *,
    reply_only: bool = False,
    **kwargs: Any,
) -> dict[str, Any]:
    """Return `{"messages": [...], "tools": [...], "text": "...", "loss_spans": [[start, end], ...]}`; no `tools`
    without tools.

    `messages` are in the form of a chat-completions request, the reply last. Loss spans are offsets of characters in
    `text`.

    Without a chat template, `text` is the plain text, and the spans contain the content and tool calls of all assistant
    messages, without their role. With a chat template, `text` is the input of that model, and the spans contain the
    output of the model: the `{% generation %}` blocks of the template, or the text after its generation prompt up to
    the end of each reply. With `reply_only`, only the spans in the reply remain.

    Raises:
        PromptError: The reply is not an assistant message.
        ChatTemplateError: The template refuses the conversation, or writes it so that the loss spans are unknown.
    """
    reply = _reply_of(reply)
    payload = openai_payload(composition)
    row: dict[str, Any] = {"messages": [*payload["messages"], openai_message(reply)]}
    if "tools" in payload:
        row["tools"] = payload["tools"]
    if chat_template is not None:
        return {**row, **_templated(composition, reply, chat_template, kwargs, reply_only=reply_only)}
    if kwargs:
        raise ChatTemplateError(
            f"to_sample: {', '.join(kwargs)}: only a chat template reads these options; pass chat_template",
            name=next(iter(kwargs)),
        )
    return {**row, **_plain(composition, reply, reply_only=reply_only)}


def _plain(composition: CallContent, reply: Message, *, reply_only: bool) -> dict[str, Any]:
    """Return the plain text, and the loss spans of its assistant messages."""
    lines = [*headed_lines(composition), HeadedLine(plain_line(reply), True)]
    spans: list[list[int]] = []
    start = 0
    for number, line in enumerate(lines, 1):
        end = start + len(line.text)
        is_included = number == len(lines) or not reply_only
        # An empty reply has no span.
        if is_included and line.is_reply and line.text != _HEAD:
            spans.append([start + len(_HEAD), end])
        start = end + len(SEPARATOR)
    return {"text": SEPARATOR.join([line.text for line in lines]), "loss_spans": spans}


def _reply_of(reply: Message | Mapping[str, Any] | str) -> Message:
    if isinstance(reply, str):
        return Message("assistant", reply)
    if isinstance(reply, Mapping):
        (reply,) = read_messages([reply], where="reply")
    value = received = type(reply).__name__
    if isinstance(reply, Message):
        if reply.role == "assistant":
            return reply
        value, received = reply.role, f"a {reply.role} message"
    raise PromptError(f"to_sample: expected the reply of an assistant, got {received}", name="reply", value=value)


def _templated(
    composition: CallContent, reply: Message, chat_template: GivenTemplate, kwargs: dict[str, Any], *, reply_only: bool
) -> dict[str, Any]:
    from agentkit_prompts.chat_templates.generation import shifted, spans_of
    from agentkit_prompts.composition.targets.chat_text import chat_template_of, whole_text

    template = chat_template_of(chat_template, composition.context.now)
    policy = kwargs.pop("control_tokens", "escape")
    text, request = whole_text(composition, template, policy, [reply], {**kwargs, "add_generation_prompt": False})
    raw, spans = spans_of(template, request["messages"], request["tools"], **kwargs)
    if reply_only:
        spans = _of_the_reply(spans, raw, template, request, kwargs)
    return {"text": text, "loss_spans": [list(span) for span in shifted(spans, raw, text)]}


def _of_the_reply(
    spans: Spans, text: str, template: ChatTemplate, request: Mapping[str, Any], kwargs: dict[str, Any]
) -> Spans:
    """Return the spans of the reply: the spans that the conversation without its reply does not contain."""
    # The reply starts at the first difference to the text without the reply.
    before = template.render(request["messages"][:-1], request["tools"], False, **kwargs)
    pairs = zip(before, text, strict=False)
    differences = (index for index, (old, new) in enumerate(pairs) if old != new)
    same = next(differences, min(len(before), len(text)))
    new_spans = [span for span in spans if span[1] > same]
    if callable(getattr(template, "spans", None)):
        return new_spans
    # The template can write earlier replies differently, and each reply has one span.
    return new_spans[-1:]
