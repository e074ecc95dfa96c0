"""A composition and its reply as one row of a fine-tuning set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

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
    from agentkit_prompts.tokens.id_tokenizer import GivenTokenizer

_HEAD = "assistant: "
Trained: TypeAlias = Literal["all", "turn", "reply"]
"""Replies in the loss: all, the replies of this turn, or the last reply."""


def sample(
    composition: CallContent,
    reply: Message | Mapping[str, Any] | str,
    chat_template: GivenTemplate | None = None,
    *,
    trained: Trained = "all",
    tokenizer: GivenTokenizer | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Return `{"messages": [...], "tools": [...], "text": "...", "loss_spans": [[start, end], ...]}`; no `tools`
    without tools.

    `messages` are in the form of a chat-completions request, the reply last. Loss spans are offsets of characters in
    `text`.

    Without a chat template, `text` is the plain text, and the spans contain the content and tool calls of all assistant
    messages, without their role. With a chat template, `text` is the input of that model, and the spans contain the
    output of the model: the `{% generation %}` blocks of the template, or the text after its generation prompt up to
    the end of each reply. `trained` selects the spans.

    With a tokenizer, which needs a chat template, the row also has the lists of `TokenRow`.

    Raises:
        PromptError: The reply is not an assistant message; or a tokenizer has no chat template.
        TokenizerError: The tokenizer does not fit the text, or does not fit the stored tokens of a reply.
        ChatTemplateError: The template refuses the conversation, or writes it so that the loss spans are unknown.
    """
    reply = _reply_of(reply)
    payload = openai_payload(composition)
    row: dict[str, Any] = {"messages": [*payload["messages"], openai_message(reply)]}
    if "tools" in payload:
        row["tools"] = payload["tools"]
    if chat_template is not None:
        return {**row, **_templated(composition, reply, chat_template, kwargs, trained, tokenizer)}
    if tokenizer is not None:
        raise ChatTemplateError("to_sample: a tokenizer needs a chat_template: pass chat_template", name="tokenizer")
    if kwargs:
        raise ChatTemplateError(
            f"to_sample: {', '.join(kwargs)}: only a chat template reads these options; pass chat_template",
            name=next(iter(kwargs)),
        )
    return {**row, **_plain(composition, reply, trained)}


def _plain(composition: CallContent, reply: Message, trained: Trained) -> dict[str, Any]:
    """Return the plain text, and the loss spans of its assistant messages."""
    lines = [*headed_lines(composition), HeadedLine(plain_line(reply), True)]
    spans: list[list[int]] = []
    included = _number_trained(composition, trained)
    rest = sum(line.is_reply for line in lines)
    start = 0
    for line in lines:
        end = start + len(line.text)
        # An empty reply has no span.
        if line.is_reply and line.text != _HEAD and (included is None or rest <= included):
            spans.append([start + len(_HEAD), end])
        rest -= line.is_reply
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


def _number_trained(composition: CallContent, trained: Trained) -> int | None:
    """Return the number of replies in the loss, which are the last replies; None for all."""
    if trained == "all":
        return None
    if trained == "reply":
        return 1
    return 1 + sum(message.role == "assistant" for message in composition.intermediate)


def _templated(
    composition: CallContent,
    reply: Message,
    chat_template: GivenTemplate,
    kwargs: dict[str, Any],
    trained: Trained,
    tokenizer: GivenTokenizer | None,
) -> dict[str, Any]:
    from agentkit_prompts.chat_templates.generation import shifted, spans_of
    from agentkit_prompts.composition.targets.chat_text import chat_template_of, whole_text
    from agentkit_prompts.composition.targets.token_row import token_row, written_replies
    from agentkit_prompts.tokens.id_tokenizer import IdTokenizer

    policy = kwargs.pop("control_tokens", "escape")
    template = chat_template_of(chat_template, composition.context.now, kwargs)
    text, request = whole_text(composition, template, policy, [reply], {**kwargs, "add_generation_prompt": False})
    raw, spans = spans_of(template, request["messages"], request["tools"], **kwargs)
    loss_spans = spans
    if trained != "all":
        loss_spans = _last_spans(spans, raw, template, request, kwargs, _number_trained(composition, trained) or 1)
    all_spans = shifted(spans, raw, text)
    loss_spans = shifted(loss_spans, raw, text)
    row: dict[str, Any] = {"text": text, "loss_spans": [list(span) for span in loss_spans]}
    if tokenizer is None:
        return row
    replies = written_replies(composition, reply)
    tokens = token_row(text, all_spans, replies, set(loss_spans), template, IdTokenizer.of(tokenizer))
    return {**row, **asdict(tokens)}


def _last_spans(
    spans: Spans,
    text: str,
    template: ChatTemplate,
    request: Mapping[str, Any],
    kwargs: dict[str, Any],
    number: int,
) -> Spans:
    """Return the spans of the last replies: the spans that the conversation without these replies does not contain."""
    messages = request["messages"]
    places = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    first = places[-number]
    # The reply starts at the first difference to the text without the reply.
    before = template.render(messages[:first], request["tools"], False, **kwargs)
    pairs = zip(before, text, strict=False)
    differences = (index for index, (old, new) in enumerate(pairs) if old != new)
    same = next(differences, min(len(before), len(text)))
    new_spans = [span for span in spans if span[1] > same]
    if callable(getattr(template, "spans", None)):
        return new_spans
    # The template can write earlier replies differently, and each reply has at most one span.
    return new_spans[-number:]
