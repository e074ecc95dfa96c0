"""`answer_usage`: the usage that a client of an endpoint receives with its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentkit.models.model import Usage
from agentkit_prompts.context.messages import Message
from agentkit_prompts.tokens.counter import ESTIMATE, message_tokens


def answer_usage(usage: Usage, messages: Sequence[Message], text: str) -> Usage:
    """Return the usage of an answer; if the model reports no tokens, an estimate of the tokens.

    Many clients refuse counts of 0. Limits, costs and stored runs count only tokens that a model reports.

    Args:
        usage: Usage that the model reports.
        messages: Messages of the request.
        text: Text of the answer.
    """
    if usage.input_tokens or usage.output_tokens:
        return usage
    tokens = sum(map(message_tokens(ESTIMATE), messages))
    return replace(usage, input_tokens=tokens, output_tokens=ESTIMATE.count(text))
