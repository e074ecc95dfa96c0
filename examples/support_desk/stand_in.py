"""An offline stand-in for a language model: it chooses a tool by words, and quotes the first document.

The example runs without a key because of it. It shows the input of a model: a composition with messages and context.
"""

from __future__ import annotations

import re

from agentkit import Composition, Message, ScriptedModel, ToolCall

QUOTED = re.compile(r"^.*(?:30 days|two working days|before noon).*$", re.MULTILINE)
LABEL = re.compile(r"\[[\w./-]+#\d+\]")


def stand_in() -> ScriptedModel:
    """Return a model that replies as `reply` does."""
    return ScriptedModel.repeat(reply, name="stand-in")


def reply(composition: Composition) -> Message | str:
    """Return a tool call for a question about orders, and text after its result or for a question about rules."""
    last = composition.messages[-1]
    if last.role == "tool":
        return f"{last.text}." if last.text else "You have no orders."
    question = composition.context.user_input.text
    number = re.search(r"\border (\d+)", question)
    amount = re.search(r"(\d+) EUR", question)
    if number and amount:
        return call("refund", number=number[1], amount=int(amount[1]))
    if number:
        return call("order_status", number=number[1])
    if "my orders" in question:
        return call("my_orders")
    return quotation("\n".join(message.text for message in composition.messages))


def call(tool: str, **arguments: object) -> Message:
    """Return the message of a model that calls a tool."""
    return Message("assistant", tool_calls=(ToolCall(id=f"call_{tool}", name=tool, arguments=arguments),))


def quotation(prompt: str) -> str:
    """Return a sentence of the documents in the prompt, with the label of its document."""
    sentence, label = QUOTED.search(prompt), LABEL.search(prompt)
    if sentence is None or label is None:
        return "I do not know. Shall I ask a colleague?"
    return f"{sentence[0].strip()} {label[0]}"
