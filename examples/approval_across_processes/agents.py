"""The agents that the workers find."""

import os

from agentkit import Agent, Message, Runs, ScriptedModel, ToolCall, tool


@tool(approval="always")
def pay(amount: int) -> str:
    """Pay a bill."""
    return f"paid {amount}"


def answer(sent) -> Message:
    if len(sent.intermediate):
        return Message("assistant", f"Done: {sent.intermediate[-1].text}.")
    return Message("assistant", tool_calls=(ToolCall("c1", "pay", '{"amount": 30}'),))


cashier = Agent(ScriptedModel.repeat(answer), "You pay bills.", tools=[pay], name="cashier")
runs = Runs(os.environ["RUNS_URL"])
runs.add(cashier)
