"""A conversation as token ids: sampled ids where the model wrote the text, and ids of the tokenizer elsewhere."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agentkit_prompts.chat_templates.generation import KnownSpans, Spans, shifted, spans_of
from agentkit_prompts.composition.targets.chat_text import whole_text, written_by_template
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.sampled_tokens import SampledTokens, sampled_tokens

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.protocol import ChatTemplate
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate
    from agentkit_prompts.composition.call_content import CallContent
    from agentkit_prompts.tokens.id_tokenizer import IdTokenizer

IGNORED = -100
"""Label of a token outside of the loss."""


@dataclass(slots=True)
class TokenRow:
    """Parallel lists, one entry per token."""

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    """The id of a token in the loss; `IGNORED` for other tokens."""
    log_probabilities: list[float | None] = field(default_factory=list)
    """Log probabilities with which the model sampled the tokens in the loss; None for other tokens."""
    weights: list[float] = field(default_factory=list)
    """1 for a token in the loss, 0 for other tokens."""

    def add(self, ids: Sequence[int], *, is_trained: bool, values: Sequence[float] | None = None) -> None:
        """Add tokens."""
        self.input_ids += ids
        if not is_trained:
            self.labels += [IGNORED] * len(ids)
            self.log_probabilities += [None] * len(ids)
            self.weights += [0.0] * len(ids)
            return
        self.labels += ids
        self.log_probabilities += values if values is not None else [None] * len(ids)
        self.weights += [1.0] * len(ids)


class WrittenReply(NamedTuple):
    """A message of the assistant in the text of a conversation."""

    place: str
    """Place of the message, such as `intermediate[0]` or `reply`."""
    message: Message


def written_replies(composition: CallContent, reply: Message | None = None) -> list[WrittenReply]:
    """Return the messages of the assistant in the order in which they are sent, and `reply` after them."""
    replies: list[WrittenReply] = []
    names: tuple[Literal["conversation", "intermediate"], ...] = ("conversation", "intermediate")
    for name in names:
        places = composition.placed(name)
        replies += [WrittenReply(f"{name}[{at}]", each) for each, at in places if each.role == "assistant"]
    if reply is not None:
        replies.append(WrittenReply("reply", reply))
    return replies


def prompt_ids(
    composition: CallContent,
    chat_template: GivenTemplate,
    tokenizer: IdTokenizer,
    *,
    control_tokens: Policy = "escape",
    known_spans: KnownSpans | None = None,
    **kwargs: Any,
) -> list[int]:
    """Return the ids of the prompt that `chat_text` writes. A reply with stored tokens keeps the ids of its model.

    Raises:
        TokenizerError: The ids of a text decode to another text.
        ChatTemplateError: See `chat_text`.
    """
    kwargs["add_generation_prompt"] = True
    # Before calls become text: the tokens of a message belong to its calls.
    replies = written_replies(composition)
    has_tokens = any(sampled_tokens(reply.message) is not None for reply in replies)

    def ids(composition: CallContent, template: ChatTemplate, policy: Policy, kwargs: Any) -> list[int]:
        text, request = whole_text(composition, template, policy, (), kwargs)
        spans: Spans = []
        if has_tokens:
            options = {name: value for name, value in kwargs.items() if name != "add_generation_prompt"}
            raw, spans = spans_of(template, request["messages"], request["tools"], known_spans, **options)
            spans = shifted(spans, raw, text)
        row = token_row(text, spans, replies, (), template, tokenizer, is_strict=False)
        return row.input_ids

    return written_by_template(composition, chat_template, control_tokens, kwargs, ids)


def token_row(
    text: str,
    spans: Spans,
    replies: Sequence[WrittenReply],
    trained: Container[tuple[int, int]],
    template: ChatTemplate,
    tokenizer: IdTokenizer,
    *,
    is_strict: bool = True,
) -> TokenRow:
    """Return the tokens of a text.

    A reply whose message has the tokens of its model gets these tokens, see `_may_replace`; otherwise it is outside of
    the loss.

    Args:
        text: The text of the conversation.
        spans: Spans of all replies, in characters.
        replies: The replies; if their number differs from the number of spans, only the last has its tokens.
        trained: The spans in the loss.
        template: The chat template.
        tokenizer: The tokenizer.
        is_strict: True to refuse stored tokens of another tokenizer; if False, they are ignored.

    Raises:
        TokenizerError: The tokenizer does not fit the text or the stored tokens.
    """
    row, at = TokenRow(), 0
    for span, reply in zip(spans, _by_span(spans, replies), strict=True):
        message, place = None, "prompt"
        if reply is not None:
            message, place = reply.message, reply.place
        start, end = span
        if start > at:
            row.add(tokenizer.encode(text[at:start], "prompt"), is_trained=False)
        at = end
        is_trained = span in trained
        written = text[start:end]
        sampled = None
        if message is not None:
            sampled = sampled_tokens(message)
        if message is None or sampled is None:
            row.add(tokenizer.encode(written, place), is_trained=is_trained)
            continue
        stored = _decoded(sampled, tokenizer, place, written, is_strict=is_strict)
        if stored is None or not _may_replace(stored, written, message, template):
            # The model did not write this text.
            row.add(tokenizer.encode(written, place), is_trained=False)
            continue
        row.add(sampled.ids, is_trained=is_trained, values=sampled.log_probabilities)
        tokens = [token for token in template.control_tokens if token and written.endswith(token)]
        closing = max(tokens, key=len, default="")
        if closing and not stored.rstrip().endswith(closing):
            row.add(tokenizer.encode(closing, place), is_trained=False)
    if at < len(text):
        row.add(tokenizer.encode(text[at:], "prompt"), is_trained=False)
    return row


def _by_span(spans: Spans, replies: Sequence[WrittenReply]) -> Iterator[WrittenReply | None]:
    """Yield the reply of each span; None if it is unknown."""
    if len(spans) == len(replies):
        yield from replies
        return
    # An empty reply has no span, and a template can write one reply as several spans.
    for number in range(1, len(spans) + 1):
        if number == len(spans) and replies and replies[-1].place == "reply":
            yield replies[-1]
        else:
            yield None


def _decoded(
    sampled: SampledTokens, tokenizer: IdTokenizer, place: str, written: str, *, is_strict: bool
) -> str | None:
    """Return the text of sampled tokens; None if they belong to another tokenizer."""
    if not is_strict and not all(token < tokenizer.size for token in sampled.ids):
        return None
    decoded = tokenizer.decode(sampled.ids, place)
    if SampledTokens.digest(decoded) == sampled.text_digest:
        return decoded
    if is_strict:
        raise tokenizer.difference(sampled.ids, decoded, written, place)
    return None


def _may_replace(stored: str, written: str, message: Message, template: ChatTemplate) -> bool:
    """True if the tokens of a reply may replace the text that the template writes.

    False if the template leaves the thinking out, or if the reply has a control token that the template does not write
    for it: the model could otherwise start a turn of another role.
    """
    if message.reasoning.strip() not in written:
        return False
    return all(stored.count(token) <= written.count(token) for token in template.control_tokens)
