"""An agent whose tools receive typed dependencies, and whose answer is a typed object. No key needed.

A `ScriptedModel` replaces the language model; with `OpenAIModel("...")` the other code stays the same.

Prints:

    Order 7 is late by 3 days (send a voucher: True)
    stored: user, assistant, tool, assistant
"""

from dataclasses import dataclass

from pydantic import BaseModel

from agentkit import Agent, Message, ScriptedModel, Session, ToolCall, ToolContext, tool


@dataclass
class Shop:
    """Data of the tools, which the model never receives."""

    late: dict[int, int]


class Verdict(BaseModel):
    """The answer."""

    order: int
    days_late: int
    voucher: bool


@tool
async def days_late(context: ToolContext[Shop], order: int) -> int:
    """Look up how many days an order is late."""
    return context.deps.late[order]


model = ScriptedModel(
    [
        Message("assistant", tool_calls=(ToolCall("call_1", "days_late", '{"order": 7}'),)),
        '{"order": 7, "days_late": 3, "voucher": true}',
    ]
)
agent = Agent(model, "You decide about vouchers.", tools=[days_late], deps=Shop, output=Verdict)
session = Session()
verdict = agent.run_sync("Where is order 7?", deps=Shop(late={7: 3}), session=session).output

print(f"Order {verdict.order} is late by {verdict.days_late} days (send a voucher: {verdict.voucher})")
print("stored:", ", ".join(message.role for message in session.conversation))
